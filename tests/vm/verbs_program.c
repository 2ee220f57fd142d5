// SPDX-License-Identifier: BSD-2-Clause
/*
 * A program of somebody who knows libibverbs and has never heard of kedge. Run
 * plain, under "kedge run" and under "kedge run --trusted-peers", it must see
 * the same: what is checked here holds in all three, and what the stack answers
 * to odd requests is written down, for verbs_program.sh to compare.
 *
 *	verbs_program NOTES [trusted]
 *	verbs_program bench
 *
 * trusted: a peer may come in by the key of a region that has ended, which may
 * be that of one alive, too.
 */
#include "verbs_program.h"

struct ends e;
static bool trusted;

unsigned char *map(size_t len)
{
	unsigned char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

/* Other pages behind the same addresses. */
static void map_anew(unsigned char *at, size_t len)
{
	assert_int_equal(munmap(at, len), 0);
	assert_ptr_equal(mmap(at, len, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS |
			      MAP_FIXED_NOREPLACE, -1, 0), at);
}

static struct ibv_mr *reg(void *addr, size_t len, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(e.pd, addr, len, access);

	if (!mr)
		fail_msg("ibv_reg_mr: %s", strerror(errno));
	return mr;
}

void dereg(struct ibv_mr *mr)
{
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void good(enum ibv_wc_status status)
{
	if (status != IBV_WC_SUCCESS)
		fail_msg("%s", ibv_wc_status_str(status));
}

static void holds(const unsigned char *p, size_t len, int c)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (p[i] != c)
			fail_msg("byte %zu of %zu is %#x", i, len, p[i]);
}

/* Sets the bytes that the peer sends next. */
static int fill_peer(int c)
{
	memset(e.peer_mem, c, AREA);
	return c;
}

/* ---- a region ---- */

static void the_fields_are_what_was_asked_for(void **state)
{
	unsigned char *p = map(AREA);
	struct ibv_mr *a = reg(p, AREA, LW | RW | RR);
	struct ibv_mr *b = reg(p + 100, 5000, LW);
	struct ibv_mr *c = reg(p + 100, 5000, LW);

	assert_ptr_equal(a->addr, p);
	assert_int_equal(a->length, AREA);
	assert_ptr_equal(a->pd, e.pd);
	assert_ptr_equal(a->context, e.context);
	assert_ptr_equal(b->addr, p + 100);
	assert_int_equal(b->length, 5000);
	assert_ptr_equal(b->pd, e.pd);
	assert_ptr_equal(b->context, e.context);
	assert_ptr_not_equal(b, c);
	good(ends_put(&e, at(p), PAGE, a->rkey));
	good(ends_read(&e, at(p) + 100, 5000, b->lkey));
	/* One of two alike goes, the other stays. */
	dereg(b);
	good(ends_read(&e, at(p) + 100, 5000, c->lkey));
	dereg(c);
	dereg(a);
	munmap(p, AREA);
}

static void odd_ranges_are_reached_and_no_more(void **state)
{
	static const struct {
		size_t at, len;
	} odd[] = { { 0, 1 }, { PAGE - 1, 2 }, { 1, PAGE }, { 4095, 4097 },
		    { 123, 45678 }, { 7, AREA - 14 } };
	unsigned char *p = map(AREA);
	struct ibv_mr *mr;
	size_t i;

	for (i = 0; i < VM_COUNT(odd); i++) {
		unsigned char *q = p + odd[i].at;
		uint32_t len = (uint32_t)odd[i].len;

		memset(p, 0, AREA);
		mr = reg(q, len, LW | RW | RR);
		fill_peer('A' + (int)i);
		good(ends_put(&e, at(q), len, mr->rkey));
		holds(q, len, 'A' + (int)i);
		if (q > p)
			assert_int_equal(q[-1], 0);
		assert_int_equal(q[len], 0);
		fill_peer('z');
		good(ends_get(&e, at(q), len, mr->rkey));
		holds(e.peer_mem, len, 'A' + (int)i);
		if (!trusted)
			assert_int_equal(ends_put(&e, at(q), len + 1, mr->rkey),
					 IBV_WC_REM_ACCESS_ERR);
		dereg(mr);
	}
	munmap(p, AREA);
}

static void keys_give_no_more_than_was_asked_for(void **state)
{
	unsigned char *p = map(PAGE);
	struct ibv_mr *mr = reg(p, PAGE, LW | RR);

	good(ends_get(&e, at(p), PAGE, mr->rkey));
	assert_int_equal(ends_put(&e, at(p), 1, mr->rkey),
			 IBV_WC_REM_ACCESS_ERR);
	dereg(mr);
	mr = reg(p, PAGE, LW);
	/* A trusted peer may have the key of the region before, that reads. */
	if (!trusted)
		assert_int_equal(ends_get(&e, at(p), 1, mr->rkey),
				 IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ends_put(&e, at(p), 1, mr->rkey),
			 IBV_WC_REM_ACCESS_ERR);
	dereg(mr);
	munmap(p, PAGE);
}

/* ---- memory that changes ---- */

/* @whole: all of the area is mapped anew, else a page of it. */
static void check_new_pages(int access, bool whole)
{
	unsigned char *p = map(AREA), *changed = whole ? p : p + 5 * PAGE;
	size_t len = whole ? AREA : PAGE;
	struct ibv_mr *mr;
	int i, c;

	for (i = 0; i < 100; i++) {
		c = fill_peer(1 + i % 250);
		mr = reg(p + 4 * PAGE, 4 * PAGE, access);
		if (access & RW)
			good(ends_put(&e, at(p) + 4 * PAGE, 4 * PAGE,
				      mr->rkey));
		else
			good(ends_read(&e, at(p) + 4 * PAGE, 4 * PAGE,
				       mr->lkey));
		holds(p + 4 * PAGE, 4 * PAGE, c);
		dereg(mr);
		if (i % 3)
			map_anew(changed, len);
	}
	munmap(p, AREA);
}

static void a_peer_writes_to_the_new_pages(void **state)
{
	check_new_pages(LW | RW, true);
	check_new_pages(LW | RW, false);
}

static void this_end_reads_to_the_new_pages(void **state)
{
	check_new_pages(LW, true);
	check_new_pages(LW, false);
}

/* ---- other than ordinary ---- */

static void other_addresses_for_the_device(void **state)
{
	const uint64_t iova = (UINT64_C(1) << 40) + 123;
	unsigned char *p = map(AREA);
	struct ibv_mr *mr;

	errno = 0;
	mr = ibv_reg_mr_iova(e.pd, p + 123, 5000, iova, LW | RW | RR);
	if (!mr)
		fail_msg("ibv_reg_mr_iova: %s", strerror(errno));
	assert_ptr_equal(mr->addr, p + 123);
	fill_peer('i');
	good(ends_put(&e, iova, 5000, mr->rkey));
	holds(p + 123, 5000, 'i');
	dereg(mr);
	/* The same addresses are a region as any other. */
	mr = ibv_reg_mr_iova(e.pd, p, PAGE, at(p), LW | RW);
	assert_non_null(mr);
	fill_peer('j');
	good(ends_put(&e, at(p), PAGE, mr->rkey));
	holds(p, PAGE, 'j');
	dereg(mr);
	munmap(p, AREA);
}

static void a_region_may_be_changed(void **state)
{
	unsigned char *p = map(AREA);
	struct ibv_mr *mr = reg(p, PAGE, LW | RW);
	int rc;

	errno = 0;
	rc = ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, p + PAGE,
			  PAGE, 0);
	note("other memory: %d, %d\n", rc, rc ? errno : 0);
	fill_peer('t');
	good(ends_put(&e, at(mr->addr), PAGE, mr->rkey));
	holds(mr->addr, PAGE, 't');
	errno = 0;
	rc = ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			  LW | RW | RR);
	note("other access: %d, %d\n", rc, rc ? errno : 0);
	if (!rc)
		good(ends_get(&e, at(mr->addr), PAGE, mr->rkey));
	fill_peer('a');
	good(ends_put(&e, at(mr->addr), PAGE, mr->rkey));
	holds(mr->addr, PAGE, 'a');
	errno = 0;
	rc = ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0);
	note("nothing: %d, %d\n", rc, rc ? errno : 0);
	rc = ibv_rereg_mr(mr, 1 << 20, NULL, NULL, 0, 0);
	note("who knows: %d\n", rc);
	dereg(mr);
	munmap(p, AREA);
}

