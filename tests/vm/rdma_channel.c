// SPDX-License-Identifier: BSD-2-Clause
/*
 * Channels over queue pairs on a real RDMA stack: both ends in this process, the peer's
 * rights, a buffer that is used again, limits. Needs soft-RoCE or an adapter that loops
 * back; RDMA_SERVER_ADDR is the address of its interface.
 */
#include <linux/capability.h>
#include <sys/resource.h>

#include "vm_lib.h"

#include "channel/rc/internal.h"

#define T   kedge__rdma_ops
#define MIB ((size_t)1 << 20)

static const char *addr;

/* ---- two ends ---- */

static struct rc_listener *listener;
static char port[8];
static struct rc *a, *b; /* connected, accepted */
static struct transport_peer at_a, at_b;

static struct kedge_channel_opts opts_of(uint64_t pool)
{
	struct kedge_channel_opts user = { .size = sizeof(user),
					   .pool_bytes = pool }, opts;

	assert_int_equal(kedge__channel_opts(&opts, &user), 0);
	return opts;
}

static void listen_at(const char *node)
{
	struct kedge_channel_opts opts = opts_of(0);
	char text[KEDGE_ADDRESS_MAX];
	int rc = kedge__rc_listen(node, "0", &opts, &listener);

	if (rc)
		fail_msg("listen: %s", kedge_strerror(rc));
	assert_int_equal(kedge__rc_listener_address(listener, text), 0);
	snprintf(port, sizeof(port), "%s", strrchr(text, ':') + 1);
}

static void *connect_a(void *arg)
{
	struct kedge_channel_opts opts = opts_of(0);
	int rc = kedge__rc_connect(addr, port, &opts, 10000, &a, &at_a);

	if (rc)
		fprintf(stderr, "connect: %s\n", kedge_strerror(rc));
	return NULL;
}

static void ends_meet(const char *node)
{
	pthread_t thread;
	int rc;

	a = b = NULL;
	listen_at(node);
	assert_int_equal(pthread_create(&thread, NULL, connect_a, NULL), 0);
	rc = kedge__rc_accept(listener, 10000, &b, &at_b);
	if (rc)
		fprintf(stderr, "accept: %s\n", kedge_strerror(rc));
	pthread_join(thread, NULL);
	assert_non_null(a);
	assert_non_null(b);
}

static int ends_open(void **state)
{
	ends_meet(addr);
	return 0;
}

static int ends_close(void **state)
{
	if (a)
		kedge__rdma_free(&a->r);
	if (b)
		kedge__rdma_free(&b->r);
	kedge__rc_listener_close(listener);
	return 0;
}

/* ---- one message ---- */

struct message {
	struct bulk out, in;
	struct bulk_piece from, to;
	size_t cts_len;
	union { /* the last: its end may be further */
		struct rdma_desc desc;
		char room[DESC_MAX];
	} cts;
};

static void fill(char *p, size_t len, unsigned int seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = (char)(i * 31 + i / 251 + seed);
}

static void check_alive(struct rc *c)
{
	if (c->r.err)
		fail_msg("the %s end: %s", c == a ? "sending" : "receiving",
			 kedge_strerror(T.check(&c->r) ?: c->r.err));
}

