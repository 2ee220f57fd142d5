// SPDX-License-Identifier: BSD-2-Clause
/* A list of regions: all is found when it is opened, and is only read from then on. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/process/cancel.h"
#include "region/list/list.h"
#include "region/stream.h"

#define OPTS_V1  STRUCT_END(struct kedge_regions_opts, timeout_ms)
#define ENTRY_V1 STRUCT_END(struct kedge_region_entry, to)
#define WAIT_MS	 10000u

/* An owner's word: bytes that are no address of another host say nothing. */
static void print_place(const struct owner_place *to, char *text, size_t room)
{
	const uint16_t port = le16toh(to->port);
	char node[INET6_ADDRSTRLEN];
	union place a;

	if (!port)
		return;
	place_address(to->place, port, &a);
	if (a.any.sa_family == AF_INET)
		inet_ntop(AF_INET, &a.v4.sin_addr, node, sizeof(node));
	else
		inet_ntop(AF_INET6, &a.v6.sin6_addr, node, sizeof(node));
	snprintf(text, room, a.any.sa_family == AF_INET ? "%s:%u" : "[%s]:%u", node, port);
}

static struct found *grow(struct kedge_regions *l)
{
	const size_t room = l->room ? 2 * l->room : 64;
	struct found *more;

	if (l->cnt < l->room)
		return l->found;
	more = realloc(l->found, room * sizeof(*more));
	if (more) {
		l->found = more;
		l->room = room;
	}
	return more;
}

int found_add(void *arg, const struct kedge_region_entry *e, uint64_t owner,
	      const struct owner_place *to)
{
	struct kedge_regions *l = arg;
	struct found *f;

	if (!grow(l))
		return kedge_reason(-ENOMEM, "no memory for a list of regions");
	f = &l->found[l->cnt++];
	*f = (struct found){ .entry = *e, .owner = owner };
	if (e->status || e->state != KEDGE_REGION_LEFT)
		return 0;
	print_place(to, f->entry.to, sizeof(f->entry.to));
	f->to = to->host == l->host ? to->name : 0;
	return 0;
}

static int compare(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int by_owner(const void *x, const void *y)
{
	const struct found *a = x, *b = y;

	return compare(a->owner, b->owner);
}

static int in_order(const void *x, const void *y)
{
	const struct kedge_region_entry *a = &((const struct found *)x)->entry;
	const struct kedge_region_entry *b = &((const struct found *)y)->entry;

	if (a->pid != b->pid)
		return a->pid < b->pid ? -1 : 1;
	if (a->addr != b->addr)
		return compare(a->addr, b->addr);
	return compare(a->len, b->len);
}

/* Names of sockets are those of processes. */
void found_name_owners(struct kedge_regions *l)
{
	const struct found *f;
	struct found key;
	size_t i;

	qsort(l->found, l->cnt, sizeof(*l->found), by_owner);
	for (i = 0; i < l->cnt; i++) {
		key.owner = l->found[i].to;
		f = key.owner ? bsearch(&key, l->found, l->cnt, sizeof(key), by_owner) : NULL;
		l->found[i].entry.to_pid = f ? f->entry.pid : 0;
	}
}

static int find_all(struct kedge_regions *l, const struct kedge_regions_opts *o)
{
	int rc = handle_host(&l->host);

	if (!rc)
		rc = owners_ask(o, found_add, l);
	if (rc || !l->cnt)
		return rc;
	found_name_owners(l);
	qsort(l->found, l->cnt, sizeof(*l->found), in_order);
	return 0;
}

KEDGE_API int kedge_regions_open(const struct kedge_regions_opts *opts,
				 struct kedge_regions **list)
{
	struct kedge_regions_opts o;
	struct kedge_regions *l;
	int rc = kedge__opts_copy(&o, sizeof(o), OPTS_V1, opts);

	NO_CANCEL();
	if (rc)
		return rc;
	if (!list)
		return kedge_reason(-EINVAL, "the result is NULL");
	if (o.flags || o.pid < 0)
		return kedge_reason(-EINVAL, "a flag is unknown, or the pid is negative");
	o.timeout_ms = o.timeout_ms ? o.timeout_ms : WAIT_MS;
	rc = clofork_ready();
	if (rc)
		return kedge_reason(rc, "no memory for a list of regions");
	l = calloc(1, sizeof(*l));
	if (!l)
		return kedge_reason(-ENOMEM, "no memory for a list of regions");
	rc = find_all(l, &o);
	if (rc)
		kedge_regions_close(l);
	else
		*list = l;
	return rc;
}

KEDGE_API int kedge_regions_next(struct kedge_regions *l, struct kedge_region_entry *entry)
{
	int rc;

	if (!l || !entry)
		return kedge_reason(-EINVAL, "a pointer is NULL");
	if (l->next == l->cnt)
		return 0;
	rc = kedge__info_copy(entry, ENTRY_V1, &l->found[l->next].entry,
			      sizeof(l->found->entry));
	if (rc)
		return rc;
	l->next++;
	return 1;
}

KEDGE_API void kedge_regions_close(struct kedge_regions *l)
{
	if (!l)
		return;
	free(l->found);
	free(l);
}
