// SPDX-License-Identifier: BSD-2-Clause
/* The verbs device's memory windows, against a fake RDMA device. */
#include "cases.h"
#include "base/base.h"
#include "device/device.h"
#include "fakes/faults.h"
#include "fakes/verbs.h"

#define PAGE 4096u
#define R KEDGE_ACCESS_REMOTE_READ
#define W KEDGE_ACCESS_REMOTE_WRITE
#define LW KEDGE_ACCESS_LOCAL_WRITE

static char area[6 * PAGE] __attribute__((aligned(PAGE)));
static char *const page = area + PAGE;
#define LEN (4 * PAGE)
static struct kedge_device *dev;

static int setup(void **state)
{
	const struct kedge_verbs_opts o = { .window_qp = &fake_qp };

	fake_setup(state);
	dev = fake_open(&o);
	memset(fake.calls, 0, sizeof(fake.calls));
	return 0;
}

static int teardown(void **state)
{
	kedge_device_close(dev);
	return fake_teardown(state);
}

static struct kedge_device_mr reg(uint32_t access)
{
	struct kedge_device_mr mr;

	assert_int_equal(device_reg(dev, page, LEN, access, &mr), 0);
	return mr;
}

static int bind_part(const struct kedge_device_mr *mr, uint32_t access,
		     struct kedge_device_mr *w)
{
	return dev->ops.bind(dev->ctx, mr, page + 10, 100, access, w);
}

static void unbind(const struct kedge_device_mr *w)
{
	dev->ops.unbind(dev->ctx, w);
}

static bool peer(const struct kedge_device_mr *w, uint64_t len,
		 unsigned int access)
{
	return fake_peer(fake_rkey(w), w->offset, len, access);
}

/* ---- open ---- */

static void expect_refusal(struct ibv_qp *qp, int rc, const char *words)
{
	struct kedge_verbs_opts o = { .size = sizeof(o), .window_qp = qp };
	struct kedge_device *before = (struct kedge_device *)0x1, *d = before;

	assert_int_equal(kedge_device_open_verbs(&fake_pd, &o, &d), rc);
	assert_ptr_equal(d, before);
	fake_words(rc, words);
}

static void a_queue_pair_that_cannot_bind_is_refused(void **state)
{
	struct ibv_qp qp = fake_qp;

	qp.pd = &fake_other_pd;
	expect_refusal(&qp, -EINVAL, "another protection domain");
	qp = fake_qp;
	qp.qp_type = IBV_QPT_UD;
	expect_refusal(&qp, -EINVAL, "neither RC nor UC");
	qp = fake_qp;
	qp.recv_cq = qp.send_cq;
	expect_refusal(&qp, -EINVAL, "completion queue");
	fake.attr.orig_attr.device_cap_flags = IBV_DEVICE_MEM_WINDOW;
	expect_refusal(&fake_qp, -EOPNOTSUPP, "no type-2 memory windows");
	/* It says so, and yet registers nothing for them. */
	fake.attr.orig_attr.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2A;
	fake.lacks = IBV_ACCESS_MW_BIND;
	expect_refusal(&fake_qp, -EOPNOTSUPP, "access 0x10");
}

static void without_a_queue_pair_there_are_no_windows(void **state)
{
	struct kedge_device *plain = fake_open(NULL);

	assert_null(plain->ops.bind);
	assert_null(plain->ops.unbind);
	kedge_device_close(plain);
}

/* ---- windows ---- */

static void a_window_gives_what_it_says_until_it_ends(void **state)
{
	struct kedge_device_mr mr = reg(LW), w;

	assert_false(fake_peer(fake_rkey(&mr), mr.offset, 1,
			       IBV_ACCESS_REMOTE_WRITE));
	assert_int_equal(bind_part(&mr, W, &w), 0);
	assert_int_equal(w.offset, (uintptr_t)page + 10);
	assert_true(peer(&w, 100, IBV_ACCESS_REMOTE_WRITE));
	assert_false(peer(&w, 101, IBV_ACCESS_REMOTE_WRITE));
	assert_false(peer(&w, 1, IBV_ACCESS_REMOTE_READ));
	unbind(&w);
	assert_false(peer(&w, 1, IBV_ACCESS_REMOTE_WRITE));
	assert_int_equal(bind_part(&mr, LW | R, &w), 0);
	assert_true(peer(&w, 1, IBV_ACCESS_REMOTE_READ));
	assert_false(peer(&w, 1, IBV_ACCESS_REMOTE_WRITE));
	unbind(&w);
	/* The second took the first's window and asked for no state again. */
	assert_int_equal(fake.calls[FAKE_ALLOC_MW], 1);
	assert_int_equal(fake.calls[FAKE_QUERY_QP], 1);
	device_dereg(dev, &mr);
	assert_int_equal(fake_log_cnt, 0);
}

