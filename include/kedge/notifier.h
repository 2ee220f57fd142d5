/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Watch ranges of the calling process's address space, learn when what is
 * mapped there changes, and check with one load that nothing has changed.
 *
 * The idea is ummunotify's (Roland Dreier, 2009): ranges with a cookie, events that coalesce per
 * range so that no queue overflows, and a counter in a mapped page.
 */
#ifndef KEDGE_NOTIFIER_H
#define KEDGE_NOTIFIER_H

#include <kedge/backend.h>
#include <kedge/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kedge_notifier;
struct kedge_event;

/** KEDGE_NOTIFIER_NO_BLIND_SPOT - refuse a backend that knows of events it
 *  cannot see on this kernel (see struct kedge_notifier_info); lookups ask, as
 *  with KEDGE_NOTIFIER_ASK */
#define KEDGE_NOTIFIER_NO_BLIND_SPOT (1u << 0)

/** KEDGE_NOTIFIER_EXACT_RANGES - have the kernel watch the pages that were asked
 *  for and no others ("uffd" alone). A userfaultfd of the application's own may
 *  then have the rest of the mapping, and unmapping it costs nothing. The price:
 *  each watched range is a mapping of its own, so mremap() across its ends fails
 *  with EFAULT where libkedge-hooks is not loaded, and more ranges than a 40th of
 *  vm.max_map_count are refused with -ENOSPC. */
#define KEDGE_NOTIFIER_EXACT_RANGES (1u << 1)

/** KEDGE_NOTIFIER_ASK - make the system call of KEDGE_CHECK_CALL although
 *  libkedge-hooks is loaded ("uffd" alone): for programs that map memory through
 *  libc and unmap it by other ways, by several threads */
#define KEDGE_NOTIFIER_ASK (1u << 2)

/**
 * struct kedge_notifier_opts - how to open a notifier; 0 is the default
 * @size:      sizeof(struct kedge_notifier_opts)
 * @flags:     KEDGE_NOTIFIER_*
 * @backend:   "auto", "ummunot", "uffd", "hooks" or "none"; NULL takes
 *             KEDGE_NOTIFIER from the environment, else "auto"
 * @min_level: enum kedge_level; fewer is refused
 * @spin_us:   how long the monitor thread of the "uffd" backend keeps looking
 *             for the next event before it sleeps, in microseconds; 0 is 200,
 *             UINT32_MAX is never. It only spins while events come that fast,
 *             and never where the process may use one CPU alone.
 * @on_event:  called for every change of what is watched, before the call that
 *             makes the change returns to its caller; NULL: events are read.
 *             See below
 * @on_event_arg: its first argument
 *
 * on_event is for a cache that others wrote, which has no place at its lookups
 * to compare generations: the callback drops what overlaps [@ev->start, @ev->end)
 * from it. @ev has cookie and generation 0, as one change may concern many
 * watches; the queue has them by cookie, as ever. @ev is valid until it returns.
 *
 * The thread: a change that libkedge-hooks announces has its call on the thread
 * that makes it, before it is made, with its range. Any other has it on the
 * monitor's thread while the changing thread waits in the kernel, which does not
 * tell yet what it is: the range is all of memory, KEDGE_EVENT_OTHER and
 * KEDGE_EVENT_UNSURE. Calls may run at the same time, and come for changes of
 * what is not watched, too. All signals are blocked and cancellation is disabled.
 *
 * The callback may add and remove watches of this notifier and read its events.
 * Other notifiers, and caches, it leaves alone: on the monitor's thread they answer
 * that nothing can be told. It must not wait for a lock that a thread holds across a change of
 * watched memory (malloc()'s: it must not allocate or free), change watched
 * memory, change the signal mask, close the notifier, fork, or leave by longjmp().
 *
 * The monitor's thread has 48 KiB of stack to spare and a table of descriptors of
 * its own, which has none of the program's: what is done by a descriptor (most
 * deregistrations) fails there with EBADF. Mark the entry, and deregister later.
 *
 * For a cache that is never stale: load kedge_notifier_generation(); then
 * kedge_watch_add(), register, and put it where the callback finds it; last,
 * kedge_notifier_unchanged() with the generation from before kedge_watch_add(). If
 * that is not 1, or KEDGE_WATCH_PROVISIONAL was returned, use the entry once and
 * drop it. A change that this look does not see calls after it, and finds the entry.
 *
 * A thread that the kernel hands a range before the call that gave it back has
 * returned may find the old entry for that moment, unless libkedge-hooks sees one
 * of the two calls: lookups that can compare generations should.
 *
 * The kernel module does not wait for anybody, so with it on_event cannot be had
 * ("auto" takes "uffd"), and what the tripwire counts stays a blind spot
 * (kedge_notifier_info()). In a forked child no call is made.
 */
