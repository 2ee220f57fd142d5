/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that the processes of kedge migrate share: counts, and the log of writes.
 *
 * Each block of the region has one writer: writer w has the blocks w, w + writers, and so on. A
 * write is of the next version: noted as tried, done in the region, noted as done when it was
 * acknowledged. A block is made of its number, its version and the seed alone, so that a read tells
 * which version it is, and whether all of it is.
 *
 * A reader may come in the middle of a write. No write was under way if the version that was done
 * before the read is the one that was tried last after it (a sequence lock): then the block has to
 * be that version. Reads of the writer's own blocks are all such reads.
 */
#ifndef TOOLS_MIGRATE_LOAD_H
#define TOOLS_MIGRATE_LOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/common/util.h"

#define LOAD_BLOCK	((size_t)4096)
#define LOAD_PEERS_MAX	64u
#define LOAD_WRITERS_MAX (LOAD_PEERS_MAX + 1)

/** struct load_writer - a peer, or the owner's own stores, which are the last one
 * @paused:  the last odd value of load.pause that it saw, between accesses
 * @longest: nanoseconds that an access took, since the command set it to 0
 * @error:   of an access, with @why; the peer has ended with it
 * @killed:  the command has killed it
 */
struct load_writer {
	_Atomic uint64_t ops;
	_Atomic uint64_t writes;
	_Atomic uint64_t longest;
	_Atomic uint64_t paused;
	_Atomic int error;
	_Atomic bool killed;
	char why[160];
};

/** struct load_block - versions of a block
 * @tried: the last one that was about to be written
 * @done:  the last one that was acknowledged
 */
struct load_block {
	_Atomic uint32_t tried;
	_Atomic uint32_t done;
};

/** struct load - the counts and the log
 * @pause: odd: writers wait
 * @found: the first that was wrong
 */
struct load {
	_Atomic uint64_t pause;
	_Atomic uint64_t lost;
	_Atomic uint64_t torn;
	_Atomic uint64_t errors;
	_Atomic uint64_t owners; /* times that there were two */
	_Atomic uint64_t unsure; /* blocks that a process was killed in */
	_Atomic bool has_found;
	char found[240];
	unsigned int writers;
	uint64_t blocks;
	uint64_t seed;
	struct load_writer writer[LOAD_WRITERS_MAX];
	struct load_block block[];
};

/* NULL: no memory. */
struct load *load_new(uint64_t len, unsigned int writers, uint64_t seed);
/* All blocks are of version 1, and writers have begun no access; faults that were found stay. */
void load_forget(struct load *l);
void load_free(struct load *l);

/* A fault is counted, and the first one kept in words. */
void load_found(struct load *l, _Atomic uint64_t *cnt, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

void load_fill(const struct load *l, uint64_t block, uint32_t version, void *to);

/* A write of writer @w: one of its blocks; the bytes of the next version; the acknowledgement. */
uint64_t load_pick(const struct load *l, unsigned int w, struct util_rng *rng);
void load_begin(struct load *l, uint64_t block, void *to);
void load_done(struct load *l, uint64_t block);

/* Calls before a read of a block, and behind it. */
uint32_t load_before(const struct load *l, uint64_t block);
void load_read(struct load *l, uint64_t block, uint32_t before, const void *data);
/* The check while all writers are paused knows blocks that a process was killed in. */
void load_verify(struct load *l, uint64_t block, const void *data);

/* A writer calls it between accesses: it waits while there is a pause. */
void load_heed(struct load *l, unsigned int w);
void load_nap(uint64_t ns);

#endif /* TOOLS_MIGRATE_LOAD_H */
