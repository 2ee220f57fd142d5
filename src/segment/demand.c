// SPDX-License-Identifier: BSD-2-Clause
/*
 * Memory that is converted when a peer attaches it: of a whole address space, of a range with
 * holes, or where the program asks for that. The program is doing something else at that
 * moment, so its threads are stopped: what they unmap and map would be lost otherwise, and
 * where they cannot be stopped nothing is converted.
 *
 * A peer names the part that it wants, and gets what there is from its start on: of memory
 * that is converted already, or of pages that are converted for it now. What has another kind
 * behind it, or a hole, or a part that was converted before, ends there; the peer asks for
 * the rest. As soon as no peer has a part of it, memory is private again.
 */
#include "base/process/own.h"
#include "notify/internal.h"
#include "pages/internal.h"
#include "segment/thread/thread.h"

/* So much around a part is converted with it if it is of the same kind: peers attach many
 * small buffers of a heap, and there is a limit to ranges. */
#define GRAIN  ((uintptr_t)64 << 10)
#define TRIES  16
#define BUSY   3 /* times that threads are waited for, a second each */
#define PROT_RW 3u

/* A part that a peer waits for. */
struct want {
	int conn;
	uint64_t ticket;
	uintptr_t start;
	uintptr_t end;
	uintptr_t first; /* of the segment, in whole pages */
	uintptr_t last;
};

/* Guarded by the gate: what became of it. */
static struct answer {
	uint64_t ticket;
	int extent; /* or a negative errno */
	uintptr_t until;
	char why[128];
} answer;

/* ---- what there is ---- */

/* A run of mappings of one kind from the start of a part on. */
struct run {
	const struct want *w;
	uintptr_t lo;
	uintptr_t hi;
	bool hole;
	bool other; /* of a kind that is not converted */
	bool ended;
};

/* Memory that the owner itself cannot touch is as good as a hole. */
static void note_first(struct run *r, const struct vma_info *v)
{
	const bool gap = v->start > r->w->start;

	r->hole = gap || !v->prot;
	r->lo = r->hole && !gap ? v->end : v->start;
	r->hi = v->end;
	r->other = !r->hole && (!v->plain || v->prot != PROT_RW);
	r->ended = r->hole || r->other;
}

static void note(void *arg, const struct vma_info *v)
{
	struct run *r = arg;

	if (v->end <= r->w->start || r->ended)
		return;
	if (!r->hi)
		note_first(r, v);
	else if (v->start == r->hi && v->plain && v->prot == PROT_RW)
		r->hi = v->end;
	else
		r->ended = true;
}

static uintptr_t lesser(uintptr_t a, uintptr_t b)
{
	return a < b ? a : b;
}

static uintptr_t greater(uintptr_t a, uintptr_t b)
{
	return a > b ? a : b;
}

/* Its end, of whatever kind it is. */
static uintptr_t run_end(const struct run *r)
{
	const struct want *w = r->w;

	if (r->hole)
		return lesser(r->lo, w->end);
	return r->hi ? lesser(r->hi, w->end) : w->end;
}

static int find_run(const struct want *w, struct run *r)
{
	int rc;

	*r = (struct run){ .w = w };
	rc = vma_walk(note, r);
	if (rc)
		return rc;
	if (r->hole || !r->hi)
		return -EFAULT;
	if (r->other) {
		rc = swap_why_not(w->start, kedge__page_size());
		return rc ? rc : kedge_reason(-EOPNOTSUPP, "that memory cannot be shared in "
					      "place");
	}
	r->lo = greater(r->lo, greater(round_down(w->start, GRAIN), w->first));
	r->hi = lesser(r->hi, lesser(round_up(w->end, GRAIN), w->last));
	/* Memory of kedge's own, which may have got into a hole of the program's, stays one. */
	return own_around(w->start, &r->lo, &r->hi) ? 0 : -EFAULT;
}

/* ---- converting it ---- */

static int why_not(const struct want *w, int rc)
{
	int why;

	switch (rc) {
	case -EPERM:
		return kedge_reason(-EOPNOTSUPP, "the owner's threads cannot be stopped for that "
				    "(a debugger, kernel.yama.ptrace_scope, seccomp)");
	case -EAGAIN:
		return kedge_reason(-EBUSY, "a thread of the owner's is busy in the kernel, or no "
				    "process or descriptor is to be had there");
	case -EBUSY:
		return kedge_reason(rc, "a page there is pinned by a device or a transfer");
	case -ESTALE:
	case -EFAULT:
		return kedge_reason(-EBUSY, "the owner changes that memory all the time");
	case -ENOMEM:
		return kedge_reason(rc, "no memory or mapping is left (the memory cgroup's limit, "
				    "vm.max_map_count, RLIMIT_AS)");
	case -EFBIG:
		return kedge_reason(-EOPNOTSUPP, "RLIMIT_FSIZE is less than that memory: raise it "
				    "with ulimit -f");
	case -ENOSPC:
	case -EMFILE:
	case -ENFILE:
		return kedge_reason(rc, "%s", strerrordesc_np(-rc));
	}
	/* Any part of it that is wanted. */
	why = swap_is_kept(w->start, w->end - w->start);
	if (!why)
		why = swap_why_not(w->start, kedge__page_size());
	return why ? why : kedge_reason(-EOPNOTSUPP, "that memory cannot be shared in place (%s)",
					strerrordesc_np(-rc));
}

