// SPDX-License-Identifier: BSD-2-Clause
/* Handles and what peers do by them, as a program uses them. */
#include <ctype.h>
#include <sys/resource.h>

#include "remote.h"
#include "suites.h"

/* ---- handles ---- */

static void a_handle_is_the_same_as_text(void **state)
{
	char text[KEDGE_HANDLE_TEXT], spaced[KEDGE_HANDLE_TEXT + 8];
	struct kedge_handle h;

	make_region(LEN, NULL);
	assert_int_equal(kedge_handle_print(&handle, text, sizeof(text)), 0);
	assert_int_equal(strncmp(text, "kedge1:", 7), 0);
	snprintf(spaced, sizeof(spaced), " %s\n", text);
	assert_int_equal(kedge_handle_parse(spaced, &h), 0);
	assert_memory_equal(&h, &handle, sizeof(h));
	assert_int_equal(kedge_handle_print(&handle, text, sizeof(text) - 1), -ENOBUFS);
	kedge_region_close(region);
}

static void what_is_no_handle_is_refused(void **state)
{
	char text[KEDGE_HANDLE_TEXT], longer[2 * KEDGE_HANDLE_TEXT];
	struct kedge_handle h, zero = { { 0 } };
	size_t i;

	make_region(LEN, NULL);
	kedge_handle_print(&handle, text, sizeof(text));
	snprintf(longer, sizeof(longer), "%s%s", text, text + 7);
	assert_int_equal(kedge_handle_parse(longer, &h), -EINVAL);
	snprintf(longer, sizeof(longer), "%s", text);
	longer[60] = (char)0xaf;
	assert_int_equal(kedge_handle_parse(longer, &h), -EINVAL);
	snprintf(longer, sizeof(longer), "%s x", text);
	assert_int_equal(kedge_handle_parse(longer, &h), -EINVAL);
	for (i = strlen(text); i-- > 0;) {
		text[i] = '\0';
		assert_int_equal(kedge_handle_parse(text, &h), -EINVAL);
	}
	assert_int_equal(kedge_handle_parse("kedge1:!!", &h), -EINVAL);
	assert_int_equal(kedge_handle_parse(NULL, &h), -EINVAL);
	assert_int_equal(kedge_remote_open(&zero, 0, &remote), -EINVAL);
	assert_int_equal(kedge_remote_open(NULL, 0, &remote), -EINVAL);
	kedge_region_close(region);
}

static void a_guess_is_refused(void **state)
{
	struct kedge_remote *r;
	size_t i;
	int rc;

	/* Not other hosts' addresses, which are behind these. */
	for (i = 0; i < (way->node ? 56 : sizeof(handle)); i++) {
		handle.bytes[i] ^= 1;
		rc = kedge_remote_open(&handle, SOON_MS, &r);
		/* The region's number does not matter, nor, over TCP, which other host it is
		 * and its name there. */
		if (!rc && i >= (way->node ? 16 : 32) && i < 40)
			kedge_remote_close(r);
		else
			assert_true(rc == -EKEYREJECTED || rc == -EINVAL ||
				    rc == -EHOSTUNREACH || rc == -ECONNREFUSED);
		handle.bytes[i] ^= 1;
	}
	r = open_it();
	assert_int_equal(kedge_remote_put(r, 0, "x", 1, 0), 0);
	kedge_remote_close(r);
}

/* ---- accesses ---- */

static void another_process_puts_and_gets(void **state)
{
	const char *at;
	char got[64];
	pid_t pid;

	need_threads_after_fork();
	make_region(LEN, NULL);
	memcpy(region_at() + 4096, "the owner's", 12);
	pid = fork_child();
	if (!pid) {
		CHILD_CHECK(!kedge_remote_open(&handle, SOON_MS, &remote));
		CHILD_CHECK(!kedge_remote_get(remote, 4096, got, 12, 0));
		CHILD_CHECK(!strcmp(got, "the owner's"));
		CHILD_CHECK(!kedge_remote_put(remote, LEN - 6, "peers", 6, 0));
		kedge_remote_close(remote);
		_exit(0);
	}
	reap(pid);
	at = region_at();
	assert_string_equal(at + LEN - 6, "peers");
	kedge_region_close(region);
}

