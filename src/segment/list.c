// SPDX-License-Identifier: BSD-2-Clause
/* A list of segments: all is found when it is opened, and is only read from then on. */
#include <stdlib.h>

#include "base/process/cancel.h"
#include "segment/internal.h"

#define OPTS_V1  STRUCT_END(struct kedge_segments_opts, timeout_ms)
#define ENTRY_V1 STRUCT_END(struct kedge_segment_entry, reason)
#define WAIT_MS	 10000u

struct kedge_segments {
	struct kedge_segment_entry *entry;
	size_t cnt;
	size_t room;
	size_t next;
};

static int add(void *to, const struct kedge_segment_entry *e)
{
	struct kedge_segments *l = to;
	struct kedge_segment_entry *more;
	size_t room = l->room ? 2 * l->room : 64;

	if (l->cnt == l->room) {
		more = realloc(l->entry, room * sizeof(*more));
		if (!more)
			return -ENOMEM;
		l->entry = more;
		l->room = room;
	}
	l->entry[l->cnt++] = *e;
	return 0;
}

static int compare(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int in_order(const void *x, const void *y)
{
	const struct kedge_segment_entry *a = x, *b = y;

	if (a->pid != b->pid)
		return a->pid < b->pid ? -1 : 1;
	if (a->addr != b->addr)
		return compare(a->addr, b->addr);
	return compare(a->len, b->len);
}

static int find_all(struct kedge_segments *l, const struct kedge_segments_opts *o)
{
	int rc = module_list(o, add, l);

	if (!rc)
		rc = owners_list(o, add, l);
	if (!rc && l->cnt)
		qsort(l->entry, l->cnt, sizeof(*l->entry), in_order);
	return rc;
}

int kedge_segments_open(const struct kedge_segments_opts *opts,
			    struct kedge_segments **list)
{
	struct kedge_segments_opts o;
	struct kedge_segments *l;
	int rc = kedge__opts_copy(&o, sizeof(o), OPTS_V1, opts);
	NO_CANCEL();

	if (rc)
		return rc;
	if (!list)
		return kedge_reason(-EINVAL, "a pointer is NULL");
	if (o.flags || o.pid < 0)
		return kedge_reason(-EINVAL, "a flag is unknown, or the pid is negative");
	o.timeout_ms = o.timeout_ms ? o.timeout_ms : WAIT_MS;
	rc = clofork_ready();
	if (rc)
		return rc;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	rc = find_all(l, &o);
	if (rc)
		kedge_segments_close(l);
	else
		*list = l;
	return rc;
}

int kedge_segments_next(struct kedge_segments *l, struct kedge_segment_entry *entry)
{
	int rc;

	if (!l || !entry)
		return kedge_reason(-EINVAL, "a pointer is NULL");
	if (l->next == l->cnt)
		return 0;
	rc = kedge__info_copy(entry, ENTRY_V1, &l->entry[l->next], sizeof(*l->entry));
	if (rc)
		return rc;
	l->next++;
	return 1;
}

void kedge_segments_close(struct kedge_segments *l)
{
	if (!l)
		return;
	free(l->entry);
	free(l);
}
