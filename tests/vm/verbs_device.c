// SPDX-License-Identifier: BSD-2-Clause
/*
 * The verbs device on a real RDMA stack: what a peer reaches, and what it does
 * not. The peer is a queue pair of this process, on the same device. Needs
 * soft-RoCE or an adapter that loops back; RDMA_SERVER_DEV and RDMA_SERVER_GID
 * name the device and the index of its address.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <infiniband/verbs.h>

#include <kedge/verbs.h>

#include "device/device.h"

#define PAGE 4096u
#define LEN (4 * PAGE)
#define R KEDGE_ACCESS_REMOTE_READ
#define W KEDGE_ACCESS_REMOTE_WRITE
#define LW KEDGE_ACCESS_LOCAL_WRITE
#define OFFSET (UINT64_C(1) << 44)

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *home_cq, *home_recv_cq, *peer_cq;
static struct ibv_qp *home, *peer;
static union ibv_gid gid;
static uint8_t gid_index;
static char *mem, *peer_mem;
static struct ibv_mr *peer_mr;
static struct kedge_device *dev;

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* ---- queue pairs ---- */

static struct ibv_qp *new_qp(struct ibv_cq *send, struct ibv_cq *recv)
{
	struct ibv_qp_init_attr init = {
		.send_cq = send,
		.recv_cq = recv,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	return ibv_create_qp(pd, &init);
}

static void bring_up(struct ibv_qp *qp, uint32_t other)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };

	assert_int_equal(ibv_modify_qp(qp, &a, IBV_QP_STATE), 0);
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_WRITE,
	};
	assert_int_equal(ibv_modify_qp(qp, &a,
				       IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					       IBV_QP_PORT |
					       IBV_QP_ACCESS_FLAGS), 0);
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = other,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = gid, .sgid_index = gid_index,
				      .hop_limit = 1 } },
	};
	assert_int_equal(ibv_modify_qp(qp, &a,
				       IBV_QP_STATE | IBV_QP_AV |
					       IBV_QP_PATH_MTU |
					       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					       IBV_QP_MAX_DEST_RD_ATOMIC |
					       IBV_QP_MIN_RNR_TIMER), 0);
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	assert_int_equal(ibv_modify_qp(qp, &a,
				       IBV_QP_STATE | IBV_QP_TIMEOUT |
					       IBV_QP_RETRY_CNT |
					       IBV_QP_RNR_RETRY |
					       IBV_QP_SQ_PSN |
					       IBV_QP_MAX_QP_RD_ATOMIC), 0);
}

static void reconnect(void)
{
	bring_up(home, peer->qp_num);
	bring_up(peer, home->qp_num);
}

/*
 * Tries the peer's access by @rkey. A refused one ends the connection:
 * then it is made anew.
 */
