// SPDX-License-Identifier: BSD-2-Clause
/* See record.h. What is not registered when it changes costs a look at the table, and no stack. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/doctor/record.h"

static uint32_t slots(const struct recorder *r)
{
	uint32_t used = atomic_load(&r->table->used);

	/* The table is anybody's. */
	return used < TABLE_SLOTS ? used : TABLE_SLOTS;
}

/* acquire: partner of the release in table_add(). */
static bool is_of(const struct table_slot *s, pid_t pid)
{
	return atomic_load_explicit(&s->pid, memory_order_acquire) == (uint32_t)pid;
}

/* True: it takes pages of ranges in the table, which get to know. */
static bool takes(const struct recorder *r, const struct change *c, uint32_t number)
{
	uint32_t cnt = slots(r), i;
	bool any = false;

	for (i = 0; i < cnt; i++)
		if (is_of(&r->table->slot[i], c->pid))
			any |= table_note(&r->table->slot[i], c->kind, number, c->start, c->end);
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
	size_t cnt = stack_take(c->host_pid, c->tid, pc), i;
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
		stack_name(c->host_pid, pc[i], &to->frame[i]);
	return to;
}

/* A number for the record, or 0. */
static uint32_t number_of(struct recorder *r, const struct change *c)
{
	struct record *to = record_of(r, c);

	r->by_number[r->total] = RECORD_NONE;
	if (!to) {
		r->left_out++;
		return ++r->total;
	}
	to->cnt++;
	r->by_number[r->total] = (uint32_t)(to - r->record);
	return ++r->total;
}

/* The number is given before it is known whether the change takes anything, as both are told at
 * once. */
uint32_t record_before(void *ctx, const struct change *change, int cnt)
{
	struct recorder *r = ctx;
	bool any = false;
	uint32_t *more;
	int i;

	if (!(r->total & (r->total - 1)) || !r->total) {
		more = reallocarray(r->by_number, r->total ? 2 * (size_t)r->total : 1,
				    sizeof(*more));
		if (!more)
			return 0;
		r->by_number = more;
	}
	for (i = 0; i < cnt; i++)
		any |= takes(r, &change[i], r->total + 1);
	return any ? number_of(r, &change[0]) : 0;
}

void record_undone(void *ctx, uint32_t number)
{
	struct recorder *r = ctx;
	uint32_t cnt = slots(r), i, k, last;
	struct table_gone *g;

	for (i = 0; i < cnt; i++) {
		for (k = 0; k < TABLE_GONE; k++) {
			g = &r->table->slot[i].gone[k];
			if (!atomic_load(&g->end) || atomic_load(&g->change) != number)
				continue;
			atomic_store(&g->end, 0);
			/* Its place is free again, unless another one has come behind it. */
			last = k + 1;
			atomic_compare_exchange_strong(&r->table->slot[i].taken, &last, k);
		}
	}
}

/* Ranges that were used stay to be told. */
void record_ended(void *ctx, pid_t pid)
{
	struct recorder *r = ctx;
	uint32_t cnt = slots(r), i;

	for (i = 0; i < cnt; i++)
		if (is_of(&r->table->slot[i], pid))
			table_end(&r->table->slot[i]);
}

const struct record *record_find(const struct recorder *r, uint32_t number)
{
	uint32_t at = number && number <= r->total ? r->by_number[number - 1] : RECORD_NONE;

	return at < r->cnt ? &r->record[at] : NULL;
}
