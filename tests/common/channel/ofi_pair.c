// SPDX-License-Identifier: BSD-2-Clause
/* See ofi_pair.h. */
#include <pthread.h>

#include "ofi_pair.h"

const char *pair_provider(void)
{
	const char *p = getenv("TEST_OFI_PROVIDER");

	return p ? p : "tcp";
}

static const char *pair_node(void)
{
	const char *n = getenv("TEST_OFI_NODE");

	return n ? n : "127.0.0.1";
}

struct kedge_channel_opts pair_opts(void)
{
	struct kedge_channel_opts opts;

	assert_int_equal(kedge__channel_opts(&opts, NULL), 0);
	return opts;
}

int pair_missing(void)
{
	struct fi_info *info;
	bool rdm;
	int rc;

	rc = kedge__ofi_getinfo_any(pair_provider(), pair_node(), NULL,
				    FI_SOURCE, &info, &rdm);
	if (rc) {
		printf("skipped: %s\n", kedge_strerror(rc));
		return 77;
	}
	fi_freeinfo(info);
	return 0;
}

struct ofi_listener *pair_listen(char port[8])
{
	struct kedge_channel_opts opts = pair_opts();
	struct ofi_listener *l = NULL;
	char address[KEDGE_ADDRESS_MAX];
	int rc;

	rc = kedge__ofi_listen(pair_provider(), pair_node(), "0", &opts, &l);
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
	struct kedge_channel_opts opts = pair_opts();
	struct pair *p = arg;
	int rc;

	rc = kedge__ofi_connect(pair_provider(), pair_node(), p->port, &opts,
				10000, &p->a, &p->at_a);
	if (rc)
		fprintf(stderr, "connect: %d, %s\n", rc, kedge_strerror(rc));
	return NULL;
}

int pair_open(struct pair *p)
{
	pthread_t thread;
	int rc;

	memset(p, 0, sizeof(*p));
	p->l = pair_listen(p->port);
	assert_int_equal(pthread_create(&thread, NULL, connect_a, p), 0);
	rc = kedge__ofi_accept(p->l, 10000, &p->b, &p->at_b);
	if (rc)
		fprintf(stderr, "accept: %d, %s\n", rc, kedge_strerror(rc));
	pthread_join(thread, NULL);
	assert_non_null(p->a);
	assert_non_null(p->b);
	return 0;
}

static void *close_a(void *arg)
{
	T.close(arg);
	return NULL;
}

/* Side by side, as each waits for the other. */
void pair_close(struct pair *p)
{
	pthread_t thread;

	if (p->a)
		assert_int_equal(pthread_create(&thread, NULL, close_a, p->a),
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
