// SPDX-License-Identifier: BSD-2-Clause
/*
 * Owners, and processes that regions go to, which do not keep to the protocol: here the test is one
 * of both. The other one gives up with an error, its region stays or is not there, and the next
 * migration works.
 */
#include <kedge/migrate.h>

#include "clock.h"
#include "remote.h"

#include "base/base.h"
#include "base/process/thread.h"
#include "region/keeper.h"
#include "region/migrate/wire.h"

#define ID UINT64_C(0x1234567890)

static struct kedge_invitation *invitation;
static struct kedge_handle ticket;

static uint64_t until(void)
{
	return clock_ns() + SOON_MS * UINT64_C(1000000);
}

/* ---- the test is the owner ---- */

struct accepting {
	pthread_t thread;
	struct kedge_region *r;
	int rc;
};

static void *accepts(void *arg)
{
	struct accepting *a = arg;

	a->rc = kedge_invitation_accept(invitation, SOON_MS, &a->r);
	return NULL;
}

/* By the invitation @by, which is in @state, and of the tests' migration if it has any. */
static void dial_by(const struct kedge_handle *by, struct wire *w, enum invite_state state)
{
	enum invite_state is;
	struct handle_words to;
	uint64_t id;

	assert_true(handle_read(by, &to));
	assert_int_equal(wire_dial(w, &to, until(), &is, &id), 0);
	assert_int_equal(is, state);
	if (state != INVITE_OPEN)
		assert_int_equal(id, ID);
}

static void say(struct wire *w, uint32_t op, uint64_t off, const void *data, uint64_t len)
{
	const struct msg m = { .op = op, .id = ID, .off = off, .len = len };

	wire_send(w, &m, data, until());
}

/* A head alone: its data do not follow. */
static void say_head(struct wire *w, uint32_t op, uint64_t off, uint64_t len)
{
	const struct msg m = { htole32(op), 0, htole64(ID), htole64(off), htole64(len) };

	wire_write(w, &m, sizeof(m), until());
}

static void begin_owner(struct wire *w, struct accepting *a)
{
	a->r = NULL;
	assert_int_equal(pthread_create(&a->thread, NULL, accepts, a), 0);
	dial_by(&ticket, w, INVITE_OPEN);
}

static void offer(struct wire *w, uint64_t len, uint64_t max_len, uint64_t page)
{
	const struct msg_begin b = { .region = 1, .len = htole64(len), .max_len = htole64(max_len),
				     .page_size = htole64(page) };

	say(w, MSG_BEGIN, 0, &b, sizeof(b));
}

static void end_owner(struct wire *w, struct accepting *a, int rc)
{
	pthread_join(a->thread, NULL);
	wire_end(w);
	assert_int_equal(a->rc, rc);
	assert_null(a->r);
}

static void expect(struct wire *w, uint32_t op)
{
	struct msg m;

	assert_int_equal(wire_hear(w, &m, until()), 0);
	assert_int_equal(m.op, op);
}

static uint64_t page(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* A copy that is welcome. */
static void begin_copy(struct wire *w, struct accepting *a)
{
	begin_owner(w, a);
	offer(w, LEN, LEN, page());
	expect(w, MSG_OK);
}

static void sizes_that_are_none(void **state)
{
	static const struct {
		uint64_t len, max_len, page;
		int rc;
	} bad[] = {
		{ 0, LEN, 0, -EINVAL },
		{ UINT64_MAX, UINT64_MAX, 0, -EINVAL },
		{ UINT64_MAX / 8, UINT64_MAX / 8, 0, -ENOMEM },
		{ LEN, LEN / 2, 0, -EINVAL },
		{ LEN, LEN, 3, -EINVAL },
		{ LEN, LEN, UINT64_MAX, -EINVAL },
		{ LEN, LEN, UINT64_C(1) << 63, -EINVAL },
	};
	struct accepting a;
	struct wire w;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		begin_owner(&w, &a);
		offer(&w, bad[i].len, bad[i].max_len, bad[i].page ? bad[i].page : page());
		expect(&w, MSG_REFUSE);
		end_owner(&w, &a, bad[i].rc);
	}
}

