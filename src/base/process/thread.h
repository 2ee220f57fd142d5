/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads of the library's own that do little: with a small stack, so that there
 * is room for one where address space is limited (RLIMIT_AS).
 */
#ifndef BASE_PROCESS_THREAD_H
#define BASE_PROCESS_THREAD_H

#include <pthread.h>

/* Signals are as the calling thread has them. 0 or a negative errno. */
int thread_start(pthread_t *thread, void *(*run)(void *), void *arg);
/* @rc of it with its reason; @what says what the thread is for. The C library has one error for a
 * thread too many and for a stack that finds no addresses. */
int thread_refused(int rc, const char *what);

#endif /* BASE_PROCESS_THREAD_H */
