// SPDX-License-Identifier: BSD-2-Clause
/*
 * Changes announced before they are made: by libkedge-hooks for libc's calls,
 * or by a runtime for its own. They reach every notifier of the process.
 *
 * Most calls concern memory without a watch, and those must be almost free:
 * counts.c says whether there is a watch there and whether a change is under way.
 *
 * Proof that a watch and a change cannot miss each other. The announcer raises
 * "changing", then reads "watched"; a thread that adds a watch raises
 * "watched", then (after arming) reads "changing". Both raise by a seq_cst
 * read-modify-write and read with seq_cst, so in their total order at least one
 * sees the other: the announcer, which then invalidates, or the watcher, which
 * then does not keep. With weaker orders both could read 0 and a registration
 * of the old pages be kept.
 */
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process/own.h"
#include "base/process/page.h"
#include "notify/announce/announce.h"
#include "notify/announce/chunks.h"
#include "notify/announce/counts.h"
#include "notify/announce/origin.h"
#include "notify/announce/rearm.h"
#include "notify/announce/release.h"
#include "notify/internal.h"
#include "stats/trace.h"

#define NOTIFIERS_MAX 64

/* Zero in a forked child: what is here then belongs to the parent. */
struct proc_page {
	_Atomic uint32_t state;
};

enum { NOT_OURS = 0, ADOPTING, OURS };

static void *_Atomic proc; /* a struct proc_page */
/*
 * Calls under way that want their range to be one mapping. Raised before the
 * notifiers are told, so whoever registers memory under nf->lock either does so
 * before it is let go there, or sees it.
 */
static _Atomic uint32_t moving;
static _Atomic int reading; /* monitors between two events' reading and handling */
static _Atomic uint32_t announced_only; /* notifiers that live by this */
static _Atomic uint32_t by_generation; /* watches of users that look at the generation alone */

enum { HOOK_IDLE, HOOK_COUNTED };

#define HOOK_FLAGS                                                             \
	(KEDGE_HOOK_TELL_ONLY | KEDGE_HOOK_ONE_MAPPING | KEDGE_HOOK_YIELD)

/* lock guards listeners, and keeps them alive while they are told. */
static struct sig_lock lock = SIG_LOCK_INIT;
static struct kedge_notifier *listeners[NOTIFIERS_MAX];

bool announce_moving(void)
{
	return atomic_load(&moving);
}

/* Tests stop here, and fork. */
__attribute__((weak, noinline)) void announce_adopting(void)
{
}

/*
 * A forked child starts with the parent's lock, listeners and counters. No other
 * thread runs there yet that could use them: forget them all.
 *
 * The page itself, not a mutex, settles which thread does it: a fork while
 * another thread is at it would leave the child a mutex that stays locked. The
 * page is wiped in that child, so it starts from NOT_OURS whatever its parent
 * was doing; there the compare-and-exchange has one winner, and the others wait
 * for a thread of their own process. seq_cst: a thread that sees OURS sees all
 * forgotten.
 */
static int adopt(void)
{
	struct proc_page *page = page_once(&proc);
	uint32_t was = NOT_OURS;

	if (!page)
		return -ENOMEM;
	while (!atomic_compare_exchange_strong(&page->state, &was, ADOPTING)) {
		if (was == OURS)
			return 0;
		sched_yield();
		was = NOT_OURS;
	}
	announce_adopting();
	sig_lock_init(&lock);
	memset(listeners, 0, sizeof(listeners));
	announced_only = 0;
	by_generation = 0;
	release_reset();
	atomic_store(&reading, 0);
	counts_reset();
	atomic_store(&moving, 0);
	atomic_store(&page->state, OURS);
	return 0;
}

/* True if there may be listeners in this process. Partner: adopt()'s store. */
static bool adopted(void)
{
	struct proc_page *page = atomic_load_explicit(&proc, memory_order_acquire);

	return page && atomic_load_explicit(&page->state, memory_order_acquire) == OURS;
}

int announce_attach(struct kedge_notifier *nf)
{
	int rc = adopt();
	unsigned int i;

	if (rc)
		return rc;
	rc = -ENOSPC;
	sig_lock(&lock);
	for (i = 0; i < NOTIFIERS_MAX && rc; i++) {
		if (listeners[i])
			continue;
		listeners[i] = nf;
		announced_only += nf->ops->announced_only;
		rc = 0;
	}
	sig_unlock(&lock);
	return rc ? kedge_reason(rc, "%d notifiers are open in this process: close some",
				 NOTIFIERS_MAX)
		  : 0;
}

