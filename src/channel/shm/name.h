/* SPDX-License-Identifier: BSD-2-Clause */
/* The name that a listener has in the file system, or in the abstract namespace. */
#ifndef CHANNEL_SHM_NAME_H
#define CHANNEL_SHM_NAME_H

#include <sys/types.h>
#include <sys/un.h>

#include "base/base.h"

struct shm_name {
	char *path; /* absolute; NULL: abstract, or not bound */
	dev_t dev;
	ino_t ino;
	pid_t pid;
};

/* Bind @fd to @a, which @path is. -EADDRINUSE, with a reason: somebody else has
 * it, live or not yet listening, or it is no socket. A socket of a process that has ended is
 * replaced. */
int shm_name_bind(struct shm_name *n, int fd, const struct sockaddr_un *a,
		  uint32_t len, const char *path);
/* Remove it if it still is ours; in a forked child, not. @bound: the socket is
 * open, so that the inode is no other's. */
void shm_name_remove(struct shm_name *n, bool bound);

#endif /* CHANNEL_SHM_NAME_H */
