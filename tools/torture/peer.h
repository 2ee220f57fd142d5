/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Another process, which changes files and memory of ours from outside. It is
 * started before anything else of the test, so it shares no mapping with it
 * but what it is handed.
 */
#ifndef TORTURE_PEER_H
#define TORTURE_PEER_H

#include <pthread.h>
#include <sys/types.h>

struct peer {
	pthread_mutex_t lock; /* guards the conversation on fd */
	int fd;
	pid_t pid;
};

/* 0 or a negative errno. */
int peer_start(struct peer *p);
void peer_stop(struct peer *p);
/*
 * Have the peer make a system call whose first argument is its copy of @fd.
 * process_madvise(2) takes the range's start and length in the place of the
 * vector. The result, or a negative errno.
 */
long peer_call(struct peer *p, int fd, long nr, const long arg[6]);

#endif /* TORTURE_PEER_H */
