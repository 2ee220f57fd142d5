// SPDX-License-Identifier: BSD-2-Clause
/* See recommit.h. */
#include "recommit.h"

char *at;

bool is_told(void)
{
	return !region_with("no_uffd");
}

void wait_for_way(void)
{
	if (way->leased && is_told())
		wait_for_lease(remote);
	else
		assert_int_equal(way_of(remote), way->served || !is_told() ? KEDGE_REMOTE_SERVED
							: KEDGE_REMOTE_MAPPED);
}

void begin_watched(void)
{
	begin_remote(NULL);
	at = region_at();
	memset(at, 'o', LEN);
	assert_int_equal(query(region).flags, is_told() ? KEDGE_REGION_WATCHED : 0);
	wait_for_way();
}

int with_watch(void **state)
{
	begin_watched();
	return 0;
}

void is_missing_as_told(uint64_t len, uint64_t from)
{
	if (is_told()) {
		assert_int_equal(query(region).missing, len);
		assert_int_equal(query(region).missing_at, from);
	}
}

int recommit(size_t offset, size_t len, struct kedge_recommit_info *info)
{
	int rc;

	*info = (struct kedge_recommit_info){ .size = sizeof(*info) };
	rc = kedge_region_recommit(region, offset, len, info);
	if (rc)
		print_message("%s\n", kedge_strerror(rc));
	return rc;
}

void is_missing(void)
{
	struct kedge_remote_part two[2];
	char buf[2 * PART];
	uint64_t was;

	assert_int_equal(kedge_remote_put(remote, FROM, "x", 1, SOON_MS), -ENODATA);
	assert_non_null(strstr(kedge_strerror(-ENODATA), is_told() ? "bytes 16384 to 24576"
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

void is_whole(void)
{
	assert_int_equal(query(region).missing, 0);
	wait_for_way();
	assert_int_equal(kedge_remote_put(remote, FROM + 5, "p", 1, SOON_MS), 0);
	assert_int_equal(at[FROM + 5], 'p');
	at[FROM + 6] = 'q';
	gets_byte(remote, FROM + 6, 'q');
	memset(at, 'o', LEN);
}

void unmap_part(void)
{
	assert_int_equal(munmap(at + FROM, PART), 0);
}

bool may_run(void)
{
	return is_told() || refuse_call(SYS_userfaultfd);
}
