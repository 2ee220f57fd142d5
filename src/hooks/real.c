// SPDX-License-Identifier: BSD-2-Clause
/*
 * libkedge-hooks: announces, through <kedge/hooks.h>, each change of the
 * address space that is made by a libc function. No code is patched: these are
 * plain definitions of libc's own names, which the dynamic linker finds first
 * because the library is preloaded or linked, and which hand on to the next
 * definition of the name, be it libc's, a sanitizer's or another interposer's.
 * A wrapper takes no lock of its own and does not allocate, so that it may run
 * in a signal handler, in a vfork child and before any constructor; threads
 * and dlclose, which are no such functions in libc either, excepted.
 *
 * Calls that stay unseen are left to the kernel's notifier (with the
 * hooks alone it is KEDGE_BLIND_RAW):
 * - system calls that do not come through a libc function: those of other
 *   language's runtimes (Go), of an allocator that makes its own (the
 *   sanitizers'), io_uring's IORING_OP_MADVISE, an inline system call
 *   instruction; and all of syscall() on machines other than x86-64 and
 *   aarch64;
 * - what libc does within itself: the heap that shrinks by brk in a free() of
 *   a chunk below 64 KiB, the same by madvise in another thread's arena, or in
 *   memalign(); the end of a thread that libc started for itself (SIGEV_THREAD,
 *   aio, getaddrinfo_a);
 * - __libc_free, __libc_realloc and __sbrk, where a program uses those names;
 * - mremap of huge TLB pages by a length that is not a multiple of theirs;
 * - in a statically linked program: free, realloc, malloc_trim, dlclose and
 *   the end of threads: the static library leaves their wrappers out because
 *   libc.a offers no other name for the functions behind them.
 *
 * This file: the functions behind the wrappers.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hooks/hooks.h"

/* Absent in a static program, and __sbrk and __curbrk in other libcs. */
extern void *dlsym(void *handle, const char *name) __attribute__((weak));
extern void *__sbrk(intptr_t by) __attribute__((weak));
extern void *__curbrk __attribute__((weak));

#ifdef HOOKS_SYSCALL
long (*kedge__real_syscall)(long nr, ...) = kedge__raw_syscall;
#endif

int kedge__reached;

size_t kedge__hooks_page(void)
{
	static size_t page;
	size_t p = __atomic_load_n(&page, __ATOMIC_RELAXED);

	/* Relaxed: whoever computes it gets the same number. */
	if (unlikely(!p)) {
		p = (size_t)sysconf(_SC_PAGESIZE);
		__atomic_store_n(&page, p, __ATOMIC_RELAXED);
	}
	return p;
}

static int raw_munmap(void *addr, size_t len)
{
	return (int)kedge__raw_syscall(SYS_munmap, addr, len);
}

static void *raw_mmap64(void *addr, size_t len, int prot, int flags, int fd,
			off64_t off)
{
#ifdef SYS_mmap2
	/* 32 bits: in units of 4096 bytes, whatever the page size. */
	if (off & 4095) {
		errno = EINVAL;
		return (void *)-1;
	}
	return (void *)kedge__raw_syscall(SYS_mmap2, addr, len, prot, flags, fd,
					  (long)(off >> 12));
#else
	return (void *)kedge__raw_syscall(SYS_mmap, addr, len, (long)prot,
					  (long)flags, (long)fd, off);
#endif
}

static void *raw_mmap(void *addr, size_t len, int prot, int flags, int fd,
		      off_t off)
{
	return raw_mmap64(addr, len, prot, flags, fd, off);
}

static void *raw_mremap(void *old, size_t old_len, size_t new_len, int flags,
			...)
{
	__builtin_va_list ap;
	void *to;

	__builtin_va_start(ap, flags);
	to = __builtin_va_arg(ap, void *);
	__builtin_va_end(ap);
	return (void *)kedge__raw_syscall(SYS_mremap, old, old_len, new_len,
					  (long)flags, to);
}

static int raw_madvise(void *addr, size_t len, int advice)
{
	return (int)kedge__raw_syscall(SYS_madvise, addr, len, (long)advice);
}

static ssize_t raw_process_madvise(int fd, const struct iovec *iov, size_t cnt,
				   int advice, unsigned int flags)
{
#ifdef SYS_process_madvise
	return kedge__raw_syscall(SYS_process_madvise, (long)fd, iov, cnt,
				  (long)advice, (unsigned long)flags);
#else
	errno = ENOSYS;
	return -1;
#endif
}

static int raw_remap_file_pages(void *addr, size_t len, int prot, size_t off,
				int flags)
{
	return (int)kedge__raw_syscall(SYS_remap_file_pages, addr, len,
				       (long)prot, off, (long)flags);
}

static void *raw_shmat(int id, const void *addr, int flags)
{
#ifdef SYS_shmat
	return (void *)kedge__raw_syscall(SYS_shmat, (long)id, addr,
					  (long)flags);
#else
	errno = ENOSYS;
	return (void *)-1;
#endif
}

