/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Announce a change of the address space before making it. libkedge-hooks does
 * it for libc's functions; a runtime that makes its own system calls may do so
 * for those. Nothing here is needed for coherence where the notifier is
 * KEDGE_LEVEL_ORDERED or better: it makes the change cheaper (nobody has to be
 * woken) and closes the window before the announcing call returns.
 */
#ifndef KEDGE_HOOKS_H
#define KEDGE_HOOKS_H

#include <kedge/notifier.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct kedge_hook - a change under way; on the caller's stack
 * @start: private
 * @end:   private
 * @kind:  private
 * @state: private
 * @back_start: private
 * @back_end:   private
 */
struct kedge_hook {
	uint64_t start;
	uint64_t end;
	uint32_t kind;
	uint32_t state;
	uint64_t back_start;
	uint64_t back_end;
};

/** KEDGE_HOOK_TELL_ONLY - or'ed to the kind: the range goes back to an allocator,
 *  as with free(), which mostly keeps the pages. So caches keep registrations
 *  there, until the kernel tells that the pages go; lookups ask it meanwhile, and
 *  afterwards until one of them, in memory that was handed out again, has found
 *  no change under way. Watches of kedge_watch_add(), and all of a notifier that
 *  lives by announcements alone, are told. With KEDGE_EVENT_REMOVE: the allocator
 *  gives the kernel back what it has free there, as with malloc_trim(), and
 *  caches drop what they keep of freed memory; not in a signal handler. */
#define KEDGE_HOOK_TELL_ONLY (1 << 8)

/** KEDGE_HOOK_ONE_MAPPING - or'ed to the kind: the call fails unless the range
 *  is one mapping, as mremap() does. Where kedge has registered a part of it
 *  that part is let go, though nobody may watch it. With KEDGE_EVENT_OTHER
 *  nothing is told where nothing has to be let go. */
#define KEDGE_HOOK_ONE_MAPPING (1 << 9)

/** KEDGE_HOOK_YIELD - or'ed to the kind: another userfaultfd is about to be
 *  registered there. All is let go, though nobody may watch it, and taken again
 *  only if that fails. The kind is KEDGE_EVENT_UNMAP: watches are to be added
 *  anew, which fails with -EBUSY while the other has the memory. */
#define KEDGE_HOOK_YIELD (1 << 10)

/**
 * kedge_hook_begin() - the calling thread is about to change a range
 * @hook: filled; goes to kedge_hook_end() when the change is done or failed
 * @kind: KEDGE_EVENT_UNMAP, KEDGE_EVENT_REMOVE, KEDGE_EVENT_REMAP or
 *        KEDGE_EVENT_OTHER, and KEDGE_HOOK_* or'ed to it
 * @addr: first byte
 * @len:  bytes; 0, or a range that wraps, does nothing
 *
 * On return every notifier of this process has invalidated the range, and no
 * registration that is made there before kedge_hook_end() is kept; both but for
 * KEDGE_HOOK_TELL_ONLY. With KEDGE_EVENT_UNMAP and KEDGE_EVENT_REMAP what
 * kedge_hook_mapped() said of it no longer holds. Every begin has its end on the
 * same thread; several may be open at once. A begin without its end,
 * as where a signal handler jumps out of a munmap() that libkedge-hooks announced
 * (siglongjmp), leaves the range uncached for the life of the process.
 *
 * Threads: any; async-signal-safe, does not allocate, keeps errno.
 * Fork: in a child it does nothing for the parent's notifiers.
 */
KEDGE_API void kedge_hook_begin(struct kedge_hook *hook, int kind,
				const void *addr, size_t len);

/**
 * kedge_hook_end() - the change is done, or failed
 * @hook: as kedge_hook_begin() filled it
 *
 * Threads: the one that began; async-signal-safe, keeps errno.
 */
KEDGE_API void kedge_hook_end(struct kedge_hook *hook);

/**
 * kedge_hook_done() - as kedge_hook_end(), and the range is known to be gone
 * @hook: as kedge_hook_begin() filled it
 *
 * After an munmap() that returned 0, say. It spares kedge_hook_end()'s look
 * whether something is left there that has to be put together again.
 *
 * Threads: the one that began; async-signal-safe, keeps errno.
 */
KEDGE_API void kedge_hook_done(struct kedge_hook *hook);

/**
 * kedge_hook_mapped() - the calling thread has been given memory
 * @addr: first byte
 * @len:  bytes; 0, or a range that wraps, does nothing
 *
 * After a call that mapped memory, before anybody is told of it: what takes it
 * away again will be announced by kedge_hook_begin() with KEDGE_EVENT_UNMAP or
 * KEDGE_EVENT_REMAP. libkedge-hooks says so of what libc maps, and of malloc()'s
 * blocks with a mapping of their own. Lookups in such memory need not ask the
 * kernel whether it is being changed; lookups in any other memory do.
 *
 * A watch that is still there is told that its memory has gone: whoever had the
 * range before may have given it back by a call that was not announced, and of
 * which the kernel has not told yet.
 *
 * Threads: any; async-signal-safe, keeps errno.
 */
KEDGE_API void kedge_hook_mapped(const void *addr, size_t len);

/**
 * kedge_hook_allocated() - the calling thread has been given memory by an allocator
 * @addr: first byte
 * @len:  bytes; a block below 64 KiB or above 64 MiB is ignored
 *
 * As kedge_hook_mapped(), for memory that was not mapped for this: the allocator
 * cut it from what it keeps. It will be given up by kedge_hook_begin() with
 * KEDGE_HOOK_TELL_ONLY, of the same bytes. Registrations of what was there before
 * stay. The pages at both ends may hold others' chunks, too.
 *
 * Threads: any; async-signal-safe, keeps errno.
 */
KEDGE_API void kedge_hook_allocated(const void *addr, size_t len);

/**
 * kedge_hook_sharing() - a process that shares this one's memory is made
 * @pid: 0 before it is made; then its number, or -1 where it was not made
 *
 * For clone(CLONE_VM) without CLONE_THREAD. The kernel does not tell of each change that
 * such a process makes. So caches keep nothing, and watches are provisional, from the first
 * call until it has ended or runs another program; all watches are told a
 * KEDGE_EVENT_UNMAP. Not with the notifier "ummunot", which sees all changes.
 *
 * Threads: any; keeps errno.
 */
KEDGE_API void kedge_hook_sharing(int pid);

/**
 * kedge_hook_number() - the number of a descriptor is about to be another file's
 * @fd: the number
 *
 * The caller is about to make a dup2() or the like. A notifier whose descriptor has that
 * number cannot ask the kernel any more: each get registers from then on.
 *
 * Threads: any; keeps errno.
 */
KEDGE_API void kedge_hook_number(int fd);

/**
 * kedge_hook_relieve() - a call has failed for want of mappings
 *
 * Called after an ENOMEM, to try once more. If the process is near
 * vm.max_map_count everything that kedge has registered is let go, so that
 * mappings melt; watches are told a KEDGE_EVENT_UNMAP.
 *
 * Threads: any; async-signal-safe, does not allocate, keeps errno.
 *
 * Return: 1 if it is worth another try, else 0.
 */
KEDGE_API int kedge_hook_relieve(void);

/**
 * kedge_hook_attach() - say that libc's calls are announced from now on
 * @blind: enum kedge_blind_spot that remain with the announcer
 *
 * libkedge-hooks calls it when it is loaded; it makes the "hooks" backend
 * available.
 *
 * Threads: any.
 */
KEDGE_API void kedge_hook_attach(uint32_t blind);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_HOOKS_H */
