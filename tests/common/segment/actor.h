/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process that is told call by call what to do with segments, as an owner and as one that
 * attaches. The test itself calls nothing of kedge's, so it may fork at any time.
 */
#ifndef TESTS_SEGMENT_ACTOR_H
#define TESTS_SEGMENT_ACTOR_H

#include "cases.h"
#include "steps.h"

/* The acts of an actor. It has two ranges of memory, each for a segment, and one grant. */
enum act {
	NEW,	/* memory; each word has its index */
	MAKE,
	REMOVE,
	FREE,
	UNMAP,	/* the second half */
	EMPTY,
	MOVE,
	FORK,	/* a child that has the memory as it is */
	INTACT, /* the memory has what it should have: 0 */
	PUT,	/* in its memory, a word that others look at */
	GRANTS, /* how many there are */
	GET,
	ATTACH,
	VALID,
	LOAD,	/* that word, of the other's memory */
	STORE,
	COPY,
	DETACH,
	RELEASE,
	LEFT,	/* what it has: see struct left */
	STEPS,	/* its calls are steps of actor_steps from now on; or a negative errno */
};

struct left {
	unsigned int fds; /* of all its threads' tables */
	unsigned int threads;
	unsigned int maps; /* of files of kedge's */
};

struct told {
	enum act act;
	unsigned int range;
	uint32_t flags; /* of ATTACH */
	bool half;	/* the first one alone */
	uint64_t value;
	struct kedge_segment_id id;
};

struct said {
	long rc; /* what the call returned, or -EFAULT after a SIGBUS */
	uint64_t value;
	struct kedge_segment_id id;
	struct left left;
	char reason[160];
};

struct actor {
	pid_t pid;
	int sock;
	bool dies; /* it is the one of actor_steps */
	struct said said; /* the latest */
};

#define DEAD (-EOWNERDEAD) /* in the place of what the call returns: it was killed */

/* Of the one that may be killed. Its calls go on only while one waits for an actor. */
extern struct steps actor_steps;
/* The backend that segments are made with. */
extern uint32_t actor_backend;

/* @dies: it is the one that may be killed, from STEPS on. */
void actor_start(struct actor *a, bool dies);
void actor_end(struct actor *a);
long actor_does(struct actor *a, struct told t);

#endif /* TESTS_SEGMENT_ACTOR_H */
