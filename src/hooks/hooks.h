/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared by the wrappers: the functions behind them, and the announcements
 * that a libc function and its raw system call have in common.
 */
#ifndef HOOKS_HOOKS_H
#define HOOKS_HOOKS_H

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <threads.h>

#include <kedge/hooks.h>

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Assembly calls these; hidden, so that no other library can take them over. */
#define HIDDEN __attribute__((visibility("hidden")))

/* System calls that end in assembly; elsewhere syscall() is not interposed. */
#if (defined(__x86_64__) && defined(__LP64__)) || \
	(defined(__aarch64__) && defined(__LP64__))
#define HOOKS_SYSCALL 1
long kedge__raw_syscall(long nr, ...) HIDDEN;
#else
#include <unistd.h>
#define kedge__raw_syscall syscall
#endif

/*
 * The next function of each name in the search order: libc's, or another
 * interposer's. The constructor fills it in; until then, and in a static
 * program for ever, these are plain system calls. A word each, replaced whole:
 * whoever calls meanwhile gets the one or the other, which do the same.
 */
struct kedge__real {
	int (*munmap)(void *, size_t);
	void *(*mmap)(void *, size_t, int, int, int, off_t);
	void *(*mmap64)(void *, size_t, int, int, int, off64_t);
	void *(*mremap)(void *, size_t, size_t, int, ...);
	int (*madvise)(void *, size_t, int);
	ssize_t (*process_madvise)(int, const struct iovec *, size_t, int,
				   unsigned int);
	int (*remap_file_pages)(void *, size_t, int, size_t, int);
	void *(*shmat)(int, const void *, int);
	int (*shmdt)(const void *);
	int (*mprotect)(void *, size_t, int);
	int (*ioctl)(int, unsigned long, ...);
	int (*dup2)(int, int);
	int (*dup3)(int, int, int);
	int (*brk)(void *);
	void *(*sbrk)(intptr_t);
};

extern struct kedge__real kedge__real HIDDEN;
extern long (*kedge__real_syscall)(long nr, ...) HIDDEN;

/*
 * The definition of @name behind this library's own, or NULL.
 */
void *kedge__next(const char *name) HIDDEN;

/* munmap(&kedge__reached, 0) sets it: calls really come through here. */
extern int kedge__reached HIDDEN;

/* The ranges that one call changes. Lives on the caller's stack. */
#define CHANGE_MAX 16

struct change {
	unsigned int cnt;
	struct kedge_hook hook[CHANGE_MAX];
};

static inline void change_init(struct change *c)
{
	c->cnt = 0;
}

/* Callers add at most CHANGE_MAX ranges to a change. */
static inline void change_add(struct change *c, int kind, const void *addr,
			      size_t len)
{
	kedge_hook_begin(&c->hook[c->cnt++], kind, addr, len);
}

/*
 * True if a call that has failed is to be made once more: for want of mappings,
 * of which kedge has let go some.
 */
static inline int relieved(int failed)
{
	return unlikely(failed) && errno == ENOMEM && kedge_hook_relieve();
}

static inline void change_end(struct change *c)
{
	while (c->cnt)
		kedge_hook_end(&c->hook[--c->cnt]);
}

/* @at: as returned by a call that maps; MAP_FAILED is (void *)-1. */
static inline void *handed_out(void *at, size_t len)
{
	if (at != (void *)-1)
		kedge_hook_mapped(at, len);
	return at;
}

/*
 * Announce the ranges, if any, that the system call of that name, with these
 * arguments, is about to change. They keep errno.
 */
void kedge__on_mmap(struct change *c, void *addr, size_t len, int flags,
		    int fd) HIDDEN;
void kedge__on_mremap(struct change *c, void *old, size_t old_len,
		      size_t new_len, int flags, void *to) HIDDEN;
void kedge__on_remap_file_pages(struct change *c, void *addr,
				size_t len) HIDDEN;
void kedge__on_madvise(struct change *c, void *addr, size_t len,
		       int advice) HIDDEN;
void kedge__on_process_madvise(struct change *c, const struct iovec *iov,
			       size_t cnt, int advice) HIDDEN;
void kedge__on_shmat(struct change *c, int id, const void *addr,
		     int flags) HIDDEN;
void kedge__on_shmdt(struct change *c, const void *addr) HIDDEN;
void kedge__on_brk(struct change *c, void *addr) HIDDEN;

/* mremap() has returned @at. */
void *kedge__remapped(void *at, void *old, size_t old_len, size_t new_len,
		      int flags) HIDDEN;

/*
 * heap.c. glibc's free() gives back no page of a chunk below LARGE. A chunk, or
 * NULL, has been handed out: libkedge is told if it is large.
 */
#define LARGE 65536u
void *kedge__new_chunk(void *chunk) HIDDEN;

/* shmat(@id) has returned @at. */
void *kedge__attached(void *at, int id) HIDDEN;

/* Bytes that shmdt(@addr) will unmap; 0 if no segment is attached there. */
size_t kedge__shm_len(uintptr_t addr) HIDDEN;

size_t kedge__hooks_page(void) HIDDEN;

/*
 * The whole address space, for what cannot be told beforehand. The last 64 KiB
 * are left out so that the end can still be rounded up to a page.
 */
#define EVERYTHING_LEN ((size_t)0 - 65536)

static inline size_t up_to(size_t v, size_t to)
{
	return (v + to - 1) & ~(to - 1);
}

#endif /* HOOKS_HOOKS_H */
