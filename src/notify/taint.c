// SPDX-License-Identifier: BSD-2-Clause
/*
 * Ranges whose pages are on their way out. userfaultfd tells of MADV_DONTNEED
 * and its kin *before* the pages go, and no event marks the end. Whoever
 * registers in between gets the old pages: right at that moment, stale for ever
 * once they have gone. So a range is tainted from the event on, and while it is,
 * registrations there are provisional: used, never kept.
 *
 * A taint ends by proof alone. The zap walks upwards and takes every page. A
 * page that was seen present after the event, and later is seen gone, was taken
 * by it: pinned pages are neither swapped nor freed, and other ways to lose a
 * page bring an event of their own. That page is the witness: the last of the
 * range that is present. When it has gone, so has all below it.
 *
 * Two calls that are under way on the same page could each take the other's
 * witness, so where taints overlap there is none.
 *
 * Without a witness, or where the application touched the page again before
 * anybody looked, the taint stays until the range is unmapped. That costs
 * registrations, never data. What goes through libkedge-hooks is announced
 * instead and needs none of this.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "notify/internal.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

#define PAGEMAP_PRESENT (1ull << 63)
#define PAGEMAP_SWAPPED (1ull << 62)
#define LOOK_BACK	64 /* pages searched for a witness */

/* Something else takes pages of [start, end): they prove nothing any more. */
void taint_no_witness(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	unsigned int i;

	for (i = 0; i < nf->taint_cnt; i++)
		if (nf->taint[i].witness >= start && nf->taint[i].witness < end)
			nf->taint[i].witness = 0;
}

static ssize_t pagemap_read(struct kedge_notifier *nf, uint64_t addr,
			    uint64_t *entries, size_t cnt)
{
	ssize_t got;

	/* Another file's zeros would say that the pages have gone. */
	if (!fd_same(nf->pagemap_fd, &nf->pagemap_id))
		return 0;
	got = pread(nf->pagemap_fd, entries, cnt * 8,
		    (off_t)(addr / kedge__page_size() * 8));
	return got < 0 ? 0 : got / 8;
}

/* The last present page of [start, end), as far as is worth looking; or 0. */
static uint64_t last_present(struct kedge_notifier *nf, uint64_t start,
			     uint64_t end)
{
	size_t page = kedge__page_size();
	uint64_t entries[LOOK_BACK];
	size_t cnt = (end - start) / page;
	ssize_t i;

	if (cnt > LOOK_BACK)
		cnt = LOOK_BACK;
	start = end - cnt * page;
	for (i = pagemap_read(nf, start, entries, cnt) - 1; i >= 0; i--)
		if (entries[i] & PAGEMAP_PRESENT)
			return start + (uint64_t)i * page;
	return 0;
}

/* Whether a page lies in more than one taint. */
static bool shared(const struct kedge_notifier *nf, uint64_t addr)
{
	unsigned int i, cnt = 0;

	for (i = 0; i < nf->taint_cnt; i++)
		cnt += nf->taint[i].start <= addr && addr < nf->taint[i].end;
	return cnt > 1;
}

/*
 * Find a witness for a new taint. If the last page is not there, a read fault
 * brings the zero page: nobody can tell the difference, and the zap takes it
 * like any other.
 */
static void find_witness(struct kedge_notifier *nf, struct taint *t)
{
	size_t page = kedge__page_size();

	if (t->end - t->start < page)
		return;
	t->witness = last_present(nf, t->start, t->end);
	if (t->witness + page != t->end &&
	    !madvise((void *)(uintptr_t)(t->end - page), page,
		     MADV_POPULATE_READ))
		t->witness = t->end - page;
	if (t->witness && shared(nf, t->witness))
		t->witness = 0;
}

static void drop(struct kedge_notifier *nf, unsigned int i)
{
	nf->taint[i] = nf->taint[--nf->taint_cnt];
}

static bool overlaps(const struct taint *t, uint64_t start, uint64_t end)
{
	return t->start < end && t->end > start;
}

/* How much longer a taint gets that takes in [start, end). */
static uint64_t growth(const struct taint *t, uint64_t start, uint64_t end)
{
	return (start < t->start ? t->start - start : 0) +
	       (end > t->end ? end - t->end : 0);
}

/*
 * The taint that takes in [start, end): one without a witness that overlaps it,
 * for it could have none either; if there is no room, the nearest. NULL: a new
 * one.
 */
static struct taint *taker(struct kedge_notifier *nf, uint64_t start,
			   uint64_t end)
{
	struct taint *nearest = &nf->taint[0], *t;

	for (t = nf->taint; t < nf->taint + nf->taint_cnt; t++) {
		if (!t->witness && overlaps(t, start, end))
			return t;
		if (growth(t, start, end) < growth(nearest, start, end))
			nearest = t;
	}
	return nf->taint_cnt < TAINT_MAX ? NULL : nearest;
}

/*
 * Called as soon after the event as can be. Who is taken in by another has no
 * witness, and the other loses his: what takes that page proves nothing of the
 * rest.
 */
void taint_add(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	struct taint *t;

	taint_no_witness(nf, start, end);
	t = taker(nf, start, end);
	if (!t) {
		t = &nf->taint[nf->taint_cnt++];
		*t = (struct taint){ start, end, 0 };
		find_witness(nf, t);
		return;
	}
	if (start < t->start)
		t->start = start;
	if (end > t->end)
		t->end = end;
	t->witness = 0;
}

/* Take [start, end) out of a taint that goes on at both sides of it. */
static void split(struct kedge_notifier *nf, struct taint *t, uint64_t start,
		  uint64_t end)
{
	/* Without room the whole stays tainted. */
	if (nf->taint_cnt == TAINT_MAX)
		return;
	/* The walk upwards may have got to the witness, or past it. */
	nf->taint[nf->taint_cnt++] =
		(struct taint){ end, t->end,
				t->witness >= end ? t->witness : 0 };
	t->end = start;
}

/*
 * The range is another mapping now: nothing of the old one can be pending. A
 * witness in there was taken by this.
 */
void taint_cut(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	unsigned int i = 0;

	taint_no_witness(nf, start, end);
	while (i < nf->taint_cnt) {
		struct taint *t = &nf->taint[i];

		if (t->start >= start && t->end <= end) {
			drop(nf, i);
			continue;
		}
		if (t->start < start && t->end > end)
			split(nf, t, start, end);
		else if (t->start < start && t->end > start)
			t->end = start;
		else if (t->start < end && t->end > end)
			t->start = end;
		if (t->witness >= t->end || t->witness < t->start)
			t->witness = 0;
		i++;
	}
}

bool taint_overlaps(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	unsigned int i;

	for (i = 0; i < nf->taint_cnt; i++)
		if (overlaps(&nf->taint[i], start, end))
			return true;
	return false;
}

bool taint_look(struct kedge_notifier *nf)
{
	size_t page = kedge__page_size();
	bool more = false;
	unsigned int i = 0;

	while (i < nf->taint_cnt) {
		struct taint *t = &nf->taint[i];
		uint64_t entry;

		if (!t->witness || pagemap_read(nf, t->witness, &entry, 1) != 1) {
			i++;
			continue;
		}
		if (entry & (PAGEMAP_PRESENT | PAGEMAP_SWAPPED)) {
			more = true;
			i++;
			continue;
		}
		t->start = t->witness + page;
		t->witness = 0;
		if (t->start >= t->end)
			drop(nf, i);
		else
			i++;
	}
	return more;
}
