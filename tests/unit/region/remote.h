/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions and their peers, as tests of handles have them. */
#ifndef TESTS_REGION_REMOTE_H
#define TESTS_REGION_REMOTE_H

#include <errno.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core.h"

#define LEN	((size_t)256 << 10)
/* It ends a hang, and no test waits so long else: adapters of an emulated machine are slow, and
 * schedulers have let a thread that could run wait for two minutes. */
#define SOON_MS 600000

static struct kedge_region *region;
static struct kedge_handle handle;
static struct kedge_remote *remote;

/* By TCP, and by adapters where that can be (fake_fabric.c), or by libfabric. */
#if defined(BY_LEASE) || defined(BY_RDMA) || defined(BY_OFI)
#define LEASED 1
#else
#define LEASED 0
#endif

static inline char *region_at(void)
{
	struct kedge_region_info info = { .size = sizeof(info) };

	assert_int_equal(kedge_region_query(region, &info), 0);
	return (char *)(uintptr_t)info.addr;
}

/* As soon as accesses from before a trim are over, which may have taken longer than that waits. */
static inline void grow_to(size_t len)
{
	int rc;

	do {
		rc = kedge_region_grow(region, len);
	} while (rc == -ETIMEDOUT);
	assert_int_equal(rc, 0);
}

/* The peers' way to the region: they have the memory; or the owner does accesses, by a local
 * stream or by TCP. */
#if defined(BY_RDMA)
#define SERVED 1
#define NODE   getenv("RDMA_SERVER_ADDR")
#elif defined(BY_TCP)
#define SERVED 1
#define NODE   "127.0.0.1"
#elif defined(BY_STREAM)
#define SERVED 1
#define NODE   NULL
#else
#define SERVED 0
#define NODE   NULL
#endif

static inline void advertise(const struct kedge_handle_opts *user)
{
	struct kedge_handle_opts o = { .size = sizeof(o) };
	int rc;

	if (user)
		o = *user;
	o.node = NODE;
	o.flags = SERVED && !LEASED ? KEDGE_HANDLE_SERVED : 0;
	rc = kedge_region_advertise(region, &o, &handle);
	if (rc)
		fail_msg("%s", kedge_strerror(rc));
	/* As if it were of another host. */
	if (NODE)
		handle.bytes[16] ^= 1;
}

static inline struct kedge_remote *open_it(void)
{
	struct kedge_remote *r = NULL;
	int rc = kedge_remote_open(&handle, SOON_MS, &r);

	if (rc)
		fail_msg("%s", kedge_strerror(rc));
	return r;
}

static inline void make_region(size_t len, const struct kedge_handle_opts *o)
{
	int rc = kedge_region_create(len, NULL, &region);

	if (rc)
		fail_msg("%s", kedge_strerror(rc));
	advertise(o);
}

static inline void begin(const struct kedge_handle_opts *o)
{
	make_region(LEN, o);
	remote = open_it();
}

static inline void end(void)
{
	kedge_remote_close(remote);
	kedge_region_close(region);
}

static inline uint64_t has(struct kedge_remote *r)
{
	struct kedge_remote_info info = { .size = sizeof(info) };

	assert_int_equal(kedge_remote_query(r, &info), 0);
	return info.len;
}

/* A child that has ended by itself, with 0. */
static inline void reap(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

#endif /* TESTS_REGION_REMOTE_H */
