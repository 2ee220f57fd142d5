// SPDX-License-Identifier: BSD-2-Clause
/*
 * RDMA memory regions as a device. A registration is one ibv_reg_mr(): exactly
 * the bytes and the rights that were asked for, because a peer reaches whatever
 * the region covers.
 *
 * A registration of ours is held by its owner, or lost: to be ended, but
 * ibv_dereg_mr() refused. A lost one still reaches the old pages, so it stays
 * in a list and is tried again, one by each reg and all by the close.
 * A thread that is at work on a registration has it in no list, so the system
 * calls run without the lock.
 *
 * When the device is unplugged the kernel ends all that was on it and answers
 * EIO from then on, to ibv_dereg_mr() as well: then no registration is left to
 * end, which is asked of the kernel once more before it is believed.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kedge/verbs.h>

#include "base/base.h"
#include "base/process/cancel.h"
#include "device/verbs/internal.h"

/*
 * Measured on soft-RoCE, 256 MiB: pieces of 1 MiB take 1.6 times as long as
 * those of 2 MiB, 4 MiB are as fast, 16 MiB a third faster; and what one lost
 * page costs grows with the piece.
 */
#define CHUNK_LEN (2 * MIB)
#define OPTS_V1	   STRUCT_END(struct kedge_verbs_opts, window_qp)
#define OPTS_FLAGS (KEDGE_VERBS_RELAXED_ORDERING | KEDGE_VERBS_ODP)
/* struct ibv_sge has 32 bits for a length. */
#define PREFETCH_LEN (1024 * MIB)

/* ---- registrations ---- */

static unsigned int access_flags(const struct verbs *v, uint32_t access)
{
	unsigned int flags = v->flags;

	if (access & KEDGE_ACCESS_LOCAL_WRITE)
		flags |= IBV_ACCESS_LOCAL_WRITE;
	if (access & KEDGE_ACCESS_REMOTE_READ)
		flags |= IBV_ACCESS_REMOTE_READ;
	/* A peer's right to write needs the device's own: the verbs want both. */
	if (access & KEDGE_ACCESS_REMOTE_WRITE)
		flags |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
	if (access & KEDGE_ACCESS_REMOTE_ATOMIC)
		flags |= IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE;
	return flags;
}

/* A hint to the HCA: its failure costs a page fault later. */
static void prefetch(const struct verbs *v, const struct region *r, size_t len)
{
	enum ibv_advise_mr_advice advice = IBV_ADVISE_MR_ADVICE_PREFETCH;
	struct ibv_sge sge = { .lkey = r->mr->lkey };
	size_t at;

	if (r->flags & IBV_ACCESS_LOCAL_WRITE)
		advice = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
	for (at = 0; at < len; at += sge.length) {
		sge.addr = (uintptr_t)r->mr->addr + v->iova_offset + at;
		sge.length = len - at < PREFETCH_LEN ? (uint32_t)(len - at)
						     : (uint32_t)PREFETCH_LEN;
		if (ibv_advise_mr(v->pd, advice, 0, &sge, 1))
			return;
	}
}

/* ---- the ops ---- */

static int check_reg(const struct verbs *v, const void *addr, size_t len,
		     uint32_t access)
{
	uint64_t end;

	if (!*v->here)
		return kedge_reason(-ECHILD, "the RDMA device %s belongs to "
					     "the parent process", v->name);
	if (!len || __builtin_add_overflow((uintptr_t)addr, len, &end) ||
	    __builtin_add_overflow((uintptr_t)addr + v->iova_offset, len, &end))
		return kedge_reason(-EINVAL, "%s",
				    len ? "the range, or that of its iova, "
					  "wraps"
					: "the length is 0");
	if (access & ~KEDGE_ACCESS_ALL)
		return kedge_reason(-EINVAL, "access %#x is unknown", access);
	if (access & ~v->access)
		return kedge_reason(-EOPNOTSUPP, "%s has no remote atomics",
				    v->name);
	if (v->max_len && len > v->max_len)
		return kedge_reason(-E2BIG,
				    "%s registers at most %" PRIu64
				    " bytes at once",
				    v->name, v->max_len);
	if (__atomic_load_n(&v->gone, __ATOMIC_RELAXED))
		return kedge_reason(-ENODEV, "the RDMA device %s is gone",
				    v->name);
	return 0;
}

static int make_region(struct verbs *v, struct region *r, void *addr,
		       size_t len, uint32_t access)
{
	r->flags = access_flags(v, access);
	r->mr = kedge__verbs_reg_mr(v, addr, len, r->flags);
	/* Windows, which may give any right, want writable memory as well. */
	if (!r->mr && errno == EFAULT &&
	    (r->flags & ACCESS_WRITES) == IBV_ACCESS_MW_BIND) {
		r->flags &= ~(unsigned int)IBV_ACCESS_MW_BIND;
		r->mr = kedge__verbs_reg_mr(v, addr, len, r->flags);
	}
	if (!r->mr)
		return kedge__verbs_reg_refused(v, errno, (uintptr_t)addr, len,
						r->flags);
	return 0;
}

