// SPDX-License-Identifier: BSD-2-Clause
/*
 * Three ways to a registration of the device's, each for one round. The raw
 * ones do no more than they must, so that what kedge costs is measured against
 * the best that can be had without it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/demo/demo.h"


static int table_open(struct demo_mode *m)
{
	uint32_t i;
	int rc;

	rc = m->device->ops->table_open(m->device);
	if (rc)
		return rc;
	for (i = 0; i < DEMO_SLOTS; i++)
		m->free_slot[i] = (uint16_t)(DEMO_SLOTS - 1 - i);
	m->free_cnt = DEMO_SLOTS;
	return 0;
}

static void table_close(struct demo_mode *m)
{
	m->device->ops->table_close(m->device);
}

/* A slot for @buf, or a negative errno. */
static int slot_register(struct demo_mode *m, void *buf)
{
	int slot, rc;

	if (!m->free_cnt)
		return -ENOSPC;
	slot = m->free_slot[m->free_cnt - 1];
	rc = m->device->ops->reg(m->device, slot, buf);
	if (rc)
		return rc;
	m->free_cnt--;
	m->registrations++;
	return slot;
}

static void slot_deregister(struct demo_mode *m, int slot)
{
	m->device->ops->dereg(m->device, slot);
	m->free_slot[m->free_cnt++] = (uint16_t)slot;
}

static int register_failed(const struct demo_mode *m, int rc)
{
	return kedge_reason(rc, "%s registers no 1 MiB buffer: %s%s",
			    m->device->label, strerror(-rc), rc == -ENOMEM ?
			    "; raise RLIMIT_MEMLOCK with ulimit -l, or use "
			    "fewer --buffers" : "");
}

/* --- uncached: register, use, deregister --- */

static int uncached_get(struct demo_mode *m, void *buf, uint32_t access,
			struct demo_reg *reg)
{
	int slot = slot_register(m, buf);

	if (slot < 0)
		return register_failed(m, slot);
	reg->slot = slot;
	return 0;
}

static void uncached_put(struct demo_mode *m, const struct demo_reg *reg)
{
	slot_deregister(m, reg->slot);
}

const struct demo_mode_ops demo_uncached = {
	.name = "uncached",
	.open = table_open,
	.close = table_close,
	.get = uncached_get,
	.put = uncached_put,
};

/*
 * --- naive: a cache keyed by pointer and length that nobody tells of free() ---
 *
 * An open-addressed hash table at a quarter of its load: a hit is one probe.
 */

static int naive_open(struct demo_mode *m)
{
	int rc;

	m->seen = calloc(DEMO_NAIVE_BUCKETS, sizeof(*m->seen));
	if (!m->seen)
		return kedge_reason(-ENOMEM, "no memory");
	rc = table_open(m);
	if (rc) {
		free(m->seen);
		m->seen = NULL;
	}
	return rc;
}

static void naive_close(struct demo_mode *m)
{
	table_close(m);
	free(m->seen);
	m->seen = NULL;
}

static struct demo_naive_entry *naive_find(struct demo_mode *m, void *buf)
{
	size_t i = ((uintptr_t)buf >> 12) * 0x9e3779b97f4a7c15u >> 40;

	for (;; i++) {
		struct demo_naive_entry *e = &m->seen[i % DEMO_NAIVE_BUCKETS];

		if (!e->addr || (e->addr == buf && e->len == DEMO_CHUNK))
			return e;
	}
}

/* Transfers in flight keep their pages. Those that are only queued must be in
 * flight first. */
static void naive_flush(struct demo_mode *m)
{
	size_t i;

	m->device->ops->submit(m->device);
	for (i = 0; i < DEMO_NAIVE_BUCKETS; i++)
		if (m->seen[i].addr)
			slot_deregister(m, m->seen[i].slot);
	memset(m->seen, 0, DEMO_NAIVE_BUCKETS * sizeof(*m->seen));
}

static int naive_get(struct demo_mode *m, void *buf, uint32_t access,
		     struct demo_reg *reg)
{
	struct demo_naive_entry *e = naive_find(m, buf);
	int slot;

	if (e->addr) {
		m->hits++;
		reg->slot = e->slot;
		return 0;
	}
	slot = slot_register(m, buf);
	if (slot == -ENOSPC || slot == -ENOMEM) {
		naive_flush(m);
		e = naive_find(m, buf);
		slot = slot_register(m, buf);
	}
	if (slot < 0)
		return register_failed(m, slot);
	*e = (struct demo_naive_entry){ buf, DEMO_CHUNK, slot };
	reg->slot = slot;
	return 0;
}

static void naive_put(struct demo_mode *m, const struct demo_reg *reg)
{
}

const struct demo_mode_ops demo_naive = {
	.name = "naive",
	.open = naive_open,
	.close = naive_close,
	.get = naive_get,
	.put = naive_put,
};

/* --- kedge --- */

static int kedge_mode_open(struct demo_mode *m)
{
	struct kedge_notifier_opts no = { .size = sizeof(no),
					  .backend = m->backend };
	/* The peers of a demo are trusted, as those of MPI are. */
	struct kedge_cache_opts co = { .size = sizeof(co),
				       .flags = KEDGE_CACHE_TRUSTED_PEERS };
	int rc;

	rc = kedge_notifier_open(&no, &m->nf);
	if (rc)
		return rc;
	m->notifier.size = sizeof(m->notifier);
	rc = kedge_notifier_info(m->nf, &m->notifier);
	if (rc)
		goto close_notifier;
	rc = m->device->ops->kedge_open(m->device, &m->dev);
	if (rc)
		goto close_notifier;
	rc = kedge_cache_open(m->dev, m->nf, &co, &m->cache);
	if (rc)
		goto close_device;
	return 0;

close_device:
	kedge_device_close(m->dev);
close_notifier:
	kedge_notifier_close(m->nf);
	return rc;
}

static void kedge_mode_close(struct demo_mode *m)
{
	struct kedge_cache_stats st = { .size = sizeof(st) };

	if (!kedge_cache_stats(m->cache, &st)) {
		m->registrations = st.registrations;
		m->hits = st.hits;
	}
	kedge_cache_close(m->cache);
	kedge_device_close(m->dev);
	kedge_notifier_close(m->nf);
}

static int kedge_mode_get(struct demo_mode *m, void *buf, uint32_t access,
			  struct demo_reg *reg)
{
	const uint32_t all = m->device->ops->access;

	return kedge_cache_get(m->cache, buf, DEMO_CHUNK, all ? all : access,
			       &reg->mr);
}

static void kedge_mode_put(struct demo_mode *m, const struct demo_reg *reg)
{
	kedge_cache_put(m->cache, reg->mr);
}

const struct demo_mode_ops demo_kedge = {
	.name = "kedge",
	.open = kedge_mode_open,
	.close = kedge_mode_close,
	.get = kedge_mode_get,
	.put = kedge_mode_put,
};

int demo_mode_open(struct demo_mode *m, const struct demo_mode_ops *ops,
		   struct demo_device *device, const char *backend)
{
	memset(m, 0, sizeof(*m));
	m->ops = ops;
	m->device = device;
	m->backend = backend;
	return ops->open(m);
}

void demo_mode_close(struct demo_mode *m)
{
	m->ops->close(m);
}