/* Up to the sender's last write; what is left is the receiver's. */
static void send_all(struct message *m, char *src, char *dst, size_t len)
{
	size_t rts_len;
	char rts[DESC_MAX];
	int rc;

	memset(m, 0, sizeof(*m));
	m->from = (struct bulk_piece){ (uintptr_t)src, len };
	m->to = (struct bulk_piece){ (uintptr_t)dst, len };
	m->out = (struct bulk){ .piece = &m->from, .piece_cnt = 1, .len = len };
	m->in = (struct bulk){ .flags = BULK_RECV, .piece = &m->to,
			       .piece_cnt = 1, .len = len };
	assert_int_equal(T.offer(a, &m->out, rts, &rts_len), 0);
	rc = T.accept(b, &m->in, NULL, 0, &m->cts, &m->cts_len);
	if (rc)
		fail_msg("accept: %s", kedge_strerror(rc));
	assert_int_equal(T.start(a, &m->out, &m->cts, m->cts_len), 0);
	while (!(m->in.flags & BULK_FIN)) {
		rc = T.step(a, &m->out);
		assert_true(rc >= 0 || rc == -EAGAIN);
		kedge__rdma_progress(&a->r);
		kedge__rdma_progress(&b->r);
		check_alive(a);
		check_alive(b);
	}
	while (T.step(a, &m->out) != 1)
		kedge__rdma_progress(&a->r);
	T.end(a, &m->out);
}

static void receive_all(struct message *m)
{
	int rc;

	while ((rc = T.step(b, &m->in)) != 1) {
		assert_int_equal(rc, -EAGAIN);
		kedge__rdma_progress(&b->r);
	}
}

static void swap_ends(void)
{
	struct rc *c = a;

	a = b;
	b = c;
}

static char *memory(size_t len)
{
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

static void landed_whole(struct message *m, char *src, char *dst, size_t len)
{
	fill(src, len, (unsigned int)len);
	dst[-1] = dst[len] = 0x5a;
	send_all(m, src, dst, len);
	receive_all(m);
	assert_memory_equal(dst, src, len);
	assert_int_equal(dst[-1], 0x5a);
	assert_int_equal(dst[len], 0x5a);
	T.end(b, &m->in);
}

static void each_byte_lands_and_no_other(void **state)
{
	static const size_t lens[] = { 1, 4095, 4097, 65535, 65536, 65537,
				       MIB + 1, 4 * MIB + 3 };
	char *src = memory(5 * MIB), *dst = memory(5 * MIB);
	struct message m;
	size_t i, off;

	for (i = 0; i < ARRAY_SIZE(lens); i++)
		for (off = 1; off < 4096; off += 1361)
			landed_whole(&m, src + off / 2, dst + off, lens[i]);
	assert_int_equal(b->r.edges_used, 0);
	munmap(src, 5 * MIB);
	munmap(dst, 5 * MIB);
}

/* ---- the same buffer ---- */

static uint64_t registrations(struct rc *c)
{
	struct kedge_cache_stats st = { .size = sizeof(st) };

	assert_non_null(c->r.cache);
	assert_int_equal(kedge_cache_stats(c->r.cache, &st), 0);
	return st.registrations;
}

static void a_buffer_is_registered_once(void **state)
{
	char *src = memory(2 * MIB), *dst = memory(2 * MIB);
	struct message m;
	uint64_t before;
	int i;

	assert_false(T.ready(b, dst + 100, MIB, NULL, 0) & READY_DIRECT);
	landed_whole(&m, src + 100, dst + 100, MIB);
	assert_true(T.ready(b, dst + 100, MIB, NULL, 0) & READY_DIRECT);
	before = registrations(b);
	for (i = 0; i < 100; i++) {
		src[100 + i] = (char)i;
		send_all(&m, src + 100, dst + 100, MIB);
		receive_all(&m);
		assert_memory_equal(dst + 100, src + 100, MIB);
		T.end(b, &m.in);
	}
	assert_int_equal(registrations(b), before);
	/* The application's own change is seen. */
	assert_int_equal(madvise(dst, 2 * MIB, MADV_DONTNEED), 0);
	assert_false(T.ready(b, dst + 100, MIB, NULL, 0) & READY_DIRECT);
	landed_whole(&m, src + 100, dst + 100, MIB);
	munmap(src, 2 * MIB);
	munmap(dst, 2 * MIB);
}

/* ---- a peer that writes with a key that it was given ---- */

/* The status of a write of 8 bytes of @from, done behind the channel's back. */
static enum ibv_wc_status write_raw(struct rc *c, char *from, uint64_t to,
				    uint64_t key)
{
	struct ibv_mr *mr = ibv_reg_mr(c->pd, from, 8, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sge;
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = to, .rkey = (uint32_t)key },
	}, *bad;
	struct ibv_wc wc;
	int n;

	assert_non_null(mr);
	sge = (struct ibv_sge){ (uintptr_t)from, 8, mr->lkey };
	assert_int_equal(ibv_post_send(c->id->qp, &wr, &bad), 0);
	do {
		n = ibv_poll_cq(c->cq, 1, &wc);
		assert_true(n >= 0);
	} while (!n || wc.wr_id != 1);
	ibv_dereg_mr(mr);
	return wc.status;
}

