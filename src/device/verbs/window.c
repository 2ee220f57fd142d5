// SPDX-License-Identifier: BSD-2-Clause
/*
 * Type-2 memory windows: a peer's right to a part of a registration, granted
 * and ended by a work request each, on a queue pair that was lent to us. One
 * work request is in flight at a time and waited for.
 *
 * A window is bound and its owner's, or in one of two lists: free, invalidated
 * or never bound; or lost: to be ended, but ibv_dealloc_mw() refused. Its key's
 * low byte is ours to count up at each bind. An old key that a peer remembers
 * gives no access until the byte has come round, so a window is deallocated
 * before that, and the free ones are taken in turn.
 *
 * A work request that fails puts the queue pair into error, which would end the
 * peer's connection: what the device would refuse is refused here before.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "base/base.h"
#include "device/verbs/internal.h"

/* The time that a work request may take, and the pause after one that took longer. */
#define WAIT_NS UINT64_C(1000000000)
#define RETRY_NS UINT64_C(1000000000)
/* Free windows kept at most. */
#define FREE_MAX 64u
/* Keys of one window, but for the one it was allocated with. */
#define KEYS_MAX 255u

/*
 * The vendor of soft-RoCE, which looks at a window's key and rights and then at
 * the bounds of the region alone: seen on Linux 6.1 and 6.12.
 */
#define SOFT_ROCE 0xffffffu

#define REMOTE_ALL                                                  \
	((uint32_t)(KEDGE_ACCESS_REMOTE_READ | KEDGE_ACCESS_REMOTE_WRITE | \
		    KEDGE_ACCESS_REMOTE_ATOMIC))

/*
 * @mw:   libibverbs'
 * @next: in one of the lists
 * @keys: that were given away
 */
struct window {
	struct ibv_mw *mw;
	struct window *next;
	unsigned int keys;
};

/* ---- the queue pair ---- */

/* No work request is posted until the queue pair is seen in RTS again. */
static int qp_failed(struct verbs *v, int rc)
{
	struct windows *w = &v->win;

	w->ready = false;
	kedge__log(KEDGE_LOG_WARN,
		   "memory windows by queue pair %#x of %s: %s; registrations "
		   "take their place until it works again",
		   w->qp->qp_num, v->name, kedge_strerror(rc));
	return rc;
}

static int qp_ready(struct verbs *v)
{
	struct ibv_qp_init_attr init;
	struct windows *w = &v->win;
	struct ibv_qp_attr attr;
	int err;

	if (likely(w->ready))
		return 0;
	if (clock_ns() < w->retry_at)
		return kedge_reason(-EOPNOTSUPP,
				    "queue pair %#x did not answer in time; it "
				    "is tried again after a second",
				    w->qp->qp_num);
	err = abs(ibv_query_qp(w->qp, &attr, IBV_QP_STATE, &init));
	if (err)
		return kedge_reason(-EOPNOTSUPP,
				    "queue pair %#x does not tell its state: "
				    "error %d",
				    w->qp->qp_num, err);
	if (attr.qp_state != IBV_QPS_RTS)
		return kedge_reason(-EOPNOTSUPP,
				    "queue pair %#x is in state %d and not in "
				    "RTS: connect it",
				    w->qp->qp_num, (int)attr.qp_state);
	w->ready = true;
	return 0;
}

/* The device answers in microseconds; where it is software, it needs a CPU. */
static void wait_a_little(unsigned int round)
{
	const struct timespec ts = { .tv_nsec = 50000 };

	if (round < 1000)
		cpu_relax();
	else if (round < 2000)
		sched_yield();
	else
		nanosleep(&ts, NULL);
}

