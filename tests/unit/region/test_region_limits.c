// SPDX-License-Identifier: BSD-2-Clause
/*
 * Regions where there is not enough: locked memory, a control group, huge pages. A call
 * fails and says what is short and how much could be had; this process lives, has what it
 * had, and can take what there is.
 */
#include <grp.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/statfs.h>

#include "look.h"
#include "remote.h"

#define MiB ((size_t)1 << 20)

static struct kedge_region_budget budget(void)
{
	struct kedge_region_budget b = { .size = sizeof(b) };

	if (kedge_region_budget(&b))
		abort();
	return b;
}

/* ---- locked memory ---- */

static int the_limit_of_locked_memory_holds(void *arg)
{
	const struct rlimit rl = { MiB, MiB };
	struct kedge_region *r = NULL, *other = NULL;

	CHILD_CHECK(!setrlimit(RLIMIT_MEMLOCK, &rl));
	if (!getuid())
		CHILD_CHECK(!setgroups(0, NULL) && !setgid(65534) && !setuid(65534));
	CHILD_CHECK(kedge_region_create(MiB + 1, NULL, &r) == -ENOMEM);
	CHILD_CHECK(reason_says(-ENOMEM, "RLIMIT_MEMLOCK is 1024 KiB, 1024 KiB are left"));
	CHILD_CHECK(reason_says(-ENOMEM, "ulimit -l"));
	CHILD_CHECK(!look_status("VmLck"));
	CHILD_CHECK(!kedge_region_create(MiB / 2, NULL, &r));
	CHILD_CHECK(budget().bound == KEDGE_BOUND_MEMLOCK && budget().free == MiB / 2);
	CHILD_CHECK(kedge_region_grow(r, MiB + 1) == -ENOMEM);
	CHILD_CHECK(kedge_region_create(MiB / 2 + 1, NULL, &other) == -ENOMEM);
	/* Just what is left. */
	CHILD_CHECK(!kedge_region_grow(r, MiB));
	CHILD_CHECK(look_status("VmLck") == MiB && !budget().free);
	CHILD_CHECK(kedge_region_create(1, NULL, &other) == -ENOMEM);
	memset(bytes_of(r), 1, MiB);
	CHILD_CHECK(!kedge_region_trim(r, MiB / 2));
	CHILD_CHECK(!kedge_region_create(MiB / 2, NULL, &other));
	kedge_region_close(r);
	kedge_region_close(other);
	CHILD_CHECK(!look_status("VmLck") && !budget().used);
	return 0;
}

/* ---- a control group ---- */

#define GROUP_LEN (64 * MiB)

static char group[512];

static bool put(const char *file, const char *text)
{
	char path[600];
	bool done;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", group, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	done = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	close(fd);
	return done;
}

static bool put_number(const char *file, size_t v)
{
	char text[32];

	snprintf(text, sizeof(text), "%zu", v);
	return put(file, text);
}

/* Where this process's group of @controllers is; false: there is none. */
static bool find_group(const char *controllers, char *path, size_t size)
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	char line[400], *colon;
	bool found = false;

	assert_non_null(f);
	while (!found && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		colon = strchr(line, ':');
		if (!colon || strncmp(colon + 1, controllers, strlen(controllers)) ||
		    colon[1 + strlen(controllers)] != ':')
			continue;
		snprintf(path, size, "%s", colon + 2 + strlen(controllers));
		found = true;
	}
	fclose(f);
	return found;
}

/* A group in that, which may have more than its own one. */
static bool make_inner(void)
{
	strcat(group, "/inner");
	return !mkdir(group, 0755);
}

/* A group below this process's that may have GROUP_LEN and no swap; false: it cannot. */
static bool make_group(void)
{
	char path[400];

	if (find_group("memory", path, sizeof(path))) {
		snprintf(group, sizeof(group), "/sys/fs/cgroup/memory%s/kedge-%d", path,
			 getpid());
		return !mkdir(group, 0755) && put_number("memory.limit_in_bytes", GROUP_LEN) &&
		       make_inner();
	}
	if (!find_group("", path, sizeof(path)))
		return false;
	/* Its parent must let it: no process is in the root but by default. */
	snprintf(group, sizeof(group), "/sys/fs/cgroup");
	put("cgroup.subtree_control", "+memory");
	snprintf(group, sizeof(group), "/sys/fs/cgroup/kedge-%d", getpid());
	if (mkdir(group, 0755) || !put_number("memory.max", GROUP_LEN))
		return false;
	put("memory.swap.max", "0");
	return make_inner();
}

static void end_group(void)
{
	/* Its processes may be ending still. */
	while (rmdir(group) && errno == EBUSY)
		usleep(10000);
	*strrchr(group, '/') = '\0';
	rmdir(group);
}

#define CACHE_LEN (24 * MiB)

/* Clean page cache, which the kernel drops for others. False: files may be in memory
 * here, or cannot be made. */
#define CACHE_TRIES 400

static bool fill_cache(void)
{
	char name[] = "kedge-region-XXXXXX", *some = calloc(1, MiB);
	struct statfs fs;
	int fd = mkstemp(name);
	bool disk;
	size_t i;

	CHILD_CHECK(some);
	if (fd < 0)
		return false;
	unlink(name);
	CHILD_CHECK(!fstatfs(fd, &fs));
	/* Others may lie over one that is in memory. */
	disk = fs.f_type == EXT4_SUPER_MAGIC || fs.f_type == XFS_SUPER_MAGIC ||
	       fs.f_type == BTRFS_SUPER_MAGIC;
	for (i = 0; i < CACHE_LEN / MiB && disk; i++)
		CHILD_CHECK(write(fd, some, MiB) == (ssize_t)MiB);
	CHILD_CHECK(!fsync(fd));
	free(some);
	return disk;
}

