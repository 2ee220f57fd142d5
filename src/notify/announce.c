// SPDX-License-Identifier: BSD-2-Clause
/*
 * Changes announced before they are made: by libkedge-hooks for libc's calls,
 * or by a runtime for its own. They reach every notifier of the process.
 *
 * Most calls concern memory that nobody watches, and those must cost next to
 * nothing: tables of counters, hashed by address, say whether anybody watches
 * there and whether a change is under way there. A collision costs a look at
 * the notifier's tree, or a registration that is not kept. Short watches are
 * counted by 64 KiB, so that they do not slow their neighbours; long ones and
 * changes by 2 MiB.
 *
 * Proof that a watch and a change cannot miss each other. The announcer raises
 * "changing", then reads "watched"; who adds a watch raises "watched", then
 * (after arming) reads "changing". Both raise by a seq_cst read-modify-write and
 * read with seq_cst, so in their total order at least one sees the other: the
 * announcer, who then invalidates, or the watcher, who then does not keep. With
 * weaker orders both could read 0 and a registration of the old pages be kept.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "notify/announce.h"
#include "notify/internal.h"

#define SPAN_MAX      1024u /* granules counted one by one */
#define NOTIFIERS_MAX 64

#define FINE_SHIFT   16
#define FINE_BITS    16
#define COARSE_SHIFT 21
#define COARSE_BITS  14
#define FINE_MAX     ((uint64_t)16 << 20) /* longer ranges count coarsely */

struct table {
	unsigned int shift;
	unsigned int bits;
	_Atomic uint32_t wide; /* ranges of more than SPAN_MAX granules */
	_Atomic uint32_t *slot;
};

/* Zero in a forked child: what is here then belongs to the parent. */
struct proc_page {
	_Atomic uint32_t ours;
};

static struct proc_page *proc;
static _Atomic uint32_t fine_slot[1u << FINE_BITS];
static _Atomic uint32_t coarse_slot[1u << COARSE_BITS];
static _Atomic uint32_t changing_slot[1u << COARSE_BITS];
static struct table watched_fine = { FINE_SHIFT, FINE_BITS, 0, fine_slot };
static struct table watched_coarse = { COARSE_SHIFT, COARSE_BITS, 0,
				       coarse_slot };
static struct table changing = { COARSE_SHIFT, COARSE_BITS, 0, changing_slot };
static _Atomic uint32_t announced_only; /* notifiers that live by this */
static _Atomic uint32_t hooked; /* 1 + the announcer's blind spots, or 0 */

/* lock guards listeners, and keeps them alive while they are told. */
static struct sig_lock lock = SIG_LOCK_INIT;
static struct kedge_notifier *listeners[NOTIFIERS_MAX];

static _Atomic uint32_t *slot_of(const struct table *t, uint64_t granule)
{
	return &t->slot[(granule * 0x9e3779b97f4a7c15ull) >> (64 - t->bits)];
}

static void count(struct table *t, uint64_t start, uint64_t end, uint32_t by)
{
	uint64_t g = start >> t->shift, last = (end - 1) >> t->shift;

	if (last - g >= SPAN_MAX) {
		atomic_fetch_add(&t->wide, by);
		return;
	}
	for (; g <= last; g++)
		atomic_fetch_add(slot_of(t, g), by);
}

/* Whether anything may be counted there. */
static bool counted(struct table *t, uint64_t start, uint64_t end)
{
	uint64_t g = start >> t->shift, last = (end - 1) >> t->shift;

	if (atomic_load(&t->wide) || last - g >= SPAN_MAX)
		return true;
	for (; g <= last; g++)
		if (atomic_load(slot_of(t, g)))
			return true;
	return false;
}

static struct table *watched_table(uint64_t start, uint64_t end)
{
	return end - start <= FINE_MAX ? &watched_fine : &watched_coarse;
}

void announce_watch(uint64_t start, uint64_t end)
{
	count(watched_table(start, end), start, end, 1);
}

void announce_unwatch(uint64_t start, uint64_t end)
{
	count(watched_table(start, end), start, end, (uint32_t)-1);
}

static bool watched(uint64_t start, uint64_t end)
{
	return counted(&watched_coarse, start, end) ||
	       counted(&watched_fine, start, end);
}

