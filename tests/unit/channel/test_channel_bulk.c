// SPDX-License-Identifier: BSD-2-Clause
/*
 * Large messages whose source cannot be read to the end: both sides hear of it
 * and neither keeps an operation, if either of them meets the hole.
 */
#include "channel_pair.h"

#include "channel/internal.h"
#include "channel/shm/internal.h"

#define LEN  (8 * MIB)
#define HOLE (5 * MIB)

static char *map(size_t len)
{
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

/* The pool's thread makes landing pages in its own time. */
static bool pool_is_ready(char *src, char *dst)
{
	uint64_t end = now_ns() + 20000000000ull;

	do {
		a.cnt = b.cnt = 0;
		post(&b, dst, LEN, ANY, 1);
		put(&a, src, LEN, 1);
		turns(1, 1);
		usleep(1000);
	} while (b.done[0].way != KEDGE_WAY_SWAP && now_ns() < end);
	a.cnt = b.cnt = 0;
	return b.done[0].way == KEDGE_WAY_SWAP;
}

/* Of what waits, the side @from moves first, as far as it can. */
static void ends(struct end *first, struct end *second)
{
	int i;

	for (i = 0; i < 1000; i++)
		turn(first);
	for (i = 0; i < 1000; i++) {
		turn(second);
		turn(first);
	}
	assert_int_equal(a.cnt, 1);
	assert_int_equal(b.cnt, 1);
	assert_int_equal(first->done[0].status, -EFAULT);
	assert_true(second->done[0].status < 0);
	assert_int_equal(a.ch->live_ops, 0);
	assert_int_equal(b.ch->live_ops, 0);
}

static void with_a_hole(bool by_receiver)
{
	struct kedge_channel_opts o = { .size = sizeof(o),
					.way = KEDGE_WAY_SWAP };
	char *src = map(LEN), *dst = map(LEN);

	memset(src, 1, LEN);
	open_pair(&o, &o);
	if (!pool_is_ready(src, dst)) {
		print_message("skipped: no landing pages here\n");
		goto close;
	}
	assert_int_equal(munmap(src + HOLE, LEN - HOLE), 0);
	post(&b, dst, LEN, ANY, 1);
	put(&a, src, LEN, 1);
	turn(&b); /* the CTS, and perhaps the first chunk */
	if (by_receiver)
		ends(&b, &a);
	else
		ends(&a, &b);
close:
	close_pair();
	munmap(src, LEN);
	munmap(dst, LEN);
}

static void a_receiver_that_cannot_read_on_lets_go(void **state)
{
	with_a_hole(true);
}

static void a_sender_that_cannot_read_on_lets_go(void **state)
{
	with_a_hole(false);
}

/* It has died in the middle; the socket tells later. */
static void whose_process_is_no_more(void **state)
{
	struct kedge_channel_opts o = { .size = sizeof(o),
					.way = KEDGE_WAY_DIRECT };
	char *src = calloc(1, MIB), *dst = calloc(1, MIB);
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	open_pair(&o, &o);
	((struct shm *)b.ch->ctx)->pid = pid;
	post(&b, dst, MIB, ANY, 1);
	put(&a, src, MIB, 1);
	turns(1, 1);
	assert_int_equal(b.done[0].status, -ECONNRESET);
	close_pair();
	free(src);
	free(dst);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_receiver_that_cannot_read_on_lets_go),
		cmocka_unit_test(a_sender_that_cannot_read_on_lets_go),
		cmocka_unit_test(whose_process_is_no_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
