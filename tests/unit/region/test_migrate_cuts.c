// SPDX-License-Identifier: BSD-2-Clause
/*
 * The connection of two owners goes through a proxy, which reads what they say, and loses it at a
 * message: it resets both sides, or carries no more, so that they have to notice by themselves.
 * Later connections it carries, or not before the other side has given up. In the end one process
 * has the region, and it has all of it.
 *
 * Both processes go by a clock that moves where one of them is to give up: while an owner waits for
 * what does not come, and for the other process once that is alone.
 */
#include <netinet/in.h>

#include "clock.h"
#include "target.h"

#include "region/migrate/wire.h"
#include "region/stream.h"

#define TIMEOUT_MS 400
#define ACCEPT_MS  3000
#define STEP_MS	   (TIMEOUT_MS / 4)

enum how { RESET, HOLE };

static struct {
	int fd;
	uint16_t port;
	struct sockaddr_in to;
	pthread_t thread;
	uint32_t op;
	enum how how;
	_Atomic bool cut; /* it has happened */
	_Atomic bool vain; /* the last connection may carry no more */
	bool holds; /* from then on */
	_Atomic bool held; /* connections are not answered */
	_Atomic int stop;
} proxy;

/* One direction: @skip bytes that are no message, then heads, each with @left bytes behind it. */
struct side {
	int from;
	int to;
	size_t skip;
	size_t left;
	size_t head_len;
	struct msg head;
};

struct pair {
	struct side side[2];
	bool dead;
};

/* Threads of pairs; the proxy begins anew once they have ended. */
static _Atomic int pairs;

static void drop(struct pair *p, bool reset)
{
	const struct linger now = { .l_onoff = 1 };
	int i;

	for (i = 0; i < 2; i++) {
		if (reset)
			setsockopt(p->side[i].from, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		close(p->side[i].from);
	}
	p->dead = true;
}

/* True: this byte begins the message at which the connection is lost. */
static bool is_end(struct side *s, unsigned char c)
{
	if (s->skip) {
		s->skip--;
		return false;
	}
	if (s->left) {
		s->left--;
		return false;
	}
	((unsigned char *)&s->head)[s->head_len++] = c;
	if (s->head_len < sizeof(s->head))
		return false;
	s->head_len = 0;
	s->left = s->head.len;
	/* The other process may have gone on, and not end the connection as it is to. */
	if (s->head.op == MSG_HEARD)
		atomic_store(&proxy.vain, true);
	return s->head.op == proxy.op;
}

static bool carry(struct pair *p, struct side *s)
{
	unsigned char buf[65536];
	ssize_t n = recv(s->from, buf, sizeof(buf), MSG_DONTWAIT), i;

	if (n < 0 && errno == EAGAIN)
		return true;
	if (n <= 0)
		return false;
	for (i = 0; i < n; i++) {
		if (!is_end(s, buf[i]) || atomic_load(&proxy.cut))
			continue;
		/* All before the head. */
		if (i + 1 > (ssize_t)sizeof(struct msg))
			send(s->to, buf, (size_t)i + 1 - sizeof(struct msg), MSG_NOSIGNAL);
		atomic_store(&proxy.held, proxy.holds);
		atomic_store(&proxy.vain, proxy.how == HOLE);
		atomic_store(&proxy.cut, true);
		if (proxy.how == RESET) {
			drop(p, true);
			return false;
		}
		while (!atomic_load(&proxy.stop))
			usleep(1000);
		return false;
	}
	return send(s->to, buf, (size_t)n, MSG_NOSIGNAL) == n;
}

static void *run_pair(void *arg)
{
	struct pair *p = arg;
	struct pollfd f[2] = { { p->side[0].from, POLLIN, 0 }, { p->side[1].from, POLLIN, 0 } };
	bool go = true;

	while (go && !atomic_load(&proxy.stop)) {
		poll(f, 2, 20);
		if (f[0].revents)
			go = carry(p, &p->side[0]);
		if (go && f[1].revents)
			go = carry(p, &p->side[1]);
	}
	if (!p->dead)
		drop(p, false);
	free(p);
	atomic_fetch_sub(&pairs, 1);
	return NULL;
}

static void *run_proxy(void *unused)
{
	struct pollfd f = { proxy.fd, POLLIN, 0 };
	struct pair *p;
	pthread_t thread;
	int to, from;

	(void)unused;
	while (!atomic_load(&proxy.stop)) {
		if (atomic_load(&proxy.held) || poll(&f, 1, 20) <= 0 || atomic_load(&proxy.held)) {
			usleep(1000);
			continue;
		}
		from = accept(proxy.fd, NULL, NULL);
		atomic_store(&proxy.vain, false);
		to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		p = calloc(1, sizeof(*p));
		/* One that was held back may have gone; cmocka ends the process where another
		 * thread asserts. */
		if (from < 0 || to < 0 || !p ||
		    connect(to, (struct sockaddr *)&proxy.to, sizeof(proxy.to))) {
			perror("# proxy");
			close(from);
			close(to);
			free(p);
			continue;
		}
		p->side[0] = (struct side){ .from = from, .to = to,
					    .skip = sizeof(struct stream_ask) };
		p->side[1] = (struct side){ .from = to, .to = from,
					    .skip = sizeof(struct stream_hello) +
						    sizeof(struct stream_welcome) };
		/* It frees the pair. */
		atomic_fetch_add(&pairs, 1);
		if (pthread_create(&thread, NULL, run_pair, p))
			abort();
		pthread_detach(thread);
	}
	return NULL;
}

/* The invitation's port is the proxy's from now on. */
static void proxy_begin(struct kedge_handle *invitation, uint32_t op, enum how how, bool holds)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct handle_words w;
	socklen_t len = sizeof(a);

	memset(&proxy, 0, sizeof(proxy));
	proxy.op = op;
	proxy.how = how;
	proxy.holds = holds;
	proxy.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(proxy.fd >= 0 && !bind(proxy.fd, (struct sockaddr *)&a, len) &&
		    !listen(proxy.fd, 64) &&
		    !getsockname(proxy.fd, (struct sockaddr *)&a, &len));
	assert_true(handle_read(invitation, &w));
	proxy.to = a;
	proxy.to.sin_port = htons(w.port);
	w.port = ntohs(a.sin_port);
	handle_write(&w, invitation);
	assert_int_equal(pthread_create(&proxy.thread, NULL, run_proxy, NULL), 0);
}