/* A wide question is not answered by "yes" alone: look what is counted. */
bool announce_active(uint64_t start, uint64_t end)
{
	unsigned int i;

	if ((end - 1 - start) >> COARSE_SHIFT < SPAN_MAX - 1)
		return counted(&changing, start, end);
	if (atomic_load(&changing.wide))
		return true;
	for (i = 0; i < 1u << COARSE_BITS; i++)
		if (atomic_load(&changing_slot[i]))
			return true;
	return false;
}

bool announce_hooked(uint32_t *blind)
{
	uint32_t h = atomic_load_explicit(&hooked, memory_order_relaxed);

	if (blind)
		*blind = h ? h - 1 : 0;
	return h;
}

void kedge_hook_attach(uint32_t blind)
{
	atomic_store_explicit(&hooked, blind + 1, memory_order_relaxed);
}

static void reset(struct table *t)
{
	unsigned int i;

	atomic_store(&t->wide, 0);
	for (i = 0; i < 1u << t->bits; i++)
		atomic_store(&t->slot[i], 0);
}

/*
 * A forked child starts with the parent's lock, listeners and counters. Nobody
 * else runs there yet that could use them: forget them all.
 */
static int adopt(void)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
	int rc = 0;

	pthread_mutex_lock(&once);
	if (!proc) {
		proc = mmap(NULL, kedge__page_size(), PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (proc == MAP_FAILED ||
		    madvise(proc, kedge__page_size(), MADV_WIPEONFORK)) {
			if (proc != MAP_FAILED)
				munmap(proc, kedge__page_size());
			proc = NULL;
			rc = -ENOMEM;
			goto unlock;
		}
	}
	if (atomic_load(&proc->ours))
		goto unlock;
	sig_lock_init(&lock);
	memset(listeners, 0, sizeof(listeners));
	announced_only = 0;
	reset(&watched_fine);
	reset(&watched_coarse);
	reset(&changing);
	atomic_store(&proc->ours, 1);
unlock:
	pthread_mutex_unlock(&once);
	return rc;
}

int announce_attach(struct kedge_notifier *nf)
{
	int rc = adopt();
	unsigned int i;

	if (rc)
		return rc;
	rc = kedge_reason(-ENOSPC, "%d notifiers are open in this process: "
				   "close some", NOTIFIERS_MAX);
	sig_lock(&lock);
	for (i = 0; i < NOTIFIERS_MAX && rc; i++) {
		if (listeners[i])
			continue;
		listeners[i] = nf;
		announced_only += nf->ops->announced_only;
		rc = 0;
	}
	sig_unlock(&lock);
	return rc;
}

void announce_each(void (*fn)(struct kedge_notifier *nf, void *arg), void *arg)
{
	unsigned int i;

	if (!proc || !atomic_load(&proc->ours))
		return;
	sig_lock(&lock);
	for (i = 0; i < NOTIFIERS_MAX; i++)
		if (listeners[i])
			fn(listeners[i], arg);
	sig_unlock(&lock);
}

void announce_detach(struct kedge_notifier *nf)
{
	unsigned int i;

	sig_lock(&lock);
	for (i = 0; i < NOTIFIERS_MAX; i++)
		if (listeners[i] == nf) {
			listeners[i] = NULL;
			announced_only -= nf->ops->announced_only;
		}
	sig_unlock(&lock);
}

/*
 * Unregister, so that the change need not wait for the monitor: it has been
 * told here. What is taken back is noted in @hook: where the mapping stays
 * (KEDGE_EVENT_REMOVE) it is registered again at the end, or it would stay
 * split and the application's next mremap() over the seam would fail.
 */
static void disarm_overlap(struct kedge_notifier *nf, struct kedge_hook *hook)
{
	struct tree_node *n = tree_first_overlap(&nf->maybe, hook->start,
						 hook->end);

	armed_cut(nf, hook->start, hook->end);
	while (n) {
		uint64_t s = n->start > hook->start ? n->start : hook->start;
		uint64_t e = n->end < hook->end ? n->end : hook->end;

		nf->ops->disarm(nf, s, e);
		if (hook->back_start == hook->back_end || s < hook->back_start)
			hook->back_start = s;
		if (e > hook->back_end)
			hook->back_end = e;
		n = tree_first_overlap(&nf->maybe, e, hook->end);
	}
}

