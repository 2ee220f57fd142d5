// SPDX-License-Identifier: BSD-2-Clause
/*
 * Ranges with pages on their way out. userfaultfd tells of MADV_DONTNEED and
 * its kin *before* the pages go, and no event marks the end. A thread that
 * registers in between gets the old pages: right at that moment, stale for ever
 * once they have gone. So a range is tainted from the event on, and while it
 * is, registrations there are provisional: used, never kept.
 *
 * The drop goes by address: after the event the kernel looks up again what is
 * mapped there, and takes the pages of that, be it another mapping by now. So a
 * taint outlasts all that happens to the mapping. It ends when the call that was
 * announced is known to have returned; threads.c finds that out.
 *
 * Each taint has the serial number of the latest event in it. Once every thread
 * is known to have been outside of such calls since the event of number n, all
 * taints up to n are over.
 *
 * A change through libkedge-hooks is announced instead, with an end, and needs
 * no taint.
 */
#include "notify/internal.h"
#include "notify/threads.h"

static bool overlaps(const struct taint *t, uint64_t start, uint64_t end)
{
	return t->start < end && t->end > start;
}

static bool within(const struct taint *t, uint64_t start, uint64_t end)
{
	return start >= t->start && end <= t->end;
}

/* By how much a taint has to grow to take in [start, end). */
static uint64_t growth(const struct taint *t, uint64_t start, uint64_t end)
{
	return (start < t->start ? t->start - start : 0) +
	       (end > t->end ? end - t->end : 0);
}

/*
 * The taint that takes in [start, end): one that has it, or that it has; where
 * there is no room the nearest. NULL: a new one.
 */
static struct taint *taker(struct kedge_notifier *nf, uint64_t start,
			   uint64_t end)
{
	struct taint *nearest = &nf->taint[0], *t;

	for (t = nf->taint; t < nf->taint + nf->taint_cnt; t++) {
		if (within(t, start, end) ||
		    (t->start >= start && t->end <= end))
			return t;
		if (growth(t, start, end) < growth(nearest, start, end))
			nearest = t;
	}
	return nf->taint_cnt < TAINT_MAX ? NULL : nearest;
}

void taint_add(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	struct taint *t = taker(nf, start, end);

	nf->taint_serial++;
	if (!t) {
		t = &nf->taint[nf->taint_cnt++];
		t->start = start;
		t->end = end;
	}
	if (start < t->start)
		t->start = start;
	if (end > t->end)
		t->end = end;
	t->serial = nf->taint_serial;
}

uint64_t taint_serial(const struct kedge_notifier *nf, uint64_t start,
		      uint64_t end)
{
	uint64_t serial = 0;
	unsigned int i;

	for (i = 0; i < nf->taint_cnt; i++)
		if (overlaps(&nf->taint[i], start, end) &&
		    nf->taint[i].serial > serial)
			serial = nf->taint[i].serial;
	return serial;
}

void taint_expire(struct kedge_notifier *nf, uint64_t serial)
{
	unsigned int i = 0;

	while (i < nf->taint_cnt)
		if (nf->taint[i].serial <= serial)
			nf->taint[i] = nf->taint[--nf->taint_cnt];
		else
			i++;
}

bool taint_over(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	uint64_t need, now, out;

	sig_lock_blocked(&nf->lock);
	need = taint_serial(nf, start, end);
	now = nf->taint_serial;
	sig_unlock_blocked(&nf->lock);
	if (!need)
		return true;
	/* Without the lock: the monitor has to go on answering. */
	out = threads_out(&nf->threads, need, now);
	sig_lock_blocked(&nf->lock);
	taint_expire(nf, out);
	need = taint_serial(nf, start, end);
	sig_unlock_blocked(&nf->lock);
	return !need;
}