void announce_each(void (*fn)(struct kedge_notifier *nf, void *arg), void *arg)
{
	unsigned int i;

	if (!adopted())
		return;
	sig_lock(&lock);
	for (i = 0; i < NOTIFIERS_MAX; i++)
		if (listeners[i])
			fn(listeners[i], arg);
	sig_unlock(&lock);
}

/* False: calls of on_event are under way. With the lock held, under which they begin. */
static bool detach(struct kedge_notifier *nf)
{
	unsigned int i;

	for (i = 0; i < NOTIFIERS_MAX; i++)
		if (listeners[i] == nf) {
			if (!push_idle(&nf->push))
				return false;
			listeners[i] = NULL;
			announced_only -= nf->ops->announced_only;
		}
	return true;
}

void announce_detach(struct kedge_notifier *nf)
{
	bool done;

	do {
		sig_lock(&lock);
		done = detach(nf);
		sig_unlock(&lock);
		if (!done)
			sched_yield();
	} while (!done);
}

/* Tests change the mapping here. */
__attribute__((weak, noinline)) void announce_told(void)
{
}

/* True if [start, end) is registered in part: then kedge has split it. */
static bool split_by_us(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	struct tree_node *n = tree_first_overlap(&nf->registered, start, end);

	return n && (n->start > start || n->end < end);
}

/* From the first address on it is somewhere: dlclose() unloads others, too. */
static bool is_unsure(const struct kedge_hook *hook)
{
	return hook->kind & KEDGE_HOOK_TELL_ONLY || !hook->start;
}

/*
 * The kernel will tell of what goes: a cache keeps its registrations until then (release.h), and
 * only those are told that could not tell a freed chunk by the generation.
 */
static bool is_kept(const struct kedge_notifier *nf, const struct kedge_hook *hook)
{
	return hook->kind & KEDGE_HOOK_TELL_ONLY && !nf->ops->announced_only;
}

/* With nf->lock held: invalidate the range. Returns how many watches were told. */
static size_t tell_watches(struct kedge_notifier *nf, const struct kedge_hook *hook)
{
	uint32_t kind = hook->kind & ~HOOK_FLAGS;
	size_t told;

	/* The range stays mapped: another is to watch it. */
	if (hook->kind & KEDGE_HOOK_YIELD)
		kind |= KIND_UNSEEN;
	if (is_unsure(hook))
		kind |= KIND_POSSIBLE;
	if (is_kept(nf, hook))
		kind |= KIND_PUBLIC;
	told = queue_publish(nf, kind, hook->start, hook->end);
	if (told)
		/*
		 * Release: whoever sees the new generation sees the queue.
		 * No odd phase: the mapping has not changed yet.
		 */
		atomic_fetch_add_explicit(&nf->page->generation,
					  GENERATION_STEP,
					  memory_order_release);
	queue_signal(nf);
	return told;
}

static bool mapping_stays(const struct kedge_hook *hook)
{
	return (hook->kind & ~HOOK_FLAGS) == KEDGE_EVENT_REMOVE;
}

static size_t tell(struct kedge_notifier *nf, struct kedge_hook *hook)
{
	uint32_t flags = hook->kind & HOOK_FLAGS;
	bool only_if_split = flags & KEDGE_HOOK_ONE_MAPPING &&
			     (hook->kind & ~HOOK_FLAGS) == KEDGE_EVENT_OTHER;
	size_t told = 0;

	/* Signals are blocked: the caller holds lock. */
	sig_lock_blocked(&nf->lock);
	if (!only_if_split || split_by_us(nf, hook->start, hook->end)) {
		told = tell_watches(nf, hook);
		if (!is_kept(nf, hook))
			rearm_let_go(nf, hook, mapping_stays(hook));
	}
	sig_unlock_blocked(&nf->lock);
	return told;
}

static void trace_announced(struct trace_change *c, const struct kedge_hook *hook, uint32_t kind,
			    uint32_t flags, uint64_t told)
{
	c->by = TRACE_ANNOUNCED;
	c->tid = (int)syscall(SYS_gettid);
	c->kind = kind;
	c->unsure = flags & KEDGE_EVENT_UNSURE;
	c->start = hook->start;
	c->end = hook->end;
	c->watches = told;
	trace_add(c);
}

/*
 * Call @fn for each notifier, and on_event of those in which it has told watches. That is
 * called without the lock; announce_detach() leaves a listener in its place until
 * its calls have been made.
 */
static void tell_each(size_t (*fn)(struct kedge_notifier *nf, struct kedge_hook *hook),
		      struct kedge_hook *hook, uint32_t kind, uint32_t flags)
{
	struct trace_change change;
	uint64_t called = 0, told = 0;
	unsigned int i;

