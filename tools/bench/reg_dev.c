// SPDX-License-Identifier: BSD-2-Clause
/* The devices of kedge bench reg that every machine has. */
#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <stdlib.h>

#include <kedge/uring.h>

#include "tools/bench/reg.h"

const char *const reg_device_names[REG_DEVICES + 1] = { "noop", "uring", "verbs", "ofi", NULL };

/* ---- a device that does nothing: what kedge itself costs ---- */

static int noop_reg(void *ctx, void *addr, size_t len, uint32_t access,
		    struct kedge_device_mr *mr)
{
	mr->offset = (uintptr_t)addr;
	return 0;
}

static void noop_dereg(void *ctx, const struct kedge_device_mr *mr)
{
}

static int noop_raw_reg(struct reg_dev *d, void *addr, size_t len,
			uint64_t *handle)
{
	*handle = (uintptr_t)addr;
	return 0;
}

static void noop_raw_dereg(struct reg_dev *d, uint64_t handle)
{
}

static void noop_close(struct reg_dev *d)
{
	kedge_device_close(d->dev);
}

static int noop_open(struct reg_dev *d)
{
	static const struct kedge_device_ops ops = {
		.size = sizeof(ops),
		.name = "noop",
		.reg = noop_reg,
		.dereg = noop_dereg,
	};
	int rc = kedge_device_open(&ops, NULL, &d->dev);

	if (rc)
		return util_fail(rc, "noop");
	d->reg = noop_raw_reg;
	d->dereg = noop_raw_dereg;
	d->close = noop_close;
	return CMD_OK;
}

/* ---- io_uring's fixed buffers ---- */

#define RAW_SLOTS   4096u
#define KEDGE_SLOTS 12288u

/* One table: kedge has its slots, our own calls have those behind. */
struct uring_own {
	struct io_uring ring;
	pthread_mutex_t lock;
	uint32_t free_cnt;
	uint32_t free_slot[RAW_SLOTS];
};

static bool take_slot(struct uring_own *u, uint32_t *slot)
{
	bool have;

	pthread_mutex_lock(&u->lock);
	have = u->free_cnt;
	if (have)
		*slot = u->free_slot[--u->free_cnt];
	pthread_mutex_unlock(&u->lock);
	return have;
}

static void give_slot(struct uring_own *u, uint32_t slot)
{
	pthread_mutex_lock(&u->lock);
	u->free_slot[u->free_cnt++] = slot;
	pthread_mutex_unlock(&u->lock);
}

static int uring_raw_reg(struct reg_dev *d, void *addr, size_t len,
			 uint64_t *handle)
{
	struct iovec iov = { addr, len };
	struct uring_own *u = d->own;
	__u64 tag = 0;
	uint32_t slot;
	int rc;

	if (!take_slot(u, &slot))
		return kedge_reason(-ENOSPC,
				    "all %u slots are in use: lower --count",
				    RAW_SLOTS);
	rc = io_uring_register_buffers_update_tag(&u->ring, KEDGE_SLOTS + slot,
						  &iov, &tag, 1);
	if (rc != 1) {
		give_slot(u, slot);
		return rc < 0 ? rc : -EIO;
	}
	*handle = slot;
	return 0;
}

static void uring_raw_dereg(struct reg_dev *d, uint64_t handle)
{
	struct iovec none = { NULL, 0 };
	struct uring_own *u = d->own;
	__u64 tag = 0;

	io_uring_register_buffers_update_tag(&u->ring,
					     KEDGE_SLOTS + (uint32_t)handle,
					     &none, &tag, 1);
	give_slot(u, (uint32_t)handle);
}

static void uring_close(struct reg_dev *d)
{
	struct uring_own *u = d->own;

	kedge_device_close(d->dev);
	io_uring_queue_exit(&u->ring);
	pthread_mutex_destroy(&u->lock);
	free(u);
}

static int uring_make(struct uring_own *u, struct kedge_device **dev)
{
	struct kedge_uring_opts o = { .size = sizeof(o),
				      .flags = KEDGE_URING_TABLE_EXISTS,
				      .slots = KEDGE_SLOTS };
	uint32_t i;
	int rc = io_uring_queue_init(4, &u->ring, 0);

	if (rc)
		return kedge_reason(rc, "no io_uring (error %d); 'kedge info' "
				    "tells more", -rc);
	rc = io_uring_register_buffers_sparse(&u->ring,
					      KEDGE_SLOTS + RAW_SLOTS);
	if (rc)
		rc = kedge_reason(rc, "no table of fixed buffers (error %d)",
				  -rc);
	if (!rc)
		rc = kedge_device_open_uring(&u->ring, &o, dev);
	if (rc) {
		io_uring_queue_exit(&u->ring);
		return rc;
	}
	for (i = 0; i < RAW_SLOTS; i++)
		u->free_slot[u->free_cnt++] = i;
	return 0;
}

static int uring_open(struct reg_dev *d)
{
	struct uring_own *u = calloc(1, sizeof(*u));
	int rc;

	if (!u)
		return util_fail(-ENOMEM, "uring");
	rc = -pthread_mutex_init(&u->lock, NULL);
	if (rc)
		goto free_own;
	rc = uring_make(u, &d->dev);
	if (rc)
		goto destroy_lock;
	d->own = u;
	d->reg = uring_raw_reg;
	d->dereg = uring_raw_dereg;
	d->close = uring_close;
	return CMD_OK;

destroy_lock:
	pthread_mutex_destroy(&u->lock);
free_own:
	free(u);
	return util_fail(rc, "uring");
}

int reg_dev_open(enum reg_device which, const char *model, struct reg_dev *d)
{
	*d = (struct reg_dev){ .name = reg_device_names[which] };
	switch (which) {
	case REG_NOOP:
		return noop_open(d);
	case REG_URING:
		return uring_open(d);
	case REG_OFI:
		return reg_ofi_open(model, d);
	default:
		return reg_verbs_open(model, d);
	}
}