static void what_is_beyond_fails_alone(void **state)
{
	char c[16] = { 0 };
	uint64_t old;

	assert_int_equal(kedge_remote_put(remote, LEN, c, 1, 0), -EFAULT);
	assert_int_equal(kedge_remote_put(remote, LEN - 8, c, 9, 0), -EFAULT);
	assert_int_equal(kedge_remote_get(remote, UINT64_MAX, c, 1, 0), -EFAULT);
	assert_int_equal(kedge_remote_get(remote, UINT64_MAX - 7, c, 8, 0), -EFAULT);
	assert_int_equal(kedge_remote_get(remote, 8, c, SIZE_MAX, 0), -EFAULT);
	assert_int_equal(kedge_remote_fetch_add(remote, LEN, 1, &old, 0), -EFAULT);
	assert_int_equal(kedge_remote_put(remote, LEN - 8, c, 8, 0), 0);
	assert_int_equal(kedge_remote_get(remote, 0, NULL, 0, 0), 0);
	assert_int_equal(kedge_remote_get(remote, 0, NULL, 1, 0), -EINVAL);
}

static void numbers_are_changed_atomically(void **state)
{
	uint64_t *at, old;

	at = (uint64_t *)(void *)region_at();
	assert_int_equal(kedge_remote_fetch_add(remote, 8, 5, &old, 0), 0);
	assert_int_equal(old, 0);
	assert_int_equal(kedge_remote_fetch_add(remote, 8, UINT64_MAX, &old, 0), 0);
	assert_int_equal(old, 5);
	assert_int_equal(at[1], 4);
	assert_int_equal(kedge_remote_compare_swap(remote, 8, 4, 9, &old, 0), 0);
	assert_int_equal(old, 4);
	assert_int_equal(kedge_remote_compare_swap(remote, 8, 4, 10, &old, 0), 0);
	assert_int_equal(old, 9);
	assert_int_equal(at[1], 9);
	assert_int_equal(kedge_remote_fetch_add(remote, 4, 1, NULL, 0), -EINVAL);
}

static void a_handle_gives_what_it_says(void **state)
{
	const struct kedge_handle_opts read = { .size = sizeof(read),
						.access = KEDGE_HANDLE_READ };
	const struct kedge_handle_opts write = { .size = sizeof(write),
						 .access = KEDGE_HANDLE_WRITE };
	char c = 1;

	begin_remote(&read);
	assert_int_equal(kedge_remote_get(remote, 0, &c, 1, 0), 0);
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, 0), -EACCES);
	assert_int_equal(kedge_remote_fetch_add(remote, 0, 1, NULL, 0), -EACCES);
	kedge_remote_close(remote);
	advertise(&write);
	remote = open_it();
	assert_int_equal(kedge_remote_get(remote, 0, &c, 1, 0), -EACCES);
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, 0), 0);
	assert_int_equal(kedge_remote_compare_swap(remote, 0, 1, 1, NULL, 0), -EACCES);
	end_remote();
}

static void a_part_is_no_more(void **state)
{
	const struct kedge_handle_opts part = { .size = sizeof(part), .offset = 4104,
						.len = 4096 };
	struct kedge_handle_opts bad = { .size = sizeof(bad), .offset = 4 };
	char c = 7;

	begin_remote(&part);
	assert_int_equal(remote_len(remote), 4096);
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, 0), 0);
	assert_int_equal(region_at()[4104], 7);
	assert_int_equal(kedge_remote_put(remote, 4095, &c, 1, 0), 0);
	assert_int_equal(kedge_remote_put(remote, 4096, &c, 1, 0), -EFAULT);
	assert_int_equal(region_at()[8199], 7);
	assert_int_equal(region_at()[8200], 0);
	assert_int_equal(kedge_region_advertise(region, &bad, &handle), -EINVAL);
	bad.offset = (uint64_t)1 << 62;
	assert_int_equal(kedge_region_advertise(region, &bad, &handle), -EINVAL);
	bad.offset = 0;
	bad.len = (uint64_t)1 << 62;
	assert_int_equal(kedge_region_advertise(region, &bad, &handle), -EINVAL);
	bad.len = 0;
	bad.access = 8;
	assert_int_equal(kedge_region_advertise(region, &bad, &handle), -EINVAL);
	assert_int_equal(kedge_region_advertise(region, NULL, NULL), -EINVAL);
	assert_int_equal(kedge_region_advertise(NULL, NULL, &handle), -EINVAL);
	end_remote();
}

