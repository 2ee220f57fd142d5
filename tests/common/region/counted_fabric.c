// SPDX-License-Identifier: BSD-2-Clause
/*
 * Ways by adapters for programs that are linked to the libraries' insides: libfabric, where what it
 * does is counted, and made to fail, as with the fake (fake_fabric.h).
 */
#include "way.h"

#ifdef HAVE_OFI

#include <kedge/ofi.h>

#include "fake_fabric.h"
#include "region/fabric/fabric.h"

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
static int counted_open(const unsigned char place[16], struct fabric_loan *loan,
			struct fabric_line **out, struct fabric_end *end)
{
	/* Tests that dial by hand name no place. */
	static const unsigned char none[16], loopback[16] = { [10] = 0xff, [11] = 0xff,
							      [12] = 127, [15] = 1 };
	const bool anywhere = !memcmp(place, none, sizeof(none));
	struct fabric_line *l = calloc(1, sizeof(*l));
	int rc = -ENODEV;

	if (l && !atomic_load(&fake_fabric()->refuses) &&
	    !(loan && atomic_load(&fake_fabric()->loses) == loan->number))
		rc = real->open(anywhere ? loopback : place, loan ? loan->real : NULL, &l->real,
				end);
	if (rc) {
		free(l);
		return kedge_reason(rc, "no adapter");
	}
	l->puts = !loan;
	if (loan) {
		l->end = fake_end_open();
		atomic_store(&fake_fabric()->is_ending[l->end], false);
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
		l->end = other->zero % FABRIC_ENDS;
	return real->join(l->real, other);
}

static int counted_lend(const unsigned char place[16], void *at, uint64_t len, bool writes,
			struct fabric_loan **out, uint32_t *key)
{
	struct fabric_loan *loan = calloc(1, sizeof(*loan));
	int rc = -ENODEV;

	if (loan && !atomic_load(&fake_fabric()->refuses))
		rc = real->lend(place, at, len, writes, &loan->real, key);
	if (rc) {
		free(loan);
		return kedge_reason(rc, "no adapter");
	}
	loan->number = atomic_fetch_add(&fake_fabric()->numbers, 1) + 1;
	atomic_fetch_add(&fake_fabric()->lent, 1);
	atomic_store(&fake_fabric()->last, loan->number);
	atomic_fetch_add(&fake_fabric()->loans, 1);
	*out = loan;
	return 0;
}

static void counted_unlend(struct fabric_loan *loan)
{
	real->unlend(loan->real);
	atomic_fetch_sub(&fake_fabric()->loans, 1);
	free(loan);
}

static void counted_close(struct fabric_line *l)
{
	if (!l->puts)
		atomic_store(&fake_fabric()->is_ending[l->end], true);
	real->close(l->real);
	if (!l->puts) {
		atomic_store(&fake_fabric()->is_over[l->end], true);
		atomic_fetch_sub(&fake_fabric()->live, 1);
	}
	free(l);
}

static int count(const struct fabric_line *l, int rc, bool put)
{
	if (!rc)
		atomic_fetch_add(put ? &fake_fabric()->puts : &fake_fabric()->gets, 1);
	else if (atomic_load(&fake_fabric()->is_ending[l->end]))
		atomic_fetch_add(&fake_fabric()->cut, 1);
	return rc;
}

static bool fails(const struct fabric_line *l)
{
	if (!atomic_load(&fake_fabric()->fails))
		return false;
	atomic_store(&fake_fabric()->failed, l->end);
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

static int use_counted(const char *provider)
{
	int rc = kedge_region_use_ofi(provider, NULL);

	if (rc)
		return rc;
	real = fabric();
	kedge__region_fabric(NULL);
	return kedge__region_fabric(&counted);
}
#endif /* HAVE_OFI */

const struct way adapter_ways[] = {
#ifdef HAVE_OFI
	{ .name = "ofi", .node = "127.0.0.1", .served = true, .leased = true, .provider = "tcp",
	  .use = use_counted },
#endif
	{ .name = NULL },
};
