/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registrations by their handles: the region that a memory handle of a memory domain is of. Some
 * domains give the same handle for several registrations (caches of their own); then it is not told
 * which of them a deregistration ends, and all stay until as many have ended.
 */
#ifndef ADAPTER_UCX_HANDLES_H
#define ADAPTER_UCX_HANDLES_H

#include "regions.h"
#include "way.h"

struct handle {
	struct handle *next;
	md_t md;
	memh_t memh;
	struct handle *others; /* of the first of a name: those of the same name */
	size_t alive;	       /* of the first: registrations that have not ended */
	struct region region;
};

/* NULL: no memory. All zeros. */
struct handle *handle_new(void);

/* From now on handles_remove() finds it by that name. */
void handles_add(struct handle *h, md_t md, memh_t memh);

/* Before a deregistration: the handles that end with it, as a list, or NULL. @known: some have that
 * name. */
struct handle *handles_remove(md_t md, memh_t memh, bool *known);

/* In a forked child: there are none, whatever state the parent's were in. */
void handles_anew(void);

/* For tests. */
unsigned int handles_cnt(void);

#endif /* ADAPTER_UCX_HANDLES_H */
