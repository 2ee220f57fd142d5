// SPDX-License-Identifier: BSD-2-Clause
/* See ofi_pair.h. */
#include <arpa/inet.h>

#include "channel_pair.h"
#include "ofi_pair.h"

#define NODE	"127.0.0.1"
#define MEET_MS 10000

struct kedge_channel_opts ofi_opts;

const char *pair_provider(void)
{
	const char *over = getenv("TEST_CHANNEL_OVER");

	return over && !strncmp(over, "ofi:", 4) ? over + 4 : "tcp";
}

bool pair_is_rdm(void)
{
	return strcmp(pair_provider(), "tcp") != 0;
}

int ofi_defaults(void **state)
{
	return kedge__channel_opts(&ofi_opts, NULL);
}

int ofi_missing(void)
{
	struct fi_info *info;
	bool rdm;
	int rc;

	rc = kedge__ofi_getinfo_any(pair_provider(), NODE, NULL, FI_SOURCE,
				    &info, &rdm);
	if (rc) {
		printf("skipped: %s\n", kedge_strerror(rc));
		return 77;
	}
	fi_freeinfo(info);
	return 0;
}

/* ---- below a channel ---- */

struct ofi_listener *pair_listen(char port[8])
{
	struct ofi_listener *l = NULL;
	char address[KEDGE_ADDRESS_MAX];
	int rc;

	rc = kedge__ofi_listen(pair_provider(), NODE, "0", &ofi_opts, &l);
	if (rc)
		fail_msg("listen: %d, %s", rc, kedge_strerror(rc));
	assert_true(kedge__ofi_listener_port(l) != 0);
	snprintf(port, 8, "%u", kedge__ofi_listener_port(l));
	assert_int_equal(kedge__ofi_listener_address(l, address), 0);
	assert_string_equal(strrchr(address, ':') + 1, port);
	return l;
}

static void *connect_a(void *arg)
{
	struct pair *p = arg;
	int rc;

	rc = kedge__ofi_connect(pair_provider(), NODE, p->port, &ofi_opts,
				MEET_MS, &p->a, &p->at_a);
	if (rc)
		fprintf(stderr, "connect: %d, %s\n", rc, kedge_strerror(rc));
	return NULL;
}

int pair_open(struct pair *p)
{
	pthread_t thread;
	int rc;

	memset(p, 0, sizeof(*p));
	assert_int_equal(ofi_defaults(NULL), 0);
	p->l = pair_listen(p->port);
	assert_int_equal(pthread_create(&thread, NULL, connect_a, p), 0);
	rc = kedge__ofi_accept(p->l, MEET_MS, &p->b, &p->at_b);
	if (rc)
		fprintf(stderr, "accept: %d, %s\n", rc, kedge_strerror(rc));
	pthread_join(thread, NULL);
	assert_non_null(p->a);
	assert_non_null(p->b);
	return 0;
}

static void *close_end(void *arg)
{
	T.close(arg);
	return NULL;
}

/* Side by side, as each waits for the other. */
void pair_close(struct pair *p)
{
	pthread_t thread;

	if (p->a)
		assert_int_equal(pthread_create(&thread, NULL, close_end, p->a),
				 0);
	if (p->b)
		T.close(p->b);
	if (p->a)
		pthread_join(thread, NULL);
	kedge__ofi_listener_close(p->l);
}

void pair_turn(struct pair *p)
{
	if (p->a)
		kedge__rdma_progress(&p->a->r);
	if (p->b)
		kedge__rdma_progress(&p->b->r);
}

/* ---- channels ---- */

static int ofi_open(struct meeting *m)
{
	struct kedge_channel_opts opts;
	int rc = kedge__channel_opts(&opts, m->opts);

	if (!rc)
		rc = kedge__ofi_listen(pair_provider(), NODE, "0", &opts, &m->ofi);
	if (!rc)
		snprintf(m->port, sizeof(m->port), "%u",
			 kedge__ofi_listener_port(m->ofi));
	return rc;
}

