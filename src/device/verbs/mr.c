// SPDX-License-Identifier: BSD-2-Clause
/*
 * Memory regions of libibverbs, what its errors mean, and the regions that it
 * refused to end. A lost region still reaches the old pages, so it stays in a list
 * and is tried again.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/base.h"
#include "device/verbs/internal.h"

struct ibv_mr *kedge__verbs_reg_mr(const struct verbs *v, void *addr,
				   size_t len, unsigned int flags)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = ibv_reg_mr_iova(v->pd, addr, len,
			     (uintptr_t)addr + v->iova_offset, flags);
	if (!mr && !errno)
		errno = EIO;
	return mr;
}

int kedge__verbs_errno(int returned)
{
	/* The positive errno, says the manual; providers have -1 and -errno. */
	if (returned == -1)
		return errno ? errno : EIO;
	return abs(returned);
}

bool kedge__verbs_gone(struct verbs *v, int err)
{
	struct ibv_device_attr attr;

	if (err != EIO && err != ENODEV && err != ENXIO)
		return false;
	/* A driver may say EIO for other things: ask for something harmless. */
	err = kedge__verbs_errno(ibv_query_device(v->pd->context, &attr));
	if (!err)
		return false;
	if (!__atomic_exchange_n(&v->gone, true, __ATOMIC_RELAXED))
		kedge__log(KEDGE_LOG_WARN,
			   "the RDMA device %s is gone (error %d), and with it "
			   "%" PRIu64 " registrations: close the device",
			   v->name, err,
			   __atomic_load_n(&v->regions, __ATOMIC_RELAXED));
	return true;
}

/* End @r: 0, or a positive errno and it is what it was. */
static int end_region(struct verbs *v, struct region *r)
{
	int err = kedge__verbs_errno(ibv_dereg_mr(r->mr));

	if (err && !kedge__verbs_gone(v, err))
		return err;
	__atomic_fetch_sub(&v->regions, 1, __ATOMIC_RELAXED);
	free(r);
	return 0;
}

static struct region *take_lost(struct verbs *v)
{
	struct region *r;

	/* Relaxed: a thread that misses one tries it next time. */
	if (likely(!__atomic_load_n(&v->lost, __ATOMIC_RELAXED)))
		return NULL;
	pthread_mutex_lock(&v->lock);
	r = v->lost;
	if (r) {
		__atomic_store_n(&v->lost, r->next, __ATOMIC_RELAXED);
		if (!r->next)
			v->lost_end = &v->lost;
	}
	pthread_mutex_unlock(&v->lock);
	return r;
}

static void give_lost(struct verbs *v, struct region *r)
{
	r->next = NULL;
	pthread_mutex_lock(&v->lock);
	__atomic_store_n(v->lost_end, r, __ATOMIC_RELAXED);
	v->lost_end = &r->next;
	pthread_mutex_unlock(&v->lock);
}

void kedge__verbs_retry_lost(struct verbs *v)
{
	struct region *r = take_lost(v);

	if (r && end_region(v, r))
		give_lost(v, r);
}

void kedge__verbs_end_or_lose(struct verbs *v, struct region *r)
{
	uint32_t rkey = r->mr->rkey;
	int err = end_region(v, r);

	if (!err)
		return;
	give_lost(v, r);
	kedge__log(KEDGE_LOG_ERROR,
		   "ibv_dereg_mr refuses rkey %#x of %s (error %d%s): the pages "
		   "stay pinned, and within reach of whom the key was given, "
		   "until a later registration or the close has ended it",
		   rkey, v->name, err,
		   err == EBUSY || err == EINVAL ? ", a window bound to it?"
						 : "");
}

int kedge__verbs_try(struct verbs *v, unsigned int flags)
{
	void *page = (char *)(uintptr_t)v->here + v->page_len;
	struct region *r = malloc(sizeof(*r));
	int err;

	if (!r)
		return ENOMEM;
	r->flags = flags;
	r->mr = kedge__verbs_reg_mr(v, page, v->page_len, flags);
	if (!r->mr) {
		err = errno;
		free(r);
		return err;
	}
	__atomic_fetch_add(&v->regions, 1, __ATOMIC_RELAXED);
	kedge__verbs_end_or_lose(v, r);
	return 0;
}

void kedge__verbs_end_lost(struct verbs *v)
{
	struct region *r, *next, *left = NULL;
	uint64_t left_cnt = 0;
	int err, last = 0;

	while ((r = take_lost(v)) != NULL) {
		err = end_region(v, r);
		if (err) {
			r->next = left;
			left = r;
			left_cnt++;
			last = err;
		}
	}
	if (left)
		kedge__log(KEDGE_LOG_ERROR,
			   "%" PRIu64 " registrations on %s could not be ended "
			   "(error %d): their pages stay pinned until the RDMA "
			   "context is closed",
			   left_cnt, v->name, last);
	for (r = left; r; r = next) {
		next = r->next;
		free(r);
	}
}
