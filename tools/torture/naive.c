// SPDX-License-Identifier: BSD-2-Clause
/*
 * The cache that everybody writes first: keyed by pointer and length, and it
 * believes what it knows. It is here so that the test can show that it sees
 * stale data where there is some.
 *
 * One entry a slot of the device's table, found by hash; a new key takes the
 * entry's place, and deregisters it, unless someone holds that one: then the
 * registration is not kept.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <kedge/kedge.h>

#include "tools/torture/dio.h"
#include "tools/torture/rig.h"

#define SLOTS 64
/* Slots beyond the table's, for registrations that cannot be kept. */
#define EXTRA 64

struct naive_mr {
	uintptr_t addr;
	size_t len;
	uint64_t handle;
	unsigned int refs;
	bool used;
};

struct naive {
	struct rig *rig;
	pthread_mutex_t lock; /* guards mr */
	struct naive_mr mr[SLOTS + EXTRA];
};

int naive_open(struct rig *rig, struct naive **out)
{
	struct naive *nv = calloc(1, sizeof(*nv));
	int rc;

	if (!nv)
		return -ENOMEM;
	nv->rig = rig;
	rc = -pthread_mutex_init(&nv->lock, NULL);
	if (rc)
		goto free_naive;
	rc = rig->dio->table_open(rig, SLOTS + EXTRA);
	if (rc)
		goto destroy_lock;
	*out = nv;
	return 0;

destroy_lock:
	pthread_mutex_destroy(&nv->lock);
free_naive:
	free(nv);
	return rc;
}

void naive_close(struct naive *nv)
{
	nv->rig->dio->table_close(nv->rig);
	pthread_mutex_destroy(&nv->lock);
	free(nv);
}

static struct naive_mr *find(struct naive *nv, uintptr_t addr, size_t len)
{
	uint64_t h = (addr >> 3 ^ len) * 0x9e3779b97f4a7c15u;
	struct naive_mr *mr = &nv->mr[h >> 32 & (SLOTS - 1)];
	size_t i;

	if (!mr->refs || (mr->addr == addr && mr->len == len))
		return mr;
	for (i = SLOTS; i < SLOTS + EXTRA; i++)
		if (!nv->mr[i].refs)
			return &nv->mr[i];
	return NULL;
}

int naive_get(struct naive *nv, const void *addr, size_t len,
	      struct naive_mr **out, uint64_t *handle)
{
	struct naive_mr *mr;
	int rc = 0;

	pthread_mutex_lock(&nv->lock);
	mr = find(nv, (uintptr_t)addr, len);
	if (!mr) {
		rc = -ENOSPC;
		goto unlock;
	}
	if (!mr->used || mr->addr != (uintptr_t)addr || mr->len != len) {
		rc = nv->rig->dio->table_set(nv->rig,
					     (unsigned int)(mr - nv->mr), addr,
					     len, &mr->handle);
		mr->used = !rc;
		mr->addr = (uintptr_t)addr;
		mr->len = len;
	}
	if (!rc) {
		mr->refs++;
		*handle = mr->handle;
		*out = mr;
	}
unlock:
	pthread_mutex_unlock(&nv->lock);
	return rc;
}

void naive_put(struct naive *nv, struct naive_mr *mr)
{
	pthread_mutex_lock(&nv->lock);
	mr->refs--;
	if (!mr->refs && mr - nv->mr >= SLOTS)
		mr->used = false;
	pthread_mutex_unlock(&nv->lock);
}
