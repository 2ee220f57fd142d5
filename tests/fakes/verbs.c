// SPDX-License-Identifier: BSD-2-Clause
/* See verbs.h. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "fakes/verbs.h"
#include "fakes/wrapped.h"

#define MRS 4096u
#define MWS 512u
#define WCS 16u
/* Bits of a key that are the application's. */
#define TAG 0xffu

struct fake_mr {
	struct ibv_mr ibv;
	bool live;
	unsigned int access;
	uint64_t iova;
	int windows;
};

/* @rkey: the device's, of which ibv.rkey is the application's copy */
struct fake_mw {
	struct ibv_mw ibv;
	bool live;
	uint32_t rkey;
	struct fake_mr *mr;
	uint64_t start, end;
	unsigned int access;
};

struct fake fake;
struct ibv_pd fake_pd, fake_other_pd;
struct ibv_qp fake_qp;
static struct ibv_cq send_cq, recv_cq;
static struct verbs_context vctx;
static struct ibv_device device = { .name = "fake0" };

/* lock guards fake and all below. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_mr mrs[MRS];
static struct fake_mw mws[MWS];
static uint32_t next_mw;
static struct ibv_wc wcs[WCS];
static unsigned int wc_cnt;
static uint64_t skew;

/* Counted; the errno to fail with, or 0. */
static int refused(enum fake_op op)
{
	fake.calls[op]++;
	if (fake.removed && op != FAKE_POST && op != FAKE_POLL &&
	    op != FAKE_BIND && op != FAKE_INVALIDATE)
		return EIO;
	if (op == fake.also_op) {
		fake.also_op = FAKE_NONE;
		return fake.also_err;
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

/* ---- regions ---- */

static int reg_refused(unsigned int access)
{
	const unsigned int writes = IBV_ACCESS_LOCAL_WRITE |
				    IBV_ACCESS_REMOTE_WRITE |
				    IBV_ACCESS_REMOTE_ATOMIC |
				    IBV_ACCESS_MW_BIND;
	int err = refused(FAKE_REG);

	if (err)
		return err;
	/* The verbs' own rule. */
	if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
	    !(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	if (fake.lacks && (access & fake.lacks) == fake.lacks)
		return fake.lacks_err;
	if (fake.readonly && access & writes)
		return EFAULT;
	if (fake.attr.orig_attr.max_mr &&
	    fake.regs >= fake.attr.orig_attr.max_mr)
		return ENOMEM;
	return 0;
}

static struct ibv_mr *reg_locked(struct ibv_pd *pd, void *addr, size_t len,
				 uint64_t iova, unsigned int access)
{
	struct fake_mr *m = mrs;
	int err = reg_refused(access);

	if (err) {
		errno = err < 0 ? 0 : err;
		return NULL;
	}
	while (m->live)
		m++;
	if (m == mrs + MRS)
		fail_msg("%u regions", MRS);
	*m = (struct fake_mr){ .live = true, .access = access, .iova = iova };
	m->ibv.context = pd->context;
	m->ibv.pd = pd;
	m->ibv.addr = addr;
	m->ibv.length = len;
	m->ibv.lkey = (uint32_t)(m - mrs) << 8;
	m->ibv.rkey = m->ibv.lkey | 1;
	fake.regs++;
	fake.access = access;
	return &m->ibv;
}

WRAPPED(ibv_reg_mr_iova2);
struct ibv_mr *__wrap_ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr,
				       size_t len, uint64_t iova,
				       unsigned int access)
{
	struct ibv_mr *mr;

	pthread_mutex_lock(&lock);
	mr = reg_locked(pd, addr, len, iova, access);
	pthread_mutex_unlock(&lock);
	return mr;
}

/* The call that the header makes where the flags are a constant, or older. */
WRAPPED(ibv_reg_mr_iova);
struct ibv_mr *__wrap_ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t len,
				      uint64_t iova, int access)
{
	return __wrap_ibv_reg_mr_iova2(pd, addr, len, iova,
				       (unsigned int)access);
}

WRAPPED(ibv_dereg_mr);
int __wrap_ibv_dereg_mr(struct ibv_mr *mr)
{
	struct fake_mr *m = (struct fake_mr *)mr;
	int err;

	pthread_mutex_lock(&lock);
	err = refused(FAKE_DEREG);
	if (!err && m->windows)
		err = EBUSY;
	if (!err && !m->live)
		err = ENOENT;
	if (!err) {
		m->live = false;
		fake.regs--;
	}
	pthread_mutex_unlock(&lock);
	errno = EBUSY;
	return err;
}

static int advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice,
		     uint32_t flags, struct ibv_sge *sge, uint32_t cnt)
{
	const struct fake_mr *m;
	int err;

	pthread_mutex_lock(&lock);
	m = &mrs[sge->lkey >> 8];
	err = refused(FAKE_ADVISE);
	if (!err &&
	    (cnt != 1 || !sge->length || sge->addr < m->iova ||
	     sge->addr - m->iova + sge->length > m->ibv.length))
		err = EINVAL;
	if (!err) {
		fake.advised += sge->length;
		fake.advice = advice;
	}
	pthread_mutex_unlock(&lock);
	return err;
}

