/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests of whole processes: what hangs, crashes or is lost when a process does
 * something to itself. Each case runs in a forked child under a watchdog.
 */
#ifndef PROC_H
#define PROC_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <liburing.h>

#include <kedge/kedge.h>

#define PROC_SKIP 77

/**
 * struct proc_case - one case
 * @name:    what is asserted
 * @fn:      runs in a child; returns 0, proc_fail() or proc_skip(), or exits
 * @with:    the same, in the place of @fn, for cases that are variants of one: of @variant
 * @seconds: after which the child is taken to hang; 0 is 60. No bound that a
 *           slow machine comes near
 */
struct proc_case {
	const char *name;
	int (*fn)(void);
	unsigned int seconds;
	int (*with)(const void *variant);
	const void *variant;
};

/*
 * Run the cases that match the program's arguments (patterns as fnmatch(3)'s;
 * none: all), print TAP, and return the exit status.
 */
int proc_main(int argc, char **argv, const struct proc_case *cases, size_t cnt);

/* Say what went wrong, or why it cannot run; for "return". */
int proc_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int proc_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/*
 * Wait for a child of the test's, at most @seconds from what it said last: its wait
 * status, or -1 with a line for each of its threads if it hangs, in which case it is
 * killed.
 */
int proc_wait(pid_t pid, unsigned int seconds);

/**
 * struct rig - a ring, and a cache over it, as a program has them
 */
struct rig {
	struct io_uring ring;
	int pipe[2];
	pthread_mutex_t lock; /* of the ring and the pipe */
	struct kedge_device *dev;
	struct kedge_notifier *nf;
	struct kedge_cache *cache;
	uint64_t seq;
};

#define RIG_LEN ((size_t)64 << 10)

/* 0, or what the case is to return: a failure, or a skip where nothing here
 * reaches level "ordered". */
int rig_open(struct rig *r);
/* In two steps: the ring and its device, then the notifier and the cache. */
int rig_open_device(struct rig *r);
int rig_open_cache(struct rig *r);
void rig_close(struct rig *r);
/* The cache and the notifier alone. */
void rig_close_cache(struct rig *r);
/* Get, have the device write @len bytes, at most RIG_LEN, compare, put: 0, 1 if
 * the CPU does not see them, or a negative errno. */
int rig_check(struct rig *r, char *at, size_t len);
/* Get and put: 1 if it was a hit, 0 if not, or a negative errno. Alone on @r. */
int rig_touch(struct rig *r, char *at, size_t len);
/* Gets that were not cached so far. */
uint64_t rig_uncached(struct rig *r);

/* Anonymous memory at @at (MAP_FIXED), or anywhere for NULL. */
char *map_anon(void *at, size_t len);
/* madvise() by an instruction of our own. */
long raw_madvise(void *at, size_t len, int advice);
/* Lines of /proc/self/maps. */
size_t count_mappings(void);
void sleep_ms(unsigned int ms);
/* Pin the calling thread; 0, or -1. */
int pin_to(int cpu);
/* The CPUs that this process may use: their number, the first @max in @cpu. */
int usable_cpus(int *cpu, int max);

#endif /* PROC_H */
