/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kedge torture --region: an owner suspends, moves, grows, trims and advertises a region, and gives
 * it to another process, which gives it back (owner.c). Peers read and write it all the while
 * (peer.c); now and then one of them is killed (waves.c). What a peer was told is done is there.
 */
#ifndef TORTURE_REGION_WAVES_H
#define TORTURE_REGION_WAVES_H

#include <stdatomic.h>
#include <stdbool.h>

#include <kedge/kedge.h>

#include "tools/common/util.h"

#define WAVES_PEERS	3u
#define WAVES_OWNERS	2u
#define WAVES_BLOCK	((size_t)4096)
#define WAVES_LEN	((size_t)64 << 20) /* that is there always */
#define WAVES_MORE	((size_t)65 << 20) /* and now and then */
#define WAVES_SECONDS	10
#define WAVES_LIMIT_MS	60000 /* what takes so long is an error */

/** struct waves_opts - what is asked for */
struct waves_opts {
	double seconds;
	uint64_t seed;
};

/** struct waves_peer - what a peer notes for the others; it outlives the peer
 * @added:   numbers that it was told are added
 * @ops:     accesses that were done
 * @beyond:  accesses beyond the end, each refused by itself
 * @opened:  how often it has opened a handle
 * @life:    how many were killed in its place: its block may be torn unless @sure is the same,
 *           which each stores behind a put as the number that it began with. One that is about to
 *           be killed may put until then, and store the former number
 */
struct waves_peer {
	_Atomic uint64_t added;
	_Atomic uint64_t ops;
	_Atomic uint64_t beyond;
	_Atomic uint64_t opened;
	_Atomic uint64_t life;
	_Atomic uint64_t sure;
};

/** struct waves_invite - what one of two owners writes that has not the region
 * @open:   @handle is set, and the region may come
 */
struct waves_invite {
	_Atomic bool open;
	struct kedge_handle handle;
};

/** struct waves - in memory that all share
 * @turn:   odd while @handle is written; it changes with it
 * @owners: pairs of owners so far: with another one all that was added is gone
 * @stayed: migrations that came to an end without effect
 * @killed: additions of killed peers that may be there without being noted
 */
struct waves {
	uint64_t seed;
	_Atomic bool stop;
	_Atomic uint64_t turn;
	struct kedge_handle handle;
	_Atomic uint64_t owners;
	_Atomic uint64_t killed;
	_Atomic uint64_t suspensions, moves, lengths, handles;
	_Atomic uint64_t migrations, stayed;
	_Atomic uint64_t pause_ns; /* the longest move's */
	_Atomic uint64_t migrate_ns; /* the longest pause of a migration */
	struct waves_invite invite[WAVES_OWNERS];
	_Atomic uint64_t lost, torn, errors;
	struct waves_peer peer[WAVES_PEERS];
	char found[200];
};

/* Note the first error that was found, and count it. */
void waves_found(struct waves *w, _Atomic uint64_t *cnt, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The block of a peer. */
static inline uint64_t waves_place(unsigned int i)
{
	return (i + 1) * WAVES_BLOCK;
}

void waves_nap(long us);

/* Mains of processes; an exit status. The first owner makes the region. */
int waves_own(struct waves *w, unsigned int i);
int waves_visit(struct waves *w, unsigned int i);

/* kedge torture --region; an exit status. */
int waves_torture(const struct waves_opts *opts);

#endif /* TORTURE_REGION_WAVES_H */