static void several_parts_are_one_access(void **state)
{
	char a[3] = "aa", b[5] = "bbbb", c[LEN];
	const struct kedge_remote_part put[] = {
		{ 100, a, 2 }, { LEN - 4, b, 4 }, { 7, NULL, 0 }, { 101, b, 2 },
	};
	struct kedge_remote_part get[] = { { LEN - 4, c, 4 }, { 99, c + 4, 5 } };
	struct kedge_remote_part bad[] = { { LEN - 3, b, 4 }, { 0, b, 4 } };

	assert_int_equal(kedge_remote_put_parts(remote, put, 4, SOON_MS), 0);
	assert_memory_equal(region_at() + 99, "\0abb\0", 5);
	assert_int_equal(kedge_remote_get_parts(remote, get, 2, SOON_MS), 0);
	assert_memory_equal(c, "bbbb\0abb\0", 9);
	/* None is stored where one is not there. */
	assert_int_equal(kedge_remote_put_parts(remote, bad, 2, SOON_MS), -EFAULT);
	bad[0].offset = UINT64_MAX - 1;
	assert_int_equal(kedge_remote_put_parts(remote, bad, 2, SOON_MS), -EFAULT);
	assert_int_equal(region_at()[0], 0);
	bad[0].data = NULL;
	assert_int_equal(kedge_remote_put_parts(remote, bad, 2, SOON_MS), -EINVAL);
	assert_int_equal(kedge_remote_get_parts(remote, NULL, 1, SOON_MS), -EINVAL);
	assert_int_equal(kedge_remote_get_parts(NULL, get, 1, SOON_MS), -EINVAL);
	assert_int_equal(kedge_remote_get_parts(remote, NULL, 0, SOON_MS), 0);
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	assert_int_equal(kedge_remote_put_parts(remote, put, 4, 10), -ETIMEDOUT);
	assert_int_equal(kedge_region_resume(region), 0);
}

/* ---- a region that changes ---- */

static void it_grows_and_is_trimmed_under_a_handle(void **state)
{
	char c = 3;

	assert_int_equal(kedge_region_grow(region, 4 * LEN), 0);
	assert_int_equal(remote_len(remote), 4 * LEN);
	assert_int_equal(kedge_remote_put(remote, 4 * LEN - 1, &c, 1, 0), 0);
	assert_int_equal(region_at()[4 * LEN - 1], 3);
	assert_int_equal(kedge_region_trim(region, LEN), 0);
	assert_int_equal(kedge_remote_put(remote, LEN, &c, 1, 0), -EFAULT);
	assert_int_equal(kedge_remote_put(remote, LEN - 1, &c, 1, 0), 0);
	assert_int_equal(kedge_region_grow(region, 2 * LEN), 0);
	assert_int_equal(kedge_remote_get(remote, 2 * LEN - 1, &c, 1, 0), 0);
	assert_int_equal(c, 0);
}

static void a_suspended_region_is_waited_for(void **state)
{
	char c = 1;

	assert_int_equal(kedge_region_resume(region), -EINVAL);
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, 0), -ETIMEDOUT);
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, 30), -ETIMEDOUT);
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	assert_int_equal(kedge_region_resume(region), 0);
	assert_int_equal(kedge_remote_get(remote, 0, &c, 1, 0), -ETIMEDOUT);
	/* One that comes then waits, too; and it may grow and be trimmed meanwhile. */
	kedge_remote_close(remote);
	remote = open_it();
	assert_int_equal(kedge_remote_get(remote, 0, &c, 1, 0), -ETIMEDOUT);
	assert_int_equal(kedge_region_grow(region, 2 * LEN), 0);
	assert_int_equal(kedge_region_trim(region, LEN), 0);
	assert_int_equal(kedge_remote_get(remote, 0, &c, 1, 0), -ETIMEDOUT);
	assert_int_equal(kedge_region_resume(region), 0);
	assert_int_equal(kedge_remote_get(remote, 0, &c, 1, 0), 0);
	assert_int_equal(kedge_region_resume(region), -EINVAL);
	assert_int_equal(c, 0);
}