static int verbs_reg(void *ctx, void *addr, size_t len, uint32_t access,
		     struct kedge_device_mr *mr)
{
	struct verbs *v = ctx;
	struct region *r;
	int rc;

	rc = check_reg(v, addr, len, access);
	if (rc)
		return rc;
	kedge__verbs_windows_retry(v);
	kedge__verbs_retry_lost(v);
	r = malloc(sizeof(*r));
	if (!r)
		return kedge_reason(-ENOMEM, "no memory for a registration");
	rc = make_region(v, r, addr, len, access);
	if (rc) {
		free(r);
		return rc;
	}
	__atomic_fetch_add(&v->regions, 1, __ATOMIC_RELAXED);
	if (r->flags & IBV_ACCESS_ON_DEMAND)
		prefetch(v, r, len);
	mr->handle = (uint64_t)r->mr->rkey << 32 | r->mr->lkey;
	mr->offset = (uintptr_t)addr + v->iova_offset;
	mr->priv = (uintptr_t)r;
	return 0;
}

const struct ibv_mr *kedge__verbs_mr(uint64_t priv)
{
	return ((const struct region *)(uintptr_t)priv)->mr;
}

static void verbs_dereg(void *ctx, const struct kedge_device_mr *mr)
{
	struct verbs *v = ctx;
	struct region *r = (struct region *)(uintptr_t)mr->priv;

	/* libibverbs' call would end the parent's. */
	if (*v->here)
		kedge__verbs_end_or_lose(v, r);
	else
		free(r);
}

static int verbs_query(void *ctx, struct kedge_device_attr *attr)
{
	const struct verbs *v = ctx;

	attr->flags = KEDGE_DEVICE_EXACT;
	if (!(v->flags & IBV_ACCESS_ON_DEMAND))
		attr->flags |= KEDGE_DEVICE_PINS;
	attr->max_len = v->max_len;
	attr->max_regions = v->max_regions;
	attr->chunk_len = v->chunk_len;
	attr->access = v->access;
	return 0;
}

static void verbs_close(void *ctx)
{
	struct verbs *v = ctx;
	struct region *r, *next;

	/* Windows first: what they are bound to cannot go before them. */
	if (v->win.qp)
		kedge__verbs_windows_fini(v);
	if (*v->here)
		kedge__verbs_end_lost(v);
	for (r = v->lost; r; r = next) {
		next = r->next;
		free(r);
	}
	pthread_mutex_destroy(&v->lock);
	munmap((void *)(uintptr_t)v->here, 2 * v->page_len);
	free(v);
}

/* ---- open ---- */

