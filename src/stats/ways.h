/* SPDX-License-Identifier: BSD-2-Clause */
/* The two ways of publishing. */
#ifndef STATS_WAYS_H
#define STATS_WAYS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/process/clofork.h"
#include "stats/target.h"

struct publisher {
	struct target target;
	struct clofork wake;   /* readable once the thread is to end */
	struct clofork listen; /* of a socket */
	struct fd_id name;     /* of the file that is its name */
	uint64_t written;      /* a sum of what the file has */
	int failed;	       /* the errno that was logged last */
};

/* file.c: bring the file up to date. 0 or a negative errno. */
int file_write(struct publisher *p);

/* socket.c: 0, or a negative errno with its reason. */
int socket_open(struct publisher *p);
/* A client that is waiting gets the counters; it has CLIENT_MS to read them. False: it cannot be
 * let in now. */
bool socket_answer(struct publisher *p);
/* The program has closed it, or its name is gone or another's: it is to be opened again. */
bool socket_lost(const struct publisher *p);
/* The name goes, if it is ours still. */
void socket_close(struct publisher *p);

#define CLIENT_MS 500

#endif /* STATS_WAYS_H */