static void it_is_moved_under_a_handle(void **state)
{
	const struct kedge_handle_opts part = { .size = sizeof(part), .offset = 4104 };
	struct kedge_move_opts o = { .size = sizeof(o), .flags = KEDGE_MOVE_HUGE };
	const uint64_t before = bytes_had();
	struct kedge_remote *second;
	uint64_t pause = 0;
	char *at, c = 5;
	int rc;

	begin_remote(NULL);
	advertise(&part);
	second = open_it();
	at = region_at();
	at[LEN - 1] = 9;
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, 0), 0);
	assert_int_equal(kedge_region_move(region, NULL, SOON_MS, &pause), 0);
	assert_true(pause > 0);
	assert_ptr_equal(region_at(), at);
	assert_int_equal(at[0], 5);
	at[4104] = 7;
	gets_byte(second, 0, 7);
	gets_byte(remote, LEN - 1, 9);
	/* One that does not wait asks at first, and has the answer later. */
	assert_int_equal(kedge_region_move(region, NULL, SOON_MS, NULL), 0);
	while ((rc = kedge_remote_get(remote, LEN - 1, &c, 1, 0)) == -ETIMEDOUT)
		usleep(100);
	assert_int_equal(rc, 0);
	/* Twice before a peer looks, and other ways of growing on. */
	assert_int_equal(kedge_region_move(region, &o, SOON_MS, NULL), 0);
	assert_int_equal(kedge_region_grow(region, 2 * LEN), 0);
	assert_int_equal(kedge_region_move(region, NULL, SOON_MS, NULL), 0);
	assert_int_equal(kedge_remote_put(remote, 2 * LEN - 1, &c, 1, SOON_MS), 0);
	assert_int_equal(at[2 * LEN - 1], 9);
	assert_int_equal(kedge_region_trim(region, LEN), 0);
	assert_int_equal(kedge_remote_put(second, LEN - 4104, &c, 1, SOON_MS), -EFAULT);
	assert_int_equal(bytes_had() - before, LEN);
	kedge_remote_close(second);
	end_remote();
	assert_int_equal(bytes_had(), before);
}

static void what_cannot_be_moved_stays(void **state)
{
	struct kedge_move_opts o = { .size = sizeof(o), .flags = KEDGE_MOVE_NODE, .node = 1023 };
	char c = 5;

	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, 0), 0);
	assert_int_equal(kedge_region_move(region, &o, SOON_MS, NULL), -EINVAL);
	o.node = 1024;
	assert_int_equal(kedge_region_move(region, &o, SOON_MS, NULL), -EINVAL);
	o.flags = 64;
	assert_int_equal(kedge_region_move(region, &o, SOON_MS, NULL), -EINVAL);
	kedge_region_budget_set(LEN);
	assert_int_equal(kedge_region_move(region, NULL, SOON_MS, NULL), -EDQUOT);
	kedge_region_budget_set(UINT64_MAX);
	assert_int_equal(kedge_remote_get(remote, 0, &c, 1, 0), 0);
	assert_int_equal(c, 5);
	o.flags = KEDGE_MOVE_NODE;
	o.node = 0;
	assert_int_equal(kedge_region_move(region, &o, SOON_MS, NULL), 0);
	gets_byte(remote, 0, 5);
}

/* ---- ends ---- */

static void a_revoked_handle_ends_alone(void **state)
{
	struct kedge_handle other;
	struct kedge_remote *second, *r;
	char c = 1;

	other = handle;
	advertise(NULL);
	second = open_it();
	assert_int_equal(kedge_region_revoke(region, &other), 0);
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, 0), -EKEYREVOKED);
	assert_int_equal(kedge_remote_open(&other, SOON_MS, &r), -EKEYREVOKED);
	assert_int_equal(kedge_region_revoke(region, &other), -ENOENT);
	assert_int_equal(kedge_remote_put(second, 0, &c, 1, 0), 0);
	/* Its place is another one's now. */
	advertise(NULL);
	assert_int_equal(kedge_remote_open(&other, SOON_MS, &r), -EKEYREVOKED);
	kedge_remote_close(second);
	second = open_it();
	assert_int_equal(kedge_remote_get(second, 0, &c, 1, 0), 0);
	kedge_remote_close(second);
	memset(&other, 0, sizeof(other));
	assert_int_equal(kedge_region_revoke(region, &other), -ENOENT);
	assert_int_equal(kedge_region_revoke(region, NULL), -EINVAL);
}

