// SPDX-License-Identifier: BSD-2-Clause
/*
 * The checker reads all of the region while the peers are paused: one part after the other, by the
 * connection that it has from the beginning, and by one that it has made just now with the handle.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "tools/migrate/migrate.h"
#include "tools/migrate/space.h"

#define PART ((uint64_t)64 * LOAD_BLOCK)

static int check_part(struct load *l, struct kedge_remote *r, uint64_t off, unsigned char *buf)
{
	const uint64_t end = l->blocks * LOAD_BLOCK;
	const uint64_t len = end - off < PART ? end - off : PART;
	uint64_t i;
	int rc = kedge_remote_get(r, off, buf, len, MIGRATE_SOON_MS);

	for (i = 0; !rc && i < len; i += LOAD_BLOCK)
		load_verify(l, (off + i) / LOAD_BLOCK, buf + i);
	return rc;
}

static int check_len(struct load *l, struct kedge_remote *r)
{
	struct kedge_remote_info info = { .size = sizeof(info) };
	int rc = kedge_remote_query(r, &info);

	if (!rc && info.len != l->blocks * LOAD_BLOCK)
		load_found(l, &l->lost, "the region has %llu bytes of %llu",
			   (unsigned long long)info.len,
			   (unsigned long long)(l->blocks * LOAD_BLOCK));
	return rc;
}

/* @first may be NULL. */
static int check_all(struct load *l, struct kedge_remote *first, const struct kedge_handle *h,
		     unsigned char *buf)
{
	struct kedge_remote *late;
	uint64_t off;
	int rc = kedge_remote_open(h, MIGRATE_SOON_MS, &late);

	if (rc)
		return rc;
	rc = check_len(l, late);
	for (off = 0; !rc && off < l->blocks * LOAD_BLOCK; off += PART)
		rc = check_part(l, first && off / PART % 2 ? first : late, off, buf);
	kedge_remote_close(late);
	return rc;
}

void migrate_checker(int fd, void *arg)
{
	const struct migrate_start *start = arg;
	unsigned char *buf = aligned_alloc(LOAD_BLOCK, PART);
	struct kedge_remote *first = NULL;
	struct said s = { .kind = SAY_DONE };
	struct order o;
	int rc = buf ? space_enter(start->space) : -ENOMEM;

	if (!rc)
		rc = kedge_remote_open(&start->handle, MIGRATE_SOON_MS, &first);
	if (migrate_say(fd, SAY_DONE, rc, &s) || rc)
		return;
	while (!proc_recv(fd, &o, sizeof(o))) {
		rc = check_all(start->load, o.n ? NULL : first, &o.handle, buf);
		if (migrate_say(fd, SAY_DONE, rc, &s))
			return;
	}
}
