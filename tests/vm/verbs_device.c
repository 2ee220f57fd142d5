// SPDX-License-Identifier: BSD-2-Clause
/*
 * The verbs device on a real RDMA stack: what a peer reaches, and what it does
 * not. The peer is a queue pair of this process, on the same device: verbs_ends.h.
 */
#include <sys/resource.h>

#include "verbs_ends.h"

#include <kedge/verbs.h>

#include "device/device.h"

#define LEN (4 * PAGE)
#define R KEDGE_ACCESS_REMOTE_READ
#define W KEDGE_ACCESS_REMOTE_WRITE
#define LW KEDGE_ACCESS_LOCAL_WRITE
#define OFFSET (UINT64_C(1) << 44)

static struct ends e;
static char *mem, *peer_mem;
static struct kedge_device *dev;

static enum ibv_wc_status attempt(enum ibv_wr_opcode op, uint32_t rkey,
				  uint64_t iova, uint32_t len)
{
	return op == IBV_WR_RDMA_WRITE ? ends_put(&e, iova, len, rkey)
				       : ends_get(&e, iova, len, rkey);
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
				      .window_qp = windows ? e.home : NULL };
	int rc = kedge_device_open_verbs(e.pd, &o, &dev);

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
	return ends_connect(&e) ? 0 : -1;
}

static int teardown(void **state)
{
	kedge_device_close(dev);
	dev = NULL;
	return 0;
}

/* ---- registrations ---- */

static void check_exact(void **state)
{
	const uint64_t offset = (uintptr_t)*state;
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

static void check_windows(void **state)
{
	const uint64_t offset = (uintptr_t)*state;
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
	assert_int_equal(ibv_modify_qp(e.home, &a, IBV_QP_STATE), 0);
	assert_int_equal(try_bind(&mr, mem, PAGE, W, &other), -EOPNOTSUPP);
	assert_int_equal(try_bind(&mr, mem, PAGE, W, &other), -EOPNOTSUPP);
	assert_non_null(strstr(kedge_strerror(-EOPNOTSUPP), "not in RTS"));
	unbind(&w);
	assert_true(ends_connect(&e));
	refused(IBV_WR_RDMA_WRITE, rkey(&w), w.offset, 1);
	other = bind_to(&mr, mem, PAGE, W);
	reaches(IBV_WR_RDMA_WRITE, rkey(&other), other.offset, PAGE);
	unbind(&other);
	device_dereg(dev, &mr);
}

/* ---- behind the cache ---- */

/* By windows or by registrations: after the put nobody comes in. */
static void check_cache(void **state)
{
	const bool windows = *state;
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

/* ---- all together ---- */

static int open_all(void **state)
{
	mem = aligned_alloc(PAGE, LEN);
	if (!mem || !ends_open(&e))
		return -1;
	peer_mem = (char *)e.peer_mem;
	return 0;
}

/* An object that the library left behind would keep these from going. */
static int close_all(void **state)
{
	free(mem);
	return ends_close(&e) ? -1 : 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define WITH(name, f, arg) { name, f, setup, teardown, (void *)(uintptr_t)(arg) }

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH("a peer reaches the range and no more", check_exact, 0),
		WITH("addresses may be moved", check_exact, OFFSET),
		TEST(a_read_only_region_is_read),
		TEST(what_is_not_mapped_is_refused),
		TEST(the_limit_is_named),
		TEST(a_forked_child_leaves_regions_alone),
		WITH("an ended window lets nobody in", check_windows, 0),
		WITH("windows know moved addresses", check_windows, OFFSET),
		TEST(a_window_has_its_bounds),
		TEST(old_keys_open_nothing),
		TEST(a_broken_queue_pair_is_told_and_comes_back),
		WITH("a put ends the peer's access", check_cache, false),
		WITH("a put ends the peer's window", check_cache, true),
	};

	return cmocka_run_group_tests(tests, open_all, close_all) ? 1 : 0;
}
