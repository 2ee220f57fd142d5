/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registrations that the program holds, each with a watch, whoever made it: kedge's cache or
 * libibverbs. A library above that keeps registrations by itself holds them while memory comes and
 * goes, and no cache below can help it then: it is told on stderr, once for each library.
 *
 * A change counts once memory is mapped there again: a program that unmaps first, and deregisters
 * then, is right enough.
 */
#ifndef PRELOAD_HELD_H
#define PRELOAD_HELD_H

#include <stdbool.h>
#include <stdio.h>

#include <infiniband/verbs.h>

/* False: the caller is libfabric or UCX, and libkedge-fi or libkedge-ucx watches for its cache. No
 * cache of ours, and no watch, is to be in its way. */
bool held_is_served(const void *caller);
/* A registration is followed from now on; where it cannot be, it is counted. @iova: its first byte
 * in work requests. @caller: of libibverbs, an address in its code. True: it is the process's
 * first. */
bool held_begin(const struct ibv_mr *mr, uint64_t iova, const void *caller);
/* Before it is deregistered: it may have changed until now. */
void held_end(const struct ibv_mr *mr);
/* Before a work request: what has gone that no call of the program's took, or that is not followed,
 * shows in the table of kedge doctor. */
void held_look(void);
/* At the process's end, what has gone since is told, too. To @f, unless it is NULL: the
 * lines of tools/run/checked.h. */
void held_report(FILE *f);

#endif /* PRELOAD_HELD_H */