/* However soon one comes after the other. */
static void every_access_is_too_late(void)
{
	struct kedge_remote_part part = { 8, NULL, 1 };
	uint64_t was;
	char c = 7;
	int i;

	part.data = &c;
	for (i = 0; i < 1000; i++) {
		assert_int_equal(kedge_remote_put(remote, 8, &c, 1, 0), -EKEYEXPIRED);
		assert_int_equal(kedge_remote_get(remote, 8, &c, 1, 0), -EKEYEXPIRED);
		assert_int_equal(kedge_remote_fetch_add(remote, 8, 1, &was, 0), -EKEYEXPIRED);
		assert_int_equal(kedge_remote_put_parts(remote, &part, 1, 0), -EKEYEXPIRED);
	}
	assert_int_equal(region_at()[8], 0);
}

static void time_ends_a_handle(void **state)
{
	struct kedge_handle_opts o = { .size = sizeof(o), .expires_ms = 300 };
	struct kedge_remote *r;
	char c = 1;
	int rc;

	make_region(LEN, &o);
	/* A machine may be slower than that. */
	while ((rc = kedge_remote_open(&handle, SOON_MS, &remote)) == -EKEYEXPIRED) {
		o.expires_ms *= 2;
		advertise(&o);
	}
	assert_int_equal(rc, 0);
	while ((rc = kedge_remote_get(remote, 0, &c, 1, 0)) == 0)
		usleep(1000);
	assert_int_equal(rc, -EKEYEXPIRED);
	every_access_is_too_late();
	while ((rc = kedge_remote_open(&handle, SOON_MS, &r)) == 0)
		kedge_remote_close(r);
	assert_int_equal(rc, -EKEYEXPIRED);
	assert_int_equal(kedge_region_revoke(region, &handle), 0);
	end_remote();
}

static void a_closed_region_has_no_peers(void **state)
{
	struct kedge_region *other;
	struct kedge_remote *r;
	char c = 1;

	begin_remote(NULL);
	assert_int_equal(kedge_region_create(1, NULL, &other), 0);
	kedge_region_close(region);
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, 0), -EKEYREVOKED);
	assert_int_equal(kedge_remote_open(&handle, SOON_MS, &r), -EKEYREVOKED);
	/* With the last one the thread ends; the next one has another. */
	kedge_region_close(other);
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, SOON_MS), -EKEYREVOKED);
	assert_int_equal(kedge_remote_open(&handle, SOON_MS, &r), -ECONNREFUSED);
	kedge_remote_close(remote);
	begin_remote(NULL);
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, 0), 0);
	end_remote();
}

/* Mappings of regions, and of gates. */
static int mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	int n = 0;

	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, "memfd:kedge") != NULL;
	if (f)
		fclose(f);
	return f ? n : -1;
}

/* The region at two addresses of the owner's, or gate and region of both. The fake of an adapter
 * has one of its own from when the lease is given, by a thread in its own time. */
#define MAPPINGS (way->leased ? 3 : way->served ? 2 : 4)

static void await_mappings(void)
{
	const uint64_t limit = now_ns() + HANG_S * UINT64_C(1000000000);
	int n;

	while ((n = mappings()) != MAPPINGS) {
		if (now_ns() > limit)
			fail_msg("%d mappings of regions and gates, for ever", n);
		usleep(1000);
	}
}

static void a_child_has_none_of_it(void **state)
{
	struct kedge_remote_info info = { .size = sizeof(info) };
	char c = 1;
	pid_t pid;

	need_threads_after_fork();
	begin_remote(NULL);
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, SOON_MS), 0);
	await_mappings();
	pid = fork_child();
	if (!pid) {
		CHILD_CHECK(mappings() == 0);
		CHILD_CHECK(kedge_remote_put(remote, 0, &c, 1, 0) == -ECHILD);
		CHILD_CHECK(kedge_remote_query(remote, &info) == -ECHILD);
		CHILD_CHECK(kedge_region_suspend(region, 0) == -ECHILD);
		CHILD_CHECK(kedge_region_advertise(region, NULL, &handle) == -ECHILD);
		kedge_remote_close(remote);
		kedge_region_close(region);
		make_region(LEN, NULL);
		remote = open_it();
		CHILD_CHECK(!kedge_remote_put(remote, 0, &c, 1, 0));
		end_remote();
		_exit(0);
	}
	reap(pid);
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, 0), 0);
	end_remote();
}