static int wait_for(struct verbs *v, uint64_t id)
{
	const struct ibv_qp *qp = v->win.qp;
	uint64_t end = clock_after_ns(WAIT_NS);
	unsigned int round;
	struct ibv_wc wc;
	bool late;
	int got;

	for (round = 0;; round++) {
		/* First the clock: a thread that did not run has not waited. */
		late = clock_ns() >= end;
		got = ibv_poll_cq(qp->send_cq, 1, &wc);
		if (got < 0)
			return kedge_reason(-EIO, "ibv_poll_cq: error %d",
					    got);
		/* Any other completion came too late for its waiter. */
		if (got && wc.wr_id == id && wc.qp_num == qp->qp_num)
			break;
		if (late)
			return kedge_reason(-ETIMEDOUT, "no completion within "
							"a second");
		if (!got)
			wait_a_little(round);
	}
	if (wc.status == IBV_WC_SUCCESS)
		return 0;
	return kedge_reason(-EIO, "%s (vendor's error %#x)",
			    ibv_wc_status_str(wc.status), wc.vendor_err);
}

/* 0 or a negative errno, with its reason; then the queue pair is not ready. */
static int run(struct verbs *v, struct ibv_send_wr *wr)
{
	struct windows *w = &v->win;
	struct ibv_send_wr *bad;
	int rc;

	wr->wr_id = ++w->last_id;
	wr->send_flags = IBV_SEND_SIGNALED;
	rc = -abs(ibv_post_send(w->qp, wr, &bad));
	if (rc) {
		kedge_reason(rc, "ibv_post_send: error %d", -rc);
		return qp_failed(v, rc);
	}
	rc = wait_for(v, wr->wr_id);
	if (!rc)
		return 0;
	if (rc == -ETIMEDOUT)
		w->retry_at = clock_after_ns(RETRY_NS);
	return qp_failed(v, rc);
}

/* ---- windows ---- */

/* Also ends a peer's access, if it is bound. False: the kernel refuses. */
static bool dealloc(struct verbs *v, struct window *win, int *err)
{
	*err = kedge__verbs_errno(ibv_dealloc_mw(win->mw));
	if (*err && !kedge__verbs_gone(v, *err))
		return false;
	free(win);
	return true;
}

static void lose(struct verbs *v, struct window *win)
{
	struct windows *w = &v->win;

	win->next = w->lost;
	__atomic_store_n(&w->lost, win, __ATOMIC_RELAXED);
}

static void end_window(struct verbs *v, struct window *win)
{
	uint32_t rkey = win->mw->rkey;
	int err;

	if (dealloc(v, win, &err))
		return;
	lose(v, win);
	kedge__log(KEDGE_LOG_ERROR,
		   "ibv_dealloc_mw refuses the memory window of rkey %#x of %s "
		   "(error %d): whom the key was given may reach its memory "
		   "until a later registration or the close has ended it",
		   rkey, v->name, err);
}

static void retry_lost(struct verbs *v)
{
	struct windows *w = &v->win;
	struct window *win = w->lost;
	int err;

	if (!win)
		return;
	__atomic_store_n(&w->lost, win->next, __ATOMIC_RELAXED);
	if (!dealloc(v, win, &err))
		lose(v, win);
}

void kedge__verbs_windows_retry(struct verbs *v)
{
	struct windows *w = &v->win;

	/* Relaxed: a thread that misses one tries it next time. */
	if (likely(!__atomic_load_n(&w->lost, __ATOMIC_RELAXED)))
		return;
	/* Not for as long as another thread waits for a work request. */
	if (pthread_mutex_trylock(&w->lock))
		return;
	retry_lost(v);
	pthread_mutex_unlock(&w->lock);
}

static struct window *take_free(struct windows *w)
{
	struct window *win = w->free;

	if (!win)
		return NULL;
	w->free = win->next;
	if (!w->free)
		w->free_end = &w->free;
	w->free_cnt--;
	return win;
}

static void give_free(struct verbs *v, struct window *win)
{
	struct windows *w = &v->win;

	if (win->keys >= KEYS_MAX || w->free_cnt >= FREE_MAX) {
		end_window(v, win);
		return;
	}
	win->next = NULL;
	*w->free_end = win;
	w->free_end = &win->next;
	w->free_cnt++;
}

