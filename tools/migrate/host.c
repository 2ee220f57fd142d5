// SPDX-License-Identifier: BSD-2-Clause
/* A host: it does what the command says, as owner (owner.c) or target (target.c). */
#include <errno.h>
#include <string.h>

#include "tools/migrate/migrate.h"
#include "tools/migrate/space.h"

static int query(struct host *h)
{
	struct kedge_region_info info = { .size = sizeof(info) };

	return h->region ? kedge_region_query(h->region, &info) : -ENOENT;
}

/* Orders that are answered once. */
static int act(struct host *h, const struct order *o, struct said *s)
{
	switch (o->kind) {
	case DO_CREATE:
		return owner_create(h, s);
	case DO_ADVERTISE:
		return owner_advertise(h, s);
	case DO_CLOSE:
		kedge_region_close(h->region);
		h->region = NULL;
		return 0;
	case DO_QUERY:
		return query(h);
	case DO_STORE:
		return owner_store(h);
	case DO_HALT:
		owner_halt(h);
		return 0;
	case DO_SEND:
		return beside_send(*o->node ? o->node : NULL, o->port, o->n, s);
	}
	return -EINVAL;
}

static int obey(struct host *h, const struct order *o)
{
	struct said s = { .kind = SAY_DONE };

	switch (o->kind) {
	case DO_INVITE:
		return target_invite(h);
	case DO_MIGRATE:
		return owner_migrate(h, &o->handle);
	case DO_LISTEN:
		return beside_listen(h->fd, h->start->node, o->n);
	}
	return migrate_say(h->fd, SAY_DONE, act(h, o, &s), &s);
}

void migrate_host(int fd, void *arg)
{
	struct host h = { .start = arg, .fd = fd };
	struct said s = { .kind = SAY_DONE };
	struct order o;
	int rc = space_enter(h.start->space);

	if (migrate_say(fd, SAY_DONE, rc, &s) || rc)
		return;
	while (!proc_recv(fd, &o, sizeof(o)))
		if (obey(&h, &o))
			return;
}
