// SPDX-License-Identifier: BSD-2-Clause
/*
 * The end of a registration on a device that does not mark what it wrote: before
 * the pages are unpinned, the device's preserve sees to it that data written to them
 * are not lost.
 *
 * It has to know where they are. So a region that the device may have written to
 * stays watched when it leaves the index, until preserve has been called and no
 * event came since: then what was marked were its pages. What events took before
 * is of two kinds. Given: the application dropped just that (MADV_DONTNEED,
 * MADV_FREE), and the data with it; to mark it would allocate it anew. Unsure:
 * the rest, since an event names the smallest range that holds all that happened,
 * and tells of what is under way; the device marks of it what is present. Moved:
 * something in it may be mapped elsewhere now.
 *
 * A region that no caller had needs no preserve; nor does one that another with
 * the same rights covers, as the end of that one does it for both: it was registered
 * while this one was, so its pages are the same, where no event hit this one.
 * That device may still write to the old one does not matter: a page that was
 * marked is lazily freed by another MADV_FREE only, which gives the data up.
 *
 * Memory that is not watched may be anywhere when its registration ends, and is
 * preserved at once: the caller has just asked for it, so it is there. So is all
 * where the notifier does not tell what happened: everything could have been moved.
 */
#include "cache/internal.h"

/* The times that others may change mappings while a region's pages are marked. */
#define TRIES 8

static bool within(uint64_t at, uint64_t start, uint64_t end)
{
	return at >= start && at < end;
}

/* The end of what is known of the page at @at; @end at most. */
static uint64_t piece_end(const struct fate *f, uint64_t at, uint64_t end)
{
	const uint64_t border[] = { f->unsure_start, f->unsure_end,
				    f->given_start, f->given_end };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(border); i++)
		if (border[i] > at && border[i] < end)
			end = border[i];
	return end;
}

/*
 * Pages that went elsewhere are looked for in the whole process, and found for all
 * regions that end together: *looked says that it was.
 */
static void preserve(struct kedge_cache *c, const struct region *r,
		     bool *looked)
{
	const struct region_cold *cold = cold_of(c, r);
	const struct fate *f = &cold->todo;
	uint64_t at = r->mr.addr, end = at + r->mr.len, stop;
	uint32_t flags;
	bool sure;

	for (; at < end; at = stop) {
		stop = piece_end(f, at, end);
		sure = !within(at, f->unsure_start, f->unsure_end);
		if (within(at, f->given_start, f->given_end) ||
		    (sure && cold->covered))
			continue;
		flags = sure ? 0 : KEDGE_PRESERVE_UNSURE;
		if (!sure && f->moved && !*looked) {
			flags |= KEDGE_PRESERVE_MOVED;
			*looked = true;
		}
		device_preserve(c->dev, &cold->dev, at, stop, flags);
	}
}

/* True if something was due, after which judge() is to be asked. */
static bool preserve_each(struct kedge_cache *c, uint32_t dead)
{
	bool any = false, looked = false;
	uint32_t id;

	for (id = dead; id; id = cold_at(c, id)->next)
		if (cold_at(c, id)->due) {
			preserve(c, &c->regions[id], &looked);
			any = true;
		}
	return any;
}

/* False if no region is due. Else each todo is what is known now. */
static bool look_first(struct kedge_cache *c, uint32_t dead, uint32_t *more)
{
	uint32_t killed = 0, id;

	for (id = dead; id && !cold_at(c, id)->due;)
		id = cold_at(c, id)->next;
	if (!id)
		return false;
	pthread_mutex_lock(&c->lock);
	cache_sync(c, &killed);
	for (id = dead; id; id = cold_at(c, id)->next) {
		cold_at(c, id)->todo = cold_at(c, id)->fate;
		cold_at(c, id)->hit = false;
	}
	region_collect(c, &killed, more);
	pthread_mutex_unlock(&c->lock);
	return true;
}

/*
 * A region that no event hit since its pages were marked need not be watched any
 * more; nor one of which the notifier will never tell.
 */
static void judge_one(struct kedge_cache *c, struct region *r, enum trust trust,
		      bool last)
{
	struct region_cold *cold = cold_of(c, r);
	bool settled = trust == TRUST_ALL ||
		       (trust == TRUST_ANNOUNCED &&
			notify_announced(c->nf, r->mr.addr,
					 r->mr.addr + r->mr.len));

	if (!cold->due)
		return;
	cold->due = cold->hit || !settled;
	if (cold->due && last) {
		cold->fate = (struct fate){
			.unsure_start = r->mr.addr,
			.unsure_end = r->mr.addr + r->mr.len,
			.moved = true,
		};
	}
	cold->todo = cold->fate;
	cold->hit = false;
	if (!cold->due || last)
		region_unwatch(c, r);
}

/* True if that was the last time. */
static bool judge(struct kedge_cache *c, uint32_t dead, bool last,
		  uint32_t *more)
{
	/* A change that began before the pages were marked is to be read below. */
	enum trust trust = notify_settle_asking(c->nf);
	uint32_t killed = 0, id;

	if (trust == TRUST_NONE && nf_asks(c->nf) == ASKS_NOT)
		trust = notify_settle(c->nf);

	pthread_mutex_lock(&c->lock);
	cache_sync(c, &killed);
	last |= nf_asks(c->nf) == ASKS_LOST;
	for (id = dead; id; id = cold_at(c, id)->next)
		judge_one(c, &c->regions[id], trust, last);
	region_collect(c, &killed, more);
	pthread_mutex_unlock(&c->lock);
	return last;
}

uint32_t preserve_dead(struct kedge_cache *c, uint32_t dead)
{
	uint32_t more = 0;
	bool last = false;
	int tries = 0;

	if (!look_first(c, dead, &more))
		return 0;

	/* After the last judgement all is due as what may be anywhere. */
	while (preserve_each(c, dead) && !last)
		last = judge(c, dead, ++tries == TRIES, &more);
	return more;
}