struct kedge_notifier_opts {
	uint32_t size;
	uint32_t flags;
	const char *backend;
	uint32_t min_level;
	uint32_t spin_us;
	void (*on_event)(void *arg, const struct kedge_event *ev);
	void *on_event_arg;
};

/** enum kedge_check - what a lookup does to be sure that nothing has changed
 * @KEDGE_CHECK_LOAD: loads the generation: libkedge-hooks or the kernel module
 *                    make changes visible before anybody else has the range.
 *                    Caches make the call where memory did not come through libc;
 *                    kedge_watch_add() there makes it KEDGE_CHECK_CALL, as does
 *                    an unannounced change of other memory
 * @KEDGE_CHECK_CALL: makes one system call before it, which tells whether a
 *                    change is under way: some hundred nanoseconds
 * @KEDGE_CHECK_NONE: cannot be sure, so everything is registered anew: nothing
 *                    is watched, or the application closed the notifier's
 *                    descriptor
 */
enum kedge_check {
	KEDGE_CHECK_LOAD = 0,
	KEDGE_CHECK_CALL = 1,
	KEDGE_CHECK_NONE = 2,
};

/**
 * struct kedge_notifier_info - what a notifier is
 * @size:      sizeof(struct kedge_notifier_info), set by the caller
 * @level:     enum kedge_level
 * @backend:   its name; static
 * @blind:     enum kedge_blind_spot, or'ed
 * @hooked:    1 if libkedge-hooks serves this process too: munmap() and free() of
 *             any library arrive there, as was tried, and no sanitizer is here
 * @watches:   watches now
 * @armed:     disjoint ranges that the kernel watches for this notifier now
 * @events:    invalidations seen since it was opened, coalesced or not
 * @check:     enum kedge_check: how a lookup makes sure
 * @reserved:  0
 */
struct kedge_notifier_info {
	uint32_t size;
	uint32_t level;
	const char *backend;
	uint32_t blind;
	uint32_t hooked;
	uint64_t watches;
	uint64_t armed;
	uint64_t events;
	uint32_t check;
	uint32_t reserved;
};

/** enum kedge_event_kind - what happened to a watched range
 * @KEDGE_EVENT_LAST:   the queue was empty at @generation; nothing happened
 * @KEDGE_EVENT_UNMAP:  unmapped, mapped anew, or not watched any more (unsure)
 * @KEDGE_EVENT_REMOVE: still mapped, but its pages were or are being dropped
 *                      (MADV_DONTNEED, MADV_FREE, MADV_REMOVE)
 * @KEDGE_EVENT_REMAP:  moved elsewhere by mremap()
 * @KEDGE_EVENT_OTHER:  something happened that the backend cannot name
 */
enum kedge_event_kind {
	KEDGE_EVENT_LAST = 0,
	KEDGE_EVENT_UNMAP = 1,
	KEDGE_EVENT_REMOVE = 2,
	KEDGE_EVENT_REMAP = 3,
	KEDGE_EVENT_OTHER = 4,
};

/** KEDGE_EVENT_UNSURE - a part of the event is no more than possible */
#define KEDGE_EVENT_UNSURE (1u << 0)

/**
 * struct kedge_event - what happened to one watch since it was last read
 * @kind:       enum kedge_event_kind of the latest of them
 * @flags:      0, or KEDGE_EVENT_UNSURE: it cannot be named or placed
 * @start:      first byte that changed, within the watch
 * @end:        the byte after the last that changed; events coalesce to one range
 * @cookie:     the watch's cookie
 * @generation: the generation that the latest of them brought
 */
struct kedge_event {
	uint32_t kind;
	uint32_t flags;
	uint64_t start;
	uint64_t end;
	uint64_t cookie;
	uint64_t generation;
};

