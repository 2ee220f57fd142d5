// SPDX-License-Identifier: BSD-2-Clause
/* See fake_ibverbs.h. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fake_ibverbs.h"

/* verbs.h has macros of these names. */
#undef ibv_get_device_list
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define EXPORT __attribute__((visibility("default")))
#define MRS    1024u
#define PAGE   4096u

struct fake_mr {
	struct ibv_mr ibv;
	bool live;
	unsigned int access;
};

struct fake_pd {
	struct ibv_pd ibv;
	int regs;
};

struct fake *fake_ibverbs(void);

/* lock guards what follows, and the domains' counts. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake fake = { .fork = IBV_FORK_UNNEEDED };
static struct fake_mr mrs[MRS];
static uint32_t next_key;
static struct ibv_device device = { .name = "fake0" };

EXPORT struct fake *fake_ibverbs(void)
{
	return &fake;
}

/* The errno to fail with, or 0. */
static int refused(enum fake_op op)
{
	fake.calls[op]++;
	if (op <= FAKE_REG_MR_IOVA2 && fake.reg_times) {
		fake.reg_times--;
		return fake.reg_err;
	}
	if (!fake.times || op != fake.op)
		return 0;
	if (fake.skip) {
		fake.skip--;
		return 0;
	}
	fake.times--;
	return fake.err;
}

/* ---- the device ---- */

EXPORT struct ibv_device **ibv_get_device_list(int *cnt)
{
	struct ibv_device **list = calloc(2, sizeof(*list));

	if (list)
		list[0] = &device;
	if (cnt)
		*cnt = !!list;
	return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *dev)
{
	return dev->name;
}

/* No data moves. */
static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return 0;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return 0;
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *dev)
{
	struct ibv_context *context = calloc(1, sizeof(*context));

	if (!context)
		return NULL;
	context->device = dev;
	context->ops.post_send = post_send;
	context->ops.post_recv = post_recv;
	context->ops.post_srq_recv = post_srq_recv;
	return context;
}

static void end(struct fake_mr *m)
{
	m->live = false;
	((struct fake_pd *)m->ibv.pd)->regs--;
	fake.regs--;
}

/* Regions end with their device. */
EXPORT int ibv_close_device(struct ibv_context *context)
{
	unsigned int i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < MRS; i++) {
		if (!mrs[i].live || mrs[i].ibv.context != context)
			continue;
		end(&mrs[i]);
		fake.leaked++;
	}
	pthread_mutex_unlock(&lock);
	free(context);
	return 0;
}

EXPORT int ibv_query_device(struct ibv_context *context,
			    struct ibv_device_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	attr->max_mr_size = UINT64_MAX;
	attr->atomic_cap = IBV_ATOMIC_HCA;
	return 0;
}

EXPORT int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			struct ibv_qp_init_attr *init)
{
	return EINVAL;
}

EXPORT const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	return "a status";
}

EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return fake.fork;
}

/* ---- domains ---- */

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct fake_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return NULL;
	pd->ibv.context = context;
	return &pd->ibv;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *ibv)
{
	struct fake_pd *pd = (struct fake_pd *)ibv;
	int regs;

	pthread_mutex_lock(&lock);
	regs = pd->regs;
	pthread_mutex_unlock(&lock);
	if (regs)
		return EBUSY;
	free(pd);
	return 0;
}

EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context,
				    uint32_t handle)
{
	return ibv_alloc_pd(context);
}

/* With regions in use the domain is another process's to end. */
EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
	ibv_dealloc_pd(pd);
}

/* ---- regions ---- */

/* As the kernel looks at it: a hole is EFAULT. */
static int check(void *addr, size_t len, unsigned int access)
{
	uintptr_t start = (uintptr_t)addr & ~(uintptr_t)(PAGE - 1);
	uintptr_t end;

	if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
	    !(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	if (!len || __builtin_add_overflow((uintptr_t)addr, len, &end))
		return EINVAL;
	if (fake.regs >= (fake.max ? fake.max : (int)MRS))
		return fake.full ? fake.full : ENOMEM;
	return msync((void *)start, end - start, MS_ASYNC) ? EFAULT : 0;
}

static struct fake_mr *make(struct ibv_pd *pd, void *addr, size_t len,
			    uint64_t iova, unsigned int access)
{
	struct fake_mr *m = mrs;

	while (m->live)
		m++;
	memset(m, 0, sizeof(*m));
	m->live = true;
	m->access = access;
	m->ibv.context = pd->context;
	m->ibv.pd = pd;
	m->ibv.addr = addr;
	m->ibv.length = len;
	m->ibv.lkey = ++next_key << 8;
	m->ibv.rkey = m->ibv.lkey | 1;
	((struct fake_pd *)pd)->regs++;
	fake.regs++;
	fake.access = access;
	fake.iova = iova;
	return m;
}

static struct ibv_mr *reg(enum fake_op op, struct ibv_pd *pd, void *addr,
			  size_t len, uint64_t iova, unsigned int access)
{
	struct fake_mr *m = NULL;
	int err;

	pthread_mutex_lock(&lock);
	err = refused(op);
	if (!err)
		err = check(addr, len, access);
	if (!err)
		m = make(pd, addr, len, iova, access);
	pthread_mutex_unlock(&lock);
	/* The errno that a successful call leaves means nothing. */
	errno = err ? err : ENOTTY;
	return m ? &m->ibv : NULL;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len,
				 int access)
{
	return reg(FAKE_REG_MR, pd, addr, len, (uintptr_t)addr,
		   (unsigned int)access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t len,
				      uint64_t iova, int access)
{
	return reg(FAKE_REG_MR_IOVA, pd, addr, len, iova, (unsigned int)access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr,
				       size_t len, uint64_t iova,
				       unsigned int access)
{
	return reg(FAKE_REG_MR_IOVA2, pd, addr, len, iova, access);
}

/* NULL: none of ours, which the real one would crash over. */
static struct fake_mr *find(struct ibv_mr *mr)
{
	struct fake_mr *m = (struct fake_mr *)mr;

	if (m >= mrs && m < mrs + MRS && m->live)
		return m;
	fake.wrong++;
	return NULL;
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct fake_mr *m;
	int err;

	pthread_mutex_lock(&lock);
	err = getenv("FAKE_DEREG") ? EBUSY : refused(FAKE_DEREG_MR);
	m = find(mr);
	if (!err && !m)
		err = EINVAL;
	if (!err)
		end(m);
	pthread_mutex_unlock(&lock);
	return err;
}

EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd,
			void *addr, size_t len, int access)
{
	struct fake_mr *m;
	int err;

	pthread_mutex_lock(&lock);
	err = refused(FAKE_REREG_MR);
	m = find(mr);
	if (!err && m && flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		mr->addr = addr;
		mr->length = len;
	}
	if (!err && m && flags & IBV_REREG_MR_CHANGE_ACCESS)
		m->access = fake.access = (unsigned int)access;
	if (!err && m)
		mr->lkey = ++next_key << 8;
	if (!err && m)
		mr->rkey = mr->lkey | 1;
	pthread_mutex_unlock(&lock);
	errno = err;
	return err || !m ? IBV_REREG_MR_ERR_CMD : 0;
}
