// SPDX-License-Identifier: BSD-2-Clause
/* See record.h. What is not registered when it changes costs a look at the table, and no stack. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/doctor/record.h"

/* Whether it takes pages of ranges in the table, which get to know. acquire: partner of the release
 * in table_add(). The table is anybody's. */
static bool is_held(const struct recorder *r, const struct change *c)
{
	uint32_t used = atomic_load(&r->table->used), i;
	struct table_slot *s;
	bool any = false;

	for (i = 0; i < used && i < TABLE_SLOTS; i++) {
		s = &r->table->slot[i];
		if (atomic_load_explicit(&s->pid, memory_order_acquire) == (uint32_t)c->pid &&
		    table_note(s, c->kind, c->start, c->end))
			any = true;
	}
	return any;
}

static bool is_same(const struct record *r, const struct change *c, const uint64_t *pc, size_t cnt)
{
	size_t i;

	if (r->first.pid != c->pid || r->first.kind != c->kind || r->frames != cnt)
		return false;
	for (i = 0; i < cnt; i++)
		if (r->frame[i].pc != pc[i])
			return false;
	return true;
}

static struct record *new_record(struct recorder *r)
{
	struct record *bigger;

	if (r->cnt == RECORDS_MAX)
		return NULL;
	bigger = reallocarray(r->record, r->cnt + 1, sizeof(*bigger));
	if (!bigger)
		return NULL;
	r->record = bigger;
	return memset(&r->record[r->cnt++], 0, sizeof(*bigger));
}

static struct record *record_of(struct recorder *r, const struct change *c)
{
	uint64_t pc[STACK_MAX];
	size_t cnt = stack_take(c->pid, c->tid, pc), i;
	struct record *to;

	for (i = 0; i < r->cnt; i++)
		if (is_same(&r->record[i], c, pc, cnt))
			return &r->record[i];
	to = new_record(r);
	if (!to)
		return NULL;
	to->first = *c;
	to->frames = cnt;
	for (i = 0; i < cnt; i++)
		stack_name(c->pid, pc[i], &to->frame[i]);
	return to;
}

void record_change(void *ctx, const struct change *c)
{
	struct recorder *r = ctx;
	struct record *to;
	size_t at;

	if (!is_held(r, c))
		return;
	r->total++;
	to = record_of(r, c);
	if (!to) {
		r->left_out++;
		return;
	}
	at = to->cnt++ % RECORD_RANGES;
	to->range[at].start = c->start;
	to->range[at].end = c->end;
}

static bool covers(const struct record *r, uint64_t start, uint64_t end)
{
	size_t i;

	for (i = 0; i < RECORD_RANGES && i < r->cnt; i++)
		if (r->range[i].start < end && r->range[i].end > start)
			return true;
	return false;
}

const struct record *record_find(const struct recorder *r, pid_t pid, uint64_t start, uint64_t end)
{
	size_t i;

	for (i = 0; i < r->cnt; i++)
		if (r->record[i].first.pid == pid && covers(&r->record[i], start, end))
			return &r->record[i];
	return NULL;
}
