/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers in processes of their own that write a region of PEER_LEN bytes without a pause, by single
 * calls, or with TEST_REGION_WITH=submit by several operations at a time; and what is there then.
 */
#ifndef TESTS_REGION_PEERS_H
#define TESTS_REGION_PEERS_H

#include "remote.h"

#define PEERS	 3
#define BLOCK	 4096
#define PEER_LEN ((size_t)16 << 20)
/* Of peer @p: a number that it adds to, and two blocks on either end that it writes. */
#define NUMBER_AT(p) ((uint64_t)(p) * 8)
#define BLOCK_AT(p)  ((uint64_t)(1 + (p)) * BLOCK)
#define FAR_AT(p)    (PEER_LEN - BLOCK_AT(p))

/*
 * @go: they may begin, as all are there: AddressSanitizer's allocator may be locked by a thread of
 *      the owner's that has work while one is forked, and is so in that child for ever
 * @tried, @done: additions; each with two blocks that are filled with its number before
 * @error: the first one of an access; the peer has ended with it. -EINTR: it was killed
 */
struct peers {
	_Atomic int go;
	_Atomic int stop;
	struct {
		_Atomic uint64_t tried;
		_Atomic uint64_t done;
		_Atomic int error;
		pid_t pid;
	} of[PEERS];
};

struct peers *peers_new(void);
void peers_start(struct peers *p);
/* Each that has no error does @more additions. */
void peers_work(struct peers *p, uint64_t more);
void peers_end(struct peers *p);
void peers_had_no_error(struct peers *p);
/* All that was acknowledged is there; what was not may be. It frees @p. */
void peers_check(struct peers *p, struct kedge_remote *r);

#endif /* TESTS_REGION_PEERS_H */