static enum ibv_wc_status attempt(enum ibv_wr_opcode op, uint32_t rkey,
				  uint64_t iova, uint32_t len)
{
	struct ibv_sge sge = { .addr = (uintptr_t)peer_mem, .length = len,
			       .lkey = peer_mr->lkey };
	struct ibv_send_wr wr = { .opcode = op, .sg_list = &sge, .num_sge = 1,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	uint64_t end = now_ms() + 20000;
	struct ibv_wc wc;
	int got;

	wr.wr.rdma.remote_addr = iova;
	wr.wr.rdma.rkey = rkey;
	assert_int_equal(ibv_post_send(peer, &wr, &bad), 0);
	do
		got = ibv_poll_cq(peer_cq, 1, &wc);
	while (!got && now_ms() < end);
	assert_int_equal(got, 1);
	if (wc.status != IBV_WC_SUCCESS)
		reconnect();
	return wc.status;
}

static void reaches(enum ibv_wr_opcode op, uint32_t rkey, uint64_t iova,
		    uint32_t len)
{
	enum ibv_wc_status status = attempt(op, rkey, iova, len);

	if (status != IBV_WC_SUCCESS)
		fail_msg("refused: %s", ibv_wc_status_str(status));
}

static void refused(enum ibv_wr_opcode op, uint32_t rkey, uint64_t iova,
		    uint32_t len)
{
	enum ibv_wc_status status = attempt(op, rkey, iova, len);

	if (status != IBV_WC_REM_ACCESS_ERR)
		fail_msg("%s", ibv_wc_status_str(status));
}

/* ---- the device ---- */

static void open_device(uint64_t iova_offset, bool windows)
{
	struct kedge_verbs_opts o = { .size = sizeof(o),
				      .iova_offset = iova_offset,
				      .window_qp = windows ? home : NULL };
	int rc = kedge_device_open_verbs(pd, &o, &dev);

	if (rc)
		fail_msg("%s", kedge_strerror(rc));
}

static struct kedge_device_mr reg(char *at, size_t len, uint32_t access)
{
	struct kedge_device_mr mr;
	int rc = device_reg(dev, at, len, access, &mr);

	if (rc)
		fail_msg("%s", kedge_strerror(rc));
	return mr;
}

static int try_bind(const struct kedge_device_mr *mr, char *at, size_t len,
		    uint32_t access, struct kedge_device_mr *window)
{
	return dev->ops.bind(dev->ctx, mr, at, len, access, window);
}

static struct kedge_device_mr bind_to(const struct kedge_device_mr *mr,
				      char *at, size_t len, uint32_t access)
{
	struct kedge_device_mr window;
	int rc = try_bind(mr, at, len, access, &window);

	if (rc)
		fail_msg("%s", kedge_strerror(rc));
	return window;
}

static void unbind(const struct kedge_device_mr *window)
{
	dev->ops.unbind(dev->ctx, window);
}

static uint32_t rkey(const struct kedge_device_mr *mr)
{
	return (uint32_t)(mr->handle >> 32);
}

static int setup(void **state)
{
	memset(mem, 0, LEN);
	memset(peer_mem, 'p', LEN);
	reconnect();
	return 0;
}

static int teardown(void **state)
{
	kedge_device_close(dev);
	dev = NULL;
	return 0;
}

/* ---- registrations ---- */

static void check_exact(uint64_t offset)
{
	struct kedge_device_mr mr;
	uint64_t at = (uintptr_t)mem + 100 + offset;

	open_device(offset, false);
	mr = reg(mem + 100, 5000, W);
	assert_int_equal(mr.offset, at);
	reaches(IBV_WR_RDMA_WRITE, rkey(&mr), at, 5000);
	assert_int_equal(mem[99], 0);
	assert_int_equal(mem[100], 'p');
	assert_int_equal(mem[5099], 'p');
	assert_int_equal(mem[5100], 0);
	memset(mem, 0, LEN);
	refused(IBV_WR_RDMA_WRITE, rkey(&mr), at, 5001);
	refused(IBV_WR_RDMA_WRITE, rkey(&mr), at + 5000, 1);
	refused(IBV_WR_RDMA_WRITE, rkey(&mr), at - 1, 1);
	refused(IBV_WR_RDMA_READ, rkey(&mr), at, 1);
	assert_int_equal(mem[99], 0);
	assert_int_equal(mem[5100], 0);
	device_dereg(dev, &mr);
	refused(IBV_WR_RDMA_WRITE, rkey(&mr), at, 1);
	assert_int_equal(mem[100], 0);
}

static void a_peer_reaches_the_range_and_no_more(void **state)
{
	check_exact(0);
}

static void addresses_may_be_moved(void **state)
{
	check_exact(OFFSET);
}

static void a_read_only_region_is_read(void **state)
{
	char *ro = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct kedge_device_mr mr, window;

	assert_ptr_not_equal(ro, MAP_FAILED);
	memset(ro, 'r', PAGE);
	assert_int_equal(mprotect(ro, PAGE, PROT_READ), 0);
	open_device(0, true);
	assert_int_equal(device_reg(dev, ro, PAGE, W, &mr), -EFAULT);
	assert_non_null(strstr(kedge_strerror(-EFAULT), "not writable"));
	mr = reg(ro, PAGE, R);
	reaches(IBV_WR_RDMA_READ, rkey(&mr), mr.offset, PAGE);
	assert_int_equal(peer_mem[PAGE - 1], 'r');
	refused(IBV_WR_RDMA_WRITE, rkey(&mr), mr.offset, 1);
	assert_int_equal(try_bind(&mr, ro, PAGE, R, &window), -EOPNOTSUPP);
	device_dereg(dev, &mr);
	munmap(ro, PAGE);
}

static void what_is_not_mapped_is_refused(void **state)
{
	char *hole = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct kedge_device_mr mr;

	munmap(hole + PAGE, PAGE);
	open_device(0, false);
	assert_int_equal(device_reg(dev, hole, 4 * PAGE, LW, &mr), -EFAULT);
	assert_non_null(strstr(kedge_strerror(-EFAULT), "not mapped"));
	munmap(hole, 4 * PAGE);
}

/* In a child, which opens the RDMA device for itself. */
static int over_the_limit(void)
{
	const struct rlimit limit = { 8 * PAGE, 8 * PAGE };
	struct kedge_device_mr mr;
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *mine = list ? ibv_open_device(list[0]) : NULL;
	struct ibv_pd *my_pd = mine ? ibv_alloc_pd(mine) : NULL;
	struct kedge_device *d;
	int rc;

	if (!my_pd || setrlimit(RLIMIT_MEMLOCK, &limit) || setuid(65534))
		return 1;
	if (kedge_device_open_verbs(my_pd, NULL, &d))
		return 2;
	if (device_reg(d, mem, LEN, LW, &mr))
		return 3;
	rc = device_reg(d, peer_mem, 8 * PAGE, LW, &mr);
	if (rc != -ENOMEM || !strstr(kedge_strerror(rc), "RLIMIT_MEMLOCK is 32"
						       " KiB, this process has "
						       "pinned 16 KiB")) {
		fprintf(stderr, "%d: %s\n", rc, kedge_strerror(rc));
		return 4;
	}
	return 0;
}

static void the_limit_is_named(void **state)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(over_the_limit());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void a_forked_child_leaves_regions_alone(void **state)
{
	struct kedge_device_mr mr, other;
	int status;
	pid_t pid;

	open_device(0, true);
	mr = reg(mem, LEN, W);
	pid = fork();
	if (!pid) {
		status = device_reg(dev, mem, PAGE, 0, &other) != -ECHILD;
		device_dereg(dev, &mr);
		kedge_device_close(dev);
		_exit(status);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	reaches(IBV_WR_RDMA_WRITE, rkey(&mr), mr.offset, LEN);
	assert_int_equal(mem[LEN - 1], 'p');
	device_dereg(dev, &mr);
}

/* ---- windows ---- */

static void check_windows(uint64_t offset)
{
	struct kedge_device_mr mr, w;

	open_device(offset, true);
	mr = reg(mem + 50, 5000, LW);
	refused(IBV_WR_RDMA_WRITE, rkey(&mr), mr.offset, 1);
	w = bind_to(&mr, mem + 50, 5000, W);
	assert_int_equal(w.offset, (uintptr_t)mem + 50 + offset);
	reaches(IBV_WR_RDMA_WRITE, rkey(&w), w.offset, 5000);
	assert_int_equal(mem[49], 0);
	assert_int_equal(mem[50], 'p');
	assert_int_equal(mem[5049], 'p');
	assert_int_equal(mem[5050], 0);
	refused(IBV_WR_RDMA_WRITE, rkey(&w), w.offset, 5001);
	unbind(&w);
	w = bind_to(&mr, mem + 50, 5000, W);
	refused(IBV_WR_RDMA_READ, rkey(&w), w.offset, 1);
	unbind(&w);
	memset(mem, 0, LEN);
	refused(IBV_WR_RDMA_WRITE, rkey(&w), w.offset, 1);
	assert_int_equal(mem[50], 0);
	device_dereg(dev, &mr);
}

static void an_ended_window_lets_nobody_in(void **state)
{
	check_windows(0);
}

static void windows_know_moved_addresses(void **state)
{
	check_windows(OFFSET);
}

/* A device of ours may do no access beside a window; soft-RoCE would: it has no window then. */
static void a_window_has_its_bounds(void **state)
{
	struct kedge_device_mr mr, w;
	int rc;

	open_device(0, true);
	mr = reg(mem, LEN, LW);
	rc = try_bind(&mr, mem + 50, 5000, W, &w);
	if (!rc) {
		refused(IBV_WR_RDMA_WRITE, rkey(&w), w.offset + 5000, 1);
		assert_int_equal(mem[5050], 0);
		unbind(&w);
	} else {
		assert_int_equal(rc, -EOPNOTSUPP);
		assert_non_null(strstr(kedge_strerror(rc), "do not confine"));
	}
	device_dereg(dev, &mr);
}

static void old_keys_open_nothing(void **state)
{
	struct kedge_device_mr mr, w;
	uint32_t first = 0;
	int i;

	open_device(0, true);
	mr = reg(mem, PAGE, LW);
	for (i = 0; i < 600; i++) {
		w = bind_to(&mr, mem, PAGE, W);
		assert_int_not_equal(rkey(&w), first);
		if (!i)
			first = rkey(&w);
		if (i != 599)
			unbind(&w);
	}
	refused(IBV_WR_RDMA_WRITE, first, mr.offset, 1);
	assert_int_equal(mem[0], 0);
	/* That broke the connection, but the new one's window is bound. */
	unbind(&w);
	device_dereg(dev, &mr);
}

static void a_broken_queue_pair_is_told_and_comes_back(void **state)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	struct kedge_device_mr mr, w, other;

	open_device(0, true);
	mr = reg(mem, PAGE, LW);
	w = bind_to(&mr, mem, PAGE, W);
	assert_int_equal(ibv_modify_qp(home, &a, IBV_QP_STATE), 0);
	assert_int_equal(try_bind(&mr, mem, PAGE, W, &other), -EOPNOTSUPP);
	assert_int_equal(try_bind(&mr, mem, PAGE, W, &other), -EOPNOTSUPP);
	assert_non_null(strstr(kedge_strerror(-EOPNOTSUPP), "not in RTS"));
	unbind(&w);
	reconnect();
	refused(IBV_WR_RDMA_WRITE, rkey(&w), w.offset, 1);
	other = bind_to(&mr, mem, PAGE, W);
	reaches(IBV_WR_RDMA_WRITE, rkey(&other), other.offset, PAGE);
	unbind(&other);
	device_dereg(dev, &mr);
}

/* ---- behind the cache ---- */

/* By @windows or by registrations: after the put nobody comes in. */
static void check_cache(bool windows)
{
	struct kedge_notifier_opts no = { .size = sizeof(no),
					  .backend = "none" };
	struct kedge_notifier *nf;
	struct kedge_cache *cache;
	const struct kedge_mr *mr;
	uint64_t iova;
	uint32_t key;
	int i;

	open_device(OFFSET, windows);
	assert_int_equal(kedge_notifier_open(&no, &nf), 0);
	assert_int_equal(kedge_cache_open(dev, nf, NULL, &cache), 0);
	for (i = 0; i < 4; i++) {
		/* Whole pages, then a part of one. */
		size_t at = i & 1 ? 77 : 0, len = i & 1 ? 1000 : LEN;

		memset(mem, 0, LEN);
		assert_int_equal(kedge_cache_get(cache, mem + at, len, LW | W,
						 &mr), 0);
		key = kedge_verbs_rkey(mr);
		iova = kedge_verbs_iova(mr, mem + at);
		assert_int_equal(iova, (uintptr_t)mem + at + OFFSET);
		reaches(IBV_WR_RDMA_WRITE, key, iova, (uint32_t)len);
		assert_int_equal(mem[at + len - 1], 'p');
		/* That ends the connection: only the last time. */
		if (i == 3)
			refused(IBV_WR_RDMA_WRITE, key, iova, 1001);
		kedge_cache_put(cache, mr);
		memset(mem, 0, LEN);
		refused(IBV_WR_RDMA_WRITE, key, iova, 1);
		assert_int_equal(mem[at], 0);
	}
	kedge_cache_close(cache);
	kedge_notifier_close(nf);
}

static void a_put_ends_the_peers_access(void **state)
{
	check_cache(false);
}

static void a_put_ends_the_peers_window(void **state)
{
	check_cache(true);
}

/* ---- all together ---- */

static int find_gid(void)
{
	const char *index = getenv("RDMA_SERVER_GID");

	gid_index = (uint8_t)(index ? atoi(index) : 1);
	return ibv_query_gid(context, 1, gid_index, &gid);
}

static int open_all(void **state)
{
	const char *name = getenv("RDMA_SERVER_DEV");
	struct ibv_device **list = ibv_get_device_list(NULL), **d;

	for (d = list; d && *d && !context; d++)
		if (!name || !strcmp(ibv_get_device_name(*d), name))
			context = ibv_open_device(*d);
	if (list)
		ibv_free_device_list(list);
	if (!context || find_gid())
		return -1;
	pd = ibv_alloc_pd(context);
	home_cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	home_recv_cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	peer_cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	if (!pd || !home_cq || !home_recv_cq || !peer_cq)
		return -1;
	home = new_qp(home_cq, home_recv_cq);
	peer = new_qp(peer_cq, peer_cq);
	mem = aligned_alloc(PAGE, LEN);
	peer_mem = aligned_alloc(PAGE, 8 * PAGE);
	if (!home || !peer || !mem || !peer_mem)
		return -1;
	memset(peer_mem, 'p', 8 * PAGE);
	peer_mr = ibv_reg_mr(pd, peer_mem, LEN, IBV_ACCESS_LOCAL_WRITE);
	return peer_mr ? 0 : -1;
}

/* An object that the library left behind would keep these from going. */
static int close_all(void **state)
{
	int left = ibv_dereg_mr(peer_mr);

	left |= ibv_destroy_qp(peer) | ibv_destroy_qp(home);
	left |= ibv_destroy_cq(home_cq) | ibv_destroy_cq(home_recv_cq) |
		ibv_destroy_cq(peer_cq);
	left |= ibv_dealloc_pd(pd);
	left |= ibv_close_device(context);
	free(mem);
	free(peer_mem);
	if (left)
		fprintf(stderr, "the protection domain is still in use\n");
	return left ? -1 : 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_peer_reaches_the_range_and_no_more),
		TEST(addresses_may_be_moved),
		TEST(a_read_only_region_is_read),
		TEST(what_is_not_mapped_is_refused),
		TEST(the_limit_is_named),
		TEST(a_forked_child_leaves_regions_alone),
		TEST(an_ended_window_lets_nobody_in),
		TEST(windows_know_moved_addresses),
		TEST(a_window_has_its_bounds),
		TEST(old_keys_open_nothing),
		TEST(a_broken_queue_pair_is_told_and_comes_back),
		TEST(a_put_ends_the_peers_access),
		TEST(a_put_ends_the_peers_window),
	};

	return cmocka_run_group_tests(tests, open_all, close_all) ? 1 : 0;
}