	signals_block();
	/* Before the locks: it may wait for one of the loader's, which is held in dlclose(). */
	trace_take_stack(&change.stack);
	sig_lock_blocked(&lock);
	for (i = 0; i < NOTIFIERS_MAX; i++) {
		size_t n = listeners[i] ? fn(listeners[i], hook) : 0;

		told += n;
		if (n && push_begin(&listeners[i]->push))
			called |= 1ull << i;
	}
	sig_unlock_blocked(&lock);
	if (told && trace_on())
		trace_announced(&change, hook, kind, flags, told);
	for (i = 0; called; i++, called >>= 1)
		if (called & 1)
			push_call(&listeners[i]->push, kind, flags, hook->start, hook->end);
	signals_restore();
}

static void tell_all(struct kedge_hook *hook)
{
	tell_each(tell, hook, hook->kind & ~HOOK_FLAGS,
		  is_unsure(hook) || hook->kind & KEDGE_HOOK_YIELD ? KEDGE_EVENT_UNSURE : 0);
}

static size_t rearm(struct kedge_notifier *nf, struct kedge_hook *hook)
{
	return rearm_again(nf, hook, mapping_stays(hook));
}

static void rearm_all(struct kedge_hook *hook)
{
	tell_each(rearm, hook, KEDGE_EVENT_UNMAP, KEDGE_EVENT_UNSURE);
}

/*
 * A watch that was added since the begin may have looked at the old mapping,
 * and be about to believe it. If the kernel tells of the change, its event cuts
 * that; if it does not, it is cut here, once the change is over.
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

/* True if the range is no longer what kedge_hook_mapped() said. */
static bool gives_back(int kind)
{
	unsigned int event = (unsigned int)kind & ~HOOK_FLAGS;

	return (event == KEDGE_EVENT_UNMAP || event == KEDGE_EVENT_REMAP) &&
	       !(kind & KEDGE_HOOK_YIELD);
}

/*
 * Memory goes back to an allocator. The fence: whoever registers a part of it at this moment, and
 * is not counted below, finds that it is not known any more. Partner: announce_watch(), then
 * origin_known().
 */
static void give_up(const struct kedge_hook *hook, uint64_t start, uint64_t end)
{
	chunks_remove(start);
	atomic_thread_fence(memory_order_seq_cst);
	if (!adopted() || own_call() || !counts_watched(hook->start, hook->end))
		return;
	if (mapping_stays(hook))
		release_trim();
	else
		release_chunk(start, end);
}

/* The pages that are wholly the chunk's; its neighbours have the others, too. */
static void shrink(struct kedge_hook *hook, uint64_t start, uint64_t end)
{
	uint64_t page = kedge__page_size();

	hook->start = round_up(start, page);
	hook->end = round_down(end, page);
}

static bool lives_by_announcements(void)
{
	return atomic_load_explicit(&announced_only, memory_order_relaxed);
}

/* False: watches have to be told, too. */
static bool given_up(struct kedge_hook *hook, uint64_t start, uint64_t end)
{
	give_up(hook, start, end);
	if (lives_by_announcements())
		return false;
	shrink(hook, start, end);
	return hook->start >= hook->end ||
	       !atomic_load_explicit(&by_generation, memory_order_relaxed);
}

/* @all: tell even if there is no watch there. */
static void begin(struct kedge_hook *hook, int kind, const void *addr, size_t len, bool all)
{
	uint64_t page = kedge__page_size();
	uint64_t start = (uintptr_t)addr, end;
	int saved = errno;

	hook->state = HOOK_IDLE;
	if (unlikely(!len)) {
		announce_empty();
		return;
	}
	if (__builtin_add_overflow(start, len, &end) ||
	    end > UINT64_MAX - page)
		return;
	hook->start = round_down(start, page);
	hook->end = round_up(end, page);
	hook->kind = (uint32_t)kind;
	hook->back_start = 0;
	hook->back_end = 0;
	if (kind & KEDGE_HOOK_TELL_ONLY) {
		if (given_up(hook, start, end))
			return;
	} else if (gives_back(kind)) {
		origin_clear(hook->start, hook->end);
	}
	if (!adopted() || own_call())
		return;
	/*
	 * Memory without a watch: done. A watch that is added meanwhile gets
	 * the kernel's own event; only with a backend that has no such events
	 * the proof above is needed.
	 */
	if (!all && !lives_by_announcements() &&
	    !counts_watched(hook->start, hook->end))
		return;
	hook->state = HOOK_COUNTED;
	if (kind & KEDGE_HOOK_ONE_MAPPING)
		atomic_fetch_add(&moving, 1);
	counts_change(hook->start, hook->end, 1);
	if (all || counts_watched(hook->start, hook->end))
		tell_all(hook);
	announce_told();
	errno = saved;
}

