// SPDX-License-Identifier: BSD-2-Clause
/*
 * The first way that works serves. All of the range counts as stored into (@all) before the
 * first take, and where a take ended early: what a way has told then, it does not tell
 * again, and the caller may not have heard of it.
 *
 * A take with @all has the way protect what it finds first, as in each take, and tells the
 * whole range after that.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "region/migrate/ways.h"

struct track {
	const struct track_ops *ops;
	void *state;
	uint64_t len;
	bool all;
};

static const struct track_ops *const ways[] = { &track_uffd, &track_soft };

#define WHY_LEN 112 /* of each way, in a reason of 255 bytes for two */

/* A lack of something, other than that the way does not work here. */
static bool is_lack(int rc)
{
	return rc != -EOPNOTSUPP && rc != -EBUSY;
}

static int try_ways(struct track *t, char *at, uint64_t page_size)
{
	char why[ARRAY_SIZE(ways)][WHY_LEN];
	int rc, lack = 0;
	size_t i, first;

	for (i = 0, first = 0; i < ARRAY_SIZE(ways); i++) {
		t->ops = ways[i];
		rc = t->ops->begin(at, t->len, page_size, &t->state);
		if (!rc)
			return 0;
		snprintf(why[i], WHY_LEN, "%s", kedge_strerror(rc));
		if (!lack && is_lack(rc)) {
			lack = rc;
			first = i;
		}
	}
	if (lack)
		return kedge_reason(lack, "%s", why[first]);
	return kedge_reason(-EOPNOTSUPP, "no way to see stores: %s; %s", why[0], why[1]);
}

static int try_way(struct track *t, char *at, uint64_t page_size, const char *way)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		t->ops = ways[i];
		if (!strcmp(t->ops->name, way))
			return t->ops->begin(at, t->len, page_size, &t->state);
	}
	return kedge_reason(-EINVAL, "no way to see stores is called %s", way);
}

int track_begin(void *at, uint64_t len, uint64_t page_size, const char *way,
		struct track **out)
{
	const uint64_t start = (uintptr_t)at;
	struct track *t;
	uint64_t end;
	int rc;

	if (!page_size || page_size % kedge__page_size() || (page_size & (page_size - 1)) ||
	    !len || len % page_size || start % page_size ||
	    __builtin_add_overflow(start, len, &end))
		return kedge_reason(-EINVAL, "the range is not whole pages");
	t = calloc(1, sizeof(*t));
	if (!t)
		return kedge_reason(-ENOMEM, "no memory to note what is stored into");
	t->len = len;
	t->all = true;
	rc = way ? try_way(t, at, page_size, way) : try_ways(t, at, page_size);
	if (rc) {
		free(t);
		return rc;
	}
	*out = t;
	return 0;
}

/* A range that is not told yet: what comes next may continue it. */
struct merge {
	track_fn fn;
	void *arg;
	uint64_t off;
	uint64_t len;
};

static int tell(struct merge *m)
{
	uint64_t len = m->len;

	m->len = 0;
	return len ? m->fn(m->arg, m->off, len) : 0;
}

static int merge(void *arg, uint64_t off, uint64_t len)
{
	struct merge *m = arg;
	int rc;

	if (m->len && m->off + m->len == off) {
		m->len += len;
		return 0;
	}
	rc = tell(m);
	m->off = off;
	m->len = len;
	return rc;
}

static int pass_over(void *arg, uint64_t off, uint64_t len)
{
	(void)arg, (void)off, (void)len;
	return 0;
}

int track_take(struct track *t, track_fn fn, void *arg)
{
	struct merge m = { .fn = fn, .arg = arg };
	int rc = t->ops->take(t->state, t->all ? pass_over : merge, &m);

	if (!rc && t->all) {
		m.off = 0;
		m.len = t->len;
	}
	if (!rc)
		rc = tell(&m);
	t->all = rc != 0;
	return rc;
}

const char *track_way(const struct track *t)
{
	return t->ops->name;
}

bool track_forgets(const struct track *t)
{
	return t->ops->forgets;
}

void track_end(struct track *t)
{
	if (!t)
		return;
	t->ops->end(t->state);
	free(t);
}
