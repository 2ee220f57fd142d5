// SPDX-License-Identifier: BSD-2-Clause
/*
 * The judge. It writes fresh words through the CPU, has the device send them
 * back, has the device write other words, and reads those through the CPU.
 * Both must agree; nothing else counts.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "tools/torture/case.h"

/*
 * Memory that was unmapped and mapped anew without a sanitizer's knowledge
 * holds its memories of other threads; relaxed atomics are beyond reproach,
 * and whether the application synchronises is not what is tested here.
 */
void poke64(uint8_t *at, uint64_t v)
{
	__atomic_store_n((uint64_t *)(void *)at, v, __ATOMIC_RELAXED);
}

static uint64_t peek64(const uint8_t *at)
{
	return __atomic_load_n((const uint64_t *)(const void *)at,
			       __ATOMIC_RELAXED);
}

/* Words in the changed part and anywhere; no two of them overlap. */
static unsigned int choose(struct util_rng *rng, uint8_t *addr, size_t len,
			   const struct span *hot, uint8_t **at)
{
	const size_t line = DIO_MAX * sizeof(uint64_t);
	uint8_t *base = (uint8_t *)round_up((uintptr_t)addr, sizeof(uint64_t));
	size_t room, off;
	unsigned int i;

	len -= (size_t)(base - addr);
	for (i = 0; i < DIO_MAX; i++) {
		off = 0;
		room = len;
		if (hot && hot->len && i % 2 == 0) {
			off = hot->off;
			room = hot->len;
		}
		off += util_rng_below(rng, room);
		off = round_down(off, line) + i * sizeof(uint64_t);
		if (off + sizeof(uint64_t) > len)
			off = i * sizeof(uint64_t);
		at[i] = base + off;
	}
	return DIO_MAX;
}

static int compare(const struct lane *l, uint8_t *const *at,
		   const uint64_t *cpu, const uint64_t *out, const uint64_t *in,
		   unsigned int cnt, char text[WHY_MAX])
{
	uint64_t seen;
	unsigned int i;

	for (i = 0; i < cnt; i++) {
		if (out[i] != cpu[i]) {
			snprintf(text, WHY_MAX,
				 "lane %u: at %p the CPU wrote %016llx, the "
				 "device sent %016llx",
				 l->id, (void *)at[i],
				 (unsigned long long)cpu[i],
				 (unsigned long long)out[i]);
			return 1;
		}
		seen = peek64(at[i]);
		if (seen != in[i]) {
			snprintf(text, WHY_MAX,
				 "lane %u: at %p the device wrote %016llx, the "
				 "CPU reads %016llx",
				 l->id, (void *)at[i],
				 (unsigned long long)in[i],
				 (unsigned long long)seen);
			return 1;
		}
	}
	return 0;
}

int check_held(struct lane *l, uint8_t *addr, size_t len,
	       const struct span *hot, void (*hold)(struct lane *),
	       char text[WHY_MAX])
{
	uint64_t cpu[DIO_MAX], in[DIO_MAX], out[DIO_MAX];
	uint8_t *at[DIO_MAX];
	unsigned int cnt = choose(&l->rng, addr, len, hot, at), i;
	bool early = util_rng_below(&l->rng, 2);
	struct rig *rig = &l->t->rig;
	struct ref ref;
	int rc;

	for (i = 0; i < cnt; i++) {
		cpu[i] = util_rng_next(&l->rng);
		in[i] = util_rng_next(&l->rng);
	}
	/* The page may come with the CPU's store or with the registration. */
	for (i = 0; early && i < cnt; i++)
		poke64(at[i], cpu[i]);
	rc = rig_get(rig, addr, len, &ref);
	if (rc) {
		snprintf(text, WHY_MAX, "get(%p, %zu): %s", (void *)addr, len,
			 kedge_strerror(rc));
		return rc;
	}
	for (i = 0; !early && i < cnt; i++)
		poke64(at[i], cpu[i]);
	if (hold)
		hold(l);
	rc = rig->dio->move(rig, &l->port, &ref, at, in, out, cnt);
	if (rc)
		snprintf(text, WHY_MAX, "transfer at %p: %s", (void *)addr,
			 strerror(-rc));
	else
		rc = compare(l, at, cpu, out, in, cnt, text);
	rig_put(rig, &ref);
	return rc;
}

int check_data(struct lane *l, uint8_t *addr, size_t len,
	       const struct span *hot, char text[WHY_MAX])
{
	return check_held(l, addr, len, hot, NULL, text);
}

void check_touch(struct lane *l, uint8_t *addr, size_t len)
{
	struct ref ref;

	if (!rig_get(&l->t->rig, addr, len, &ref))
		rig_put(&l->t->rig, &ref);
}

void check_count(struct row *row, int rc, const char *text)
{
	if (rc == -ENOMEM || rc == -ENOSPC) {
		/* A limit, and said so: no round, and no stale data either. */
		atomic_fetch_add(&row->again, 1);
		return;
	}
	if (rc < 0) {
		row_fail(row, rc, text);
		return;
	}
	atomic_fetch_add(&row->rounds, 1);
	if (rc && !atomic_fetch_add(&row->stale, 1))
		snprintf(row->found, sizeof(row->found), "%s", text);
}