static void proxy_end(void)
{
	atomic_store(&proxy.stop, 1);
	pthread_join(proxy.thread, NULL);
	close(proxy.fd);
	while (atomic_load(&pairs))
		usleep(1000);
}

/* ---- one cut ---- */

static struct target *target;

/* True: what the owner waits for does not come by the connection that it has. One that it has begun
 * to make has all its time. */
static bool waits_in_vain(void)
{
	struct pollfd f = { proxy.fd, POLLIN, 0 };

	return atomic_load(&proxy.held) || (atomic_load(&proxy.vain) && poll(&f, 1, 0) <= 0);
}

static void *pass_time(void *arg)
{
	const _Atomic bool *over = arg;

	while (!atomic_load(over)) {
		if (waits_in_vain())
			test_clock_move_ms(STEP_MS);
		usleep(10000);
	}
	return NULL;
}

static int migrate(void)
{
	struct kedge_migrate_opts o = { .size = sizeof(o), .timeout_ms = TIMEOUT_MS };
	_Atomic bool over = false;
	pthread_t thread;
	int rc;

	assert_int_equal(pthread_create(&thread, NULL, pass_time, &over), 0);
	rc = kedge_region_migrate(region, &target->invitation, &o, NULL);
	atomic_store(&over, true);
	pthread_join(thread, NULL);
	return rc;
}

static bool target_is_through(void)
{
	return atomic_load(&target->state) >= TARGET_OWNS;
}

/* The outcome, of either kind, is the same for both. */
static int settle(int rc)
{
	char c = 0;

	while (rc == -EINPROGRESS) {
		assert_int_equal(kedge_region_grow(region, LEN * 2), -EINPROGRESS);
		assert_int_equal(kedge_remote_put(remote, 0, "x", 1, 0), -ETIMEDOUT);
		if (proxy.holds)
			MOVE_UNTIL(STEP_MS, target_is_through());
		atomic_store(&proxy.held, false);
		rc = migrate();
	}
	/* It gives up. */
	if (rc)
		MOVE_UNTIL(STEP_MS, target_is_through());
	WAIT_FOR(target_is_through());
	if (rc) {
		assert_int_equal(atomic_load(&target->state), TARGET_FAILED);
		region_at()[1] = '1';
	} else {
		assert_int_equal(atomic_load(&target->state), TARGET_OWNS);
		assert_int_equal(kedge_region_grow(region, LEN * 2), -EREMCHG);
	}
	assert_int_equal(kedge_remote_get(remote, LEN - 1, &c, 1, SOON_MS), 0);
	assert_int_equal(c, 'z');
	assert_int_equal(kedge_remote_put(remote, LEN - 1, "y", 1, SOON_MS), 0);
	target->off = LEN - 1;
	if (!rc) {
		assert_int_equal(target_say(target, TARGET_READ), 0);
		assert_int_equal(target->byte, 'y');
	}
	return rc;
}

static void begin_cut(int accept_ms)
{
	start_processes();
	target = target_new();
	target->accept_ms = accept_ms;
	target_start(target);
	begin_remote(NULL);
	memset(region_at(), 'a', LEN);
	region_at()[LEN - 1] = 'z';
}