/* ---- what the device says of itself ---- */

WRAPPED(ibv_query_device);
int __wrap_ibv_query_device(struct ibv_context *context,
			    struct ibv_device_attr *attr)
{
	int err;

	pthread_mutex_lock(&lock);
	err = refused(FAKE_QUERY);
	if (!err)
		*attr = fake.attr.orig_attr;
	pthread_mutex_unlock(&lock);
	return err;
}

static int query_device_ex(struct ibv_context *context,
			   const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t size)
{
	int err;

	pthread_mutex_lock(&lock);
	err = fake.old ? EOPNOTSUPP : refused(FAKE_QUERY);
	if (!err)
		*attr = fake.attr;
	pthread_mutex_unlock(&lock);
	return err;
}

WRAPPED(ibv_is_fork_initialized);
enum ibv_fork_status __wrap_ibv_is_fork_initialized(void)
{
	return fake.fork;
}

WRAPPED(ibv_query_qp);
int __wrap_ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			struct ibv_qp_init_attr *init)
{
	int err;

	pthread_mutex_lock(&lock);
	err = refused(FAKE_QUERY_QP);
	if (!err) {
		memset(attr, 0, sizeof(*attr));
		attr->qp_state = fake.state;
	}
	pthread_mutex_unlock(&lock);
	return err;
}

/* ---- windows ---- */

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct fake_mw *w = NULL;
	uint32_t tag, i;
	int err;

	pthread_mutex_lock(&lock);
	err = refused(FAKE_ALLOC_MW);
	if (!err && type != IBV_MW_TYPE_2)
		err = EINVAL;
	if (!err) {
		/* As late as can be, so that a key is not soon there again. */
		for (i = 0; i < MWS && mws[next_mw % MWS].live; i++)
			next_mw++;
		w = &mws[next_mw++ % MWS];
		if (w->live)
			err = ENOMEM;
	}
	if (!err) {
		tag = w->rkey & TAG;
		*w = (struct fake_mw){ .live = true };
		w->rkey = (MRS + (uint32_t)(w - mws)) << 8 | tag;
		w->ibv.context = pd->context;
		w->ibv.pd = pd;
		w->ibv.rkey = w->rkey;
		w->ibv.type = type;
		fake.mws++;
	}
	pthread_mutex_unlock(&lock);
	errno = err;
	return err ? NULL : &w->ibv;
}

static void unbind(struct fake_mw *w)
{
	if (w->mr)
		w->mr->windows--;
	w->mr = NULL;
}

static int dealloc_mw(struct ibv_mw *mw)
{
	struct fake_mw *w = (struct fake_mw *)mw;
	int err;

	pthread_mutex_lock(&lock);
	err = refused(FAKE_DEALLOC_MW);
	if (!err && !w->live)
		err = ENOENT;
	if (!err) {
		unbind(w);
		w->live = false;
		fake.mws--;
	}
	pthread_mutex_unlock(&lock);
	return err;
}