static void windows_know_moved_addresses(void **state)
{
	const struct kedge_verbs_opts o = { .window_qp = &fake_qp,
					    .iova_offset = 7 * PAGE };
	struct kedge_device_mr mr, w;

	kedge_device_close(dev);
	dev = fake_open(&o);
	mr = reg(LW);
	assert_int_equal(bind_part(&mr, W, &w), 0);
	assert_int_equal(w.offset, (uintptr_t)page + 10 + 7 * PAGE);
	assert_true(peer(&w, 100, IBV_ACCESS_REMOTE_WRITE));
	unbind(&w);
	device_dereg(dev, &mr);
}

/* A work request that the device refuses ends the connection: none is made. */
static void what_the_device_would_refuse_is_not_posted(void **state)
{
	struct kedge_device_mr mr = reg(LW), ro, w;

	assert_int_equal(bind_part(&mr, 0, &w), -EINVAL);
	assert_int_equal(bind_part(&mr, LW, &w), -EINVAL);
	assert_int_equal(bind_part(&mr, W | 16, &w), -EINVAL);
	assert_int_equal(dev->ops.bind(dev->ctx, &mr, page, 0, W, &w), -EINVAL);
	assert_int_equal(dev->ops.bind(dev->ctx, &mr, page - 1, 2, W, &w),
			 -EINVAL);
	assert_int_equal(dev->ops.bind(dev->ctx, &mr, page + 1, LEN, W,
				       &w), -EINVAL);
	assert_int_equal(dev->ops.bind(dev->ctx, &mr, page + 1, SIZE_MAX, W,
				       &w), -EINVAL);
	device_dereg(dev, &mr);
	/* The region is not the device's to write. */
	mr = reg(0);
	assert_int_equal(bind_part(&mr, W, &w), -EOPNOTSUPP);
	assert_int_equal(bind_part(&mr, LW | R, &w), 0);
	unbind(&w);
	device_dereg(dev, &mr);
	/* Nor is the memory, which a window wants all the same. */
	fake.readonly = true;
	ro = reg(R);
	assert_int_equal(fake.access, IBV_ACCESS_REMOTE_READ);
	assert_int_equal(bind_part(&ro, R, &w), -EOPNOTSUPP);
	device_dereg(dev, &ro);
	assert_int_equal(fake.calls[FAKE_POST], 2);
	assert_int_equal(fake.state, IBV_QPS_RTS);
}

static void atomics_are_only_given_where_there_are_some(void **state)
{
	const struct kedge_verbs_opts o = { .window_qp = &fake_qp };
	struct kedge_device_mr mr = reg(LW), w;

	assert_int_equal(bind_part(&mr, KEDGE_ACCESS_REMOTE_ATOMIC, &w), 0);
	assert_true(peer(&w, 8, IBV_ACCESS_REMOTE_ATOMIC));
	unbind(&w);
	device_dereg(dev, &mr);
	kedge_device_close(dev);
	fake.attr.orig_attr.atomic_cap = IBV_ATOMIC_NONE;
	dev = fake_open(&o);
	mr = reg(LW);
	assert_int_equal(bind_part(&mr, KEDGE_ACCESS_REMOTE_ATOMIC, &w),
			 -EOPNOTSUPP);
	device_dereg(dev, &mr);
}

static void windows_without_bounds_take_all_or_nothing(void **state)
{
	const struct kedge_verbs_opts o = { .window_qp = &fake_qp };
	struct kedge_device_mr mr, w;

	kedge_device_close(dev);
	fake.attr.orig_attr.vendor_id = 0xffffff;
	dev = fake_open(&o);
	mr = reg(LW);
	assert_int_equal(bind_part(&mr, W, &w), -EOPNOTSUPP);
	fake_words(-EOPNOTSUPP, "do not confine");
	assert_int_equal(dev->ops.bind(dev->ctx, &mr, page, LEN, W,
				       &w), 0);
	unbind(&w);
	device_dereg(dev, &mr);
}

