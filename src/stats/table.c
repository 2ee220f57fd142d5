// SPDX-License-Identifier: BSD-2-Clause
/*
 * The table of objects that are open, and the sums of those that were. A forked child begins with
 * an empty one: what its parent has opened is not its own.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/lock.h"
#include "base/process/owner.h"
#include "stats/table.h"

#define KINDS_MAX 8

struct closed {
	const struct stats_kind *kind;
	uint32_t numbers; /* given so far */
	bool any;
	uint64_t values[STATS_VALUES_MAX];
};

static _Atomic int owner; /* the process that what follows belongs to */
static struct sig_lock lock = SIG_LOCK_INIT; /* guards: */
static struct list open_objects;
static size_t open_cnt;
static struct closed closed[KINDS_MAX];

static void anew(void)
{
	sig_lock_init(&lock);
	list_init(&open_objects);
	open_cnt = 0;
	memset(closed, 0, sizeof(closed));
}

/* With the lock. NULL: there are more kinds than places, which the tests would tell. */
static struct closed *closed_of(const struct stats_kind *kind)
{
	struct closed *c;

	for (c = closed; c < closed + KINDS_MAX; c++) {
		if (!c->kind)
			c->kind = kind;
		if (c->kind == kind)
			return c;
	}
	return NULL;
}

void table_enter(struct stats_object *o, const struct stats_kind *kind, const void *of)
{
	struct closed *c;

	owner_adopt(&owner, anew);
	sig_lock(&lock);
	c = closed_of(kind);
	if (c) {
		*o = (struct stats_object){ .kind = kind, .of = of, .number = ++c->numbers,
					    .owner = getpid() };
		list_add_tail(&open_objects, &o->node);
		open_cnt++;
	}
	sig_unlock(&lock);
}

static void add_closed(const struct stats_object *o)
{
	struct closed *c = closed_of(o->kind);
	char labels[STATS_LABELS_LEN] = "";
	uint64_t values[STATS_VALUES_MAX] = { 0 };
	unsigned int i;

	o->kind->read(o->of, values, labels);
	for (i = 0; i < o->kind->cnt; i++)
		if (o->kind->metrics[i].unit != STATS_GAUGE)
			c->values[i] += values[i];
	c->any = true;
}

void table_remove(struct stats_object *o)
{
	sig_lock(&lock);
	add_closed(o);
	list_remove(&o->node);
	open_cnt--;
	sig_unlock(&lock);
}

/* With the lock. */
static size_t copy_kind(const struct closed *c, struct stats_row *row)
{
	const struct stats_row *first = row;
	struct stats_object *o;
	struct list *at, *tmp;

	list_for_each_safe(at, tmp, &open_objects) {
		o = list_entry(at, struct stats_object, node);
		if (o->kind != c->kind)
			continue;
		*row = (struct stats_row){ .kind = o->kind, .number = o->number };
		o->kind->read(o->of, row->values, row->labels);
		row++;
	}
	if (c->any) {
		*row = (struct stats_row){ .kind = c->kind };
		memcpy(row->values, c->values, sizeof(c->values));
		row++;
	}
	return (size_t)(row - first);
}

struct stats_row *table_rows(size_t *cnt)
{
	struct stats_row *rows = NULL;
	size_t room = 0, i;

	*cnt = 0;
	owner_adopt(&owner, anew);
	sig_lock(&lock);
	/* Memory is not asked for under the lock: that may end in a call that is announced. */
	while (room < open_cnt + KINDS_MAX) {
		room = open_cnt + KINDS_MAX;
		sig_unlock(&lock);
		free(rows);
		rows = malloc(room * sizeof(*rows));
		if (!rows)
			return NULL;
		sig_lock(&lock);
	}
	for (i = 0; i < KINDS_MAX && closed[i].kind; i++)
		*cnt += copy_kind(&closed[i], rows + *cnt);
	sig_unlock(&lock);
	return rows;
}