/* Target @i of what the CTS said. */
static void writes_late(struct message *m, uint32_t i, char *buf, size_t len)
{
	char *was = malloc(len);

	assert_non_null(was);
	memcpy(was, buf, len);
	assert_int_equal(write_raw(a, (char[8]){ 'e', 'v', 'i', 'l' },
				   m->cts.desc.target[i].addr,
				   m->cts.desc.target[i].key),
			 IBV_WC_REM_ACCESS_ERR);
	assert_memory_equal(buf, was, len);
	free(was);
}

static void a_key_is_void_when_its_message_is_received(void **state)
{
	char *src = memory(2 * MIB), *dst = memory(2 * MIB);
	struct message m;

	landed_whole(&m, src + 8, dst + 8, MIB);
	/* Head, whole pages, tail. */
	assert_int_equal(m.cts.desc.cnt, 3);
	writes_late(&m, 1, dst, 2 * MIB);
	munmap(src, 2 * MIB);
	munmap(dst, 2 * MIB);
}

static void a_landing_key_is_void_before_the_pages_are_the_applications(
	void **state)
{
	const size_t len = 4 * MIB;
	char *src = memory(len), *dst = memory(len + MIB), *at;
	struct message m;
	void *area;

	area = T.area_take(b, dst + 4096, len, &at);
	assert_non_null(area);
	fill(src, len, 7);
	send_all(&m, src, at, len);
	receive_all(&m);
	/* Pages that are there may be pinned by others. */
	assert_int_equal(T.area_move(b, area, src, at, len), -EBUSY);
	assert_int_equal(T.area_move(b, area, dst + 4096, at, len), 0);
	T.end(b, &m.in);
	T.area_give(b, area, true);
	assert_memory_equal(dst + 4096, src, len);
	writes_late(&m, 0, dst + 4096, len);
	munmap(src, len);
	munmap(dst, len + MIB);
}

/* All of @len, a message that landed in an area and is the buffer's then. */
static void lands_and_moves(char *src, char *dst, size_t len)
{
	struct message m;
	void *area;
	char *at;

	area = T.area_take(b, dst, len, &at);
	assert_non_null(area);
	fill(src, len, 9);
	send_all(&m, src, at, len);
	receive_all(&m);
	assert_int_equal(T.area_move(b, area, dst, at, len), 0);
	T.end(b, &m.in);
	T.area_give(b, area, true);
	assert_memory_equal(dst, src, len);
}

static void a_registration_goes_along_with_its_pages(void **state)
{
	const size_t len = 4 * MIB;
	char *src = memory(len), *dst = memory(len + 2 * MIB) + 4096;
	struct message m;
	int i;

	lands_and_moves(src, dst, len);
	for (i = 0; i < 100; i++) {
		assert_true(T.ready(b, dst, len, NULL, 0) & READY_DIRECT);
		src[i * 4099] = (char)i;
		send_all(&m, src, dst, len);
		receive_all(&m);
		T.end(b, &m.in);
		assert_memory_equal(dst, src, len);
	}
	/* The area's own, which counts as the cache's now. */
	assert_int_equal(registrations(b), 1);
	/* As a source, too: back to where it came from. */
	memset(src, 0, len);
	swap_ends();
	send_all(&m, dst, src, len);
	receive_all(&m);
	T.end(b, &m.in);
	swap_ends();
	assert_memory_equal(dst, src, len);
	assert_int_equal(registrations(b), 1);
	/* The application's own change is seen. */
	assert_int_equal(madvise(dst + MIB, 8192, MADV_DONTNEED), 0);
	assert_false(T.ready(b, dst, len, NULL, 0) & READY_DIRECT);
	send_all(&m, src, dst, len);
	receive_all(&m);
	T.end(b, &m.in);
	assert_memory_equal(dst, src, len);
	munmap(src, len);
	munmap(dst - 4096, len + 2 * MIB);
}

