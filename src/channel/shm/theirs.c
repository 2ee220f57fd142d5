// SPDX-License-Identifier: BSD-2-Clause
/*
 * The peer's segments, attached here: either side says in which segment its buffer is, if it
 * is in one. The receiver copies from the sender's without a system call, and the sender stores
 * into the receiver's (chunk.c). An entry is for one of the two.
 *
 * To get a segment the owner has to answer, and to give one back waits for a lock, so a
 * thread of its own does either, for one segment of a channel at a time; messages go by the
 * kernel until it is there. What could not be had, or went away, is asked for again after
 * some messages, and after twice as many each time, until it has served for a while.
 *
 * A peer may name whatever segment it likes. Only those of its own process are used: else it
 * could have this process read where it may not itself. That it is the same process
 * as shook hands the pidfd says, after the number of the owner was learned.
 *
 * An entry is the channel's and, while it is ASKED, the thread's. What the thread writes is
 * the channel's when it finds the state moved (acquire), and the thread touches it no more.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include <kedge/segment.h>

#include "base/lock.h"
#include "base/process/service.h"
#include "base/process/thread.h"
#include "channel/shm/internal.h"

#define WINDOW	     ((uint64_t)1 << 30) /* what is attached at once */
#define ENTRIES_MAX  192 /* of a process: each may have a descriptor or two */
#define PAUSE_MAX    1024u
#define SERVED	     16u

enum their_state { ASKED, READY, REFUSED };

struct theirs {
	_Atomic uint32_t refs;
	_Atomic uint32_t state;
	struct kedge_segment_id id;
	pid_t pid;
	bool writes;  /* stores go there, too */
	uint64_t off; /* of what is attached, or would be, in the segment */
	uint64_t len;
	uint64_t want_off; /* of the message that it was asked for */
	uint64_t want_len;
	struct kedge_grant *grant;
	struct kedge_attachment *attachment;
	/* The channel's alone. */
	bool known; /* the pidfd has said that it is the peer's */
	uint32_t uses;
	uint32_t served; /* messages since it was asked for */
	uint32_t pause;	 /* messages before it is asked for again */
	uint32_t left;	 /* of them */
	uint64_t last;	 /* when it was used, in messages */
};

static _Atomic int entry_cnt;

/* ---- the thread's part ---- */

static void let_go(struct theirs *t)
{
	kedge_segment_detach(t->attachment);
	kedge_segment_release(t->grant);
	t->attachment = NULL;
	t->grant = NULL;
}

static void entry_put(struct theirs *t)
{
	if (atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) != 1)
		return;
	let_go(t);
	free(t);
	atomic_fetch_sub(&entry_cnt, 1);
}

/* From @unit to @unit, as far as the segment goes; @unit is a power of two. */
static int attach_round(struct theirs *t, uint64_t unit, uint64_t segment_len)
{
	uint64_t end = t->want_off + t->want_len;

	end = end > segment_len - segment_len % unit ? segment_len : round_up(end, unit);
	t->off = round_down(t->want_off, unit);
	t->len = end - t->off;
	return kedge_segment_attach(t->grant, t->off, t->len, KEDGE_ATTACH_KEEP,
				    &t->attachment);
}

/* All of the window; or the pages of the message alone, if a part of the rest has gone. */
static int attach(struct theirs *t, uint64_t segment_len)
{
	int rc;

	if (t->want_off >= segment_len || t->want_len > segment_len - t->want_off)
		return -EINVAL;
	rc = attach_round(t, WINDOW, segment_len);
	if (rc == -ESTALE || rc == -ENOMEM)
		rc = attach_round(t, kedge__page_size(), segment_len);
	return rc;
}

static void *fetch(void *arg)
{
	struct kedge_segment_info info = { .size = sizeof(info) };
	struct theirs *t = arg;
	int rc;

	let_go(t);
	/* Unless more is learned, no part of the segment is to be had. */
	t->off = 0;
	t->len = UINT64_MAX;
	rc = kedge_segment_get(&t->id, t->writes ? KEDGE_SEGMENT_READ | KEDGE_SEGMENT_WRITE
						 : KEDGE_SEGMENT_READ, &t->grant);
	if (!rc)
		rc = kedge_grant_info(t->grant, &info);
	if (!rc && info.pid != t->pid)
		rc = -EPERM;
	if (!rc)
		rc = attach(t, info.len);
	if (rc)
		let_go(t);
	atomic_store_explicit(&t->state, rc ? REFUSED : READY, memory_order_release);
	entry_put(t);
	service_thread_is_ours();
	return NULL;
}

/* ---- the channel's ---- */

static uint32_t state_of(struct theirs *t)
{
	return atomic_load_explicit(&t->state, memory_order_acquire);
}

bool theirs_asks(const struct shm *s)
{
	uint32_t i;

	for (i = 0; i < THEIRS; i++)
		if (s->theirs[i] && state_of(s->theirs[i]) == ASKED)
			return true;
	return false;
}

