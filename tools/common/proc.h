/* SPDX-License-Identifier: BSD-2-Clause */
/* Child processes that serve batches, and processors. */
#ifndef TOOLS_COMMON_PROC_H
#define TOOLS_COMMON_PROC_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/common/util.h"

struct proc {
	pid_t pid;
	int fd;
};

/*
 * Fork a child that runs @serve with its end of a socket and then exits; it
 * dies with its parent. 0 or a negative errno. The caller has no threads.
 */
int proc_start(struct proc *p, void (*serve)(int fd, void *arg),
		     void *arg);
/* Close the socket, which tells the child to end, and wait for it. */
void proc_stop(struct proc *p);

/* One message; 0 or a negative errno, -EPIPE if the other side is gone. */
int proc_send(int fd, const void *msg, size_t len);
/* As proc_send(); -EPROTO for a message of another length. */
int proc_recv(int fd, void *msg, size_t len);
/* The same, and @progress is drawn at @done while it waits. */
int proc_wait(int fd, void *msg, size_t len, struct util_progress *progress,
	       uint64_t done);

/* CPUs this process may use; at least 1. */
unsigned int proc_cpus(void);
/* Bind the calling thread to the @nth of them (modulo their number). */
int proc_pin(unsigned int nth);

#endif /* TOOLS_COMMON_PROC_H */