static void messages_that_are_none(void **state)
{
	static const struct {
		uint32_t op;
		uint64_t off, len;
	} bad[] = {
		{ MSG_DATA, 0, 0 },	      { MSG_DATA, UINT64_MAX / 16 + 2, 32 },
		{ MSG_DATA, 2, 31 },	      { MSG_DATA, MSG_RUNS_MAX + 1, UINT64_MAX },
		{ MSG_HANDLES, 1, 1 },
		{ MSG_HANDLES, UINT64_MAX, 16 }, { MSG_HANDLES, 0, SEALED_LEN(0) },
		{ MSG_BEGIN, 0, 0 },
		{ MSG_COMMIT, 0, 0 },	      { MSG_READY, 0, 0 },
		{ 0, 0, 0 },		      { UINT32_MAX, 0, 0 },
	};
	static char data[SEALED_LEN(1)];
	struct accepting a;
	struct wire w;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		begin_copy(&w, &a);
		say_head(&w, bad[i].op, bad[i].off, bad[i].len);
		end_owner(&w, &a, -EPROTO);
	}
	/* One whose head is right, with bytes that were not sealed. */
	begin_copy(&w, &a);
	say(&w, MSG_HANDLES, 1, data, sizeof(data));
	end_owner(&w, &a, -EPROTO);
}

static void ranges_that_are_none(void **state)
{
	static const struct msg_run bad[][2] = {
		{ { LEN, 1 }, { 0, 0 } },	      { { 0, LEN + 1 }, { 0, 0 } },
		{ { UINT64_MAX, 2 }, { 0, 0 } },      { { 1, UINT64_MAX }, { 0, 2 } },
		{ { 0, 1 }, { 0, 1 } },		      { { 0, 0 }, { 0, 0 } },
	};
	struct msg_run run[2];
	struct accepting a;
	struct wire w;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		begin_copy(&w, &a);
		run[0] = (struct msg_run){ htole64(bad[i][0].off), htole64(bad[i][0].len) };
		run[1] = (struct msg_run){ htole64(bad[i][1].off), htole64(bad[i][1].len) };
		/* As if one byte followed. */
		say_head(&w, MSG_DATA, 2, sizeof(run) + 1);
		wire_write(&w, run, sizeof(run), until());
		end_owner(&w, &a, -EPROTO);
	}
}

static void handles_that_are_none(void **state)
{
	struct msg_handle h = { .name = 1, .len = 8, .access = KEDGE_HANDLE_READ }, bad[4];
	struct accepting a;
	struct wire w;
	size_t i;

	for (i = 0; i < 4; i++)
		bad[i] = h;
	bad[0].access = 64;
	bad[1].offset = 4;
	bad[2].offset = LEN;
	bad[3].len = UINT64_MAX;
	for (i = 0; i < 4; i++) {
		begin_copy(&w, &a);
		assert_int_equal(wire_send_handles(&w, ID, &bad[i], 1, until()), 0);
		end_owner(&w, &a, -EPROTO);
	}
}

/* All of it, and then not the region of what was shown: no verdict is heard but its own. */
static void verdicts_of_others(void **state)
{
	const struct msg other = { .op = MSG_COMMIT, .id = ID + 1 };
	struct accepting a;
	struct wire w, late;
	struct msg m;

	begin_copy(&w, &a);
	say(&w, MSG_FINAL, 0, NULL, 0);
	expect(&w, MSG_READY);
	wire_send(&w, &other, NULL, until());
	assert_true(wire_hear(&w, &m, until()) < 0);
	/* It waits for its owner now, which asks by another connection. */
	wire_end(&w);
	dial_by(&ticket, &late, INVITE_WHOLE);
	say(&late, MSG_ABORT, 0, NULL, 0);
	end_owner(&late, &a, -ECANCELED);
}

/* ---- the test is what the region goes to ---- */

struct answering {
	pthread_t thread;
	struct invite invite;
	uint32_t at; /* this message is answered so: */
	struct msg answer;
	const void *data;
};

static bool answers(struct answering *a, struct wire *w, uint32_t op, uint64_t id, uint32_t right)
{
	struct msg m = { .op = right, .id = id };

	if (op != a->at)
		return !wire_send(w, &m, NULL, until());
	m = a->answer;
	m.id += id;
	wire_send(w, &m, m.len ? a->data : NULL, until());
	return false;
}