static int channel_over(struct ofi *o, const struct kedge_channel_opts *user,
			const struct transport_peer *peer,
			struct kedge_channel **ch)
{
	struct kedge_channel_opts opts;
	int rc = kedge__channel_opts(&opts, user);

	return rc ? rc : kedge__channel_open(&T, &o->r, &opts, peer, ch);
}

static int ofi_accept(struct meeting *m, struct kedge_channel **ch)
{
	struct transport_peer peer;
	struct ofi *o;
	int rc = kedge__ofi_accept(m->ofi, MEET_MS, &o, &peer);

	return rc ? rc : channel_over(o, m->opts, &peer, ch);
}

static int ofi_connect(struct meeting *m, const struct kedge_channel_opts *user,
		       struct kedge_channel **ch)
{
	struct kedge_channel_opts opts;
	struct transport_peer peer;
	struct ofi *o;
	int rc = kedge__channel_opts(&opts, user);

	if (!rc)
		rc = kedge__ofi_connect(pair_provider(), NODE, m->port, &opts,
					MEET_MS, &o, &peer);
	return rc ? rc : channel_over(o, user, &peer, ch);
}

static void ofi_close(struct meeting *m)
{
	kedge__ofi_listener_close(m->ofi);
}

static const struct meeting_ops ofi_ops = {
	.missing = ofi_missing,
	.open = ofi_open,
	.accept = ofi_accept,
	.connect = ofi_connect,
	.close = ofi_close,
};

__attribute__((constructor)) static void add(void)
{
	meeting_ops[OVER_OFI] = &ofi_ops;
}

/* ---- one that connects, and one that is let in ---- */

int connect_to(const char *port, int timeout_ms)
{
	struct transport_peer peer;
	struct ofi *o = NULL;
	int rc;

	rc = kedge__ofi_connect(pair_provider(), NODE, port, &ofi_opts,
				timeout_ms, &o, &peer);
	if (!rc)
		T.close(o);
	else
		assert_null(o);
	return rc;
}

int socket_to(const char *port)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_port = htons((uint16_t)atoi(port));
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

static void *run_call(void *arg)
{
	struct call *c = arg;
	int rc = c->caller ? c->caller(c->port) : connect_to(c->port, MEET_MS);

	__atomic_store_n(&c->rc, rc, __ATOMIC_RELAXED);
	return NULL;
}

void call_begin(struct call *c, const char *port, int (*caller)(const char *port))
{
	*c = (struct call){ .port = port, .caller = caller, .rc = 1 };
	assert_int_equal(pthread_create(&c->thread, NULL, run_call, c), 0);
}

bool call_is_over(const struct call *c)
{
	return __atomic_load_n(&c->rc, __ATOMIC_RELAXED) != 1;
}

int call_end(struct call *c)
{
	pthread_join(c->thread, NULL);
	return c->rc;
}

void still_lets_in(struct ofi_listener *l, const char *port)
{
	struct transport_peer peer;
	struct ofi *o = NULL;
	struct call c;

	call_begin(&c, port, NULL);
	assert_int_equal(kedge__ofi_accept(l, MEET_MS, &o, &peer), 0);
	T.close(o);
	assert_int_equal(call_end(&c), 0);
}

/* ---- memory ---- */

static uint64_t mix(uint64_t v)
{
	v *= UINT64_C(0x9e3779b97f4a7c15);
	return v ^ v >> 29;
}

void fill_bytes(void *at, size_t len, uint64_t seed)
{
	uint8_t *to = at;
	size_t i;

	for (i = 0; i < len; i++)
		to[i] = (uint8_t)(mix(seed + i / 8) >> i % 8 * 8);
}

bool same_bytes(const void *at, size_t len, uint64_t seed)
{
	const uint8_t *from = at;
	size_t i;

	for (i = 0; i < len; i++)
		if (from[i] != (uint8_t)(mix(seed + i / 8) >> i % 8 * 8))
			return false;
	return true;
}