/* The other process may give the region on, as it knows that this one knows. */
static void go_on(void)
{
	struct kedge_invitation *back;
	struct kedge_region *r;

	assert_int_equal(kedge_invitation_open(NULL, &back, &target->next), 0);
	atomic_store(&target->said, 0);
	atomic_store(&target->say, TARGET_MIGRATE);
	assert_int_equal(kedge_invitation_accept(back, SOON_MS, &r), 0);
	kedge_invitation_close(back);
	kedge_region_close(r);
}

/* The target gives up where that is tested: else it waits, also where a machine stands still. */
static int cut_once(uint32_t op, enum how how, bool holds)
{
	int rc;

	begin_cut(holds || op < MSG_COMMIT ? ACCEPT_MS : SOON_MS);
	proxy_begin(&target->invitation, op, how, holds);
	rc = settle(migrate());
	kedge_remote_close(remote);
	kedge_region_close(region);
	if (!rc)
		go_on();
	proxy_end();
	target_end(target);
	return rc;
}

/* A machine that stands still may fail it before that message. */
static int cut_at(uint32_t op, enum how how, bool holds)
{
	int rc;

	do
		rc = cut_once(op, how, holds);
	while (!atomic_load(&proxy.cut));
	return rc;
}

static const uint32_t ops[] = { MSG_BEGIN, MSG_OK, MSG_DATA, MSG_HANDLES, MSG_SYNC, MSG_FINAL,
				MSG_READY, MSG_COMMIT, MSG_DONE, MSG_HEARD };

static void cuts(enum how how)
{
	size_t i;
	int rc;

	for (i = 0; i < sizeof(ops) / sizeof(*ops); i++) {
		rc = cut_at(ops[i], how, false);
		print_message("# at message %u: %d\n", ops[i], rc);
		/* Up to COMMIT it stays; from then on it goes. */
		assert_true(ops[i] < MSG_COMMIT ? rc < 0 : !rc);
	}
}

static void the_other_gives_up_meanwhile(void **state)
{
	enum how how;

	for (how = RESET; how <= HOLE; how++) {
		assert_int_equal(cut_at(MSG_READY, how, true) < 0, 1);
		assert_int_equal(cut_at(MSG_COMMIT, how, true), -ECONNRESET);
		assert_int_equal(cut_at(MSG_DONE, how, true), 0);
	}
}

static void a_connection_is_reset(void **state)
{
	cuts(RESET);
}

static void a_connection_carries_no_more(void **state)
{
	cuts(HOLE);
}

/* An owner in doubt is not told of a region that came by the same invitation since. */
static void another_region_comes_meanwhile(void **state)
{
	struct kedge_region *other;
	struct kedge_handle direct;
	char c = 0;

	begin_cut(ACCEPT_MS);
	direct = target->invitation;
	proxy_begin(&target->invitation, MSG_COMMIT, RESET, true);
	assert_int_equal(migrate(), -EINPROGRESS);
	MOVE_UNTIL(STEP_MS, target_is_through());
	target_wait(target, TARGET_FAILED);
	target->accept_ms = SOON_MS;
	atomic_store(&target->state, TARGET_WAITS);
	atomic_store(&target->say, TARGET_ACCEPT);
	assert_int_equal(kedge_region_create(LEN, NULL, &other), 0);
	assert_int_equal(migrate_patiently(other, &direct, NULL, NULL), 0);
	target_wait(target, TARGET_OWNS);
	kedge_region_close(other);
	atomic_store(&proxy.held, false);
	assert_int_equal(migrate(), -ECONNRESET);
	assert_int_equal(kedge_remote_get(remote, LEN - 1, &c, 1, SOON_MS), 0);
	assert_int_equal(c, 'z');
	assert_int_equal(kedge_remote_put(remote, LEN - 1, "y", 1, SOON_MS), 0);
	assert_int_equal(region_at()[LEN - 1], 'y');
	end_remote();
	proxy_end();
	target_end(target);
}

/* A region in doubt can be closed: what it took is freed, and the other one may have it. */
static void a_region_in_doubt_is_closed(void **state)
{
	char c;

	begin_cut(SOON_MS);
	proxy_begin(&target->invitation, MSG_DONE, HOLE, true);
	assert_int_equal(migrate(), -EINPROGRESS);
	target_wait(target, TARGET_OWNS);
	kedge_region_close(region);
	assert_int_equal(kedge_remote_get(remote, 0, &c, 1, SOON_MS), -EKEYREVOKED);
	kedge_remote_close(remote);
	proxy_end();
	target_end(target);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_connection_is_reset),
	cmocka_unit_test(a_connection_carries_no_more),
	cmocka_unit_test(the_other_gives_up_meanwhile),
	cmocka_unit_test(another_region_comes_meanwhile),
	cmocka_unit_test(a_region_in_doubt_is_closed),
};

const struct suite suite = { "migrate_cuts", SUITE_OF(tests), .by = "tcp",
			     .first = test_clock_begin };