static void *receives(void *arg)
{
	static char waste[MSG_DATA_MAX];
	struct answering *a = arg;
	struct wire w = { .fd = -1 };
	struct invite_conn c;
	struct msg m;
	bool go = true;

	if (!invite_wait(&a->invite, until()) || !invite_take(&a->invite, &c))
		abort();
	/* Of the keeper's table: this thread has it, as keeper_call() started it. */
	wire_begin(&w, c.fd, c.tcp, c.seal);
	while (go && !wire_hear(&w, &m, until())) {
		if (m.len && wire_read(&w, waste, m.len, until()))
			break;
		if (m.op == MSG_BEGIN || m.op == MSG_SYNC)
			go = answers(a, &w, m.op, m.id, MSG_OK);
		else if (m.op == MSG_FINAL)
			go = answers(a, &w, m.op, m.id, MSG_READY);
		else if (m.op == MSG_COMMIT)
			go = answers(a, &w, m.op, m.id, MSG_DONE);
		else if (m.op == MSG_ABORT)
			go = false;
	}
	wire_end(&w);
	return NULL;
}

static int start_receiving(void *arg)
{
	struct answering *a = arg;

	return thread_start(&a->thread, receives, a);
}

static void try_answer(uint32_t at, struct msg answer, const void *data, int rc)
{
	struct answering a = { .at = at, .answer = answer, .data = data };
	struct kedge_migrate_opts o = { .size = sizeof(o), .timeout_ms = 2000 };
	struct handle_words to;
	struct kedge_handle h;

	assert_true(handle_read(&ticket, &to));
	invite_add(&a.invite);
	to.generation = a.invite.number;
	memcpy(to.key, a.invite.key, sizeof(to.key));
	handle_write(&to, &h);
	assert_int_equal(keeper_call(start_receiving, &a), 0);
	assert_int_equal(kedge_region_migrate(region, &h, &o, NULL), rc);
	pthread_join(a.thread, NULL);
	invite_remove(&a.invite);
	/* It is here, and can be changed. */
	region_at()[1] = 'x';
	puts_byte(remote, 0, 'y');
	assert_int_equal(kedge_region_grow(region, LEN * 2), 0);
	assert_int_equal(kedge_region_trim(region, LEN), 0);
}

static void answers_that_are_none(void **state)
{
	static const char why[REASON_LEN + 8] = "it does not want to";
	static const uint32_t at[] = { MSG_BEGIN, MSG_SYNC, MSG_FINAL };
	size_t i;

	begin_remote(NULL);
	for (i = 0; i < 3; i++) {
		try_answer(at[i], (struct msg){ .op = MSG_DONE }, NULL, -EPROTO);
		try_answer(at[i], (struct msg){ .op = MSG_OK, .id = 1 }, NULL, -EPROTO);
		try_answer(at[i], (struct msg){ .op = MSG_OK, .len = 1 }, why, -EPROTO);
		try_answer(at[i], (struct msg){ .op = UINT32_MAX }, NULL, -EPROTO);
		try_answer(at[i], (struct msg){ .op = MSG_REFUSE, .rc = -EDQUOT, .len = 19 }, why,
			   -EREMOTEIO);
		assert_non_null(strstr(kedge_strerror(-EREMOTEIO), "it does not want to"));
		try_answer(at[i], (struct msg){ .op = MSG_REFUSE, .len = REASON_LEN + 1 }, why,
			   -EPROTO);
	}
	end_remote();
}

/* The end of the connection behind the last message, and of nothing else, is that of an owner that
 * was killed when all of it was there. The invitation is used then. */
static void an_owner_that_ends_leaves_it(void **state)
{
	const struct msg_run run = { LEN / 2, 8 };
	char data[LEN] = { 0 };
	struct accepting a;
	struct wire w;

	memcpy(data + LEN / 2, "the last", 8);
	begin_copy(&w, &a);
	assert_int_equal(wire_send_runs(&w, ID, data, &run, 1, until()), 0);
	say(&w, MSG_FINAL, 0, NULL, 0);
	expect(&w, MSG_READY);
	wire_end(&w);
	pthread_join(a.thread, NULL);
	assert_int_equal(a.rc, 0);
	region = a.r;
	assert_memory_equal(region_at() + LEN / 2, "the last", 8);
	kedge_region_close(region);
	assert_int_equal(kedge_invitation_accept(invitation, 0, &region), -EALREADY);
	kedge_invitation_close(invitation);
}

/* ---- a former owner that does not say that it knows ---- */

static void dial_and_leave(void)
{
	struct wire w;

	dial_by(&ticket, &w, INVITE_OPEN);
	wire_end(&w);
}