/* Two pages: one that reads 1 here and 0 in a forked child, and a spare one. */
static int mark_here(struct verbs *v)
{
	uint32_t *here;
	int rc;

	here = mmap(NULL, 2 * v->page_len, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (here == MAP_FAILED)
		return kedge_reason(-ENOMEM, "no memory for the device");
	if (madvise(here, v->page_len, MADV_WIPEONFORK)) {
		rc = -errno;
		munmap(here, 2 * v->page_len);
		return kedge_reason(rc, "MADV_WIPEONFORK fails: error %d", -rc);
	}
	*here = 1;
	v->here = here;
	return 0;
}

static int check_opts(struct kedge_verbs_opts *opts,
		      const struct kedge_verbs_opts *user)
{
	int rc = kedge__opts_copy(opts, sizeof(*opts), OPTS_V1, user);

	if (rc)
		return rc;
	if (opts->flags & ~OPTS_FLAGS)
		return kedge_reason(-EINVAL, "flags %#x are unknown",
				    opts->flags & ~OPTS_FLAGS);
	if (opts->iova_offset % (uint64_t)sysconf(_SC_PAGESIZE))
		return kedge_reason(-EINVAL,
				    "iova_offset %#" PRIx64
				    " is no multiple of the page size",
				    opts->iova_offset);
	return 0;
}

/* Ask the device what it can do, as far as it tells. */
static int ask_device(struct verbs *v, const struct kedge_verbs_opts *opts)
{
	struct ibv_device_attr_ex attr;
	int err;

	memset(&attr, 0, sizeof(attr));
	err = kedge__verbs_errno(
		ibv_query_device_ex(v->pd->context, NULL, &attr));
	if (err == EIO || err == ENODEV || err == ENXIO)
		return kedge_reason(-ENODEV, "the RDMA device %s is gone",
				    v->name);
	if (err)
		return kedge_reason(-err, "%s does not say what it can do: "
					  "error %d", v->name, err);
	v->access = KEDGE_ACCESS_ALL;
	if (attr.orig_attr.atomic_cap == IBV_ATOMIC_NONE)
		v->access &= ~(uint32_t)KEDGE_ACCESS_REMOTE_ATOMIC;
	if (attr.orig_attr.max_mr_size != UINT64_MAX)
		v->max_len = attr.orig_attr.max_mr_size;
	if (attr.orig_attr.max_mr > 0)
		v->max_regions = (uint64_t)attr.orig_attr.max_mr;
	v->chunk_len = opts->chunk_len ? opts->chunk_len : CHUNK_LEN;
	if (v->max_len && v->chunk_len > v->max_len)
		v->chunk_len = v->max_len;
	v->iova_offset = opts->iova_offset;
	if (opts->flags & KEDGE_VERBS_RELAXED_ORDERING)
		v->flags |= IBV_ACCESS_RELAXED_ORDERING;
	if (opts->flags & KEDGE_VERBS_ODP &&
	    attr.odp_caps.general_caps & IBV_ODP_SUPPORT)
		v->flags |= IBV_ACCESS_ON_DEMAND;
	if (!opts->window_qp)
		return 0;
	v->flags |= IBV_ACCESS_MW_BIND;
	return kedge__verbs_windows_check(v, opts->window_qp, &attr.orig_attr);
}

static bool is_unsupported(int err)
{
	return err == EINVAL || err == EOPNOTSUPP || err == ENOSYS ||
	       err == EPROTONOSUPPORT;
}

/* Register a page with the options; leave out those that are refused. */
static int try_options(struct verbs *v)
{
	static const unsigned int optional[] = { IBV_ACCESS_ON_DEMAND,
						 IBV_ACCESS_RELAXED_ORDERING };
	size_t i;
	int err;

	if (!v->flags)
		return 0;
	err = kedge__verbs_try(v, v->flags);
	for (i = 0; is_unsupported(err) && i < ARRAY_SIZE(optional); i++) {
		if (!(v->flags & optional[i]))
			continue;
		v->flags &= ~optional[i];
		err = kedge__verbs_try(v, v->flags);
	}
	if (err)
		return kedge__verbs_reg_refused(v, err, (uintptr_t)v->here,
						v->page_len, v->flags);
	return 0;
}

static void warn_of_fork(const struct verbs *v)
{
	if (ibv_is_fork_initialized() == IBV_FORK_DISABLED)
		kedge__log(KEDGE_LOG_WARN,
			   "this kernel does not copy pinned pages at fork: "
			   "after a fork (system() is one) %s may write to "
			   "pages that are the child's by then. Call "
			   "ibv_fork_init() before the first ibv_*() call",
			   v->name);
}

static const struct kedge_device_ops verbs_ops = {
	.size = sizeof(verbs_ops),
	.name = "verbs",
	.reg = verbs_reg,
	.dereg = verbs_dereg,
	.query = verbs_query,
	.close = verbs_close,
};

static const struct kedge_device_ops window_ops = {
	.size = sizeof(window_ops),
	.name = "verbs",
	.reg = verbs_reg,
	.dereg = verbs_dereg,
	.query = verbs_query,
	.close = verbs_close,
	.bind = kedge__verbs_bind,
	.unbind = kedge__verbs_unbind,
};

int kedge_device_open_verbs(struct ibv_pd *pd,
			    const struct kedge_verbs_opts *user,
			    struct kedge_device **dev)
{
	NO_CANCEL();
	struct kedge_verbs_opts opts;
	struct verbs *v;
	int rc;

	if (!pd || !dev)
		return kedge_reason(-EINVAL, "the %s is NULL",
				    pd ? "result pointer"
				       : "protection domain");
	rc = check_opts(&opts, user);
	if (rc)
		return rc;

	v = calloc(1, sizeof(*v));
	if (!v)
		return kedge_reason(-ENOMEM, "no memory for the device");
	v->pd = pd;
	v->name = pd->context->device->name;
	v->page_len = (size_t)sysconf(_SC_PAGESIZE);
	v->lost_end = &v->lost;
	rc = -pthread_mutex_init(&v->lock, NULL);
	if (rc)
		goto free_ctx;
	rc = mark_here(v);
	if (rc)
		goto destroy_lock;
	rc = ask_device(v, &opts);
	if (rc)
		goto unmark;
	rc = try_options(v);
	if (rc)
		goto unmark;
	if (opts.window_qp)
		rc = kedge__verbs_windows_init(v, opts.window_qp);
	if (rc)
		goto unmark;
	rc = kedge_device_open(opts.window_qp ? &window_ops : &verbs_ops, v,
			       dev);
	if (rc)
		goto fini_windows;
	warn_of_fork(v);
	return 0;

fini_windows:
	if (opts.window_qp)
		kedge__verbs_windows_fini(v);
unmark:
	kedge__verbs_end_lost(v);
	munmap((void *)(uintptr_t)v->here, 2 * v->page_len);
destroy_lock:
	pthread_mutex_destroy(&v->lock);
free_ctx:
	free(v);
	return rc;
}
