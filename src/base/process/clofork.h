/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Close-on-fork descriptors, which Linux does not have (POSIX.1-2024 does): a
 * forked child would keep open a connection where the peer waits for this
 * process's end, and a listening socket that it never accepts from.
 *
 * A process-wide list of descriptors with their identities. A handler of
 * pthread_atfork() closes them in the child, each if it still is what was
 * noted: the application may have closed the number and use it for something
 * else. After that the child's copy of a struct clofork holds no descriptor, so
 * that freeing what it has inherited closes no descriptor. vfork(), _Fork() and
 * clone() run no handlers; nor does posix_spawn(), but its child executes a
 * program, and all descriptors here are close-on-exec.
 *
 * Descriptors of anonymous inodes (epoll, timerfd; before 6.9 pidfd) all have one
 * identity: an epoll set is told from a file, not from another epoll set.
 */
#ifndef BASE_PROCESS_CLOFORK_H
#define BASE_PROCESS_CLOFORK_H

#include "base/fd.h"
#include "base/list.h"

struct clofork {
	struct list node;
	int fd; /* or -1 */
	struct fd_id id;
};

/*
 * Register handlers once; @state is 0 at first. To be called with no lock that
 * they take: a thread that forks before they are registered hands the lock on as
 * it is. So it is called as the library is loaded, and again before each use, in
 * case that was too early or there was no memory. 0 or -ENOMEM.
 */
int fork_handlers(_Atomic int *state, void (*before)(void),
		  void (*in_parent)(void), void (*in_child)(void));
/* Those of this room are registered, or -ENOMEM. */
int clofork_ready(void);
/* Holds no descriptor. */
void clofork_init(struct clofork *c);
/*
 * Between these two no other thread forks, so that a descriptor which is made
 * there is in the list before a child can have it:
 *
 *	rc = clofork_begin();
 *	if (!rc)
 *		rc = clofork_end(&c, socket(...));
 *
 * @fd: a new descriptor, or -1 with errno set. 0 or a negative errno. What makes
 * it must not wait.
 */
int clofork_begin(void);
int clofork_end(struct clofork *c, int fd);
/* One that another thread's fork may hand on meanwhile: no socket of a peer's. */
int clofork_keep(struct clofork *c, int fd);
/* Move the descriptor; @src is empty then. */
void clofork_move(struct clofork *dst, struct clofork *src);
/* The descriptor, which is not ours any more, or -1. */
int clofork_release(struct clofork *c);
/* False: the application has closed it; its number may be another's. */
bool clofork_ours(const struct clofork *c);
/* Close it if it is ours; @c is empty then. */
void clofork_close(struct clofork *c);

#endif /* BASE_PROCESS_CLOFORK_H */
