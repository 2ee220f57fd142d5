// SPDX-License-Identifier: BSD-2-Clause
/*
 * Three ways to a registration in the ring's fixed-buffer table, each for one
 * round. The raw ones do no more than they must, so that what kedge costs is
 * measured against the best that can be had without it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <kedge/uring.h>

#include "base/base.h"
#include "tools/demo.h"

/* An empty table: zeroed vectors are empty slots since Linux 5.13. */
static int table_open(struct demo_mode *m)
{
	struct iovec *iov = calloc(DEMO_SLOTS, sizeof(*iov));
	__u64 *tags = calloc(DEMO_SLOTS, sizeof(*tags));
	uint32_t i;
	int rc = -ENOMEM;

	if (iov && tags)
		rc = io_uring_register_buffers_tags(m->ring, iov, tags,
						    DEMO_SLOTS);
	free(tags);
	free(iov);
	if (rc < 0)
		return kedge_reason(rc, "io_uring makes no table of %u "
				    "buffers: %s", DEMO_SLOTS, strerror(-rc));
	for (i = 0; i < DEMO_SLOTS; i++)
		m->free_slot[i] = (uint16_t)(DEMO_SLOTS - 1 - i);
	m->free_cnt = DEMO_SLOTS;
	return 0;
}

static void table_close(struct demo_mode *m)
{
	io_uring_unregister_buffers(m->ring);
}

static int slot_update(struct demo_mode *m, int slot, void *addr, size_t len)
{
	struct iovec iov = { .iov_base = addr, .iov_len = len };
	__u64 tag = 0;
	int rc;

	rc = io_uring_register_buffers_update_tag(m->ring, (unsigned int)slot,
						  &iov, &tag, 1);
	return rc < 0 ? rc : 0;
}

/* A slot for @buf, or a negative errno. */
static int slot_register(struct demo_mode *m, void *buf)
{
	int slot, rc;

	if (!m->free_cnt)
		return -ENOSPC;
	slot = m->free_slot[m->free_cnt - 1];
	rc = slot_update(m, slot, buf, DEMO_CHUNK);
	if (rc)
		return rc;
	m->free_cnt--;
	m->registrations++;
	return slot;
}

static void slot_deregister(struct demo_mode *m, int slot)
{
	slot_update(m, slot, NULL, 0);
	m->free_slot[m->free_cnt++] = (uint16_t)slot;
}

static int register_failed(int rc)
{
	return kedge_reason(rc, "io_uring registers no 1 MiB buffer: %s%s",
			    strerror(-rc), rc == -ENOMEM ?
			    "; raise RLIMIT_MEMLOCK with ulimit -l, or use "
			    "fewer --buffers" : "");
}

/* --- uncached: register, use, deregister --- */

static int uncached_get(struct demo_mode *m, void *buf, uint32_t access,
			struct demo_reg *reg)
{
	int slot = slot_register(m, buf);

	if (slot < 0)
		return register_failed(slot);
	reg->index = slot;
	return 0;
}

static void uncached_put(struct demo_mode *m, const struct demo_reg *reg)
{
	slot_deregister(m, reg->index);
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

/* Transfers in flight keep their pages: the kernel counts references. Those
 * that are only queued must be in flight first. */
static void naive_flush(struct demo_mode *m)
{
	size_t i;

	io_uring_submit(m->ring);
	for (i = 0; i < DEMO_NAIVE_BUCKETS; i++)
		if (m->seen[i].addr)
			slot_deregister(m, m->seen[i].index);
	memset(m->seen, 0, DEMO_NAIVE_BUCKETS * sizeof(*m->seen));
}

static int naive_get(struct demo_mode *m, void *buf, uint32_t access,
		     struct demo_reg *reg)
{
	struct demo_naive_entry *e = naive_find(m, buf);
	int slot;

	if (e->addr) {
		m->hits++;
		reg->index = e->index;
		return 0;
	}
	slot = slot_register(m, buf);
	if (slot == -ENOSPC || slot == -ENOMEM) {
		naive_flush(m);
		e = naive_find(m, buf);
		slot = slot_register(m, buf);
	}
	if (slot < 0)
		return register_failed(slot);
	*e = (struct demo_naive_entry){ buf, DEMO_CHUNK, slot };
	reg->index = slot;
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
	struct kedge_uring_opts uo = { .size = sizeof(uo),
				       .slots = DEMO_SLOTS };
	int rc;

	rc = kedge_notifier_open(&no, &m->nf);
	if (rc)
		return rc;
	m->notifier.size = sizeof(m->notifier);
	rc = kedge_notifier_info(m->nf, &m->notifier);
	if (rc)
		goto close_notifier;
	rc = kedge_device_open_uring(m->ring, &uo, &m->dev);
	if (rc)
		goto close_notifier;
	rc = kedge_cache_open(m->dev, m->nf, NULL, &m->cache);
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
	int rc = kedge_cache_get(m->cache, buf, DEMO_CHUNK, access, &reg->mr);

	if (rc)
		return rc;
	reg->index = (int)reg->mr->device_handle;
	return 0;
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
		   struct io_uring *ring, const char *backend)
{
	memset(m, 0, sizeof(*m));
	m->ops = ops;
	m->ring = ring;
	m->backend = backend;
	return ops->open(m);
}

void demo_mode_close(struct demo_mode *m)
{
	m->ops->close(m);
}
