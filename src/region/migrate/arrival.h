/* SPDX-License-Identifier: BSD-2-Clause */
/* A region that comes to this process, received by a thread with the keeper's descriptors. */
#ifndef REGION_MIGRATE_ARRIVAL_H
#define REGION_MIGRATE_ARRIVAL_H

#include "region/migrate/wire.h"

/*
 * @most:  bytes that are taken; 0: any
 * @first: the connection is that by which the copy came, and has not been lost
 * @r:     the region, once it is here
 * @loan:  its memory is lent to its owner, which puts into it by @line; or NULL
 * @rc:    the outcome, with @reason
 */
struct arrival {
	struct invite *invite;
	uint64_t until;
	uint64_t most;
	struct wire wire;
	bool first;
	uint64_t id;
	uint64_t region_id;
	uint64_t len;
	uint64_t max_len;
	uint64_t page_size;
	struct kedge_region *r;
	struct fabric_loan *loan;
	struct fabric_line *line;
	int rc;
	char reason[256];
};

/* ---- lent.c ---- */

/* BORROW was read: 0, or a negative errno without a reason. */
int arrival_lend(struct arrival *a, const struct msg *m);
void arrival_unlend(struct arrival *a);

/* ---- target.c ---- */

void arrival_run(struct arrival *a);
/* Until @until: the former owner has said that it knows, or has ended. */
bool arrival_is_heard(struct invite *i, uint64_t until);

#endif /* REGION_MIGRATE_ARRIVAL_H */
