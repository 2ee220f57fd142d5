/* SPDX-License-Identifier: BSD-2-Clause */
/* A region that its program takes a part of away, as tests have it. */
#ifndef TESTS_REGION_RECOMMIT_H
#define TESTS_REGION_RECOMMIT_H

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#ifdef BY_LEASE
#include "fake_fabric.h"
#endif
#include "remote.h"

#define FROM ((size_t)16 << 10)
#define PART ((size_t)8 << 10)

/* Without userfaultfd changes are found as accesses come. */
#ifdef TELLS_NO_UFFD
#define TOLD 0
#else
#define TOLD 1
#endif

static char *at;

static inline struct kedge_region_info query(void)
{
	struct kedge_region_info info = { .size = sizeof(info) };

	assert_int_equal(kedge_region_query(region, &info), 0);
	return info;
}

static inline unsigned int way(void)
{
	struct kedge_remote_info info = { .size = sizeof(info) };

	assert_int_equal(kedge_remote_query(remote, &info), 0);
	return info.way;
}

static inline void wait_for_way(void)
{
	if (LEASED && TOLD)
		WAIT_FOR(way() == KEDGE_REMOTE_RDMA);
	else
		assert_int_equal(way(), SERVED || !TOLD ? KEDGE_REMOTE_SERVED
							: KEDGE_REMOTE_MAPPED);
}

static inline void begin_watched(void)
{
	begin(NULL);
	at = region_at();
	memset(at, 'o', LEN);
	assert_int_equal(query().flags, TOLD ? KEDGE_REGION_WATCHED : 0);
	wait_for_way();
}

static inline void is_missing_as_told(uint64_t len, uint64_t from)
{
	if (TOLD) {
		assert_int_equal(query().missing, len);
		assert_int_equal(query().missing_at, from);
	}
}

static inline int recommit(size_t offset, size_t len, struct kedge_recommit_info *info)
{
	int rc;

	*info = (struct kedge_recommit_info){ .size = sizeof(*info) };
	rc = kedge_region_recommit(region, offset, len, info);
	if (rc)
		print_message("%s\n", kedge_strerror(rc));
	return rc;
}

/* Accesses to [FROM, FROM + PART) fail, and all others go on. */
static inline void is_missing(void)
{
	struct kedge_remote_part two[2];
	char buf[2 * PART];
	uint64_t was;

	assert_int_equal(kedge_remote_put(remote, FROM, "x", 1, SOON_MS), -ENODATA);
	assert_non_null(strstr(kedge_strerror(-ENODATA), TOLD ? "bytes 16384 to 24576"
							      : "bytes 16384 to 2"));
	assert_non_null(strstr(kedge_strerror(-ENODATA), "kedge_region_recommit()"));
	assert_int_equal(kedge_remote_get(remote, FROM + PART - 1, buf, 2, 0), -ENODATA);
	assert_int_equal(kedge_remote_get(remote, FROM - 1, buf, 2, 0), -ENODATA);
	assert_int_equal(kedge_remote_get(remote, FROM - 1, buf, PART + 2, 0), -ENODATA);
	assert_int_equal(kedge_remote_fetch_add(remote, FROM + 8, 1, &was, 0), -ENODATA);
	assert_int_equal(kedge_remote_compare_swap(remote, FROM, 0, 1, &was, 0), -ENODATA);
	assert_int_equal(kedge_remote_put(remote, FROM - 1, "o", 1, 0), 0);
	assert_int_equal(kedge_remote_get(remote, FROM + PART, buf, PART, 0), 0);
	two[0] = (struct kedge_remote_part){ FROM - PART, buf, PART };
	two[1] = (struct kedge_remote_part){ FROM + PART, buf + PART, PART };
	assert_int_equal(kedge_remote_get_parts(remote, two, 2, 0), 0);
	two[1].offset = FROM + PART - 1;
	assert_int_equal(kedge_remote_get_parts(remote, two, 2, 0), -ENODATA);
	/* Those before it are not stored either. */
	memset(buf, 'n', sizeof(buf));
	assert_int_equal(kedge_remote_put_parts(remote, two, 2, 0), -ENODATA);
	assert_int_equal(kedge_remote_get(remote, FROM - PART, buf, PART, 0), 0);
	assert_null(memchr(buf, 'n', PART));
	is_missing_as_told(PART, FROM);
}

/* The program finds the bytes that a peer puts. */
static inline void is_whole(void)
{
	char c;

	assert_int_equal(query().missing, 0);
	wait_for_way();
	assert_int_equal(kedge_remote_put(remote, FROM + 5, "p", 1, SOON_MS), 0);
	assert_int_equal(at[FROM + 5], 'p');
	at[FROM + 6] = 'q';
	assert_int_equal(kedge_remote_get(remote, FROM + 6, &c, 1, SOON_MS), 0);
	assert_int_equal(c, 'q');
	memset(at, 'o', LEN);
}

static inline void unmap_part(void)
{
	assert_int_equal(munmap(at + FROM, PART), 0);
}

/* False: this system has no filters of system calls. */
static inline bool may_run(void)
{
#ifdef TELLS_NO_UFFD
	return refuse_call(SYS_userfaultfd);
#else
	return true;
#endif
}

#endif /* TESTS_REGION_RECOMMIT_H */