static void tell(struct kedge_notifier *nf, struct kedge_hook *hook)
{
	/* Signals are blocked: the caller holds lock. */
	sig_lock_blocked(&nf->lock);
	if (queue_publish(nf, hook->kind, hook->start, hook->end))
		/*
		 * Release: whoever sees the new generation sees the queue.
		 * No odd phase: the mapping has not changed yet.
		 */
		atomic_fetch_add_explicit(&nf->page->generation,
					  GENERATION_STEP,
					  memory_order_release);
	disarm_overlap(nf, hook);
	queue_signal(nf);
	sig_unlock_blocked(&nf->lock);
}

static void tell_all(struct kedge_hook *hook)
{
	unsigned int i;

	sig_lock(&lock);
	for (i = 0; i < NOTIFIERS_MAX; i++)
		if (listeners[i])
			tell(listeners[i], hook);
	sig_unlock(&lock);
}

/* The mapping is as it was: watched as a whole again. */
static void rearm_all(const struct kedge_hook *hook)
{
	unsigned int i;

	sig_lock(&lock);
	for (i = 0; i < NOTIFIERS_MAX; i++)
		if (listeners[i])
			listeners[i]->ops->arm(listeners[i], hook->back_start,
					       hook->back_end);
	sig_unlock(&lock);
}

/*
 * A watch that was added since the begin may have looked at the old mapping,
 * and be about to believe it. Where the kernel tells of the change that is cut;
 * where it does not, it is cut here, once the change is over.
 */
static void cut_again(const struct kedge_hook *hook)
{
	unsigned int i;

	sig_lock(&lock);
	for (i = 0; i < NOTIFIERS_MAX; i++) {
		struct kedge_notifier *nf = listeners[i];

		if (!nf || !nf->ops->announced_only)
			continue;
		sig_lock_blocked(&nf->lock);
		armed_cut(nf, hook->start, hook->end);
		sig_unlock_blocked(&nf->lock);
	}
	sig_unlock(&lock);
}

enum { HOOK_IDLE, HOOK_COUNTED };

/* @all: tell even if nobody watches there. */
static void begin(struct kedge_hook *hook, int kind, const void *addr,
		  size_t len, bool all)
{
	uint64_t page = kedge__page_size();
	uint64_t start = (uintptr_t)addr, end;
	int saved = errno;

	hook->state = HOOK_IDLE;
	if (!proc || !atomic_load_explicit(&proc->ours, memory_order_relaxed))
		return;
	if (!len || __builtin_add_overflow(start, len, &end) ||
	    end > UINT64_MAX - page)
		return;
	hook->start = round_down(start, page);
	hook->end = round_up(end, page);
	hook->kind = (uint32_t)kind;
	hook->back_start = 0;
	hook->back_end = 0;
	/*
	 * Memory that nobody watches: done. A watch that is added meanwhile
	 * gets the kernel's own event; only where there is none the proof
	 * above is needed.
	 */
	if (!all &&
	    !atomic_load_explicit(&announced_only, memory_order_relaxed) &&
	    !watched(hook->start, hook->end))
		return;
	hook->state = HOOK_COUNTED;
	count(&changing, hook->start, hook->end, 1);
	if (all || watched(hook->start, hook->end))
		tell_all(hook);
	errno = saved;
}

void kedge_hook_begin(struct kedge_hook *hook, int kind, const void *addr,
		      size_t len)
{
	begin(hook, kind, addr, len, false);
}

void announce_to_all(struct kedge_hook *hook, int kind, const void *addr,
		     size_t len)
{
	begin(hook, kind, addr, len, true);
}

void kedge_hook_end(struct kedge_hook *hook)
{
	int saved = errno;

	if (hook->state != HOOK_COUNTED)
		return;
	hook->state = HOOK_IDLE;
	if (hook->kind == KEDGE_EVENT_REMOVE &&
	    hook->back_start != hook->back_end)
		rearm_all(hook);
	if (atomic_load_explicit(&announced_only, memory_order_relaxed) &&
	    watched(hook->start, hook->end))
		cut_again(hook);
	count(&changing, hook->start, hook->end, (uint32_t)-1);
	errno = saved;
}
