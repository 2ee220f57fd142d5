// SPDX-License-Identifier: BSD-2-Clause
/* A peer: it writes its own blocks, reads all of them, and takes the time of each access. */
#include <stdio.h>

#include "base/base.h"
#include "tools/migrate/migrate.h"
#include "tools/migrate/space.h"

struct peer {
	const struct migrate_start *start;
	struct load *load;
	struct load_writer *me;
	struct kedge_remote *remote;
	struct util_rng rng;
	uint64_t block[LOAD_BLOCK / sizeof(uint64_t)];
};

static int write_one(struct peer *p)
{
	const uint64_t at = load_pick(p->load, p->start->index, &p->rng);
	int rc;

	load_begin(p->load, at, p->block);
	rc = kedge_remote_put(p->remote, at * LOAD_BLOCK, p->block, LOAD_BLOCK, MIGRATE_SOON_MS);
	if (rc)
		return rc;
	load_done(p->load, at);
	atomic_fetch_add_explicit(&p->me->writes, 1, memory_order_relaxed);
	return 0;
}

static int read_one(struct peer *p)
{
	const uint64_t at = util_rng_below(&p->rng, p->load->blocks);
	const uint32_t before = load_before(p->load, at);
	int rc = kedge_remote_get(p->remote, at * LOAD_BLOCK, p->block, LOAD_BLOCK,
				  MIGRATE_SOON_MS);

	if (!rc)
		load_read(p->load, at, before, p->block);
	return rc;
}

static int access_one(struct peer *p)
{
	const uint64_t begun = clock_ns();
	uint64_t ns;
	int rc = util_rng_below(&p->rng, 100) < p->start->opts->writes ? write_one(p)
								       : read_one(p);

	ns = clock_ns() - begun;
	if (ns > atomic_load_explicit(&p->me->longest, memory_order_relaxed))
		atomic_store_explicit(&p->me->longest, ns, memory_order_relaxed);
	atomic_fetch_add_explicit(&p->me->ops, !rc, memory_order_relaxed);
	return rc;
}

/* A peer ends with its first error, or is killed. */
void migrate_peer(int fd, void *arg)
{
	struct peer p = { .start = arg };
	int rc;

	(void)fd;
	p.load = p.start->load;
	p.me = &p.load->writer[p.start->index];
	util_rng_init(&p.rng, p.start->opts->seed + 2 + p.start->index);
	rc = space_enter(p.start->space);
	if (!rc)
		rc = kedge_remote_open(&p.start->handle, MIGRATE_SOON_MS, &p.remote);
	while (!rc) {
		load_heed(p.load, p.start->index);
		rc = access_one(&p);
	}
	snprintf(p.me->why, sizeof(p.me->why), "%s", kedge_strerror(rc));
	atomic_store(&p.me->error, rc);
}
