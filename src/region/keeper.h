/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread with a table of descriptors of its own, in which all descriptors of regions are:
 * a program that closes what it does not know cannot close them, and a forked child does not
 * have them. Other threads have it do what needs them. See keeper.c.
 */
#ifndef REGION_KEEPER_H
#define REGION_KEEPER_H

/* Until keeper_unuse() there is one: 0 or a negative errno. In each process anew. */
int keeper_use(void);
void keeper_unuse(void);

/* Have it run @fn, while it is used: what that returns, and its reason. One after the other;
 * waits for its turn. @fn does not wait for anything that another thread does. */
int keeper_call(int (*fn)(void *arg), void *arg);

/* To be called before it ends, by the thread that used it last. */
void keeper_before_end(void (*fn)(void));

/* This process was forked from the one that used it. */
void keeper_forget(void);

#endif /* REGION_KEEPER_H */
