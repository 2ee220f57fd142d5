// SPDX-License-Identifier: BSD-2-Clause
/*
 * Buffers that are not what their owner believes: not mapped, protected, half of
 * it, or beyond the end of a file. By each way, on either side, the message ends
 * with -EFAULT, nothing is written where nothing may be, and the channel goes on.
 */
#include "cases.h"
#include "channel/access.h"

#define EAGER_LEN ((size_t)6000)
#define LONG	  (6 * MIB)
#define AREA	  (8 * MIB)

/* The fault of the memory. */
enum bad {
	NOT_MAPPED,
	NO_ACCESS,
	READ_ONLY,
	END_READ_ONLY, /* from its middle on */
	END_NOT_MAPPED,
	READ_ONLY_FILE,
	BEYOND_FILE,
	GUARDED, /* by MADV_GUARD_INSTALL, which no mapping shows */
	BADS
};

static const char *const bad_name[BADS] = {
	"not mapped",	  "no access",	    "read-only",
	"end read-only",  "end not mapped", "file mapped read-only",
	"beyond its file", "guarded",
};

static char *good;

/* A page's boundary within. */
static size_t half_of(size_t len)
{
	return len / 2 < page_len() ? page_len()
				    : len / 2 / page_len() * page_len();
}

static char *map_file(size_t file_len, int prot, size_t len)
{
	FILE *f = tmpfile();
	char *p;

	assert_non_null(f);
	assert_int_equal(ftruncate(fileno(f), (off_t)file_len), 0);
	p = mmap(NULL, len, prot, MAP_SHARED, fileno(f), 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	fclose(f);
	return p;
}

/* NULL: this kernel has no such thing. */
static char *bad_buffer(enum bad what, size_t len)
{
	size_t half = half_of(len);
	char *p;

	/* Guard pages are seen in short messages alone. */
	if (what == GUARDED && len > EAGER_LEN)
		return NULL;
	if (what == READ_ONLY_FILE)
		return map_file(len, PROT_READ, len);
	if (what == BEYOND_FILE)
		return map_file(half, PROT_READ | PROT_WRITE, len);
	/* Where the kernel puts no other mapping when a part is gone. */
	p = mmap((void *)0x566000000000, len, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	memset(p, 0x77, len);
	switch (what) {
	case NOT_MAPPED:
		munmap(p, len);
		break;
	case NO_ACCESS:
		mprotect(p, len, PROT_NONE);
		break;
	case READ_ONLY:
		mprotect(p, len, PROT_READ);
		break;
	case END_READ_ONLY:
		mprotect(p + half, len - half, PROT_READ);
		break;
	case END_NOT_MAPPED:
		munmap(p + half, len - half);
		break;
	case GUARDED:
		if (madvise(p + half, page_len(), 102 /* GUARD_INSTALL */)) {
			munmap(p, len);
			return NULL;
		}
		break;
	default:
		break;
	}
	return p;
}

/* True: memory that may not be written is as it was. */
static bool is_untouched(enum bad what, char *p, size_t len)
{
	size_t i = 0;

	if (what != NO_ACCESS && what != READ_ONLY && what != END_READ_ONLY)
		return true;
	if (what == END_READ_ONLY)
		i = half_of(len);
	assert_int_equal(mprotect(p, len, PROT_READ), 0);
	for (; i < len; i++)
		if (p[i] != 0x77)
			return false;
	return true;
}

/* Each of both can still do all. */
static void goes_on(size_t len)
{
	char *in = malloc(len);

	a.cnt = b.cnt = 0;
	fill(good, len, 5);
	post(&b, in, len, TAG(99), 1);
	if (put(&a, good, len, 99))
		turns(0, 1);
	else
		turns(1, 1);
	assert_int_equal(b.done[0].status, 0);
	assert_true(is_filled(in, len, 5));
	free(in);
	a.cnt = b.cnt = 0;
}

static int put_bad(const void *buf, size_t len)
{
	uint64_t op;
	int rc = kedge_channel_send(a.ch, buf, len, 1, 1, &op);

	if (rc < 0)
		assert_int_equal(rc, -EFAULT);
	return rc;
}

/* Into a bad buffer. @unexpected: the message waits for its receive. */
static void receive_into(enum bad what, size_t len, bool unexpected)
{
	char *buf = bad_buffer(what, len);
	bool over;

	if (!buf)
		return;
	fill(good, len, 3);
	if (!unexpected)
		post(&b, buf, len, TAG(1), 7);
	over = put(&a, good, len, 1);
	if (unexpected) {
		many_turns();
		post(&b, buf, len, TAG(1), 7);
	}
	turns(!over, 1);
	assert_int_equal(b.done[0].status, -EFAULT);
	assert_int_equal(b.done[0].user, 7);
	/* A short one had left; else the sender hears of it, unless all of the
	 * data had come before it was put where it belongs. */
	if (!over)
		assert_true(a.done[0].status == -EFAULT ||
			    a.done[0].status == 0);
	assert_true(is_untouched(what, buf, len));
	munmap(buf, len);
	goes_on(len);
}

static void send_from(enum bad what, size_t len, bool unexpected)
{
	char *buf = bad_buffer(what, len), *in;
	int rc;

	if (!buf)
		return;
	in = malloc(len);
	if (!unexpected)
		post(&b, in, len, TAG(1), 7);
	rc = put_bad(buf, len);
	if (!rc && pair_over() == OVER_OFI) {
		/* It cannot be registered, and was not announced. */
		turns(1, 0);
		rc = a.done[0].status;
		assert_int_equal(rc, -EFAULT);
		a.cnt = 0;
	}
	if (rc < 0) {
		/* It was never sent: the receive waits on. */
		many_turns();
		assert_int_equal(a.cnt + b.cnt, 0);
		if (!unexpected)
			turns((size_t)!put(&a, "x", 1, 1), 1);
	} else {
		assert_int_equal(rc, 0);
		if (unexpected) {
			many_turns();
			post(&b, in, len, TAG(1), 7);
		}
		turns(1, 1);
		assert_int_equal(a.done[0].status, -EFAULT);
		assert_int_equal(b.done[0].status, -EFAULT);
	}
	munmap(buf, len);
	goes_on(len);
	free(in);
}

static void every_bad_buffer(uint32_t way, size_t len, bool no_cma)
{
	struct kedge_channel_opts o = { .size = sizeof(o),
					.way = way,
					.flags = no_cma ? KEDGE_CHANNEL_NO_CMA
							: 0 };
	int what, unexpected;

	open_pair(&o, &o);
	for (what = 0; what < BADS; what++)
		for (unexpected = 0; unexpected < 2; unexpected++) {
			print_message("%s, %s\n", bad_name[what],
				      unexpected ? "unexpected" : "expected");
			receive_into((enum bad)what, len, unexpected);
			if (what != READ_ONLY && what != END_READ_ONLY &&
			    what != READ_ONLY_FILE)
				send_from((enum bad)what, len, unexpected);
		}
	close_pair();
}

void a_bad_buffer_fails_one_eager_message(void **state)
{
	every_bad_buffer(KEDGE_WAY_AUTO, EAGER_LEN, false);
}

static void a_bad_buffer_fails_one_message_of_the_cheapest_way(void **state)
{
	every_bad_buffer(KEDGE_WAY_AUTO, LONG, false);
	every_bad_buffer(KEDGE_WAY_AUTO, 40000, false);
}

static void a_bad_buffer_fails_one_direct_message(void **state)
{
	every_bad_buffer(KEDGE_WAY_DIRECT, LONG, false);
	every_bad_buffer(KEDGE_WAY_DIRECT, LONG, true);
}

static void a_bad_buffer_fails_one_swapped_message(void **state)
{
	every_bad_buffer(KEDGE_WAY_SWAP, LONG, false);
	every_bad_buffer(KEDGE_WAY_SWAP, LONG, true);
}

static void a_bad_buffer_fails_one_copied_message(void **state)
{
	every_bad_buffer(KEDGE_WAY_COPY, LONG, false);
	every_bad_buffer(KEDGE_WAY_COPY, 40000, false);
}

static void a_bad_buffer_fails_one_registered_message(void **state)
{
	every_bad_buffer(KEDGE_WAY_REGISTER, LONG, false);
}

/* The sender writes into the receiver's heap itself; the receiver copies out of
 * the sender's. */
static void with_shared_memory_at_the_other_end(void **state)
{
	struct kedge_channel_opts o = { .size = sizeof(o) };
	char *heap, *buf;
	int what;

	need_shm("no other transport has a heap that the peer maps");
	open_pair(&o, &o);
	heap = kedge_channel_alloc(b.ch, LONG);
	assert_non_null(heap);
	for (what = 0; what < BADS; what++) {
		if (what == READ_ONLY || what == END_READ_ONLY ||
		    what == READ_ONLY_FILE)
			continue;
		buf = bad_buffer((enum bad)what, LONG);
		if (!buf)
			continue;
		post(&b, heap, LONG, TAG(1), 7);
		if (!put_bad(buf, LONG)) {
			turns(1, 1);
			assert_int_equal(a.done[0].status, -EFAULT);
			assert_int_equal(b.done[0].status, -EFAULT);
		}
		munmap(buf, LONG);
		goes_on(LONG);
	}
	heap = kedge_channel_alloc(a.ch, LONG);
	assert_non_null(heap);
	for (what = 0; what < BADS; what++) {
		buf = bad_buffer((enum bad)what, LONG);
		if (!buf)
			continue;
		post(&b, buf, LONG, TAG(1), 7);
		put(&a, heap, LONG, 1);
		turns(1, 1);
		assert_int_equal(b.done[0].status, -EFAULT);
		assert_true(is_untouched((enum bad)what, buf, LONG));
		munmap(buf, LONG);
		goes_on(LONG);
	}
	close_pair();
}

/* One that waits in the queue is looked at when its turn comes. */
static void a_bad_buffer_in_the_queue_lets_others_pass(void **state)
{
	struct kedge_channel_opts o = { .size = sizeof(o),
					.unexpected_cnt = 2 };
	char *buf = bad_buffer(END_NOT_MAPPED, EAGER_LEN), in[4][8];
	int i;

	open_pair(&o, &o);
	for (i = 0; i < 2; i++)
		assert_int_equal(put(&a, "before", 7, 1), 1);
	assert_int_equal(put(&a, "queued", 7, 1), 0);
	assert_int_equal(put(&a, buf, EAGER_LEN, 1), 0);
	assert_int_equal(put(&a, "behind", 7, 1), 0);
	for (i = 0; i < 4; i++)
		post(&b, in[i], 8, TAG(1), (uint64_t)i);
	turns(3, 4);
	assert_int_equal(a.done[0].status, 0);
	assert_int_equal(a.done[1].status, -EFAULT);
	assert_int_equal(a.done[2].status, 0);
	assert_string_equal(in[3], "behind");
	munmap(buf, EAGER_LEN);
	goes_on(EAGER_LEN);
	close_pair();
}

/* Short, but for its data there is no room at the peer until it is matched. */
static void a_bad_buffer_for_what_was_announced(void **state)
{
	struct kedge_channel_opts o = { .size = sizeof(o),
					.eager_max = 8192,
					.unexpected_bytes = 16384 };
	char *buf = bad_buffer(END_READ_ONLY, EAGER_LEN);
	int i;

	open_pair(&o, &o);
	for (i = 0; i < 2; i++)
		assert_int_equal(put(&a, good, 8192, 2), 1);
	assert_int_equal(put(&a, good, EAGER_LEN, 1), 0);
	post(&b, buf, EAGER_LEN, TAG(1), 7);
	turns(1, 1);
	assert_int_equal(b.done[0].status, -EFAULT);
	assert_true(is_untouched(END_READ_ONLY, buf, EAGER_LEN));
	munmap(buf, EAGER_LEN);
	close_pair();
}

static void one_bad_piece_of_several(void **state)
{
	static const size_t lens[] = { EAGER_LEN, LONG };
	struct iovec v[3] = { { good, 10 }, { NULL, 0 }, { good + 10, 10 } };
	struct kedge_message m = { .size = sizeof(m),
				   .pieces = v,
				   .cnt = 3,
				   .tag = 1,
				   .mask = UINT64_MAX };
	size_t i;
	char *buf;

	open_pair(NULL, NULL);
	for (i = 0; i < ARRAY_SIZE(lens); i++) {
		buf = bad_buffer(END_READ_ONLY, lens[i]);
		v[1] = (struct iovec){ buf, lens[i] };
		assert_int_equal(kedge_channel_recvmsg(b.ch, &m, NULL), 0);
		turns(!put(&a, good, lens[i] + 20, 1), 1);
		assert_int_equal(b.done[0].status, -EFAULT);
		assert_true(is_untouched(END_READ_ONLY, buf, lens[i]));
		munmap(buf, lens[i]);
		buf = bad_buffer(END_NOT_MAPPED, lens[i]);
		assert_int_equal(kedge_channel_sendmsg(a.ch, &m, NULL),
				 -EFAULT);
		munmap(buf, lens[i]);
		goes_on(lens[i]);
	}
	close_pair();
}

/* Memory that may be read may be sent. */
static void memory_that_may_only_be_read_is_sent(void **state)
{
	struct kedge_channel_opts o = { .size = sizeof(o) };
	char *p = map_file(LONG, PROT_READ, LONG), *in = malloc(LONG);
	static const size_t lens[] = { 1, EAGER_LEN, 40000, LONG };
	size_t i;

	open_pair(&o, &o);
	for (i = 0; i < ARRAY_SIZE(lens); i++) {
		memset(in, 1, LONG);
		a.cnt = b.cnt = 0;
		post(&b, in, LONG, TAG(1), 7);
		turns(!put(&a, p, lens[i], 1), 1);
		assert_int_equal(b.done[0].status, 0);
		assert_int_equal(in[0], 0);
		assert_int_equal(in[lens[i] - 1], 0);
	}
	close_pair();
	munmap(p, LONG);
	free(in);
}

/* The same page again and again, then it is another's: found out at the latest
 * when an epoch ends. */
static void good_pages_are_asked_about_again(void **state)
{
	struct kedge_channel_opts o = { .size = sizeof(o) };
	char *p = new_pages(1), *q = new_pages(1);
	uint32_t i;

	open_pair(&o, &o);
	put(&a, p, 8, 1);
	for (i = 0; i < 2u * ACCESS_USES; i++) {
		post(&b, q, 8, TAG(1), 7);
		turns(0, 1);
		b.cnt = 0;
		put(&a, q, 8, 1);
	}
	mprotect(p, page_len(), PROT_NONE);
	assert_int_equal(put_bad(p, 8), -EFAULT);
	close_pair();
	free_pages(p, 1);
	free_pages(q, 1);
}

int access_setup(void **state)
{
	good = malloc(AREA);
	return !good;
}

int access_teardown(void **state)
{
	free(good);
	return 0;
}

int family_access(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_bad_buffer_fails_one_eager_message),
		cmocka_unit_test(
			a_bad_buffer_fails_one_message_of_the_cheapest_way),
		cmocka_unit_test(a_bad_buffer_fails_one_direct_message),
		cmocka_unit_test(a_bad_buffer_fails_one_swapped_message),
		cmocka_unit_test(a_bad_buffer_fails_one_copied_message),
		cmocka_unit_test(a_bad_buffer_fails_one_registered_message),
		cmocka_unit_test(with_shared_memory_at_the_other_end),
		cmocka_unit_test(a_bad_buffer_in_the_queue_lets_others_pass),
		cmocka_unit_test(a_bad_buffer_for_what_was_announced),
		cmocka_unit_test(one_bad_piece_of_several),
		cmocka_unit_test(memory_that_may_only_be_read_is_sent),
		cmocka_unit_test(good_pages_are_asked_about_again),
	};

	return cmocka_run_group_tests_name("channel_access", tests, access_setup,
					   access_teardown);
}
