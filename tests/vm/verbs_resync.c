// SPDX-License-Identifier: BSD-2-Clause
/*
 * Events beside a change: transfers on other chunks while one is
 * registered anew, a peer that dies, a port that goes down.
 *
 *	verbs_resync MIB ROUNDS
 */
#include <kedge/verbs.h>

#include "verbs_ends.h"

#define ACCESS (KEDGE_ACCESS_LOCAL_WRITE | KEDGE_ACCESS_REMOTE_WRITE)
#define CHUNK  (2u << 20)
#define WRITE  4096u
#define MS     UINT64_C(1000000)
/* Seven tries of 268 ms, and an emulator's patience. */
#define BOUND_MS 20000u

static struct ends main_ends, stream_ends;
static struct kedge_device *dev;
static struct kedge_cache *cache;
static unsigned char *area;
static size_t area_len;
static unsigned int rounds;

static void ok(int rc)
{
	if (rc < 0)
		fail_msg("%s", kedge_strerror(rc));
}

static void open_cache(const struct ends *e, uint32_t flags)
{
	struct kedge_cache_opts o = { .size = sizeof(o), .flags = flags };

	ok(kedge_device_open_verbs(e->pd, NULL, &dev));
	ok(kedge_cache_open(dev, NULL, &o, &cache));
}

static int close_cache(void **state)
{
	kedge_cache_close(cache);
	kedge_device_close(dev);
	cache = NULL;
	dev = NULL;
	return 0;
}

static struct kedge_cache_stats stats(void)
{
	struct kedge_cache_stats st = { .size = sizeof(st) };

	ok(kedge_cache_stats(cache, &st));
	return st;
}