static struct window *new_window(struct verbs *v)
{
	struct window *win = malloc(sizeof(*win));

	if (!win) {
		kedge_reason(-EOPNOTSUPP, "no memory for a window");
		return NULL;
	}
	win->keys = 0;
	errno = 0;
	win->mw = ibv_alloc_mw(v->pd, IBV_MW_TYPE_2);
	if (!win->mw) {
		kedge_reason(-EOPNOTSUPP,
			     "%s gives no more memory windows: error %d",
			     v->name, errno);
		free(win);
		return NULL;
	}
	return win;
}

/* ---- the ops ---- */

static int check_bind(const struct verbs *v, const struct region *r,
		      uint64_t addr, uint64_t len, uint32_t access)
{
	uint64_t start = (uintptr_t)r->mr->addr;

	if (!*v->here)
		return kedge_reason(-ECHILD, "the RDMA device %s belongs to "
					     "the parent process", v->name);
	if (!len || addr < start || len > r->mr->length ||
	    addr - start > r->mr->length - len)
		return kedge_reason(-EINVAL, "the window is not within the "
					     "registration");
	if (v->win.boundless && len != r->mr->length)
		return kedge_reason(-EOPNOTSUPP,
				    "windows of %s do not confine a peer to a "
				    "part of a registration",
				    v->name);
	if (!(access & REMOTE_ALL) || access & ~KEDGE_ACCESS_ALL)
		return kedge_reason(-EINVAL,
				    "access %#x is not what a window gives",
				    access);
	if (access & ~v->access)
		return kedge_reason(-EOPNOTSUPP, "%s has no remote atomics",
				    v->name);
	if (!(r->flags & IBV_ACCESS_MW_BIND))
		return kedge_reason(-EOPNOTSUPP, "no window on memory that is "
						 "not writable");
	if (access & REMOTE_ALL & ~(uint32_t)KEDGE_ACCESS_REMOTE_READ &&
	    !(r->flags & IBV_ACCESS_LOCAL_WRITE))
		return kedge_reason(-EOPNOTSUPP,
				    "a window that lets a peer write needs a "
				    "registration with local write access");
	if (__atomic_load_n(&v->gone, __ATOMIC_RELAXED))
		return kedge_reason(-ENODEV, "the RDMA device %s is gone",
				    v->name);
	return 0;
}

/* The local rights are the region's. */
static unsigned int window_flags(uint32_t access)
{
	unsigned int flags = 0;

	if (access & KEDGE_ACCESS_REMOTE_READ)
		flags |= IBV_ACCESS_REMOTE_READ;
	if (access & KEDGE_ACCESS_REMOTE_WRITE)
		flags |= IBV_ACCESS_REMOTE_WRITE;
	if (access & KEDGE_ACCESS_REMOTE_ATOMIC)
		flags |= IBV_ACCESS_REMOTE_ATOMIC;
	return flags;
}

/* Bind a window as @info says. NULL: it cannot be had, and the reason is told. */
static struct window *bind_window(struct verbs *v,
				  const struct ibv_mw_bind_info *info)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW };
	struct window *win;

	if (qp_ready(v))
		return NULL;
	win = take_free(&v->win);
	if (!win)
		win = new_window(v);
	if (!win)
		return NULL;
	wr.bind_mw.mw = win->mw;
	wr.bind_mw.rkey = ibv_inc_rkey(win->mw->rkey);
	wr.bind_mw.bind_info = *info;
	if (run(v, &wr)) {
		end_window(v, win);
		return NULL;
	}
	/* libibverbs keeps it for type 1 alone. */
	win->mw->rkey = wr.bind_mw.rkey;
	win->keys++;
	return win;
}

int kedge__verbs_bind(void *ctx, const struct kedge_device_mr *mr, void *addr,
		      size_t len, uint32_t access,
		      struct kedge_device_mr *window)
{
	const struct region *r = (struct region *)(uintptr_t)mr->priv;
	struct ibv_mw_bind_info info = {
		.mr = r->mr,
		.length = len,
		.mw_access_flags = window_flags(access),
	};
	struct verbs *v = ctx;
	struct window *win;
	int rc;