/* ---- keys and the pool ---- */

static void no_key_is_given_twice(void **state)
{
	struct kedge_device_mr mr = reg(LW), w;
	static uint32_t seen[2 * 255 + 1];
	int i, j;

	for (i = 0; i < 2 * 255 + 1; i++) {
		assert_int_equal(bind_part(&mr, W, &w), 0);
		seen[i] = fake_rkey(&w);
		for (j = 0; j < i; j++)
			assert_int_not_equal(seen[j], seen[i]);
		unbind(&w);
	}
	/* 255 keys of each, and the first of the third. */
	assert_int_equal(fake.calls[FAKE_ALLOC_MW], 3);
	assert_int_equal(fake.calls[FAKE_DEALLOC_MW], 2);
	device_dereg(dev, &mr);
}

static void the_pool_has_a_bound_and_takes_turns(void **state)
{
	struct kedge_device_mr mr = reg(LW), w[100], more;
	int i;

	for (i = 0; i < 100; i++)
		assert_int_equal(bind_part(&mr, W, &w[i]), 0);
	assert_int_equal(fake.mws, 100);
	for (i = 0; i < 100; i++)
		unbind(&w[i]);
	assert_int_equal(fake.mws, 64);
	/* The window freed first comes first. */
	assert_int_equal(bind_part(&mr, W, &more), 0);
	assert_int_equal(fake_rkey(&more) >> 8, fake_rkey(&w[0]) >> 8);
	unbind(&more);
	device_dereg(dev, &mr);
}

static void a_device_without_more_windows_is_told(void **state)
{
	struct kedge_device_mr mr = reg(LW), w;
	long live = fault_live();

	fake_refuse(FAKE_ALLOC_MW, ENOMEM, 1);
	assert_int_equal(bind_part(&mr, W, &w), -EOPNOTSUPP);
	fake_words(-EOPNOTSUPP, "no more memory windows: error 12");
	fault_at(1);
	assert_int_equal(bind_part(&mr, W, &w), -EOPNOTSUPP);
	fault_at(0);
	assert_int_equal(fault_live(), live);
	assert_int_equal(bind_part(&mr, W, &w), 0);
	unbind(&w);
	device_dereg(dev, &mr);
	assert_int_equal(fake_log_cnt, 0);
}

/* ---- a queue pair that fails ---- */

static void an_unconnected_queue_pair_is_waited_for(void **state)
{
	struct kedge_device_mr mr = reg(LW), w;

	fake.state = IBV_QPS_INIT;
	assert_int_equal(bind_part(&mr, W, &w), -EOPNOTSUPP);
	fake_words(-EOPNOTSUPP, "not in RTS");
	assert_int_equal(fake.calls[FAKE_POST], 0);
	fake.state = IBV_QPS_RTS;
	fake_refuse(FAKE_QUERY_QP, EPERM, 1);
	assert_int_equal(bind_part(&mr, W, &w), -EOPNOTSUPP);
	assert_int_equal(bind_part(&mr, W, &w), 0);
	unbind(&w);
	device_dereg(dev, &mr);
	assert_int_equal(fake_log_cnt, 0);
}

static void check_failing_bind(enum fake_op op, int err, const char *words)
{
	struct kedge_device_mr mr = reg(LW), w;

	fake_log_cnt = 0;
	fake_refuse(op, err, 1);
	assert_int_equal(bind_part(&mr, W, &w), -EOPNOTSUPP);
	assert_int_equal(fake_log_cnt, 1);
	if (!strstr(fake_logged, words))
		fail_msg("\"%s\" does not say \"%s\"", fake_logged, words);
	/* A window in doubt is gone. */
	assert_int_equal(fake.mws, 0);
	fake.state = IBV_QPS_RTS;
	assert_int_equal(bind_part(&mr, W, &w), 0);
	unbind(&w);
	device_dereg(dev, &mr);
}

static void a_bind_that_fails_leaves_nothing(void **state)
{
	check_failing_bind(FAKE_POST, ENOMEM, "ibv_post_send: error 12");
	check_failing_bind(FAKE_BIND, 1, "memory management operation error");
	check_failing_bind(FAKE_POLL, 1, "ibv_poll_cq");
}

