/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A kernel made of paper for the io_uring device: one ring whose buffer table
 * can be of any version and refuse anything, and every other step of an open
 * that can fail. It replaces them at link time.
 */
#ifndef TESTS_URING_PAPER_H
#define TESTS_URING_PAPER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <liburing.h>

#define PAPER_RING_INDEX 3u

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
struct paper {
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

extern struct paper paper;
extern struct io_uring paper_ring;

/* The last message logged since paper_log_start(), and how many there were. */
extern char paper_logged[512];
extern int paper_log_cnt;
void paper_log_start(void);

/* A new kernel and a new, open ring. 0 or -1. */
int paper_reset(void);
int paper_close(void **unused); /* its descriptor */
void paper_refuse(unsigned int op, int rc, int times);

/*
 * From here on the @step-th step fails (0: none) and what is done and not
 * undone is counted, until paper_untrack() returns the count.
 */
void paper_track(int step);
void paper_calm(void); /* no step fails any more; the count goes on */
int paper_untrack(void);

#endif /* TESTS_URING_PAPER_H */
