/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread with a table of descriptors of its own, in which all descriptors of regions are:
 * a program that closes what it does not know cannot close them, and a forked child does not
 * have them. Other threads have it do what needs them. See keeper.c.
 */
#ifndef REGION_KEEPER_H
#define REGION_KEEPER_H

#include <pthread.h>

#include "base/process/service.h"

/* Until keeper_unuse() there is one: 0 or a negative errno. In each process anew. */
int keeper_use(void);
void keeper_unuse(void);

/* Have it run @fn, while it is used: what that returns, and its reason. One after the other;
 * waits for its turn. @fn does not wait for anything that another thread does. */
int keeper_call(int (*fn)(void *arg), void *arg);

/* To be called before it ends, by the thread that used it last. */
void keeper_before_end(void (*fn)(void));

/*
 * A thread with the same table, as long as the keeper is used. One lock is held in both calls.
 *
 * @start:    by the keeper: make what it needs, and start @thread
 * @say_stop: by the keeper: tell it to end
 * @finish:   by the keeper, behind its end: give up what it needed
 * @end:      call keeper_thread_end() with the lock
 * @what:     it is for, in the words of a reason: "no thread can be made to ..."
 */
struct keeper_thread {
	struct service service;
	pthread_t thread;
	bool runs;
	int (*start)(void *unused);
	int (*say_stop)(void *unused);
	int (*finish)(void *unused);
	void (*end)(void);
	const char *what;
};

/* It runs until the keeper ends: 0 or a negative errno with its reason. */
int keeper_thread_use(struct keeper_thread *t);
void keeper_thread_end(struct keeper_thread *t);

/* This process was forked from the one that used it. */
void keeper_forget(void);

#endif /* REGION_KEEPER_H */