static int add(uintptr_t start, uintptr_t end)
{
	int rc = swap_is_kept(start, end - start);

	if (rc)
		return rc == -EFAULT ? -ESTALE : rc;
	return extent_add(start, end - start);
}

/* With its neighbours if they can be, too. */
static int convert_run(const struct want *w, const struct run *r)
{
	uintptr_t end = lesser(r->hi, w->end);
	int i = add(r->lo, r->hi);

	if (i < 0 && i != -ESTALE && i != -EPERM && i != -EAGAIN &&
	    (r->lo < w->start || r->hi > end))
		i = add(w->start, end);
	if (i < 0)
		return i;
	sig_lock(&seg_lock);
	seg->extent[i].on_attach = true;
	sig_unlock(&seg_lock);
	return i;
}

static int find(const struct want *w, uintptr_t *until)
{
	int i;

	sig_lock(&seg_lock);
	i = piece_at(w->start, until);
	sig_unlock(&seg_lock);
	return i;
}

/* Then nobody gets a part of it any more: whoever asks waits until it is private. */
static bool take_idle(int i)
{
	struct extent *e = &seg->extent[i];
	bool is;

	sig_lock(&seg_lock);
	is = e->len && e->on_attach && !e->segments && !conns_have_part(i, NULL);
	e->away = e->away || is;
	sig_unlock(&seg_lock);
	return is;
}

bool demand_drop_idle(void)
{
	bool any = false;
	int i;

	for (i = 0; i < (int)EXTENTS; i++)
		if (take_idle(i)) {
			extent_drop(i);
			any = true;
		}
	return any;
}

/* The extent that has the start of it, up to where; or a negative errno with a reason. */
static int convert(const struct want *w, uintptr_t *until)
{
	struct run r;
	int try, i, busy = 0, rc = -ESTALE;

	i = find(w, until);
	if (i >= 0)
		return i;
	/* Memory that could not be made private before is tried again: it may be in the way. */
	demand_drop_idle();
	for (try = 0; try < TRIES && (rc == -ESTALE || rc >= 0); try++) {
		i = find(w, until);
		if (i >= 0)
			return i;
		rc = find_run(w, &r);
		*until = run_end(&r);
		if (rc)
			return rc;
		rc = convert_run(w, &r);
		if ((rc == -ENOSPC && demand_drop_idle()) ||
		    ((rc == -EAGAIN || rc == -EBADF) && ++busy < BUSY))
			rc = -ESTALE;
	}
	return why_not(w, rc < 0 ? rc : -ESTALE);
}

/* ---- what peers wait for ---- */

/* With lock. */
static void fill(struct want *w, const struct conn *c)
{
	const size_t page = kedge__page_size();
	const struct kedge_segment *s = c->segment;

	*w = (struct want){ .conn = (int)(c - seg->conn), .ticket = c->ticket,
			    .start = c->start, .end = c->end,
			    .first = round_down(s->addr, page),
			    .last = round_up(s->addr + s->len, page) };
}

/* That which came first. */
static bool next_want(struct want *w)
{
	const struct conn *c, *first = NULL;

	sig_lock(&seg_lock);
	for (c = seg->conn; c < seg->conn + CONNS; c++)
		if (c->fd >= 0 && c->ticket && (!first || c->ticket < first->ticket))
			first = c;
	if (first)
		fill(w, first);
	sig_unlock(&seg_lock);
	return first;
}

static void serve(const struct want *w)
{
	const struct seg_call call = { .op = SEG_OP_PART, .index = w->conn };
	const struct timespec nap = { 0, 10000000 };

	answer = (struct answer){ .ticket = w->ticket };
	answer.extent = convert(w, &answer.until);
	if (answer.extent < 0 && answer.extent != -EFAULT)
		strncpy(answer.why, kedge_strerror(answer.extent), sizeof(answer.why) - 1);
	/* It waits still, and this is tried again: there is no descriptor to be had. */
	if (call_thread(&call, -1))
		nanosleep(&nap, NULL);
}

void demand_tell(const struct seg_call *call)
{
	serve_part(call->index, answer.ticket, answer.extent, answer.until, answer.why);
}

/* One at a time, so that calls of the program's, and fork(), get the gate in between. */
static void work(void)
{
	struct want w;

	if (next_want(&w)) {
		serve(&w);
		convert_post();
	} else {
		demand_drop_idle();
	}
}

/* ---- segments ---- */

/* Nobody else has it: what its peers have stored is the owner's when they have let go. */
static bool is_for(int i, const struct kedge_segment *s)
{
	const struct extent *e = &seg->extent[i];
	bool is;

	sig_lock(&seg_lock);
	is = e->len && e->on_attach && !e->segments && !conns_have_part(i, s);
	sig_unlock(&seg_lock);
	return is;
}

void demand_leave(const struct kedge_segment *s)
{
	const struct seg_call call = { .op = SEG_OP_HANG_UP, .start = (uintptr_t)s };
	int i;

	for (i = 0; i < (int)EXTENTS; i++)
		if (is_for(i, s))
			extent_recall(i);
	extent_wait_acks();
	call_thread(&call, -1);
	demand_drop_idle();
}

int demand_use(void)
{
	int rc = extent_can_lift();

	/* A filter that forbids userfaultfd has an error of its own. */
	if (rc == -EPERM || rc == -ENOSYS || rc == -EACCES)
		return kedge_reason(-EOPNOTSUPP, "userfaultfd is forbidden here (%s)",
				    strerrordesc_np(-rc));
	return rc ? rc : convert_begin(work);
}

void demand_unuse(void)
{
	convert_end();
}