static void *map(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

/* ---- the stream ---- */

/*
 * @pieces: held while it runs
 * @skip:   the chunk that it leaves alone
 * @longest: the longest time between two completions since it was set to 0
 * @done:   completions
 */
struct stream {
	struct kedge_piece *pieces;
	size_t cnt;
	atomic_size_t skip;
	atomic_bool stop;
	_Atomic uint64_t longest, done;
	atomic_int failed;
};

static void *stream_writes(void *arg)
{
	uint64_t last = vm_now(), now;
	struct stream *s = arg;
	size_t i;

	for (i = 0; !s->stop; i++) {
		const struct kedge_piece *p = &s->pieces[i % s->cnt];

		if (i % s->cnt == s->skip)
			continue;
		if (ends_put(&stream_ends, kedge_verbs_iova(p->mr, (void *)
			     (uintptr_t)p->addr), WRITE,
			     kedge_verbs_rkey(p->mr)) != IBV_WC_SUCCESS)
			s->failed++;
		now = vm_now();
		/* One that began before counts as well: it may be the gap. */
		if (now - last > s->longest)
			s->longest = now - last;
		last = now;
		s->done++;
	}
	return NULL;
}

/* The longest interval from now until @work is done and one more came. */
static uint64_t longest_during(struct stream *s, void (*work)(void *),
			       void *arg)
{
	uint64_t done;

	s->longest = 0;
	work(arg);
	done = s->done;
	while (s->done < done + 2 && !s->failed)
		usleep(100);
	return s->longest;
}

/* ---- a change ---- */

struct change {
	unsigned char *page;
	ssize_t resynced;
	uint64_t ns;
};

static void change_and_resync(void *arg)
{
	uint64_t start = vm_now();
	struct change *c = arg;

	assert_ptr_equal(mmap(c->page, PAGE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 c->page);
	c->resynced = kedge_cache_resync(cache, NULL, 0);
	c->ns = vm_now() - start;
}

/* As much of a CPU, for the same time, for nothing. */
static void burn(void *arg)
{
	const struct change *c = arg;
	uint64_t end = vm_now() + c->ns;

	while (vm_now() < end)
		;
}

static void lands_in_the_new_page(unsigned char *page, int c)
{
	struct kedge_cache_stats before = stats();
	const struct kedge_mr *mr;

	memset(main_ends.peer_mem, c, PAGE);
	ok(kedge_cache_get(cache, page, PAGE, ACCESS, &mr));
	assert_int_equal(ends_put(&main_ends, kedge_verbs_iova(mr, page), PAGE,
				  kedge_verbs_rkey(mr)), IBV_WC_SUCCESS);
	kedge_cache_put(cache, mr);
	assert_int_equal(page[0], c);
	assert_int_equal(page[PAGE - 1], c);
	assert_int_equal(stats().registrations, before.registrations);
}

/* Of one registration each, which nobody needs to wait for. */
static void one_round(struct stream *s, unsigned int i, uint64_t *idle,
		      uint64_t *busy, struct change *c)
{
	struct kedge_cache_stats before, after;
	size_t chunk = i * 7 % s->cnt;

	s->skip = chunk;
	/* The stream may be at that chunk just now. */
	usleep(20000);
	*idle = longest_during(s, burn, c);
	/* Nobody else holds it. */
	kedge_cache_put(cache, s->pieces[chunk].mr);
	c->page = (unsigned char *)(uintptr_t)s->pieces[chunk].addr +
		  i % (CHUNK / PAGE) * PAGE;
	before = stats();
	*busy = longest_during(s, change_and_resync, c);
	after = stats();
	assert_int_equal(c->resynced, CHUNK);
	assert_int_equal(after.registrations - before.registrations, 1);
	assert_int_equal(after.deregistrations - before.deregistrations, 1);
	assert_int_equal(after.resynced - before.resynced, 1);
	lands_in_the_new_page(c->page, 1 + (int)(i % 200));
	ok(kedge_cache_get(cache, (void *)(uintptr_t)s->pieces[chunk].addr,
			   s->pieces[chunk].len, ACCESS,
			   &s->pieces[chunk].mr));
	assert_int_equal(s->failed, 0);
}

static void report(uint64_t *idle, uint64_t *busy, uint64_t all_ns,
		   uint64_t one_ns, size_t cnt)
{
	qsort(idle, rounds, sizeof(*idle), vm_by_size);
	qsort(busy, rounds, sizeof(*busy), vm_by_size);
	printf("{\"verbs_resync\": {\"bytes\": %zu, \"chunks\": %zu, "
	       "\"rounds\": %u, \"register_all_ns\": %llu, "
	       "\"resync_ns\": %llu, \"longest_gap_ns\": "
	       "{\"idle_median\": %llu, \"idle_most\": %llu, "
	       "\"resync_median\": %llu, \"resync_most\": %llu}}}\n",
	       area_len, cnt, rounds, (unsigned long long)all_ns,
	       (unsigned long long)one_ns,
	       (unsigned long long)idle[rounds / 2],
	       (unsigned long long)idle[rounds - 1],
	       (unsigned long long)busy[rounds / 2],
	       (unsigned long long)busy[rounds - 1]);
	fflush(stdout);
	/* The machine's own pauses are in both; half of the rounds have none. */
	assert_true(busy[rounds / 2] < 3 * idle[rounds / 2] + MS);
	assert_true(busy[rounds * 9 / 10] < 5 * idle[rounds * 9 / 10] + 5 * MS);
}

static void run_rounds(struct stream *s, uint64_t all_ns)
{
	uint64_t *idle = calloc(rounds, sizeof(*idle));
	uint64_t *busy = calloc(rounds, sizeof(*busy));
	struct change c = { .ns = MS };
	uint64_t least = UINT64_MAX;
	pthread_t thread;
	unsigned int i;

	assert_true(idle && busy);
	assert_int_equal(pthread_create(&thread, NULL, stream_writes, s), 0);
	for (i = 0; i < rounds; i++) {
		one_round(s, i, &idle[i], &busy[i], &c);
		if (c.ns < least)
			least = c.ns;
	}
	s->stop = true;
	pthread_join(thread, NULL);
	assert_int_equal(s->failed, 0);
	report(idle, busy, all_ns, least, s->cnt);
	free(idle);
	free(busy);
}

static void other_chunks_notice_no_resync(void **state)
{
	struct stream s = { .cnt = area_len / CHUNK };
	struct kedge_cache_stats st;
	uint64_t start;
	ssize_t n;

	open_cache(&main_ends, KEDGE_CACHE_TRUSTED_PEERS);
	area = map(area_len + CHUNK);
	area += CHUNK - (uintptr_t)area % CHUNK;
	memset(area, 'a', area_len);
	start = vm_now();
	n = kedge_cache_hint(cache, area, area_len, ACCESS);
	assert_int_equal(n, area_len);
	start = vm_now() - start;
	st = stats();
	assert_int_equal(st.registrations, s.cnt);
	s.pieces = calloc(s.cnt, sizeof(*s.pieces));
	assert_non_null(s.pieces);
	n = kedge_cache_getv(cache, area, area_len, ACCESS, s.pieces, s.cnt);
	assert_int_equal(n, s.cnt);
	run_rounds(&s, start);
	st = stats();
	assert_int_equal(st.registrations, s.cnt + rounds);
	assert_int_equal(st.misses, 0);
	kedge_cache_putv(cache, s.pieces, s.cnt);
	free(s.pieces);
	munmap(area, area_len);
}

/* ---- a peer that dies ---- */

/* The message of one process to the other; a second one says that it is ready. */
struct greeting {
	uint32_t home, peer, rkey;
	uint64_t iova;
};

static const struct kedge_mr *lend(unsigned char *p, struct greeting *mine,
				   const struct ends *e)
{
	const struct kedge_mr *mr;

	ok(kedge_cache_get(cache, p, WRITE, ACCESS, &mr));
	mine->home = e->home->qp_num;
	mine->peer = e->peer->qp_num;
	mine->rkey = kedge_verbs_rkey(mr);
	mine->iova = kedge_verbs_iova(mr, p);
	return mr;
}

/* Each one's peer to the other's home; both go on together. */
static bool meet(int sock, struct ends *e, const struct greeting *mine,
		 struct greeting *theirs)
{
	char c = 0;

	return send(sock, mine, sizeof(*mine), 0) == sizeof(*mine) &&
	       recv(sock, theirs, sizeof(*theirs), 0) == sizeof(*theirs) &&
	       ends_bring_up(e, e->home, theirs->peer) &&
	       ends_bring_up(e, e->peer, theirs->home) &&
	       send(sock, &c, 1, 0) == 1 && recv(sock, &c, 1, 0) == 1;
}

/* Writes to the parent until it is killed. */
static void doomed(int sock)
{
	struct greeting mine, theirs;
	struct ends e;

	alarm(120);
	if (!ends_open(&e))
		_exit(1);
	open_cache(&e, 0);
	lend(map(WRITE), &mine, &e);
	if (!meet(sock, &e, &mine, &theirs))
		_exit(2);
	while (ends_put(&e, theirs.iova, WRITE, theirs.rkey) ==
	       IBV_WC_SUCCESS)
		;
	_exit(3);
}

static void a_killed_peer_is_noticed(void **state)
{
	uint64_t start = vm_now(), killed = 0, longest = 0;
	struct greeting mine, theirs;
	const struct kedge_mr *mr;
	enum ibv_wc_status status;
	unsigned char *p;
	struct ends e;
	int sock[2], left;
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sock), 0);
	fflush(NULL);
	pid = fork();
	if (!pid)
		doomed(sock[1]);
	assert_true(ends_open(&e));
	open_cache(&e, 0);
	p = map(WRITE);
	mr = lend(p, &mine, &e);
	assert_true(meet(sock[0], &e, &mine, &theirs));
	start = vm_now();
	do {
		if (!killed && vm_now() - start > 300 * MS) {
			kill(pid, SIGKILL);
			killed = vm_now();
		}
		status = ends_put(&e, theirs.iova, WRITE, theirs.rkey);
	} while (status == IBV_WC_SUCCESS &&
		 vm_now() - start < (BOUND_MS + 300) * MS);
	longest = vm_now() - killed;
	printf("killed: %s after %llu ms\n", ibv_wc_status_str(status),
	       (unsigned long long)(longest / MS));
	assert_true(killed);
	/* General: it is our own word for no completion at all. */
	assert_int_not_equal(status, IBV_WC_SUCCESS);
	assert_int_not_equal(status, IBV_WC_GENERAL_ERR);
	assert_true(longest < BOUND_MS * MS);
	assert_int_equal(p[0], 'p');
	assert_int_equal(waitpid(pid, &left, 0), pid);
	assert_true(WIFSIGNALED(left));
	kedge_cache_put(cache, mr);
	close_cache(NULL);
	assert_int_equal(ends_close(&e), 0);
	close(sock[0]);
	close(sock[1]);
	munmap(p, WRITE);
}