/* Page cache is memory that can be had, once the kernel counts it: it brings the numbers of a group
 * up to date every two seconds. */
static void grow_into_cache(struct kedge_region *r)
{
	int try = 0;

	while (kedge_region_grow(r, GROUP_LEN - CACHE_LEN + 4 * MiB)) {
		CHILD_CHECK(++try < CACHE_TRIES);
		usleep(50000);
	}
	if (try)
		fprintf(stderr, "# the page cache was had at the %dth try\n", try + 1);
}

/* As a part of the group that is ended together; version 2 has that. */
static void keeps_more_where_all_would_end(void)
{
	struct kedge_region *r = NULL;

	if (!put("../memory.oom.group", "1"))
		return;
	CHILD_CHECK(kedge_region_create(44 * MiB, NULL, &r) == -ENOMEM && !r);
	CHILD_CHECK(put("../memory.oom.group", "0"));
	CHILD_CHECK(!kedge_region_create(44 * MiB, NULL, &r));
	kedge_region_close(r);
}

static int at_the_limit_of_a_group(void *arg)
{
	struct kedge_region *r = NULL, *other = NULL;
	size_t len, failed = 0;

	CHILD_CHECK(put_number("cgroup.procs", (size_t)getpid()));
	CHILD_CHECK(kedge_region_create(2 * GROUP_LEN, NULL, &r) == -ENOMEM);
	CHILD_CHECK(reason_says(-ENOMEM, "the control group has 64 MiB"));
	CHILD_CHECK(budget().bound == KEDGE_BOUND_CGROUP);
	keeps_more_where_all_would_end();
	CHILD_CHECK(!kedge_region_create(GROUP_LEN / 2, NULL, &r));
	memset(bytes_of(r), 1, GROUP_LEN / 2);
	CHILD_CHECK(kedge_region_create(GROUP_LEN / 2, NULL, &other) == -ENOMEM);
	/* Up to its edge, in steps. */
	for (len = GROUP_LEN / 2; len <= GROUP_LEN && !failed; len += MiB)
		if (kedge_region_grow(r, len))
			failed = len;
	CHILD_CHECK(failed);
	memset(bytes_of(r), 2, failed - MiB);
	CHILD_CHECK(look_smaps(bytes_of(r), "Locked") == failed - MiB);
	CHILD_CHECK(!look_smaps(bytes_of(r), "Swap"));
	CHILD_CHECK(!kedge_region_trim(r, MiB));
	if (fill_cache())
		grow_into_cache(r);
	CHILD_CHECK(!kedge_region_trim(r, MiB));
	CHILD_CHECK(!kedge_region_create(GROUP_LEN / 4, NULL, &other));
	kedge_region_close(r);
	kedge_region_close(other);
	return 0;
}

static void the_limit_of_a_group_holds(void **state)
{
	int status;

	if (geteuid() || !make_group()) {
		print_message("skipped: no control group can be made here\n");
		if (strstr(group, "kedge-"))
			rmdir(group);
		skip();
	}
	status = in_child(at_the_limit_of_a_group, NULL);
	end_group();
	assert_int_equal(status, 0);
}

/* ---- huge pages ---- */

#define HUGE_LEN ((uint64_t)2 << 20)

static int begin_huge(void **state)
{
	look_huge_begin(2);
	return 0;
}

static int end_huge(void **state)
{
	look_huge_end();
	return 0;
}

static void huge_pages_are_had_or_refused(void **state)
{
	struct kedge_region_opts o = { .size = sizeof(o), .page_size = HUGE_LEN };
	struct kedge_region *r = NULL;
	uint64_t faults;
	int rc = kedge_region_create(1, &o, &r);

	if (rc) {
		print_message("skipped: %s\n", kedge_strerror(rc));
		assert_true(rc == -EINVAL || /* no such pages */
			    (rc == -ENOMEM && reason_says(rc, "vm.nr_hugepages")));
		skip();
	}
	assert_int_equal(look_smaps(bytes_of(r), "Shared_Hugetlb") +
			 look_smaps(bytes_of(r), "Private_Hugetlb"), HUGE_LEN);
	faults = look_faults();
	memset(bytes_of(r), 1, HUGE_LEN);
	assert_int_equal(look_faults(), faults);
	o.page_size *= 2;
	assert_int_equal(kedge_region_create(1, &o, &r), -EINVAL);
	/* No more than there are, and none is lost. */
	rc = kedge_region_grow(r, (size_t)60 << 30);
	assert_int_equal(rc, -ENOMEM);
	assert_true(reason_says(rc, "vm.nr_hugepages"));
	rc = kedge_region_grow(r, 2 * HUGE_LEN);
	if (!rc)
		assert_int_equal(kedge_region_trim(r, 1), 0);
	assert_int_equal(bytes_of(r)[HUGE_LEN - 1], 1);
	kedge_region_close(r);
}

static const struct CMUnitTest tests[] = {
	child_case(the_limit_of_locked_memory_holds),
	cmocka_unit_test(the_limit_of_a_group_holds),
	cmocka_unit_test_setup_teardown(huge_pages_are_had_or_refused, begin_huge,
					end_huge),
};

const struct suite suite = { "region_limits", SUITE_OF(tests) };