/* ---- domains and devices ---- */

static void a_domain_stays_while_it_has_regions(void **state)
{
	unsigned char *p = map(PAGE);
	struct ibv_pd *pd = ibv_alloc_pd(e.context);
	struct ibv_mr *mr, *other;

	mr = ibv_reg_mr(pd, p, PAGE, LW);
	other = ibv_reg_mr(pd, p, PAGE, LW | RW);
	assert_true(mr && other);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	dereg(mr);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	/* It is as good as ever. */
	mr = ibv_reg_mr(pd, p, PAGE, LW);
	assert_non_null(mr);
	dereg(mr);
	dereg(other);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	munmap(p, PAGE);
}

static void domains_keep_apart(void **state)
{
	unsigned char *p = map(PAGE);
	struct ibv_pd *pd = ibv_alloc_pd(e.context);
	struct ibv_mr *mine = reg(p, PAGE, LW | RW);
	struct ibv_mr *theirs = ibv_reg_mr(pd, p, PAGE, LW | RW);

	assert_non_null(theirs);
	assert_ptr_equal(theirs->pd, pd);
	assert_int_not_equal(theirs->rkey, mine->rkey);
	good(ends_put(&e, at(p), PAGE, mine->rkey));
	assert_int_not_equal(ends_put(&e, at(p), PAGE, theirs->rkey),
			     IBV_WC_SUCCESS);
	dereg(theirs);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	good(ends_put(&e, at(p), PAGE, mine->rkey));
	dereg(mine);
	munmap(p, PAGE);
}

