/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A fake kernel for the io_uring device: one ring whose buffer table
 * can be of any version and refuse anything, and every other step of an open
 * that can fail. It replaces them at link time.
 */
#ifndef TESTS_FAKE_URING_H
#define TESTS_FAKE_URING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <liburing.h>

#define FAKE_RING_INDEX 3u

/*
 * @no_sparse, @no_empty, @no_update: what an older kernel lacks
 * @max:   the largest table it makes
 * @nr:    slots of the table; 0: there is none
 * @slot:  what is in them
 * @op, @rc, @skip, @times: the next @times calls of @op after @skip fail
 * @calls: how many there were
 * @pinned: registrations that /proc counts as pinned; counted unless it is 0
 * @room:   no more of them are made than this; 0: any number
 * @late:   what is emptied stays pinned until so many sleeps are over
 * @owed:   how many such there are
 * @sleeps: how often was slept, a tenth of a second each; @now_ns: the time
 * @marks:  how often a range was marked dirty; the last is [@mark_at, @mark_end)
 * @mark_errno, @mark_fails: the next @mark_fails of those fail
 * @release: of the kernel, if not this one's; @no_populate: it does not mark
 * @smaps:   of the process, if not the real one; "": it cannot be read, nor
 *           can pagemap
 * @in_call: runs in the next register call, before it is done
 */
struct fake {
	bool no_sparse, no_empty, no_update;
	uint32_t max;
	uint32_t nr;
	void *slot[20000];
	unsigned int op;
	int rc, skip, times;
	int calls;
	uint64_t pinned, room;
	int late, owed, sleeps;
	uint64_t now_ns;
	int marks, mark_errno, mark_fails;
	uintptr_t mark_at, mark_end;
	const char *release;
	int no_populate;
	const char *smaps;
	void (*in_call)(void);
};

extern struct fake fake;
extern struct io_uring fake_ring;

/* The last message logged since fake_log_start(), and how many there were. */
extern char fake_logged[512];
extern int fake_log_cnt;
void fake_log_start(void);

/* A new kernel and a new, open ring. 0 or -1. */
int fake_reset(void);
int fake_close(void **unused); /* its descriptor */
void fake_refuse(unsigned int op, int rc, int times);

/*
 * From here on the @step-th step fails (0: none) and what is done and not
 * undone is counted, until fake_untrack() returns the count.
 */
void fake_track(int step);
void fake_calm(void); /* no step fails any more; the count goes on */
int fake_untrack(void);

#endif /* TESTS_FAKE_URING_H */