static void check_failing_unbind(enum fake_op op, int err)
{
	struct kedge_device_mr mr = reg(LW), w;

	assert_int_equal(bind_part(&mr, W, &w), 0);
	fake_log_cnt = 0;
	fake_refuse(op, err, 1);
	unbind(&w);
	assert_int_equal(fake_log_cnt, 1);
	assert_false(peer(&w, 1, IBV_ACCESS_REMOTE_WRITE));
	device_dereg(dev, &mr);
	assert_int_equal(fake.regs, 0);
	fake.state = IBV_QPS_RTS;
}

static void access_ends_where_the_queue_pair_fails(void **state)
{
	check_failing_unbind(FAKE_POST, EINVAL);
	check_failing_unbind(FAKE_INVALIDATE, 1);
	check_failing_unbind(FAKE_POLL, 1);
}

static void a_queue_pair_in_error_ends_windows_by_the_kernel(void **state)
{
	struct kedge_device_mr mr = reg(LW), a, b, c;

	assert_int_equal(bind_part(&mr, W, &a), 0);
	assert_int_equal(bind_part(&mr, W, &b), 0);
	fake.state = IBV_QPS_ERR;
	unbind(&a);
	assert_non_null(strstr(fake_logged, "Flushed"));
	unbind(&b);
	assert_false(peer(&a, 1, IBV_ACCESS_REMOTE_WRITE));
	assert_false(peer(&b, 1, IBV_ACCESS_REMOTE_WRITE));
	assert_int_equal(fake_log_cnt, 1);
	assert_int_equal(fake.calls[FAKE_POST], 3);
	assert_int_equal(bind_part(&mr, W, &c), -EOPNOTSUPP);
	fake.state = IBV_QPS_RTS;
	assert_int_equal(bind_part(&mr, W, &c), 0);
	unbind(&c);
	device_dereg(dev, &mr);
}

static void no_answer_is_no_hang(void **state)
{
	struct kedge_device_mr mr = reg(LW), w;
	uint64_t start = clock_ns();

	fake.silent = true;
	assert_int_equal(bind_part(&mr, W, &w), -EOPNOTSUPP);
	assert_non_null(strstr(fake_logged, "no completion within a second"));
	assert_true(clock_ns() - start < UINT64_C(5000000000));
	assert_int_equal(fake.mws, 0);
	/* Not again at once. */
	assert_int_equal(bind_part(&mr, W, &w), -EOPNOTSUPP);
	fake_words(-EOPNOTSUPP, "tried again");
	assert_int_equal(fake.calls[FAKE_POST], 1);
	fake.silent = false;
	fake_wait(1100);
	assert_int_equal(bind_part(&mr, W, &w), 0);
	fake.silent = true;
	unbind(&w);
	assert_false(peer(&w, 1, IBV_ACCESS_REMOTE_WRITE));
	assert_int_equal(fake_log_cnt, 2);
	device_dereg(dev, &mr);
}

/* The completion that nobody waited for any more is not the next one's. */
static void late_answers_are_nobodys(void **state)
{
	struct kedge_device_mr mr = reg(LW), a, b;

	fake.late = true;
	assert_int_equal(bind_part(&mr, W, &a), -EOPNOTSUPP);
	assert_int_equal(fake.mws, 0);
	assert_int_equal(fake.regs, 1);
	fake_wait(1100);
	fake.late = false;
	/* The late one's success is not that of the next. */
	fake_refuse(FAKE_BIND, 1, 1);
	assert_int_equal(bind_part(&mr, W, &b), -EOPNOTSUPP);
	fake.state = IBV_QPS_RTS;
	assert_int_equal(bind_part(&mr, W, &b), 0);
	assert_true(peer(&b, 1, IBV_ACCESS_REMOTE_WRITE));
	unbind(&b);
	assert_false(peer(&b, 1, IBV_ACCESS_REMOTE_WRITE));
	device_dereg(dev, &mr);
}

/* ---- what cannot be ended ---- */