/**
 * kedge_notifier_open() - watch this process's address space
 * @opts: options with @opts->size set, or NULL for the defaults; copied
 * @nf:   set on success, left untouched on failure
 *
 * Threads: any.
 * Fork: the notifier belongs to the process that opened it. In a forked child
 * its generation is none of the parent's and every other call but
 * kedge_notifier_close() fails with -ECHILD; the child opens its own.
 * Ownership: the caller ends *@nf with kedge_notifier_close().
 *
 * Return: 0, or a negative errno:
 *   -EINVAL      @nf is NULL, @opts->size is too small, a flag, level or
 *                backend name is unknown
 *   -E2BIG       @opts is of a newer version and sets a field unknown here
 *   -EOPNOTSUPP  no backend here reaches the level, or the one asked for is
 *                not there or cannot call on_event; kedge_strerror() says what
 *                would help
 *   -EPERM       the kernel has the backend but this process may not use it
 *   -ENOMEM      no memory
 *   -EMFILE, -ENFILE, -EAGAIN  no file descriptor or thread to be had
 */
KEDGE_API int kedge_notifier_open(const struct kedge_notifier_opts *opts,
				  struct kedge_notifier **nf);

/**
 * kedge_notifier_close() - stop watching and free the notifier
 * @nf: may be NULL; nobody else may use it any more, caches are closed before
 *
 * Calls of on_event that are under way are waited for; afterwards none is made.
 * Threads: one, the last user. Fork: in a child it frees the child's copy and
 * leaves the parent's alone.
 */
KEDGE_API void kedge_notifier_close(struct kedge_notifier *nf);

/**
 * kedge_notifier_info() - what a notifier is and how much it watches
 * @nf:   borrowed
 * @info: filled; @info->size is set by the caller
 *
 * Threads: any.
 *
 * Return: 0, or -EINVAL for a NULL pointer or a size too small, -ECHILD in a
 * forked child.
 */
KEDGE_API int kedge_notifier_info(struct kedge_notifier *nf,
				  struct kedge_notifier_info *info);

/**
 * kedge_notifier_unchanged() - whether nothing watched has changed since
 * @nf:         borrowed
 * @generation: the number that a KEDGE_EVENT_LAST carried
 *
 * As a comparison with kedge_notifier_generation(), but true to the level: it
 * asks the kernel where the generation alone does not tell (enum kedge_check).
 *
 * Threads: any; no lock, at most one system call.
 *
 * Return: 1 if nothing has changed; 0 if something has, or may have: read the
 * events, or ask again; -EINVAL for a NULL pointer, -ECHILD in a forked child.
 */
KEDGE_API int kedge_notifier_unchanged(struct kedge_notifier *nf,
				       uint64_t generation);

/** KEDGE_WATCH_PROVISIONAL - returned by kedge_watch_add(): watched, but pages
 *  there may still be on their way out (the kernel announces MADV_DONTNEED
 *  before it drops the pages). What is registered now may be used at once but
 *  must not be kept. */
#define KEDGE_WATCH_PROVISIONAL 1

/**
 * kedge_watch_add() - watch a range
 * @nf:     borrowed
 * @addr:   first byte; the watch covers the whole pages that hold the range
 * @len:    bytes, at least 1
 * @cookie: names this watch in events and in kedge_watch_remove()
 *
 * Every change after the return is reported. Register the memory with the
 * device after this call, and believe the registration only if no event for
 * @cookie is read after it. Watches may overlap and stay through events until
 * they are removed; but what is mapped anew after a KEDGE_EVENT_UNMAP or
 * KEDGE_EVENT_REMAP is watched only by another add.
 *
 * The kernel lets one userfaultfd watch a mapping: with the "uffd" backend, a
 * second notifier of the process gets -EBUSY for what a first one watches. So
 * does an application's own UFFDIO_REGISTER, unless libkedge-hooks is loaded:
 * then its ioctl() takes the range away from the notifier, whose watches there
 * get a KEDGE_EVENT_UNMAP.
 *
 * Threads: any. It costs O(log n) and, where the kernel does not watch the
 * range yet, a system call.
 *
 * Return: 0, KEDGE_WATCH_PROVISIONAL, or a negative errno:
 *   -EINVAL      @len is 0 or @addr + @len wraps
 *   -EEXIST      @cookie names another watch
 *   -EFAULT      part of the range is not mapped
 *   -EOPNOTSUPP  the backend cannot see what happens to that memory (a file or
 *                System V mapping, shared memory, a special mapping)
 *   -EBUSY       another userfaultfd owns it, or other threads move mappings
 *                without a pause
 *   -ENOSPC      watching it would take the process near vm.max_map_count, or
 *                leave it with more seams between watched and other memory than
 *                a 20th of that. Mappings in which nothing is watched yet are
 *                refused first; what was watched before stays so
 *   -ENOMEM      no memory
 *   -ECHILD      the notifier belongs to the parent process
 */