void kedge_hook_begin(struct kedge_hook *hook, int kind, const void *addr, size_t len)
{
	begin(hook, kind, addr, len,
	      kind & (KEDGE_HOOK_ONE_MAPPING | KEDGE_HOOK_YIELD));
}

void announce_to_all(struct kedge_hook *hook, int kind, const void *addr, size_t len)
{
	begin(hook, kind, addr, len, true);
}

void announce_by_generation(int by)
{
	atomic_fetch_add(&by_generation, (uint32_t)by);
}

void announce_reading(int by)
{
	atomic_fetch_add(&reading, by);
}

/* Tests count here. */
__attribute__((weak, noinline)) void announce_awaited(void)
{
}

/*
 * The kernel may have reported the change, where somebody registered the range
 * in spite of the announcement. It let the call return when the monitor read the
 * event, which is handled after that, under nf->lock; and there it is to count as
 * announced. reading was raised before the read (seq_cst), so here it is seen, or
 * the event has been handled.
 */
static void await_readers(void)
{
	unsigned int i;

	if (likely(!atomic_load(&reading)))
		return;
	sig_lock(&lock);
	for (i = 0; i < NOTIFIERS_MAX; i++)
		if (listeners[i]) {
			sig_lock_blocked(&listeners[i]->lock);
			sig_unlock_blocked(&listeners[i]->lock);
		}
	sig_unlock(&lock);
	announce_awaited();
}

void kedge_hook_done(struct kedge_hook *hook)
{
	if (hook->state != HOOK_IDLE && !mapping_stays(hook))
		hook->back_end = 0;
	kedge_hook_end(hook);
}

void kedge_hook_end(struct kedge_hook *hook)
{
	int saved = errno;

	if (hook->state == HOOK_IDLE)
		return;
	hook->state = HOOK_IDLE;
	if (hook->kind & KEDGE_HOOK_ONE_MAPPING)
		atomic_fetch_sub(&moving, 1);
	if (hook->back_end)
		rearm_all(hook);
	if (lives_by_announcements() && counts_watched(hook->start, hook->end))
		cut_again(hook);
	if (!mapping_stays(hook))
		await_readers();
	counts_change(hook->start, hook->end, (uint32_t)-1);
	errno = saved;
}

static size_t tell_alone(struct kedge_notifier *nf, struct kedge_hook *hook)
{
	size_t told;

	sig_lock_blocked(&nf->lock);
	told = tell_watches(nf, hook);
	sig_unlock_blocked(&nf->lock);
	return told;
}

/*
 * Whole pages only are new for certain: on the others a neighbour in the same
 * allocator's memory may have a registration that is good. The kernel may watch
 * the range already, for a thread that was faster: that stays.
 */
static void tell_of_new(uint64_t start, uint64_t end)
{
	struct kedge_hook gone = {
		.start = round_up(start, kedge__page_size()),
		.end = round_down(end, kedge__page_size()),
		.kind = KEDGE_EVENT_UNMAP,
	};

	if (gone.start < gone.end && adopted() && counts_watched(gone.start, gone.end))
		tell_each(tell_alone, &gone, gone.kind, 0);
}

/*
 * Proof that lookups in marked memory need not ask. Thread A takes a range away
 * unannounced, the kernel hands it to B by a call that comes here. If a watch's
 * registration is stale then, the watch was counted before A's call: it was
 * armed, which takes the lock of the address space, before the pages went. B
 * took that lock after A. So B finds it counted, tells it, and any thread that
 * B hands the memory to finds the generation that this brought.
 */
void kedge_hook_mapped(const void *addr, size_t len)
{
	uint64_t start = (uintptr_t)addr, end, page = kedge__page_size();
	int saved = errno;

	if (!len || __builtin_add_overflow(start, len, &end) ||
	    end > UINT64_MAX - page || own_call() ||
	    origin_in_heap(start, end))
		return;
	tell_of_new(start, end);
	origin_set(round_down(start, page), round_up(end, page));
	errno = saved;
}

/*
 * No watch is told: the allocator may have had the pages all along. Lookups of a registration that
 * was there before ask the kernel, until one that begins after this finds no change under way
 * (cache/freed.c).
 */
void kedge_hook_allocated(const void *addr, size_t len)
{
	uint64_t start = (uintptr_t)addr, end;
	int saved = errno;

	if (__builtin_add_overflow(start, len, &end) || origin_in_heap(start, end))
		return;
	chunks_add(start, len);
	errno = saved;
}