static void a_lost_window_is_tried_again(void **state)
{
	struct kedge_device_mr mr = reg(LW), w, other;

	assert_int_equal(bind_part(&mr, W, &w), 0);
	fake.state = IBV_QPS_ERR;
	fake_refuse(FAKE_DEALLOC_MW, EBUSY, 2);
	unbind(&w);
	assert_non_null(strstr(fake_logged, "ibv_dealloc_mw refuses"));
	assert_true(peer(&w, 1, IBV_ACCESS_REMOTE_WRITE));
	/* Its region cannot go before it, and both are tried by each reg. */
	device_dereg(dev, &mr);
	assert_non_null(strstr(fake_logged, "a window bound to it?"));
	assert_int_equal(fake.regs, 1);
	other = reg(0);
	assert_int_equal(fake.mws, 1);
	device_dereg(dev, &other);
	other = reg(0);
	assert_int_equal(fake.mws, 0);
	assert_int_equal(fake.regs, 1);
	assert_false(peer(&w, 1, IBV_ACCESS_REMOTE_WRITE));
	device_dereg(dev, &other);
	assert_int_equal(fake_log_cnt, 3);
}

static void the_close_ends_lost_windows_first(void **state)
{
	const struct kedge_verbs_opts o = { .window_qp = &fake_qp };
	struct kedge_device_mr mr = reg(LW), w;

	assert_int_equal(bind_part(&mr, W, &w), 0);
	fake.state = IBV_QPS_ERR;
	fake_refuse(FAKE_DEALLOC_MW, -1, 1);
	unbind(&w);
	device_dereg(dev, &mr);
	fake_log_cnt = 0;
	kedge_device_close(dev);
	assert_true(fake_clean());
	assert_int_equal(fake_log_cnt, 0);

	/* Or says that it cannot. */
	fake.state = IBV_QPS_RTS;
	dev = fake_open(&o);
	mr = reg(LW);
	assert_int_equal(bind_part(&mr, W, &w), 0);
	unbind(&w);
	device_dereg(dev, &mr);
	fake_refuse(FAKE_DEALLOC_MW, EBUSY, 2);
	kedge_device_close(dev);
	assert_int_equal(fake_log_cnt, 1);
	assert_non_null(strstr(fake_logged, "1 memory windows of fake0"));
	fake.mws = 0;
	fake.times = 0;
	dev = fake_open(&o);
}

static void a_removed_device_has_no_windows(void **state)
{
	struct kedge_device_mr mr = reg(LW), w, other;

	assert_int_equal(bind_part(&mr, W, &w), 0);
	fake.removed = true;
	fake.state = IBV_QPS_ERR;
	unbind(&w);
	device_dereg(dev, &mr);
	assert_int_equal(device_reg(dev, page, PAGE, 0, &other), -ENODEV);
	/* The queue pair's failure, and the device's. */
	assert_int_equal(fake_log_cnt, 2);
	assert_non_null(strstr(fake_logged, "fake0 is gone"));
	fake.regs = 0;
	fake.mws = 0;
}

/* ---- threads and processes ---- */

static void a_forked_child_leaves_windows_alone(void **state)
{
	struct kedge_device_mr mr = reg(LW), w, pooled, other;
	int status;
	pid_t pid;

	assert_int_equal(bind_part(&mr, W, &w), 0);
	assert_int_equal(bind_part(&mr, W, &pooled), 0);
	unbind(&pooled);
	memset(fake.calls, 0, sizeof(fake.calls));
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		status = bind_part(&mr, W, &other) != -ECHILD;
		unbind(&w);
		device_dereg(dev, &mr);
		kedge_device_close(dev);
		_exit(status || fake.calls[FAKE_POST] ||
		      fake.calls[FAKE_DEALLOC_MW] || fake.calls[FAKE_DEREG]);
	}
	ended_well(pid);
	unbind(&w);
	device_dereg(dev, &mr);
}

static void *churn(void *arg)
{
	struct kedge_device_mr mr, w;
	intptr_t bad = 0;
	int i;

	for (i = 0; i < 2000; i++) {
		if (device_reg(dev, page, LEN, LW, &mr))
			return (void *)1;
		if (!bind_part(&mr, W, &w)) {
			bad += !peer(&w, 100, IBV_ACCESS_REMOTE_WRITE);
			unbind(&w);
		}
		device_dereg(dev, &mr);
	}
	return (void *)bad;
}

static void threads_take_turns(void **state)
{
	pthread_t thread[4];

	fake_refuse(FAKE_DEALLOC_MW, EBUSY, 100);
	run_threads(thread, 4, churn, NULL, 0);
	join_threads(thread, 4);
	fake.times = 0;
	assert_int_equal(fake.regs, 0);
	assert_int_equal(fake.state, IBV_QPS_RTS);
}

#include "test_verbs_window.cases.h"