static void a_peer_that_dies_leaves_no_right(void **state)
{
	char *src = memory(2 * MIB), *dst = memory(2 * MIB);
	struct message m;
	char rts[DESC_MAX];
	size_t rts_len;

	memset(&m, 0, sizeof(m));
	m.from = (struct bulk_piece){ (uintptr_t)src, MIB };
	m.to = (struct bulk_piece){ (uintptr_t)dst, MIB };
	m.out = (struct bulk){ .piece = &m.from, .piece_cnt = 1, .len = MIB };
	m.in = (struct bulk){ .flags = BULK_RECV, .piece = &m.to,
			      .piece_cnt = 1, .len = MIB };
	assert_int_equal(T.offer(a, &m.out, rts, &rts_len), 0);
	assert_int_equal(T.accept(b, &m.in, NULL, 0, &m.cts, &m.cts_len), 0);
	/* Between CTS and data. */
	kedge__rdma_free(&a->r);
	a = NULL;
	while (!T.check(b))
		;
	assert_int_equal(T.check(b), -ECONNRESET);
	assert_int_equal(T.stop(b, &m.in), 0);
	T.end(b, &m.in);
	assert_int_equal(b->window_cnt, 0);
	munmap(src, 2 * MIB);
	munmap(dst, 2 * MIB);
}

/* ---- limits and refusals ---- */

static void drop_lock_right(void)
{
	struct __user_cap_header_struct h = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct d[2];

	assert_int_equal(syscall(SYS_capget, &h, d), 0);
	d[0].effective &= ~(1u << CAP_IPC_LOCK);
	assert_int_equal(syscall(SYS_capset, &h, d), 0);
}

static int without_memlock(void)
{
	const struct rlimit lim = { 16 * MIB, 16 * MIB };
	char *dst = memory(33 * MIB), *at;
	void *area;

	drop_lock_right();
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &lim), 0);
	ends_open(NULL);
	area = T.area_take(b, dst, 32 * MIB, &at);
	if (area || T.area_take(b, dst, 32 * MIB, &at))
		return 1;
	/* It is at work otherwise. */
	ends_close(NULL);
	return 0;
}

