// SPDX-License-Identifier: BSD-2-Clause
/*
 * libfabric in the place of the fake of adapters (fake_fabric.h), for the same tests: what it does
 * is counted, and made to fail, in a table that all processes of a test share.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <kedge/ofi.h>

#include "fake_fabric.h"

#define ENDS 4096u

/* @end: of the owner: its own, or the other one's */
struct fabric_line {
	struct fabric_line *real;
	bool puts;
	uint32_t end;
};

struct fabric_loan {
	struct fabric_loan *real;
	uint32_t number;
};

static const struct fabric *real;
static struct {
	struct fake_fabric f;
	_Atomic uint32_t loans;
	_Atomic uint32_t ends;
	_Atomic int is_over[ENDS];
	_Atomic int is_ending[ENDS]; /* before its peer can find out */
} *table;

struct fake_fabric *fake_fabric(void)
{
	return &table->f;
}

bool fake_is_over(unsigned int end)
{
	return atomic_load(&table->is_over[end]);
}

static int counted_open(const unsigned char place[16], struct fabric_loan *loan,
			struct fabric_line **out, struct fabric_end *end)
{
	/* Tests that dial by hand name no place. */
	static const unsigned char none[16], loopback[16] = { [10] = 0xff, [11] = 0xff,
							      [12] = 127, [15] = 1 };
	const bool anywhere = !memcmp(place, none, sizeof(none));
	struct fabric_line *l = calloc(1, sizeof(*l));
	int rc = -ENODEV;

	if (l && !atomic_load(&table->f.refuses) &&
	    !(loan && atomic_load(&table->f.loses) == loan->number))
		rc = real->open(anywhere ? loopback : place, loan ? loan->real : NULL, &l->real,
				end);
	if (rc) {
		free(l);
		return kedge_reason(rc, "no adapter");
	}
	l->puts = !loan;
	if (loan) {
		l->end = atomic_fetch_add(&table->ends, 1) % (ENDS - 1) + 1;
		atomic_store(&table->is_over[l->end], 0);
		atomic_store(&table->is_ending[l->end], 0);
		atomic_fetch_add(&table->f.live, 1);
	}
	end->zero = l->end;
	*out = l;
	return 0;
}

/* An end told by hand is of no adapter, and of no use to an owner's end. */
static int counted_join(struct fabric_line *l, const struct fabric_end *other)
{
	if (!l->puts && !other->kind)
		return 0;
	if (l->puts)
		l->end = other->zero % ENDS;
	return real->join(l->real, other);
}

static int counted_lend(const unsigned char place[16], void *at, uint64_t len, bool writes,
			struct fabric_loan **out, uint32_t *key)
{
	struct fabric_loan *loan = calloc(1, sizeof(*loan));
	int rc = -ENODEV;

	if (loan && !atomic_load(&table->f.refuses))
		rc = real->lend(place, at, len, writes, &loan->real, key);
	if (rc) {
		free(loan);
		return kedge_reason(rc, "no adapter");
	}
	loan->number = atomic_fetch_add(&table->loans, 1) + 1;
	atomic_fetch_add(&table->f.lent, 1);
	atomic_store(&table->f.last, loan->number);
	atomic_fetch_add(&table->f.loans, 1);
	*out = loan;
	return 0;
}

static void counted_unlend(struct fabric_loan *loan)
{
	real->unlend(loan->real);
	atomic_fetch_sub(&table->f.loans, 1);
	free(loan);
}

static void counted_close(struct fabric_line *l)
{
	if (!l->puts)
		atomic_store(&table->is_ending[l->end], 1);
	real->close(l->real);
	if (!l->puts) {
		atomic_store(&table->is_over[l->end], 1);
		atomic_fetch_sub(&table->f.live, 1);
	}
	free(l);
}

static int count(const struct fabric_line *l, int rc, bool put)
{
	if (!rc)
		atomic_fetch_add(put ? &table->f.puts : &table->f.gets, 1);
	else if (atomic_load(&table->is_ending[l->end]))
		atomic_fetch_add(&table->f.cut, 1);
	return rc;
}

static bool fails(const struct fabric_line *l)
{
	if (!atomic_load(&table->f.fails))
		return false;
	atomic_store(&table->f.failed, l->end);
	return true;
}

static int counted_put(struct fabric_line *l, const struct fabric_range *to, uint64_t offset,
		       const void *data, uint64_t len, const _Atomic bool *over, uint64_t until)
{
	return fails(l) ? -EIO : count(l, real->put(l->real, to, offset, data, len, over, until),
				       true);
}

static int counted_get(struct fabric_line *l, const struct fabric_range *from, uint64_t offset,
		       void *data, uint64_t len, const _Atomic bool *over, uint64_t until)
{
	return fails(l) ? -EIO : count(l, real->get(l->real, from, offset, data, len, over, until),
				       false);
}

static int counted_put_runs(struct fabric_line *l, const struct fabric_range *to,
			    const char *base, const struct fabric_run *run, uint32_t cnt,
			    const _Atomic bool *over, uint64_t until)
{
	return fails(l) ? -EIO
			: count(l, real->put_runs(l->real, to, base, run, cnt, over, until), true);
}

static const struct fabric counted = {
	.open = counted_open,
	.join = counted_join,
	.lend = counted_lend,
	.unlend = counted_unlend,
	.put = counted_put,
	.get = counted_get,
	.put_runs = counted_put_runs,
	.close = counted_close,
};

/* Before a process of the test is forked. */
__attribute__((constructor)) static void use(void)
{
	int rc = kedge_region_use_ofi("tcp", NULL);

	table = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (rc || table == MAP_FAILED) {
		fprintf(stderr, "%s\n", kedge_strerror(rc));
		exit(1);
	}
	real = fabric();
	kedge__region_fabric(NULL);
	kedge__region_fabric(&counted);
}