/* ---- a port that goes down ---- */

static void set_link(const char *what)
{
	const char *name = ibv_get_device_name(main_ends.context->device);
	char command[256];

	snprintf(command, sizeof(command),
		 "ip link set \"$(cat /sys/class/infiniband/%s/parent)\" %s",
		 name, what);
	assert_int_equal(system(command), 0);
}

struct down {
	const struct kedge_mr *mr;
	unsigned char *p;
	_Atomic uint64_t down; /* when */
	enum ibv_wc_status status;
	uint64_t after;
};

static void *write_until_it_fails(void *arg)
{
	uint64_t start = vm_now();
	struct down *d = arg;

	do
		d->status = ends_put(&stream_ends,
				     kedge_verbs_iova(d->mr, d->p), WRITE,
				     kedge_verbs_rkey(d->mr));
	while (d->status == IBV_WC_SUCCESS &&
		 vm_now() - start < BOUND_MS * MS);
	d->after = vm_now() - d->down;
	return NULL;
}

static void a_port_that_goes_down_is_noticed(void **state)
{
	uint64_t end = vm_now() + BOUND_MS * MS;
	enum ibv_wc_status status;
	struct down d = { .p = map(WRITE) };
	pthread_t thread;

	open_cache(&main_ends, 0);
	ok(kedge_cache_get(cache, d.p, WRITE, ACCESS, &d.mr));
	assert_int_equal(pthread_create(&thread, NULL, write_until_it_fails,
					&d), 0);
	usleep(200000);
	d.down = vm_now();
	set_link("down");
	pthread_join(thread, NULL);
	set_link("up");
	printf("down: %s after %llu ms\n", ibv_wc_status_str(d.status),
	       (unsigned long long)(d.after / MS));
	assert_int_not_equal(d.status, IBV_WC_SUCCESS);
	assert_int_not_equal(d.status, IBV_WC_GENERAL_ERR);
	assert_true(d.after < BOUND_MS * MS);
	/* The registration never left: all that is needed is a connection. */
	do
		status = ends_connect(&stream_ends)
			? ends_put(&stream_ends, kedge_verbs_iova(d.mr, d.p),
				   WRITE, kedge_verbs_rkey(d.mr))
			: IBV_WC_GENERAL_ERR;
	while (status != IBV_WC_SUCCESS && vm_now() < end);
	assert_int_equal(status, IBV_WC_SUCCESS);
	kedge_cache_put(cache, d.mr);
	munmap(d.p, WRITE);
}

/* ---- all together ---- */

static int open_all(void **state)
{
	return ends_open(&main_ends) && ends_join(&stream_ends, &main_ends)
		? 0 : -1;
}

static int close_all(void **state)
{
	return ends_close(&stream_ends) | ends_close(&main_ends) ? -1 : 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(other_chunks_notice_no_resync,
					  close_cache),
		cmocka_unit_test(a_killed_peer_is_noticed),
		cmocka_unit_test_teardown(a_port_that_goes_down_is_noticed,
					  close_cache),
	};

	if (argc != 3) {
		fprintf(stderr, "usage: verbs_resync MIB ROUNDS\n");
		return 2;
	}
	area_len = strtoul(argv[1], NULL, 10) << 20;
	rounds = (unsigned int)strtoul(argv[2], NULL, 10);
	if (area_len < 4 * CHUNK || !rounds)
		return 2;
	return cmocka_run_group_tests(tests, open_all, close_all) ? 1 : 0;
}