static int raw_shmdt(const void *addr)
{
#ifdef SYS_shmdt
	return (int)kedge__raw_syscall(SYS_shmdt, addr);
#else
	errno = ENOSYS;
	return -1;
#endif
}

/* libc's sbrk() goes by __curbrk, so that must follow. */
static int raw_brk(void *addr)
{
	void *top = (void *)kedge__raw_syscall(SYS_brk, addr);

	if (&__curbrk)
		__curbrk = top;
	if (top >= addr)
		return 0;
	errno = ENOMEM;
	return -1;
}

static void *raw_sbrk(intptr_t by)
{
	char *top;

	if (__sbrk)
		return __sbrk(by);
	top = (char *)kedge__raw_syscall(SYS_brk, NULL);
	if (by && raw_brk(top + by))
		return (void *)-1;
	return top;
}

static int raw_mprotect(void *addr, size_t len, int prot)
{
	return (int)kedge__raw_syscall(SYS_mprotect, addr, len, (long)prot);
}

static int raw_ioctl(int fd, unsigned long request, ...)
{
	__builtin_va_list ap;
	void *arg;

	__builtin_va_start(ap, request);
	arg = __builtin_va_arg(ap, void *);
	__builtin_va_end(ap);
	return (int)kedge__raw_syscall(SYS_ioctl, (long)fd, request, arg);
}

static int raw_dup3(int from, int to, int flags)
{
	return (int)kedge__raw_syscall(SYS_dup3, (long)from, (long)to, (long)flags);
}

/* Some machines have dup3(2) alone, which refuses two equal numbers. */
static int raw_dup2(int from, int to)
{
	if (from != to)
		return raw_dup3(from, to, 0);
	return kedge__raw_syscall(SYS_fcntl, (long)from, (long)F_GETFD) < 0 ? -1 : to;
}

struct kedge__real kedge__real = {
	.munmap = raw_munmap,
	.mmap = raw_mmap,
	.mmap64 = raw_mmap64,
	.mremap = raw_mremap,
	.madvise = raw_madvise,
	.process_madvise = raw_process_madvise,
	.remap_file_pages = raw_remap_file_pages,
	.shmat = raw_shmat,
	.shmdt = raw_shmdt,
	.mprotect = raw_mprotect,
	.ioctl = raw_ioctl,
	.dup2 = raw_dup2,
	.dup3 = raw_dup3,
	.brk = raw_brk,
	.sbrk = raw_sbrk,
};

void *kedge__next(const char *name)
{
	return dlsym ? dlsym(RTLD_NEXT, name) : NULL;
}

/*
 * Other threads may run already (a dlopen()), and the word is all they read:
 * relaxed is enough, the function it leads to was there before.
 */
#define RESOLVE(name)                                                          \
	do {                                                                   \
		void *next = kedge__next(#name);                               \
		if (next)                                                      \
			__atomic_store_n((void **)(void *)&kedge__real.name,   \
					 next, __ATOMIC_RELAXED);              \
	} while (0)

/*
 * True if the program's munmap() ends up in ours: not where the library was
 * only dlopen()ed, behind libc. The search is the program's: RTLD_DEFAULT would
 * begin with us where we were opened with RTLD_DEEPBIND. The call itself fails
 * without an effect.
 */
static int reached(void)
{
	int (*first)(void *, size_t);
	int saved = errno;
	void *program = RTLD_DEFAULT;

	if (!dlsym)
		return 1;
#ifdef HOOKS_SHARED
	program = dlopen(NULL, RTLD_LAZY);
#endif
	*(void **)(void *)&first = dlsym(program ? program : RTLD_DEFAULT,
					 "munmap");
	if (!first) /* a static program that can dlopen() */
		return 1;
	first(&kedge__reached, 0);
	errno = saved;
	return __atomic_load_n(&kedge__reached, __ATOMIC_RELAXED);
}

__attribute__((constructor(101))) static void hooks_init(void)
{
	RESOLVE(munmap);
	RESOLVE(mmap);
	RESOLVE(mmap64);
	RESOLVE(mremap);
	RESOLVE(madvise);
	RESOLVE(process_madvise);
	RESOLVE(remap_file_pages);
	RESOLVE(shmat);
	RESOLVE(shmdt);
	RESOLVE(mprotect);
	RESOLVE(ioctl);
	RESOLVE(dup2);
	RESOLVE(dup3);
	RESOLVE(brk);
	RESOLVE(sbrk);
#ifdef HOOKS_SYSCALL
	{
		void *next = kedge__next("syscall");

		if (next)
			__atomic_store_n((void **)(void *)&kedge__real_syscall,
					 next, __ATOMIC_RELAXED);
	}
#endif
	kedge__hooks_page();
	if (reached())
		kedge_hook_attach(KEDGE_BLIND_RAW);
}
