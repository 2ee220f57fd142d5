/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A trace of every change of watched memory, where KEDGE_TRACE says: what changed, by which thread,
 * and with KEDGE_TRACE_STACK=1 from where.
 *
 * A change is noted where it is told to watches, under their lock and with signals blocked: into a
 * ring, without an allocation or a descriptor. A thread writes the ring to the file; what
 * does not fit is counted, and the trace says how many are lost.
 */
#ifndef STATS_TRACE_H
#define STATS_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_FRAMES 24
#define TRACE_LINE_MAX (200 + TRACE_FRAMES * 512)

enum trace_by {
	TRACE_ANNOUNCED, /* by the thread that makes it */
	TRACE_KERNEL,    /* told by userfaultfd */
	TRACE_MODULE,    /* told by the kernel module, possibly several at once */
};

struct trace_stack {
	uint32_t cnt; /* 0: it was not taken */
	uintptr_t pc[TRACE_FRAMES];
	uintptr_t base[TRACE_FRAMES]; /* where its object is loaded, or 0 */
};

struct trace_change {
	uint64_t ns; /* of CLOCK_REALTIME; trace_add() sets it */
	uint64_t start, end;
	uint64_t watches; /* that were told */
	uint32_t kind;	  /* enum kedge_event_kind */
	bool unsure;
	enum trace_by by;
	int tid; /* of the thread, or 0 if that is not known */
	struct trace_stack stack;
};

/* The ring, while this process has a trace. */
struct trace_ring;
extern struct trace_ring *_Atomic trace_ring;

static inline bool trace_on(void)
{
	/* Relaxed: trace_add() looks again, under its lock. */
	return atomic_load_explicit(&trace_ring, memory_order_relaxed);
}

/* Begin one if the environment asks for it. Called as a notifier is opened; never fails: where it
 * cannot be had, that is logged. */
void trace_begin(void);
/* The caller's stack, without this call's frame, or none. Before any lock is taken. */
void trace_take_stack(struct trace_stack *s);
/* With signals blocked. */
void trace_add(const struct trace_change *c);

/* trace_line.c: the text of a change; its length. Objects are looked up now: one that has gone
 * meanwhile has no name. Takes no lock that a fork() or the loader may leave taken. */
size_t trace_line(char *to, size_t room, const struct trace_change *c);

#endif /* STATS_TRACE_H */