/* As a device checks it, which ends the queue pair if it is wrong. */
static bool bind(const struct ibv_send_wr *wr)
{
	const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;
	struct fake_mw *w = (struct fake_mw *)wr->bind_mw.mw;
	struct fake_mr *m = (struct fake_mr *)info->mr;

	if (!w->live || w->mr || w->ibv.rkey != w->rkey ||
	    (wr->bind_mw.rkey ^ w->rkey) & ~TAG || wr->bind_mw.rkey == w->rkey)
		return false;
	if (!m->live || !(m->access & IBV_ACCESS_MW_BIND) || !info->length ||
	    info->addr < m->iova ||
	    info->addr - m->iova + info->length > m->ibv.length)
		return false;
	if (info->mw_access_flags &
		    (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
	    !(m->access & IBV_ACCESS_LOCAL_WRITE))
		return false;
	m->windows++;
	w->mr = m;
	w->rkey = wr->bind_mw.rkey;
	w->start = info->addr;
	w->end = info->addr + info->length;
	w->access = info->mw_access_flags;
	return true;
}

static struct fake_mw *window_of(uint32_t rkey)
{
	uint32_t i = (rkey >> 8) - MRS;

	return i < MWS && mws[i].live && mws[i].rkey == rkey && mws[i].mr
		? &mws[i]
		: NULL;
}

static enum ibv_wc_status execute(const struct ibv_send_wr *wr)
{
	enum fake_op op = wr->opcode == IBV_WR_BIND_MW ? FAKE_BIND
						       : FAKE_INVALIDATE;
	struct fake_mw *w;

	if (fake.state != IBV_QPS_RTS)
		return IBV_WC_WR_FLUSH_ERR;
	if (refused(op))
		return IBV_WC_MW_BIND_ERR;
	if (op == FAKE_BIND)
		return bind(wr) ? IBV_WC_SUCCESS : IBV_WC_MW_BIND_ERR;
	w = window_of(wr->invalidate_rkey);
	if (!w)
		return IBV_WC_LOC_QP_OP_ERR;
	unbind(w);
	return IBV_WC_SUCCESS;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	struct ibv_wc *wc = &wcs[wc_cnt];
	int err;

	pthread_mutex_lock(&lock);
	err = refused(FAKE_POST);
	if (!err && wc_cnt == WCS)
		err = ENOMEM;
	if (!err && (wr->next || wr->num_sge ||
		     !(wr->send_flags & IBV_SEND_SIGNALED) ||
		     (wr->opcode != IBV_WR_BIND_MW &&
		      wr->opcode != IBV_WR_LOCAL_INV)))
		err = EINVAL;
	if (err) {
		*bad = wr;
	} else if (!fake.silent) {
		memset(wc, 0, sizeof(*wc));
		wc->wr_id = wr->wr_id;
		wc->qp_num = qp->qp_num;
		wc->status = execute(wr);
		if (wc->status != IBV_WC_SUCCESS)
			fake.state = IBV_QPS_ERR;
		wc_cnt++;
	}
	pthread_mutex_unlock(&lock);
	return err;
}

static int poll_cq(struct ibv_cq *cq, int cnt, struct ibv_wc *wc)
{
	int got = 0;

	pthread_mutex_lock(&lock);
	assert_ptr_equal(cq, &send_cq);
	if (refused(FAKE_POLL)) {
		got = -1;
	} else if (wc_cnt && !fake.late) {
		got = 1;
		*wc = wcs[0];
		memmove(wcs, wcs + 1, --wc_cnt * sizeof(*wcs));
	} else {
		skew += 10000000;
	}
	pthread_mutex_unlock(&lock);
	return got;
}

/* A wait in vain takes no real time. */
WRAPPED(clock_gettime);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts)
{
	int rc = __real_clock_gettime(clock, ts);

	pthread_mutex_lock(&lock);
	ts->tv_sec += (time_t)(skew / 1000000000);
	ts->tv_nsec += (long)(skew % 1000000000);
	pthread_mutex_unlock(&lock);
	if (ts->tv_nsec >= 1000000000) {
		ts->tv_nsec -= 1000000000;
		ts->tv_sec++;
	}
	return rc;
}