/* A holder of the handle may have its accesses; but the memory only as the same user. */
static void another_user_is_served(void **state)
{
	struct kedge_remote_info info = { .size = sizeof(info) };
	struct kedge_remote *r;
	pid_t pid;

	need_threads_after_fork();
	if (geteuid()) {
		print_message("skipped: only root can be another user\n");
		skip();
	}
	make_region(LEN, NULL);
	pid = fork_child();
	if (!pid) {
		CHILD_CHECK(!setresuid(65534, 65534, 65534));
		CHILD_CHECK(!kedge_remote_open(&handle, SOON_MS, &r));
		CHILD_CHECK(!kedge_remote_query(r, &info));
		CHILD_CHECK(info.way == KEDGE_REMOTE_SERVED && info.len == LEN);
		CHILD_CHECK(!kedge_remote_put(r, 1, "!", 1, SOON_MS));
		kedge_remote_close(r);
		handle.bytes[40] ^= 1;
		CHILD_CHECK(kedge_remote_open(&handle, SOON_MS, &r) == -EKEYREJECTED);
		_exit(0);
	}
	reap(pid);
	assert_int_equal(region_at()[1], '!');
	kedge_region_close(region);
}

/* ---- many ---- */

static void many_handles_are_told_apart(void **state)
{
	enum { MANY = 5000 };
	struct kedge_handle *h = calloc(MANY, sizeof(*h));
	struct kedge_remote *r;
	int i;

	assert_non_null(h);
	begin_remote(NULL);
	for (i = 0; i < MANY; i++)
		assert_int_equal(kedge_region_advertise(region, NULL, &h[i]), 0);
	for (i = 0; i < MANY; i += 2)
		assert_int_equal(kedge_region_revoke(region, &h[i]), 0);
	for (i = 0; i < MANY; i += 500) {
		assert_int_equal(kedge_remote_open(&h[i], SOON_MS, &r), -EKEYREVOKED);
		assert_int_equal(kedge_remote_open(&h[i + 1], SOON_MS, &r), 0);
		kedge_remote_close(r);
	}
	end_remote();
	free(h);
}

static void peers_that_come_and_go_leave_nothing(void **state)
{
	struct kedge_remote *r;
	char c = 1;
	int i;

	for (i = 0; i < (way->served ? 500 : 3000); i++) {
		r = open_it();
		assert_int_equal(kedge_remote_put(r, 0, &c, 1, 0), 0);
		kedge_remote_close(r);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_handle_is_the_same_as_text),
	cmocka_unit_test(what_is_no_handle_is_refused),
	remote_case(a_guess_is_refused),
	cmocka_unit_test(another_process_puts_and_gets),
	remote_case(what_is_beyond_fails_alone),
	remote_case(numbers_are_changed_atomically),
	cmocka_unit_test(a_handle_gives_what_it_says),
	cmocka_unit_test(a_part_is_no_more),
	remote_case(several_parts_are_one_access),
	remote_case(it_grows_and_is_trimmed_under_a_handle),
	remote_case(a_suspended_region_is_waited_for),
	cmocka_unit_test(it_is_moved_under_a_handle),
	remote_case(what_cannot_be_moved_stays),
	remote_case(a_revoked_handle_ends_alone),
	cmocka_unit_test(time_ends_a_handle),
	cmocka_unit_test(a_closed_region_has_no_peers),
	cmocka_unit_test(a_child_has_none_of_it),
	cmocka_unit_test(another_user_is_served),
	cmocka_unit_test(many_handles_are_told_apart),
	remote_case(peers_that_come_and_go_leave_nothing),
};

const struct suite suite_remote = {
	.name = "remote", SUITE_OF(tests), .by = "mapped",
};