static void ask(struct theirs *t, const struct segment_place *p, uint64_t len)
{
	pthread_t thread;
	bool started;

	t->want_off = p->off;
	t->want_len = len;
	t->known = false;
	t->served = 0;
	atomic_store_explicit(&t->state, ASKED, memory_order_relaxed);
	atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
	signals_block();
	started = !thread_start(&thread, fetch, t);
	signals_restore();
	if (started) {
		pthread_detach(thread);
		return;
	}
	atomic_store_explicit(&t->state, REFUSED, memory_order_relaxed);
	entry_put(t);
}

/* It is not to be had, or not any more. */
static void ask_later(struct theirs *t)
{
	t->pause = t->pause ? t->pause * 2 : 1;
	if (t->pause > PAUSE_MAX)
		t->pause = PAUSE_MAX;
	t->left = t->pause;
}

static void ask_again(struct shm *s, struct theirs *t, const struct segment_place *p,
		      uint64_t len)
{
	if (t->left) {
		t->left--;
	} else if (!t->uses && !theirs_asks(s)) {
		ask_later(t);
		ask(t, p, len);
	}
}

static bool holds(const struct theirs *t, const struct segment_place *p, uint64_t len,
		  bool writes)
{
	return t->writes == writes && t->id.word[0] == p->id.word[0] &&
	       t->id.word[1] == p->id.word[1] &&
	       p->off >= t->off && p->off - t->off < t->len &&
	       len <= t->len - (p->off - t->off);
}

static struct theirs *find(struct shm *s, const struct segment_place *p, uint64_t len,
			   bool writes)
{
	uint32_t i;

	for (i = 0; i < THEIRS; i++)
		if (s->theirs[i] && state_of(s->theirs[i]) != ASKED &&
		    holds(s->theirs[i], p, len, writes))
			return s->theirs[i];
	return NULL;
}

/* An empty one, or that which was not used for longest. */
static struct theirs **room(struct shm *s)
{
	struct theirs **least = NULL, **t;

	for (t = s->theirs; t < s->theirs + THEIRS; t++) {
		if (!*t)
			return t;
		if (!(*t)->uses && (!least || (*t)->last < (*least)->last))
			least = t;
	}
	return least;
}

static void add(struct shm *s, const struct segment_place *p, uint64_t len, bool writes)
{
	struct theirs **at = theirs_asks(s) ? NULL : room(s), *t;

	if (!at || (!*at && atomic_load(&entry_cnt) >= ENTRIES_MAX))
		return;
	if (*at) {
		t = *at;
		t->pause = t->left = 0;
	} else {
		t = calloc(1, sizeof(*t));
		if (!t)
			return;
		atomic_fetch_add(&entry_cnt, 1);
		atomic_store_explicit(&t->refs, 1, memory_order_relaxed);
		*at = t;
	}
	t->id = p->id;
	t->pid = s->pid;
	t->writes = writes;
	t->last = ++s->theirs_clock;
	ask(t, p, len);
}

bool theirs_valid(struct theirs *t)
{
	return segment_valid_now(t->attachment);
}

static bool is_usable(struct shm *s, struct theirs *t)
{
	if (state_of(t) != READY || !theirs_valid(t))
		return false;
	/* Now that the number is known to be of a process that lived just before. */
	if (!t->known)
		t->known = peer_lives(s->peer);
	return t->known;
}

static struct theirs *usable(struct shm *s, const struct segment_place *p, uint64_t len,
			     bool writes)
{
	struct theirs *t = find(s, p, len, writes);

	if (!t) {
		add(s, p, len, writes);
		return NULL;
	}
	t->last = ++s->theirs_clock;
	if (is_usable(s, t))
		return t;
	ask_again(s, t, p, len);
	return NULL;
}

struct theirs *theirs_use(struct shm *s, const struct segment_place *p, uint64_t len,
			  bool writes, char **at)
{
	struct theirs *t = usable(s, p, len, writes);

	if (!t)
		return NULL;
	if (++t->served == SERVED)
		t->pause = t->left = 0;
	t->uses++;
	*at = (char *)kedge_segment_addr(t->attachment) + (p->off - t->off);
	return t;
}

bool theirs_has(struct shm *s, const struct segment_place *p, uint64_t len)
{
	return usable(s, p, len, false) != NULL;
}

void theirs_unuse(struct theirs *t)
{
	t->uses--;
}

void theirs_close(struct shm *s)
{
	uint32_t i;

	for (i = 0; i < THEIRS; i++)
		if (s->theirs[i])
			entry_put(s->theirs[i]);
}

void theirs_leave(struct shm *s)
{
	uint32_t i;

	for (i = 0; i < THEIRS; i++) {
		if (!s->theirs[i])
			continue;
		/* The parent's thread was amid one that is ASKED: its pointers may be of either
		 * state. */
		if (state_of(s->theirs[i]) != ASKED)
			let_go(s->theirs[i]);
		free(s->theirs[i]);
		atomic_fetch_sub(&entry_cnt, 1);
	}
}