	rc = check_bind(v, r, (uintptr_t)addr, len, access);
	if (rc)
		return rc;
	info.addr = (uintptr_t)addr + v->iova_offset;
	pthread_mutex_lock(&v->win.lock);
	retry_lost(v);
	win = bind_window(v, &info);
	pthread_mutex_unlock(&v->win.lock);
	/* The same errno for any failure: the cache registers instead. */
	if (!win)
		return -EOPNOTSUPP;
	window->handle = (uint64_t)win->mw->rkey << 32 | r->mr->lkey;
	window->offset = info.addr;
	window->priv = (uintptr_t)win;
	return 0;
}

void kedge__verbs_unbind(void *ctx, const struct kedge_device_mr *window)
{
	struct window *win = (struct window *)(uintptr_t)window->priv;
	struct ibv_send_wr wr = { .opcode = IBV_WR_LOCAL_INV };
	struct verbs *v = ctx;

	/* The calls below would end the parent's window. */
	if (!*v->here) {
		free(win);
		return;
	}
	pthread_mutex_lock(&v->win.lock);
	wr.invalidate_rkey = win->mw->rkey;
	if (v->win.ready && !run(v, &wr))
		give_free(v, win);
	else
		end_window(v, win);
	pthread_mutex_unlock(&v->win.lock);
}

/* ---- open and close ---- */

int kedge__verbs_windows_check(struct verbs *v, const struct ibv_qp *qp,
			       const struct ibv_device_attr *attr)
{
	v->win.boundless = attr->vendor_id == SOFT_ROCE;
	if (!(attr->device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A |
					IBV_DEVICE_MEM_WINDOW_TYPE_2B)))
		return kedge_reason(-EOPNOTSUPP,
				    "%s has no type-2 memory windows: open it "
				    "without window_qp",
				    v->name);
	if (qp->pd != v->pd)
		return kedge_reason(-EINVAL, "window_qp is of another "
					     "protection domain");
	if (qp->qp_type != IBV_QPT_RC && qp->qp_type != IBV_QPT_UC)
		return kedge_reason(-EINVAL, "window_qp is neither RC nor UC");
	if (!qp->send_cq || qp->send_cq == qp->recv_cq)
		return kedge_reason(-EINVAL,
				    "window_qp needs a send completion queue "
				    "that is not that of its receive queue");
	return 0;
}

int kedge__verbs_windows_init(struct verbs *v, struct ibv_qp *qp)
{
	struct windows *w = &v->win;

	w->qp = qp;
	w->free_end = &w->free;
	/* No completion of somebody else's has that for an id. */
	w->last_id = (uintptr_t)w;
	return -pthread_mutex_init(&w->lock, NULL);
}

static struct window *drop_next(struct window *win)
{
	struct window *next = win->next;

	free(win);
	return next;
}

void kedge__verbs_windows_fini(struct verbs *v)
{
	struct windows *w = &v->win;
	struct window *win, *next;
	unsigned int left = 0;
	int err = 0, last = 0;

	if (*v->here) {
		while ((win = take_free(w)) != NULL)
			if (!dealloc(v, win, &err))
				lose(v, win);
		win = w->lost;
		for (w->lost = NULL; win; win = next) {
			next = win->next;
			if (!dealloc(v, win, &err)) {
				lose(v, win);
				left++;
				last = err;
			}
		}
	}
	if (left)
		kedge__log(KEDGE_LOG_ERROR,
			   "%u memory windows of %s could not be ended (error "
			   "%d): they last until the RDMA context is closed",
			   left, v->name, last);
	while (w->lost)
		w->lost = drop_next(w->lost);
	while (w->free)
		w->free = drop_next(w->free);
	pthread_mutex_destroy(&w->lock);
}
