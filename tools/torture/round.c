// SPDX-License-Identifier: BSD-2-Clause
/* One round: warm the cache, make the event, judge by the data. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "tools/torture/case.h"

/* Settles @x's row after an event's function returned @rc. */
static int settle(struct run *x, int rc)
{
	if (!rc)
		return 0;
	atomic_fetch_add(&x->row->again, 1);
	if (rc < 0 && rc != -ENOMEM)
		row_fail(x->row, rc, x->why);
	return rc;
}

int run_setup(struct run *x, struct lane *l, struct row *row)
{
	memset(&x->lane, 0, sizeof(*x) - offsetof(struct run, lane));
	x->addr = NULL;
	x->len = 0;
	x->lane = l;
	x->row = row;
	x->ev = row->ev;
	x->unit = sys_page();
	x->fd = -1;
	x->fd2 = -1;
	return settle(x, x->ev->setup(x));
}

void run_fini(struct run *x)
{
	x->ev->fini(x);
}

/* All of the range, just what changes, or some bytes in and around that. */
static struct span choose_range(struct run *x)
{
	struct util_rng *rng = &x->lane->rng;
	struct span s = { 0, x->len };
	size_t end;

	switch (util_rng_below(rng, 4)) {
	case 0:
		s = x->hot;
		break;
	case 1:
		end = x->hot.off + x->hot.len;
		end += util_rng_below(rng, x->len - end + 1);
		s.off = util_rng_below(rng, x->hot.off + 1);
		s.off += util_rng_below(rng, x->unit / 2);
		s.len = end - s.off;
		break;
	}
	return s;
}

/* @hot as seen from the start of @s. */
static struct span within(struct span hot, struct span s)
{
	size_t start = hot.off > s.off ? hot.off : s.off;
	size_t end = hot.off + hot.len;

	if (end > s.off + s.len)
		end = s.off + s.len;
	if (end <= start)
		return (struct span){ 0 };
	return (struct span){ start - s.off, end - start };
}

/* Registered, and found again; sometimes with data that is already there. */
static void warm(struct run *x, struct span s)
{
	struct lane *l = x->lane;
	char text[WHY_MAX];
	int rc;

	check_touch(l, x->addr + s.off, s.len);
	if (util_rng_below(&l->rng, 8)) {
		check_touch(l, x->addr + s.off, s.len);
		return;
	}
	rc = check_data(l, x->addr + s.off, s.len, NULL, text);
	if (rc)
		check_count(x->row, rc, text);
}

int run_judge(struct run *x, struct lane *l, struct span s)
{
	struct span hot = within(x->hot, s);
	char text[WHY_MAX];
	int rc;

	if (x->row->pages == PAGES_HUGETLB &&
	    !huge_present(l, x->addr + s.off, s.len))
		return EV_AGAIN;
	rc = check_data(l, x->addr + s.off, s.len, &hot, text);
	if (!rc && x->also)
		rc = check_data(l, x->also, x->also_len, NULL, text);
	check_count(x->row, rc, text);
	return 0;
}

/*
 * In a storm another thread, which was looking the range up all the while,
 * judges as soon as the event is over: its own lookup may still be under way.
 */
static int judge(struct run *x, struct span s)
{
	if (x->row->mode != MODE_STORM || util_rng_below(&x->lane->rng, 2))
		return run_judge(x, x->lane, s);
	x->hand_span = s;
	atomic_store_explicit(&x->hand, HAND_ASKED, memory_order_release);
	while (atomic_load_explicit(&x->hand, memory_order_acquire) !=
	       HAND_DONE)
		sched_yield();
	atomic_store_explicit(&x->hand, HAND_NONE, memory_order_relaxed);
	return x->hand_rc;
}

/* 0, or what its functions returned: set up anew. */
static int run_round(struct run *x)
{
	struct rig *rig = &x->lane->t->rig;
	bool held, late;
	struct ref ref;
	struct span s;
	int rc;

	rc = x->ev->prep ? settle(x, x->ev->prep(x)) : 0;
	if (rc)
		return rc;
	pick_hot(x);
	s = choose_range(x);
	warm(x, s);
	/*
	 * A transfer that is under way when the event comes may end before or
	 * after the next lookup: neither may bring the old pages back.
	 */
	held = !util_rng_below(&x->lane->rng, 4) &&
	       !rig_get(rig, x->addr + s.off, s.len, &ref);
	late = util_rng_below(&x->lane->rng, 2);
	rc = settle(x, x->ev->fire(x));
	/* A block that is another one now may have another length too. */
	if (s.off + s.len > x->len)
		s = (struct span){ 0, x->len };
	if (held && !late)
		rig_put(rig, &ref);
	if (!rc)
		rc = settle(x, judge(x, s));
	if (held && late)
		rig_put(rig, &ref);
	return rc;
}

void run_slice(struct lane *l, struct row *row, uint64_t end_ns,
	       unsigned int max, struct run *shared)
{
	struct run own = { .addr = NULL }, *x = shared ? shared : &own;
	unsigned int tries = 0;
	bool up = false;

	do {
		if (!up && run_setup(x, l, row)) {
			run_fini(x);
			break;
		}
		up = true;
		if (run_round(x)) {
			run_fini(x);
			up = false;
		}
	} while (++tries < max && !atomic_load(&row->off) &&
		 clock_ns() < end_ns);
	if (up)
		run_fini(x);
}