KEDGE_API int kedge_watch_add(struct kedge_notifier *nf, const void *addr,
			      size_t len, uint64_t cookie);

/**
 * kedge_watch_remove() - end a watch; its unread event is dropped
 * @nf:     borrowed
 * @cookie: as given to kedge_watch_add()
 *
 * Threads: any; O(log n).
 *
 * Return: 0, or -ENOENT if no watch has that cookie, -ECHILD in a forked child.
 */
KEDGE_API int kedge_watch_remove(struct kedge_notifier *nf, uint64_t cookie);

/**
 * kedge_notifier_read() - take what happened
 * @nf:  borrowed
 * @ev:  filled with at most @max events
 * @max: at least 1
 *
 * Never blocks on an event. An event a watch at the most is queued, so the queue cannot overflow;
 * one read may return two of a watch, if memory changes meanwhile. Where the queue was emptied and
 * @ev has room left, KEDGE_EVENT_LAST carries the generation at which it was empty.
 *
 * Threads: any; each event goes to one reader.
 *
 * Return: the number of events, or -EINVAL for a NULL pointer or @max of 0,
 * -ECHILD in a forked child.
 */
KEDGE_API ssize_t kedge_notifier_read(struct kedge_notifier *nf,
				      struct kedge_event *ev, size_t max);

/**
 * kedge_notifier_fd() - a file descriptor that is readable while events wait
 * @nf: borrowed
 *
 * For poll, select, epoll, O_ASYNC (SIGIO) and io_uring. Do not read from it:
 * kedge_notifier_read() empties it when the queue is empty. It wakes those who
 * wait; it may become readable a moment after the call that changed the memory
 * has returned. Who must know at once loads the generation. Where caches share
 * the notifier it becomes readable for them as well, and with "ummunot" a cache
 * that looks for its own events may make it unreadable: then poll with a
 * timeout, or have a notifier of your own.
 *
 * Threads: any. Ownership: the notifier keeps it; do not close it.
 *
 * Return: the descriptor, or -EMFILE, -ENFILE, -ENOMEM if there is none to be
 * had, -ECHILD in a forked child.
 */
KEDGE_API int kedge_notifier_fd(struct kedge_notifier *nf);

/* The head of every notifier: private, here for the inline load below. */
struct kedge_notifier_head {
	const uint64_t *generation;
	const uint64_t *trips;
};

/**
 * kedge_notifier_generation() - the generation counter
 * @nf: borrowed
 *
 * While it returns the number that a KEDGE_EVENT_LAST carried, nothing that was
 * watched then has changed since. It may also differ for a moment without an
 * event to read (the monitor is looking); a read tells. It is an acquire load:
 * what is read after it is no older than it.
 *
 * It shows every change whose call has returned. A thread that may be handed a
 * range by the kernel while another thread's munmap() of it has not returned yet
 * wants kedge_notifier_unchanged() instead, unless enum kedge_check says that
 * the load is enough.
 *
 * Threads: any, no lock, no system call. Fork: in a forked child it is none of
 * the numbers that it is in the process that opened the notifier.
 *
 * Return: the counter.
 */
static inline uint64_t kedge_notifier_generation(const struct kedge_notifier *nf)
{
	const struct kedge_notifier_head *h =
		(const struct kedge_notifier_head *)(const void *)nf;

	return __atomic_load_n(h->generation, __ATOMIC_ACQUIRE) +
	       __atomic_load_n(h->trips, __ATOMIC_ACQUIRE);
}

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_NOTIFIER_H */