/* A process of its own, as this one has used RDMA. */
static void passes_alone(const char *what)
{
	int status, pid = fork();

	if (!pid) {
		execl("/proc/self/exe", "rdma_channel", what, NULL);
		_exit(100);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void landing_pages_end_with_what_may_be_pinned(void **state)
{
	passes_alone("limited");
}

static void a_listener_may_be_at_any_address(void **state)
{
	ends_meet(NULL);
	ends_close(NULL);
}

/* In a forked child librdmacm has the parent's device. */
static void a_child_is_told_to_fork_first(void **state)
{
	struct kedge_channel_opts opts = opts_of(0);
	struct transport_peer peer;
	struct rc_listener *l;
	int status, rc;
	struct rc *c;
	pid_t pid;

	listen_at(NULL);
	pid = fork();
	if (!pid) {
		rc = kedge__rc_connect(addr, port, &opts, 1000, &c, &peer);
		if (rc == -ECHILD)
			rc = kedge__rc_listen(NULL, "0", &opts, &l);
		_exit(rc != -ECHILD);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	kedge__rc_listener_close(listener);
}

/* Its descriptor is another file's then, which is not to be written to. */
static void descriptors_that_the_program_closes_end_the_channel(void **state)
{
	passes_alone("closed");
}

static int closed(void)
{
	char *dst = memory(4 * MIB), *src = memory(4 * MIB), *at;
	struct message m;
	void *area;
	int i, null, rc;

	ends_open(NULL);
	landed_whole(&m, src + 100, dst + 100, MIB);
	area = T.area_take(b, dst + 2 * MIB, MIB, &at);
	close(b->events->fd);
	close(b->comp->fd);
	close(b->id->verbs->cmd_fd);
	for (i = 0; i < 8; i++)
		null = open("/dev/null", O_RDWR);
	do {
		rc = T.check(b);
	} while (!rc);
	if (rc != -ECONNRESET || null < 0)
		return 1;
	T.area_give(b, area, false);
	kedge__rdma_free(&b->r);
	/* The listener as well, and librdmacm's own. */
	if (syscall(SYS_close_range, 3, ~0u, 0))
		return 2;
	for (i = 0; i < 60; i++)
		null = open("/dev/null", O_RDWR);
	if (kedge__rc_accept(listener, 1000, &b, &at_b) != -EBADF)
		return 3;
	kedge__rc_listener_close(listener);
	return 0;
}

static void nobody_listens_is_told(void **state)
{
	struct kedge_channel_opts opts = opts_of(0);
	struct transport_peer peer;
	struct rc *c;

	assert_int_equal(kedge__rc_connect(addr, "1", &opts, 10000, &c, &peer),
			 -ECONNREFUSED);
	assert_int_equal(kedge__rc_connect("198.51.100.7", "1", &opts, 3000, &c,
					   &peer), -EADDRNOTAVAIL);
	assert_int_equal(kedge__rc_connect(addr, "nonsense", &opts, 3000, &c,
					   &peer), -EADDRNOTAVAIL);
}

static void a_listener_that_does_not_accept_is_waited_for_in_vain(void **state)
{
	struct kedge_channel_opts opts = opts_of(0);
	struct transport_peer peer;
	struct rc *c;

	listen_at(addr);
	assert_int_equal(kedge__rc_connect(addr, port, &opts, 300, &c, &peer),
			 -ETIMEDOUT);
	/* Its request came to nothing, which is no error. */
	assert_int_equal(kedge__rc_accept(listener, 0, &c, &peer), -ETIMEDOUT);
	kedge__rc_listener_close(listener);
}

#define WITH_ENDS(f) cmocka_unit_test_setup_teardown(f, ends_open, ends_close)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		WITH_ENDS(each_byte_lands_and_no_other),
		WITH_ENDS(a_buffer_is_registered_once),
		WITH_ENDS(a_key_is_void_when_its_message_is_received),
		WITH_ENDS(a_landing_key_is_void_before_the_pages_are_the_applications),
		WITH_ENDS(a_registration_goes_along_with_its_pages),
		WITH_ENDS(a_peer_that_dies_leaves_no_right),
		cmocka_unit_test(landing_pages_end_with_what_may_be_pinned),
		cmocka_unit_test(a_listener_may_be_at_any_address),
		cmocka_unit_test(a_child_is_told_to_fork_first),
		cmocka_unit_test(descriptors_that_the_program_closes_end_the_channel),
		cmocka_unit_test(nobody_listens_is_told),
		cmocka_unit_test(a_listener_that_does_not_accept_is_waited_for_in_vain),
	};

	addr = getenv("RDMA_SERVER_ADDR");
	if (!addr) {
		fprintf(stderr, "RDMA_SERVER_ADDR: the address of an RDMA "
				"device's interface\n");
		return 2;
	}
	if (argc > 1)
		return strcmp(argv[1], "closed") ? without_memlock() : closed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