static void take_office(struct wire *w, struct accepting *a)
{
	assert_int_equal(kedge_invitation_open(NULL, &invitation, &ticket), 0);
	begin_copy(w, a);
	say(w, MSG_FINAL, 0, NULL, 0);
	expect(w, MSG_READY);
	say(w, MSG_COMMIT, 0, NULL, 0);
	expect(w, MSG_DONE);
}

static int go_on(struct kedge_region *r, unsigned int ms)
{
	const struct kedge_migrate_opts o = { .size = sizeof(o), .timeout_ms = ms };
	struct accepting a = { .r = NULL };
	int rc;

	kedge_invitation_close(invitation);
	assert_int_equal(kedge_invitation_open(NULL, &invitation, &ticket), 0);
	assert_int_equal(pthread_create(&a.thread, NULL, accepts, &a), 0);
	rc = kedge_region_migrate(r, &ticket, &o, NULL);
	/* One that was not used is waited with no longer. */
	if (rc)
		dial_and_leave();
	pthread_join(a.thread, NULL);
	assert_int_equal(a.rc, rc ? -ECONNRESET : 0);
	kedge_region_close(a.r);
	return rc;
}

static void leave_office(struct accepting *a)
{
	kedge_region_close(a->r);
	kedge_invitation_close(invitation);
}

/* It cannot take the region for its own any more, whether it ends before the new owner knows that
 * it is one, or later. */
static void one_that_has_ended_keeps_nothing(void **state)
{
	struct accepting a;
	struct wire w;
	int late;

	for (late = 0; late < 2; late++) {
		take_office(&w, &a);
		if (late)
			MOVE_UNTIL(100, !pthread_tryjoin_np(a.thread, NULL));
		wire_end(&w);
		if (!late)
			pthread_join(a.thread, NULL);
		assert_int_equal(go_on(a.r, SOON_MS), 0);
		leave_office(&a);
	}
}

static void one_that_is_late_is_heard(void **state)
{
	struct accepting a;
	struct wire w;

	take_office(&w, &a);
	/* It comes without that. */
	MOVE_UNTIL(100, !pthread_tryjoin_np(a.thread, NULL));
	assert_int_equal(a.rc, 0);
	assert_int_equal(go_on(a.r, 1), -ETIMEDOUT);
	say(&w, MSG_HEARD, 0, NULL, 0);
	assert_int_equal(go_on(a.r, SOON_MS), 0);
	wire_end(&w);
	leave_office(&a);
}

/* The end of what it asked by, and of one that brings another region, prove nothing. */
static void one_that_asks_is_waited_for(void **state)
{
	struct kedge_handle first;
	struct accepting a;
	struct wire w;

	take_office(&w, &a);
	first = ticket;
	say(&w, MSG_ASKS, 0, NULL, 0);
	wire_end(&w);
	pthread_join(a.thread, NULL);
	dial_by(&first, &w, INVITE_OWNER);
	wire_end(&w);
	assert_int_equal(go_on(a.r, 50), -ETIMEDOUT);
	dial_by(&first, &w, INVITE_OWNER);
	say(&w, MSG_HEARD, 0, NULL, 0);
	assert_int_equal(go_on(a.r, SOON_MS), 0);
	wire_end(&w);
	leave_office(&a);
}

/* The connection that was kept goes with the region. */
static void one_that_is_silent_is_let_go(void **state)
{
	struct accepting a;
	struct wire w;
	struct msg m;

	take_office(&w, &a);
	MOVE_UNTIL(100, !pthread_tryjoin_np(a.thread, NULL));
	leave_office(&a);
	assert_int_equal(wire_hear(&w, &m, until()), -EPIPE);
	wire_end(&w);
}

static int open_invitation(void **state)
{
	assert_int_equal(kedge_invitation_open(NULL, &invitation, &ticket), 0);
	return 0;
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(sizes_that_are_none),
	cmocka_unit_test(messages_that_are_none),
	cmocka_unit_test(ranges_that_are_none),
	cmocka_unit_test(handles_that_are_none),
	cmocka_unit_test(verdicts_of_others),
	cmocka_unit_test(answers_that_are_none),
	cmocka_unit_test(an_owner_that_ends_leaves_it),
	cmocka_unit_test(one_that_has_ended_keeps_nothing),
	cmocka_unit_test(one_that_is_late_is_heard),
	cmocka_unit_test(one_that_asks_is_waited_for),
	cmocka_unit_test(one_that_is_silent_is_let_go),
};

const struct suite suite = { "migrate_hostile", SUITE_OF(tests), .by = "stream",
			     .first = test_clock_begin, .begin = open_invitation };
