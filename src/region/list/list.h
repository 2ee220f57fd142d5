/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions of all processes, as another process lists them. */
#ifndef REGION_LIST_LIST_H
#define REGION_LIST_LIST_H

#include <kedge/region_list.h>

#include "region/wire.h"

/* Of a region, or of a process that tells nothing: 0 or -ENOMEM. @owner: the socket that tells it;
 * @to: of a region that has left, where it is. */
typedef int found_fn(void *arg, const struct kedge_region_entry *e, uint64_t owner,
		     const struct owner_place *to);

/* ---- names.c: how the owners' sockets are called ---- */

struct names {
	uint64_t *name;
	size_t cnt;
	size_t room;
};

/* Each once: 0 or a negative errno; the caller frees @n->name in either case. */
int names_read(struct names *n);

/* ---- owners.c ---- */

/* Those that @o is about: 0 or a negative errno of this process's. */
int owners_ask(const struct kedge_regions_opts *o, found_fn *add, void *arg);

#endif /* REGION_LIST_LIST_H */
