// SPDX-License-Identifier: BSD-2-Clause
/*
 * Threads that are channels of one pool: each joins and leaves, takes blocks and
 * gives them back, as they are or with a buffer's pages in them, and loses some.
 * A thread's blocks are its own alone. Worth most with -Db_sanitize=thread.
 */
#include "cases.h"
#include "pages/landing.h"
#include "pages/move.h"
#include "pages/swap.h"

#define THREADS	 4
#define ROUNDS	 4000
#define HELD	 4
#define SHARE	 8u
#define LOST_ALL 16

/* With ThreadSanitizer, too. */
bool move_guard_wanted(void)
{
	return true;
}

static _Atomic int lost;

static uint64_t next_random(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

struct held {
	struct landing l;
	uint64_t mark;
};

/* Both ends of it: what is there is ours alone. */
static void mark(struct held *h, uint64_t m)
{
	size_t len = h->l.cnt * pages_huge_len();

	h->mark = m;
	memcpy(h->l.addr, &m, sizeof(m));
	memcpy(h->l.addr + len - sizeof(m), &m, sizeof(m));
}

static bool is_marked(const struct held *h)
{
	size_t len = h->l.cnt * pages_huge_len();

	return !memcmp(h->l.addr, &h->mark, sizeof(h->mark)) &&
	       !memcmp(h->l.addr + len - sizeof(h->mark), &h->mark,
		       sizeof(h->mark));
}

/* The pages go to a buffer, which had none, or single ones. */
static void swap_away(struct held *h, uint64_t r)
{
	size_t unit = pages_huge_len(), len = h->l.cnt * unit;
	char *area = mmap(NULL, len + unit, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *buf = (char *)(((uintptr_t)area + unit - 1) & ~(unit - 1));

	assert_ptr_not_equal(area, MAP_FAILED);
	if (r & 1)
		buf[5 * page_len()] = 1;
	if (!pages_land(buf, h->l.addr, len, KEDGE_SWAP_MOVE))
		assert_memory_equal(buf, &h->mark, sizeof(h->mark));
	munmap(area, len + unit);
}

static void give(struct landing_member *p, struct held *h, uint64_t r)
{
	bool quiet = r % 64 || lost++ >= LOST_ALL;

	assert_true(is_marked(h));
	if (r >> 8 & 1)
		swap_away(h, r >> 9);
	landing_give(p, &h->l, quiet);
	h->l.cnt = 0;
}

static void one_round(struct landing_member *p, struct held *h, uint64_t *seed)
{
	uint64_t r = next_random(seed);
	uint64_t len = (r >> 32) % (SHARE / 2) + 1;
	int i, rc;

	for (i = 0; i < HELD; i++, h++) {
		if (h->l.cnt) {
			give(p, h, next_random(seed));
			continue;
		}
		rc = landing_take(p, NULL, len * pages_huge_len(), &h->l);
		if (rc) {
			assert_int_equal(rc, -EAGAIN);
			h->l.cnt = 0;
		} else {
			mark(h, next_random(seed));
		}
	}
	if (r & 1)
		landing_make();
}

static void *use(void *arg)
{
	uint64_t seed = 0x9e3779b97f4a7c15u * (uintptr_t)arg;
	struct held h[HELD];
	struct landing_member *p;
	int i, k, round;

	for (round = 0; round < ROUNDS; round += 40) {
		memset(h, 0, sizeof(h));
		assert_int_equal(
			landing_open(SHARE * pages_huge_len(), NULL, &p), 0);
		for (i = 0; i < 40; i++)
			one_round(p, h, &seed);
		for (k = 0; k < HELD; k++)
			if (h[k].l.cnt)
				landing_give(p, &h[k].l, true);
		landing_close(p, true);
	}
	return NULL;
}

static void *nothing(void *arg)
{
	return arg;
}

static void threads_that_join_and_leave_share_no_block(void **state)
{
	unsigned int before;
	pthread_t t[THREADS];
	uintptr_t i;

	if (pages_huge_len() == page_len())
		skip();
	/* A sanitizer's own thread comes with the first. */
	assert_int_equal(pthread_create(t, NULL, nothing, NULL), 0);
	pthread_join(t[0], NULL);
	before = threads_now();
	for (i = 0; i < THREADS; i++)
		t[i] = run_thread(use, (void *)(i + 1));
	join_threads(t, THREADS);
	assert_true(threads_are(before));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_that_join_and_leave_share_no_block),
	};

	return RUN(tests);
}
