/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Up to which announcement every thread of the process is known to have left
 * the call that made it. See threads.c.
 */
#ifndef NOTIFY_THREADS_H
#define NOTIFY_THREADS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fd.h"
#include "base/lock.h"

struct thread_seen;

struct threads {
	int fd; /* /proc/self/task */
	struct fd_id id;
	bool usable;
	int monitor; /* a thread that makes no such calls, or 0 */
	struct sig_lock lock; /* guards what follows */
	struct thread_seen *seen;
	unsigned int cnt;
	unsigned int room;
	uint64_t out;	  /* the answer so far */
	uint64_t next_ns; /* no look before */
};

int threads_init(struct threads *t);
void threads_fini(struct threads *t);
/* In a forked child: the lock may be held by a thread that is not there. */
void threads_abandon(struct threads *t);

/*
 * All calls announced under numbers up to the result have returned. @now is the
 * latest number so far, @need the one that is wanted: threads that are known to
 * be past it are not looked at again. The caller is in no such call itself,
 * holds no lock and has signals blocked.
 */
uint64_t threads_out(struct threads *t, uint64_t need, uint64_t now);

/*
 * A thread as a line of /proc/self/task/<tid>/syscall shows it: OUT is stopped
 * outside of every call that may drop pages.
 */
enum thread_where { THREAD_RUNS, THREAD_OUT, THREAD_MAYBE_IN, THREAD_KERNELS };
enum thread_where thread_where(const char *line);

/* A small file of the thread @tid in @dir, /proc/self/task, as a string. It does not allocate.
 * False: the file can't be read. */
bool thread_file(int dir, int tid, const char *name, char *text, size_t size);

#endif /* NOTIFY_THREADS_H */
