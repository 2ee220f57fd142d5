// SPDX-License-Identifier: BSD-2-Clause
/* The owner: its region, its own stores there, and how it gives the region away. */
#include <errno.h>
#include <string.h>

#include "tools/migrate/migrate.h"

#define TIMEOUT_MS   5000u
#define STORE_NAP_NS 50000u /* between own stores: as many as a peer makes */

int owner_advertise(struct host *h, struct said *s)
{
	const struct migrate_opts *o = h->start->opts;
	const struct kedge_handle_opts how = {
		.size = sizeof(how), .node = h->start->node,
		.flags = o->way == WAY_MAPPED || o->way == WAY_RDMA ? 0 : KEDGE_HANDLE_SERVED,
	};
	int rc = kedge_region_advertise(h->region, &how, &s->handle);

	if (!rc)
		migrate_disguise(o, &s->handle);
	return rc;
}

static int find(struct host *h)
{
	struct kedge_region_info info = { .size = sizeof(info) };
	int rc = kedge_region_query(h->region, &info);

	if (!rc)
		h->at = (unsigned char *)(uintptr_t)info.addr;
	return rc;
}

int owner_create(struct host *h, struct said *s)
{
	struct load *l = h->start->load;
	uint64_t i;
	int rc = kedge_region_create(h->start->opts->len, NULL, &h->region);

	if (!rc)
		rc = find(h);
	for (i = 0; !rc && i < l->blocks; i++)
		load_fill(l, i, 1, h->at + i * LOAD_BLOCK);
	return rc ? rc : owner_advertise(h, s);
}

/* ---- own stores ---- */

static void *stores(void *arg)
{
	struct host *h = arg;
	struct load *l = h->start->load;
	const unsigned int me = l->writers - 1;
	uint64_t block[LOAD_BLOCK / sizeof(uint64_t)], at;
	struct util_rng rng;

	util_rng_init(&rng, h->start->opts->seed + 1 + atomic_load(&l->writer[me].ops));
	while (!atomic_load(&h->halt)) {
		load_heed(l, me);
		at = load_pick(l, me, &rng);
		load_begin(l, at, block);
		memcpy(h->at + at * LOAD_BLOCK, block, LOAD_BLOCK);
		load_done(l, at);
		atomic_fetch_add(&l->writer[me].writes, 1);
		atomic_fetch_add(&l->writer[me].ops, 1);
		load_nap(STORE_NAP_NS);
	}
	return NULL;
}

int owner_store(struct host *h)
{
	int rc = find(h);

	if (rc)
		return rc;
	atomic_store(&h->halt, false);
	rc = -pthread_create(&h->thread, NULL, stores, h);
	h->stores = !rc;
	return rc;
}

void owner_halt(struct host *h)
{
	if (!h->stores)
		return;
	atomic_store(&h->halt, true);
	pthread_join(h->thread, NULL);
	h->stores = false;
}

/* ---- the migration ---- */

static int freeze(void *arg)
{
	struct said s = { .kind = SAY_FROZEN };
	struct host *h = arg;

	owner_halt(h);
	return proc_send(h->fd, &s, sizeof(s));
}

static int progress(void *arg, const struct kedge_migrate_info *info)
{
	struct said s = { .kind = SAY_PROGRESS, .info = *info };
	struct host *h = arg;

	return proc_send(h->fd, &s, sizeof(s));
}

int owner_migrate(struct host *h, const struct kedge_handle *invitation)
{
	/* The target has to have its memory in that time, too. */
	const struct kedge_migrate_opts how = {
		.size = sizeof(how), .flags = h->start->opts->own ? 0 : KEDGE_MIGRATE_QUIET,
		.timeout_ms = TIMEOUT_MS + (uint32_t)migrate_accept_ms(h->start->opts),
		.freeze = freeze, .progress = progress, .arg = h,
	};
	struct said s = { .info.size = sizeof(s.info) };
	int rc = kedge_region_migrate(h->region, invitation, &how, &s.info);

	return migrate_say(h->fd, SAY_MIGRATED, rc, &s);
}