static void a_device_may_be_closed_and_opened(void **state)
{
	unsigned char *p = map(PAGE);
	struct ends other;
	struct ibv_mr *mr;
	int i;

	for (i = 0; i < 3; i++) {
		assert_true(ends_open(&other));
		mr = ibv_reg_mr(other.pd, p, PAGE, LW | RW);
		assert_non_null(mr);
		assert_ptr_equal(mr->context, other.context);
		memset(other.peer_mem, 'o' + i, PAGE);
		good(ends_put(&other, at(p), PAGE, mr->rkey));
		holds(p, PAGE, 'o' + i);
		dereg(mr);
		assert_int_equal(ends_close(&other), 0);
	}
	munmap(p, PAGE);
}

/* ---- several at once ---- */

#define THREADS 4

static atomic_bool stop;
static atomic_int bad;
static unsigned char *shared;

static void *register_all_the_time(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg;
	struct ibv_mr *mr;

	while (!stop) {
		size_t from = (size_t)rand_r(&seed) % (AREA / 2);
		size_t len = 1 + (size_t)rand_r(&seed) % (AREA / 2);
		int access = rand_r(&seed) & 1 ? LW : LW | RW;

		mr = ibv_reg_mr(e.pd, shared + from, len, access);
		/* A part of it may not be mapped just now. */
		if (!mr && errno != EFAULT)
			bad++;
		if (mr && (mr->addr != shared + from || mr->length != len))
			bad++;
		if (mr && ibv_dereg_mr(mr))
			bad++;
	}
	return NULL;
}

static void threads_register_what_another_unmaps(void **state)
{
	pthread_t t[THREADS];
	struct ibv_mr *mr;
	uintptr_t i;

	stop = false;
	bad = 0;
	/* Far from where the kernel puts the threads' own memory meanwhile. */
	shared = mmap((void *)(UINT64_C(1) << 40), AREA, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
		      0);
	assert_ptr_not_equal(shared, MAP_FAILED);
	for (i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL,
						register_all_the_time,
						(void *)i), 0);
	for (i = 0; i < 300; i++) {
		map_anew(shared + i % 48 * PAGE, 16 * PAGE);
		usleep(1000);
	}
	stop = true;
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(bad, 0);
	/* Nothing of it is old. */
	for (i = 0; i < 8; i++) {
		mr = reg(shared + i * 8 * PAGE, 8 * PAGE, i & 1 ? LW : LW | RW);
		fill_peer('0' + (int)i);
		good(i & 1 ? ends_read(&e, at(mr->addr), 8 * PAGE, mr->lkey)
			   : ends_put(&e, at(mr->addr), 8 * PAGE, mr->rkey));
		holds(mr->addr, 8 * PAGE, '0' + (int)i);
		dereg(mr);
	}
	munmap(shared, AREA);
}

/* ---- fork ---- */

