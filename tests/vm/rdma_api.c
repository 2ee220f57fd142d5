// SPDX-License-Identifier: BSD-2-Clause
/*
 * Channels over an adapter by their public calls: peers that fall silent in the
 * handshake, buffers that a message cannot be put into, and an adapter that is removed.
 * Needs what rdma_channel.c needs, and the right to remove it.
 */
#include <spawn.h>

#include "vm_lib.h"

#include <kedge/rdma.h>

#include "channel/rc/internal.h"

#define MIB ((size_t)1 << 20)
#define LEN (4 * MIB)

static const char *addr;

/* ---- two ends ---- */

static struct kedge_listener *listener;
static char port[8];
static struct kedge_channel *to, *from; /* connected, accepted */

static int listener_open(void **state)
{
	char text[KEDGE_ADDRESS_MAX];
	int rc = kedge_listener_open_rdma(addr, "0", NULL, &listener);

	(void)state;
	if (rc)
		fail_msg("listen: %s", kedge_strerror(rc));
	assert_int_equal(kedge_listener_address(listener, text, sizeof(text)), 0);
	snprintf(port, sizeof(port), "%s", strrchr(text, ':') + 1);
	return 0;
}

static int listener_close(void **state)
{
	(void)state;
	kedge_listener_close(listener);
	return 0;
}

static void *connect_to(void *arg)
{
	struct kedge_channel_opts opts = { .size = sizeof(opts),
					   .way = KEDGE_WAY_SWAP };
	int rc = kedge_channel_open_rdma(addr, port, &opts, -1, &to);

	(void)arg;
	if (rc)
		fprintf(stderr, "connect: %s\n", kedge_strerror(rc));
	return NULL;
}

static void ends_meet(void)
{
	pthread_t thread;
	int rc;

	assert_int_equal(pthread_create(&thread, NULL, connect_to, NULL), 0);
	rc = kedge_listener_accept(listener, -1, &from);
	pthread_join(thread, NULL);
	if (rc)
		fail_msg("accept: %s", kedge_strerror(rc));
	assert_non_null(to);
}

static void ends_close(void)
{
	kedge_channel_close(to);
	kedge_channel_close(from);
	to = from = NULL;
}

/* ---- peers that say no more ---- */

#define SILENT 4

struct silent {
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
};

static void expect(struct silent *s, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *ev;

	assert_int_equal(rdma_get_cm_event(s->events, &ev), 0);
	assert_int_equal(ev->event, type);
	rdma_ack_cm_event(ev);
}

