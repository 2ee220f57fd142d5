// SPDX-License-Identifier: BSD-2-Clause
/*
 * Lines over an adapter (region/verbs/), both ends in this process: what a line that is open may
 * reach, and that one that is closed, or of another loan, reaches nothing, as leases rely on.
 */
#include <arpa/inet.h>

#include "vm_lib.h"

#include "region/verbs/internal.h"

#define LEN	((size_t)3 << 20)
#define FOREVER UINT64_MAX

static const struct fabric *const f = &line_fabric;
static const _Atomic bool over;
static unsigned char here[16];

/* An owner's end, and a peer's. */
struct pair {
	struct fabric_line *owner;
	struct fabric_line *peer;
};

static struct pair pair_of(struct fabric_loan *loan)
{
	struct fabric_end owner, peer;
	struct pair p;

	assert_int_equal(f->open(here, loan, &p.owner, &owner), 0);
	assert_int_equal(f->open(here, NULL, &p.peer, &peer), 0);
	assert_int_equal(f->join(p.owner, &peer), 0);
	assert_int_equal(f->join(p.peer, &owner), 0);
	return p;
}

static struct fabric_loan *lend(char *at, bool writes, struct fabric_range *range)
{
	struct fabric_loan *loan;

	*range = (struct fabric_range){ .at = (uintptr_t)at, .len = LEN };
	assert_int_equal(f->lend(here, at, LEN, writes, &loan, &range->key), 0);
	return loan;
}

static int put(const struct pair *p, const struct fabric_range *r, uint64_t at, char c)
{
	return f->put(p->peer, r, at, &c, 1, &over, FOREVER);
}

static int get(const struct pair *p, const struct fabric_range *r, uint64_t at, char *c)
{
	return f->get(p->peer, r, at, c, 1, &over, FOREVER);
}

static char *memory(void)
{
	char *at = aligned_alloc(4096, LEN);

	assert_non_null(at);
	memset(at, 0, LEN);
	return at;
}

static void lines_of_a_loan_end_one_by_one(void **state)
{
	char *at = memory();
	struct fabric_range r;
	struct fabric_loan *loan = lend(at, true, &r);
	struct pair a = pair_of(loan), b = pair_of(loan);
	char c;

	assert_int_equal(put(&a, &r, 0, 'a'), 0);
	assert_int_equal(at[0], 'a');
	assert_int_equal(put(&b, &r, 1, 'b'), 0);
	assert_int_equal(at[1], 'b');
	f->close(a.owner);
	/* The key is alive, and known; no time limit ends that. */
	assert_int_equal(put(&a, &r, 2, 'a'), -EIO);
	assert_int_equal(at[2], 0);
	assert_int_equal(get(&a, &r, 1, &c), -EIO);
	assert_int_equal(put(&b, &r, 2, 'b'), 0);
	assert_int_equal(at[2], 'b');
	assert_int_equal(get(&b, &r, 0, &c), 0);
	assert_int_equal(c, 'a');
	f->close(b.owner);
	f->unlend(loan);
	assert_int_equal(put(&b, &r, 3, 'b'), -EIO);
	assert_int_equal(at[3], 0);
	f->close(a.peer);
	f->close(b.peer);
	free(at);
}

static void keys_are_of_no_use_to_lines_of_others(void **state)
{
	char *at = memory(), *other = memory();
	struct fabric_range r, s;
	struct fabric_loan *one = lend(at, true, &r), *two = lend(other, true, &s);
	struct pair a = pair_of(one), b = pair_of(two);
	char c = 0;

	assert_int_equal(put(&a, &s, 0, 'x'), -EIO);
	assert_int_equal(get(&b, &r, 0, &c), -EIO);
	assert_int_equal(at[0] + other[0] + c, 0);
	f->close(a.owner);
	f->close(b.owner);
	f->unlend(one);
	f->unlend(two);
	f->close(a.peer);
	f->close(b.peer);
	free(at);
	free(other);
}

static void rights_and_ends_hold(void **state)
{
	char *at = memory();
	struct fabric_range r;
	struct fabric_loan *loan = lend(at, false, &r);
	struct pair a = pair_of(loan), b = pair_of(loan), d = pair_of(loan);
	char c = 1;

	assert_int_equal(get(&a, &r, LEN - 1, &c), 0);
	assert_int_equal(c, 0);
	assert_int_equal(get(&a, &r, LEN, &c), -EIO);
	assert_int_equal(put(&b, &r, 0, 'x'), -EIO);
	assert_int_equal(at[0], 0);
	/* That of the others has not suffered. */
	assert_int_equal(get(&d, &r, 0, &c), 0);
	f->close(a.owner);
	f->close(b.owner);
	f->close(d.owner);
	f->unlend(loan);
	f->close(a.peer);
	f->close(b.peer);
	f->close(d.peer);
	free(at);
}

/* Of whatever length, and where pieces come again to a room. */
static void whatever_is_put_is_got(void **state)
{
	static const size_t lens[] = { 1, 63, 65535, 65536, 65537, 1048576, 1048577, 3145727,
				       LEN };
	char *at = memory(), *data = memory(), *got = memory();
	struct fabric_range r;
	struct fabric_loan *loan = lend(at, true, &r);
	struct pair a = pair_of(loan);
	size_t i, n;

	for (n = 0; n < sizeof(lens) / sizeof(*lens); n++) {
		for (i = 0; i < LEN; i++)
			data[i] = (char)(i * 7 + (i >> 12) + n);
		memset(got, 0, LEN);
		assert_int_equal(f->put(a.peer, &r, LEN - lens[n], data, lens[n], &over, FOREVER),
				 0);
		assert_memory_equal(at + LEN - lens[n], data, lens[n]);
		assert_int_equal(f->get(a.peer, &r, LEN - lens[n], got, lens[n], &over, FOREVER),
				 0);
		assert_memory_equal(got, data, lens[n]);
	}
	f->close(a.owner);
	f->unlend(loan);
	f->close(a.peer);
	free(at);
	free(data);
	free(got);
}

/* As IPv4 addresses are mapped. */
static int find(void **state)
{
	const char *text = getenv("RDMA_SERVER_ADDR");

	here[10] = here[11] = 0xff;
	return text && inet_pton(AF_INET, text, here + 12) == 1 && adapters_look() ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_of_a_loan_end_one_by_one),
		cmocka_unit_test(keys_are_of_no_use_to_lines_of_others),
		cmocka_unit_test(rights_and_ends_hold),
		cmocka_unit_test(whatever_is_put_is_got),
	};

	return cmocka_run_group_tests(tests, find, NULL);
}