static int of_child(pid_t pid)
{
	int status = 0;

	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

/* Its own end of its own device. */
static int childs_life(unsigned char *p)
{
	struct ends own;
	struct ibv_mr *mr;
	int ok;

	if (!ends_open(&own))
		return 1;
	mr = ibv_reg_mr(own.pd, p, PAGE, LW | RW);
	if (!mr)
		return 2;
	memset(own.peer_mem, 'c', PAGE);
	ok = ends_put(&own, at(p), PAGE, mr->rkey) == IBV_WC_SUCCESS &&
	     p[0] == 'c' && p[PAGE - 1] == 'c';
	return !ok || ibv_dereg_mr(mr) || ends_close(&own) ? 3 : 0;
}

static void a_child_goes_and_the_parent_goes_on(void **state)
{
	unsigned char *p = map(AREA);
	struct ibv_mr *mr = reg(p, AREA, LW | RW), *local = reg(p, AREA, LW);
	pid_t pid;
	int i;

	for (i = 0; i < 3; i++) {
		fflush(NULL);
		pid = fork();
		if (!pid && i == 1)
			execl("/bin/true", "true", NULL);
		/* With whatever the libraries do at an exit. */
		if (!pid)
			exit(i ? childs_life(p) : 0);
		assert_int_equal(of_child(pid), 0);
		fill_peer('P' + i);
		good(ends_put(&e, at(p), AREA, mr->rkey));
		holds(p, AREA, 'P' + i);
	}
	dereg(mr);
	dereg(local);
	mr = reg(p, AREA, LW);
	fill_peer('q');
	good(ends_read(&e, at(p), AREA, mr->lkey));
	holds(p, AREA, 'q');
	dereg(mr);
	munmap(p, AREA);
}

/* ---- what has ended ---- */

static void an_ended_region_lets_nobody_in(void **state)
{
	unsigned char *p = map(AREA);
	enum ibv_wc_status status;
	struct ibv_mr *mr;
	uint32_t rkey;
	int i;

	for (i = 0; i < 20; i++) {
		mr = reg(p, AREA, LW | RW);
		rkey = mr->rkey;
		fill_peer('v');
		good(ends_put(&e, at(p), AREA, rkey));
		dereg(mr);
		memset(p, 0, PAGE);
		status = ends_put(&e, at(p), 1, rkey);
		if (trusted && status == IBV_WC_SUCCESS)
			continue;
		assert_int_equal(status, IBV_WC_REM_ACCESS_ERR);
		assert_int_equal(p[0], 0);
	}
	munmap(p, AREA);
}

static int open_all(void **state)
{
	return ends_open(&e) ? 0 : -1;
}

static int close_all(void **state)
{
	return ends_close(&e) ? -1 : 0;
}

static int run_cases(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_fields_are_what_was_asked_for),
		cmocka_unit_test(odd_ranges_are_reached_and_no_more),
		cmocka_unit_test(keys_give_no_more_than_was_asked_for),
		cmocka_unit_test(a_peer_writes_to_the_new_pages),
		cmocka_unit_test(this_end_reads_to_the_new_pages),
		cmocka_unit_test(rights_are_given_and_refused_as_ever),
		cmocka_unit_test(bad_memory_is_refused_as_ever),
		cmocka_unit_test(other_addresses_for_the_device),
		cmocka_unit_test(a_region_may_be_changed),
		cmocka_unit_test(a_domain_stays_while_it_has_regions),
		cmocka_unit_test(domains_keep_apart),
		cmocka_unit_test(a_device_may_be_closed_and_opened),
		cmocka_unit_test(threads_register_what_another_unmaps),
		cmocka_unit_test(a_child_goes_and_the_parent_goes_on),
		cmocka_unit_test(an_ended_region_lets_nobody_in),
	};

	return cmocka_run_group_tests(tests, open_all, close_all) ? 1 : 0;
}

int main(int argc, char **argv)
{
	int rc;

	if (argc == 2 && !strcmp(argv[1], "bench"))
		return verbs_program_bench();
	if (argc < 2 || argc > 3) {
		fprintf(stderr, "usage: verbs_program NOTES [trusted] | "
				"verbs_program bench\n");
		return 2;
	}
	trusted = argc == 3;
	if (!notes_open(argv[1]))
		return 2;
	rc = run_cases();
	return notes_close() ? rc : 2;
}
