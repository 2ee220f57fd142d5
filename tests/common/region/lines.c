// SPDX-License-Identifier: BSD-2-Clause
/* See lines.h. */
#include <endian.h>

#include "lines.h"

static const _Atomic bool over;

struct lines lines = { .put_in_vain = put };
char *at, *data;
struct loan loan;
struct pair a;

char *line_memory(size_t len)
{
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

struct loan line_lend(char *p, size_t len, bool writes)
{
	struct loan l = { .range = { .at = (uintptr_t)p, .len = len } };

	assert_int_equal(lines.f->lend(lines.here, p, len, writes, &l.loan, &l.range.key), 0);
	return l;
}

struct pair pair_of(const struct loan *l, const struct pair *other)
{
	struct fabric_end peer, told;
	struct pair p = { .range = other ? other->range : l->range };

	assert_int_equal(lines.f->open(lines.here, l->loan, &p.owner, &p.owner_end), 0);
	assert_int_equal(lines.f->open(lines.here, NULL, &p.peer, &peer), 0);
	assert_int_equal(lines.f->join(p.owner, &peer), 0);
	told = p.owner_end;
	/* There the end has what is reached, elsewhere the range. */
	if (other && le32toh(told.kind) == FABRIC_OFI) {
		told.ofi.at = other->owner_end.ofi.at;
		told.ofi.key = other->owner_end.ofi.key;
	}
	assert_int_equal(lines.f->join(p.peer, &told), 0);
	return p;
}

void close_pair(struct pair *p)
{
	lines.f->close(p->owner);
	lines.f->close(p->peer);
}

int put(const struct pair *p, uint64_t offset, char c)
{
	return lines.f->put(p->peer, &p->range, offset, &c, 1, &over, FOREVER);
}

int get(const struct pair *p, uint64_t offset, char *c)
{
	return lines.f->get(p->peer, &p->range, offset, c, 1, &over, FOREVER);
}

static int begin_lent(bool writes)
{
	at = line_memory(LINE_LEN);
	data = line_memory(LINE_LEN);
	loan = line_lend(at, LINE_LEN, writes);
	a = pair_of(&loan, NULL);
	return 0;
}

int begin_line(void **state)
{
	return begin_lent(true);
}

static int begin_line_to_read(void **state)
{
	return begin_lent(false);
}

int end_line(void **state)
{
	close_pair(&a);
	lines.f->unlend(loan.loan);
	munmap(at, LINE_LEN);
	munmap(data, LINE_LEN);
	return 0;
}

static void lines_of_a_loan_end_one_by_one(void **state)
{
	const struct loan own = line_lend(data, LINE_LEN, true);
	struct pair b = pair_of(&own, NULL), d = pair_of(&own, NULL);
	char c;

	assert_int_equal(put(&b, 0, 'a'), 0);
	assert_int_equal(data[0], 'a');
	assert_int_equal(put(&d, 1, 'b'), 0);
	assert_int_equal(data[1], 'b');
	lines.f->close(b.owner);
	/* The key is alive, and known; no time limit ends that. */
	assert_int_equal(lines.put_in_vain(&b, 2, 'a'), -EIO);
	assert_int_equal(data[2], 0);
	assert_int_equal(get(&b, 1, &c), -EIO);
	assert_int_equal(put(&d, 2, 'b'), 0);
	assert_int_equal(data[2], 'b');
	assert_int_equal(get(&d, 0, &c), 0);
	assert_int_equal(c, 'a');
	lines.f->close(d.owner);
	lines.f->unlend(own.loan);
	assert_int_equal(lines.put_in_vain(&d, 3, 'b'), -EIO);
	assert_int_equal(data[3], 0);
	lines.f->close(b.peer);
	lines.f->close(d.peer);
}

/* Of another loan. */
static void keys_are_of_no_use_to_lines_of_others(void **state)
{
	const struct loan two = line_lend(data, LINE_LEN, true);
	struct pair b = pair_of(&two, &a), d = pair_of(&two, &a);
	char c = 0;

	assert_int_equal(put(&b, 0, 'x'), -EIO);
	assert_int_equal(get(&d, 0, &c), -EIO);
	assert_int_equal(at[0] + data[0] + c, 0);
	assert_int_equal(put(&a, 0, 'a'), 0);
	close_pair(&b);
	close_pair(&d);
	lines.f->unlend(two.loan);
}

static void rights_and_ends_hold(void **state)
{
	struct pair b = pair_of(&loan, NULL), d = pair_of(&loan, NULL);
	char c = 1;

	assert_int_equal(get(&a, LINE_LEN - 1, &c), 0);
	assert_int_equal(c, 0);
	assert_int_equal(get(&a, LINE_LEN, &c), -EIO);
	assert_int_equal(put(&b, 0, 'x'), -EIO);
	assert_int_equal(at[0], 0);
	/* That of the others has not suffered. */
	assert_int_equal(get(&d, 0, &c), 0);
	close_pair(&b);
	close_pair(&d);
}

/* Of whatever length, and where pieces come again to a room. */
static void whatever_is_put_is_got(void **state)
{
	static const size_t lens[] = { 1, 63, 65535, 65536, 65537, 1048576, 1048577, 3145727,
				       LINE_LEN };
	char *got = line_memory(LINE_LEN), *to;
	size_t i, n;

	for (n = 0; n < sizeof(lens) / sizeof(*lens); n++) {
		to = at + LINE_LEN - lens[n];
		for (i = 0; i < LINE_LEN; i++)
			data[i] = (char)(i * 7 + (i >> 12) + n);
		memset(got, 0, LINE_LEN);
		assert_int_equal(lines.f->put(a.peer, &a.range, LINE_LEN - lens[n], data, lens[n],
					      &over, FOREVER), 0);
		assert_memory_equal(to, data, lens[n]);
		assert_int_equal(lines.f->get(a.peer, &a.range, LINE_LEN - lens[n], got, lens[n],
					      &over, FOREVER), 0);
		assert_memory_equal(got, data, lens[n]);
	}
	munmap(got, LINE_LEN);
}

int lines_run(void)
{
	const struct CMUnitTest tests[] = {
		line_case(lines_of_a_loan_end_one_by_one),
		line_case(keys_are_of_no_use_to_lines_of_others),
		cmocka_unit_test_setup_teardown(rights_and_ends_hold, begin_line_to_read,
						end_line),
		line_case(whatever_is_put_is_got),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
