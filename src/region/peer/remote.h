/* SPDX-License-Identifier: BSD-2-Clause */
/* A region of another process, as a peer has it. */
#ifndef REGION_REMOTE_H
#define REGION_REMOTE_H

#include <sys/types.h>

#include <kedge/remote.h>

#include "base/process/clofork.h"
#include "region/gate.h"

/*
 * @sock:     its end is the owner's
 * @file:     the region's memfd, to see how large that is
 * @base:     the mapping; @at: the handle's first byte in it
 * @file_off: of that byte in the memfd
 * @sure:     bytes from there on that the memfd has: its owner cannot make it shorter
 * @looked:   when the connection was looked at last, of clock_coarse_ns()
 * @ended:    a positive errno: the owner has ended
 */
struct kedge_remote {
	pid_t pid;
	pid_t owner;
	uint32_t access;
	struct clofork sock;
	struct clofork file;
	struct gate *gate;
	char *base;
	size_t base_len;
	char *at;
	uint64_t max_len;
	uint64_t file_off;
	_Atomic uint64_t sure;
	_Atomic uint64_t looked;
	_Atomic int ended;
};

/* How much of the memfd there is, from the handle's first byte on. */
uint64_t remote_size(const struct kedge_remote *r);

#endif /* REGION_REMOTE_H */