/* ---- the tests' side ---- */

static void reset(void)
{
	memset(&fake, 0, sizeof(fake));
	fake.attr.orig_attr.max_mr_size = UINT64_MAX;
	fake.attr.orig_attr.atomic_cap = IBV_ATOMIC_HCA;
	fake.attr.orig_attr.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	fake.lacks_err = EOPNOTSUPP;
	fake.fork = IBV_FORK_UNNEEDED;
	fake.state = IBV_QPS_RTS;
	memset(mrs, 0, sizeof(mrs));
	memset(mws, 0, sizeof(mws));
	wc_cnt = 0;
	vctx.sz = sizeof(vctx);
	vctx.advise_mr = advise_mr;
	vctx.query_device_ex = query_device_ex;
	vctx.context.device = &device;
	vctx.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	vctx.context.ops.alloc_mw = alloc_mw;
	vctx.context.ops.dealloc_mw = dealloc_mw;
	vctx.context.ops.post_send = post_send;
	vctx.context.ops.poll_cq = poll_cq;
	fake_pd.context = &vctx.context;
	fake_other_pd.context = &vctx.context;
	send_cq.context = &vctx.context;
	recv_cq.context = &vctx.context;
	fake_qp.context = &vctx.context;
	fake_qp.pd = &fake_pd;
	fake_qp.send_cq = &send_cq;
	fake_qp.recv_cq = &recv_cq;
	fake_qp.qp_num = 17;
	fake_qp.qp_type = IBV_QPT_RC;
}

bool fake_clean(void)
{
	return !fake.regs && !fake.mws;
}

void fake_refuse(enum fake_op op, int err, int times)
{
	fake.op = op;
	fake.err = err;
	fake.skip = 0;
	fake.times = times;
}

void fake_refuse_also(enum fake_op op, int err)
{
	fake.also_op = op;
	fake.also_err = err;
}

bool fake_peer(uint32_t rkey, uint64_t iova, uint64_t len, unsigned int access)
{
	const struct fake_mw *w = window_of(rkey);
	const struct fake_mr *m = &mrs[(rkey >> 8) % MRS];

	if (fake.removed)
		return false;
	if (w)
		return iova >= w->start && iova + len <= w->end &&
		       !(access & ~w->access);
	return rkey >> 8 < MRS && m->live && m->ibv.rkey == rkey &&
	       iova >= m->iova && iova + len <= m->iova + m->ibv.length &&
	       !(access & ~m->access);
}

char fake_logged[512];
int fake_log_cnt;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void on_log(void *ctx, int severity, const char *text)
{
	pthread_mutex_lock(&log_lock);
	snprintf(fake_logged, sizeof(fake_logged), "%s", text);
	fake_log_cnt++;
	pthread_mutex_unlock(&log_lock);
}

int fake_setup(void **state)
{
	fake_log_cnt = 0;
	fake_logged[0] = '\0';
	kedge_log_set(on_log, NULL, KEDGE_LOG_DEBUG);
	reset();
	return 0;
}

int fake_teardown(void **state)
{
	return fake_clean() ? 0 : -1;
}

struct kedge_device *fake_open(const struct kedge_verbs_opts *opts)
{
	struct kedge_verbs_opts o = { 0 };
	struct kedge_device *dev = NULL;

	if (opts)
		o = *opts;
	o.size = sizeof(o);
	assert_int_equal(kedge_device_open_verbs(&fake_pd, &o, &dev), 0);
	return dev;
}

void fake_wait(unsigned int ms)
{
	pthread_mutex_lock(&lock);
	skew += ms * UINT64_C(1000000);
	pthread_mutex_unlock(&lock);
}

uint32_t fake_rkey(const struct kedge_device_mr *mr)
{
	return (uint32_t)(mr->handle >> 32);
}

void fake_words(int rc, const char *words)
{
	if (!strstr(kedge_strerror(rc), words))
		fail_msg("\"%s\" does not say \"%s\"", kedge_strerror(rc),
			 words);
}
