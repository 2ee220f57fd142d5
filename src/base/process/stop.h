/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A moment at which no other thread of this process runs. Linux has no call that replaces a
 * mapping only if it still is a certain one: whoever looks, and replaces it then, needs a
 * moment in which no other thread unmaps or maps anything.
 *
 * A process that shares this one's memory, made for the moment, traces the other threads
 * and interrupts them, as a debugger does (PTRACE_SEIZE), calls the function, and ends, so
 * they go on. It takes no privilege. The price: a system call that another thread waits in
 * may fail with EINTR, as when a debugger is attached (signal(7) has which do); and
 * under Yama the process's own PR_SET_PTRACER is given up if it does not let this one in.
 */
#ifndef BASE_PROCESS_STOP_H
#define BASE_PROCESS_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Call @fn while all other threads are between two system calls, or wait in one for a
 * userfaultfd. It is called by the other process, on a small stack, and with the calling
 * thread's variables: system calls on what @arg has, no lock and no allocation, as a
 * stopped thread may have it. With one thread it is simply called.
 *
 * The calling thread has all signals blocked. Not two at a time: a lock is held.
 *
 * Return: what @fn returned, or, if it was not called
 *   -EPERM   threads cannot be stopped here: a debugger has them, or ptrace() is forbidden
 *            (kernel.yama.ptrace_scope, a seccomp filter, no /proc)
 *   -EAGAIN  a thread waits for something in the kernel that takes too long, or there is no
 *            process or memory to be had: it may work later
 * both without a reason.
 */
int others_stopped(int (*fn)(void *arg), void *arg);

/*
 * That thread of kedge's is not stopped: it changes no mapping of the program's, and looks
 * after what @fn does. 0: none, as at first. It names itself before it takes a lock that @fn
 * takes, and no more so when it has taken the last: no stopped thread has that lock then.
 */
void others_stopped_spare(pid_t tid);

/*
 * Threads that wait for a futex in the range wait for it anew. The kernel finds those that
 * wait by what is mapped there: where that is another mapping now, the one that wakes them
 * does not find them. pthread_join() waits in the thread's stack, and a mutex or semaphore
 * that processes may share in itself. Threads that wait for something else are left alone.
 *
 * Return: as of others_stopped(); the calling thread has all signals blocked likewise
 */
int others_wait_anew(uintptr_t at, size_t len);

/*
 * Every other thread has been out of the kernel for a moment, or sleeps there: one that runs
 * may be between two waits of one system call, and about to sleep again. Threads that sleep
 * anyway are left alone.
 *
 * Return: as of others_stopped(), of those that run; the calling thread has all signals blocked
 * likewise, and allocates no memory if it has called error_ready() before
 */
int others_out_of_kernel(void);

/* For @fn: true if the range has memory that the other process runs on. It was mapped just
 * now, where another thread may have unmapped something. */
bool others_stopped_uses(uintptr_t at, size_t len);

#endif /* BASE_PROCESS_STOP_H */