/* Up to the listener's answer, which is not taken: librdmacm would confirm it. */
static void silent_open(struct silent *s)
{
	struct ibv_qp_init_attr qp = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 1,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct kedge_channel_opts opts = { .size = sizeof(opts) }, all;
	struct pollfd p = { .events = POLLIN };
	struct rdma_conn_param param;
	struct kedge_channel *none;
	struct rdma_addrinfo *info;
	struct rdma_hello hello;

	assert_int_equal(kedge__channel_opts(&all, &opts), 0);
	assert_int_equal(rdma_getaddrinfo(addr, port, NULL, &info), 0);
	s->events = rdma_create_event_channel();
	assert_non_null(s->events);
	assert_int_equal(rdma_create_id(s->events, &s->id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(s->id, NULL, info->ai_dst_addr, 10000),
			 0);
	rdma_freeaddrinfo(info);
	expect(s, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(rdma_resolve_route(s->id, 10000), 0);
	expect(s, RDMA_CM_EVENT_ROUTE_RESOLVED);
	assert_int_equal(rdma_create_qp(s->id, NULL, &qp), 0);
	kedge__rdma_hello(&hello, &all);
	kedge__rc_param(&param, &hello);
	assert_int_equal(rdma_connect(s->id, &param), 0);
	p.fd = s->events->fd;
	do {
		assert_int_equal(kedge_listener_accept(listener, 0, &none),
				 -ETIMEDOUT);
	} while (!poll(&p, 1, 10));
}

static void silent_close(struct silent *s)
{
	rdma_destroy_qp(s->id);
	rdma_destroy_id(s->id);
	rdma_destroy_event_channel(s->events);
}

/*
 * A peer is accepted while those before it keep silent. Each of them has three seconds,
 * which a slow machine may take for all of this: then it shows nothing, and is done
 * again.
 */
static void silent_peers_hold_nobody_up(void **state)
{
	struct silent peer[SILENT];
	uint64_t since;
	int i;

	(void)state;
	do {
		since = clock_ns();
		for (i = 0; i < SILENT; i++)
			silent_open(&peer[i]);
		ends_meet();
		since = clock_ns() - since;
		ends_close();
		for (i = 0; i < SILENT; i++)
			silent_close(&peer[i]);
	} while (since >= 3000000000u);
}

/* ---- what a message cannot be put into ---- */

static char *memory(size_t len, int prot, int flags)
{
	char *p = mmap(NULL, len, prot, MAP_ANONYMOUS | flags, -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

static void take_one(struct kedge_channel *ch, struct kedge_completion *c,
		     bool *has)
{
	ssize_t n = kedge_channel_poll(ch, c, 1);

	if (n < 0)
		fail_msg("the channel ended: %s", kedge_strerror((int)n));
	*has = *has || n == 1;
}

/* From one end to the other; returns the receive's status and way, and the send's. */
static int carry(const char *src, char *dst, uint32_t *way, int *sent)
{
	struct kedge_completion out, in;
	bool has_out = false, has_in = false;

	assert_int_equal(kedge_channel_recv(to, dst, LEN, 1, ~0ull, 0, NULL), 0);
	assert_int_equal(kedge_channel_send(from, src, LEN, 1, 0, NULL), 0);
	while (!has_out || !has_in) {
		if (!has_out)
			take_one(from, &out, &has_out);
		else
			assert_int_equal(kedge_channel_poll(from, &out, 0), 0);
		take_one(to, &in, &has_in);
	}
	*sent = out.status;
	*way = in.way;
	return in.status;
}

static void arrives(const char *src, char *dst, uint32_t want)
{
	uint32_t way;
	int sent, rc;

	rc = carry(src, dst, &way, &sent);
	if (rc)
		fail_msg("receive: %s", kedge_strerror(rc));
	assert_int_equal(sent, 0);
	assert_int_equal(way, want);
	assert_memory_equal(dst, src, LEN);
}

static void fails(const char *src, char *dst)
{
	uint32_t way;
	int sent;

	assert_int_equal(carry(src, dst, &way, &sent), -EFAULT);
	assert_int_equal(sent, -EFAULT);
}

/* Both are told, and the channel works on. */
static void a_buffer_that_may_not_be_written_is_told(void **state)
{
	char *src = memory(LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	char *only_read = memory(LEN, PROT_READ, MAP_PRIVATE);
	char *hole = memory(LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	char *shared = memory(LEN, PROT_READ | PROT_WRITE, MAP_SHARED);
	char *plain = memory(LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	size_t i;

	(void)state;
	for (i = 0; i < LEN; i++)
		src[i] = (char)(i * 37 + i / 4093);
	ends_meet();
	/* No hole of addresses: something of this process's could be mapped there. */
	assert_int_equal(mprotect(hole + 2 * MIB, 4096, PROT_NONE), 0);
	fails(src, hole);
	fails(src, only_read);
	arrives(src, shared, KEDGE_WAY_COPY);
	arrives(src, plain, KEDGE_WAY_SWAP);
	assert_int_equal(mprotect(only_read, LEN, PROT_READ | PROT_WRITE), 0);
	arrives(src, only_read, KEDGE_WAY_SWAP);
	ends_close();
	munmap(src, LEN);
	munmap(only_read, LEN);
	munmap(hole, LEN);
	munmap(shared, LEN);
	munmap(plain, LEN);
}

/* ---- an adapter that is removed ---- */

/* It waits for its users: soft-RoCE is gone when this process has ended. */
static void remove_adapter(void)
{
	char name[32], *argv[] = { "rdma", "link", "delete", name, NULL };
	pid_t pid;

	snprintf(name, sizeof(name), "%s", getenv("RDMA_SERVER_DEV"));
	assert_int_equal(posix_spawnp(&pid, "rdma", NULL, NULL, argv, environ), 0);
}

/* The operation under way ends, and so does the channel. */
static void ends_with(struct kedge_channel *ch, int status)
{
	struct kedge_completion c;
	bool has = false;
	ssize_t n;

	while (!has)
		take_one(ch, &c, &has);
	assert_int_equal(c.status, status);
	while (!(n = kedge_channel_poll(ch, &c, 1)))
		;
	assert_int_equal(n, status);
}

/* The last test: there is no adapter behind it. */
static void an_adapter_that_is_removed_ends_all(void **state)
{
	char *src = memory(LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	char *dst = memory(LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	struct kedge_channel *none = NULL;
	int rc;

	(void)state;
	memset(src, 7, LEN);
	ends_meet();
	assert_int_equal(kedge_channel_recv(to, dst, LEN, 1, ~0ull, 0, NULL), 0);
	assert_int_equal(kedge_channel_send(from, src, LEN, 2, 0, NULL), 0);
	remove_adapter();
	ends_with(to, -ECONNRESET);
	ends_with(from, -ECONNRESET);
	assert_int_equal(kedge_listener_accept(listener, -1, &none), -ENODEV);
	assert_int_equal(kedge_listener_accept(listener, 0, &none), -ENODEV);
	ends_close();
	rc = kedge_channel_open_rdma(addr, port, NULL, -1, &none);
	if (rc != -EADDRNOTAVAIL && rc != -ENODEV)
		fail_msg("connect: %d, %s", rc, kedge_strerror(rc));
	assert_null(none);
	munmap(src, LEN);
	munmap(dst, LEN);
}

#define WITH_LISTENER(f) \
	cmocka_unit_test_setup_teardown(f, listener_open, listener_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_LISTENER(silent_peers_hold_nobody_up),
		WITH_LISTENER(a_buffer_that_may_not_be_written_is_told),
		WITH_LISTENER(an_adapter_that_is_removed_ends_all),
	};

	addr = getenv("RDMA_SERVER_ADDR");
	if (!addr) {
		fprintf(stderr, "RDMA_SERVER_ADDR: the address of an RDMA "
				"device's interface\n");
		return 2;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
