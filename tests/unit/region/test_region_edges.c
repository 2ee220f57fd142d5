// SPDX-License-Identifier: BSD-2-Clause
/*
 * Regions in a process that has less around it than others: no /proc, no /dev, no long files, no
 * descriptor. A call fails with an errno that says which of these it is, and the reason has the
 * remedy; nothing ends the process.
 */
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "remote.h"

#define CANNOT 77

static struct kedge_region *make(void)
{
	struct kedge_region *r = NULL;

	CHILD_CHECK(!kedge_region_create(LEN, NULL, &r));
	return r;
}

/* Before the first region: a process with threads gets no namespace of users. */
static void have_own_mounts(void)
{
	if (unshare(CLONE_NEWNS) && unshare(CLONE_NEWUSER | CLONE_NEWNS))
		_exit(CANNOT);
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		_exit(CANNOT);
}

static void empty(const char *dir)
{
	if (mount("none", dir, "tmpfs", 0, NULL))
		_exit(CANNOT);
}

/* ---- no /proc ---- */

/* Of a region that is gone: its owner is not asked. */
static int give_handle(void *to)
{
	CHILD_CHECK(!kedge_region_advertise(make(), NULL, to));
	return 0;
}

static int no_proc(void *gone)
{
	struct kedge_region *r;
	struct kedge_invitation *i;
	struct kedge_regions *list;
	struct kedge_handle h;

	have_own_mounts();
	r = make();
	empty("/proc");
	CHILD_CHECK(kedge_region_advertise(r, NULL, &h) == -EOPNOTSUPP);
	CHILD_CHECK(reason_says(-EOPNOTSUPP, "mount /proc"));
	CHILD_CHECK(kedge_invitation_open(NULL, &i, &h) == -EOPNOTSUPP);
	CHILD_CHECK(reason_says(-EOPNOTSUPP, "mount /proc"));
	CHILD_CHECK(kedge_regions_open(NULL, &list) == -EOPNOTSUPP);
	CHILD_CHECK(reason_says(-EOPNOTSUPP, "mount /proc"));
	CHILD_CHECK(kedge_remote_open(gone, SOON_MS, &remote) == -EOPNOTSUPP);
	CHILD_CHECK(reason_says(-EOPNOTSUPP, "mount /proc"));
	kedge_region_close(r);
	return 0;
}

static void without_proc_it_says_so(void **state)
{
	struct kedge_handle *h = shared_memory(sizeof(*h));
	int status;

	assert_int_equal(in_child(give_handle, h), 0);
	status = in_child(no_proc, h);
	if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT)
		skip();
	assert_int_equal(status, 0);
	munmap(h, sizeof(*h));
}

/* ---- no /dev ---- */

static int no_device_is_needed(void *unused)
{
	struct kedge_region *r;
	struct kedge_invitation *i;
	struct kedge_handle h;
	char c = 1;

	have_own_mounts();
	empty("/dev");
	r = make();
	CHILD_CHECK(!kedge_region_advertise(r, NULL, &h));
	CHILD_CHECK(!kedge_remote_open(&h, SOON_MS, &remote));
	CHILD_CHECK(!kedge_remote_get(remote, 0, &c, 1, SOON_MS) && !c);
	kedge_remote_close(remote);
	CHILD_CHECK(!kedge_invitation_open(NULL, &i, &h));
	kedge_invitation_close(i);
	kedge_region_close(r);
	return 0;
}

/* ---- no descriptor ---- */

static int without_a_descriptor_it_says_so(void *unused)
{
	struct kedge_region *r = make();
	struct kedge_handle h;
	struct rlimit was, none;

	CHILD_CHECK(!getrlimit(RLIMIT_NOFILE, &was));
	none = (struct rlimit){ 0, was.rlim_max };
	CHILD_CHECK(!setrlimit(RLIMIT_NOFILE, &none));
	CHILD_CHECK(kedge_region_advertise(r, NULL, &h) == -EMFILE);
	CHILD_CHECK(reason_says(-EMFILE, "ulimit -n"));
	CHILD_CHECK(!setrlimit(RLIMIT_NOFILE, &was));
	CHILD_CHECK(!kedge_region_advertise(r, NULL, &h));
	kedge_region_close(r);
	return 0;
}

/* ---- short files ---- */

static int the_limit_of_files_is_an_error(void *unused)
{
	const struct rlimit rl = { LEN, LEN }, none = { 0, 0 };
	struct kedge_region_info info = { .size = sizeof(info) };
	struct kedge_region *r, *other = NULL;
	struct kedge_handle h;

	signal(SIGXFSZ, SIG_DFL);
	CHILD_CHECK(!setrlimit(RLIMIT_FSIZE, &rl));
	CHILD_CHECK(kedge_region_create(LEN + 1, NULL, &other) == -EFBIG && !other);
	CHILD_CHECK(reason_says(-EFBIG, "ulimit -f"));
	r = make();
	CHILD_CHECK(kedge_region_grow(r, 2 * LEN) == -EFBIG);
	CHILD_CHECK(reason_says(-EFBIG, "ulimit -f"));
	CHILD_CHECK(!kedge_region_query(r, &info) && info.len == LEN);
	memset((char *)(uintptr_t)info.addr, 1, LEN);
	CHILD_CHECK(!kedge_region_move(r, NULL, SOON_MS, NULL));
	CHILD_CHECK(!kedge_region_advertise(r, NULL, &h));
	CHILD_CHECK(!setrlimit(RLIMIT_FSIZE, &none));
	CHILD_CHECK(kedge_region_move(r, NULL, SOON_MS, NULL) == -EFBIG);
	/* The owner shares a page with each peer. */
	CHILD_CHECK(kedge_remote_open(&h, SOON_MS, &remote) == -EFBIG);
	CHILD_CHECK(reason_says(-EFBIG, "its ulimit -f"));
	CHILD_CHECK(*(char *)(uintptr_t)info.addr == 1);
	kedge_region_close(r);
	return 0;
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(without_proc_it_says_so),
	child_case(no_device_is_needed),
	child_case(without_a_descriptor_it_says_so),
	child_case(the_limit_of_files_is_an_error),
};

const struct suite suite = { "region_edges", SUITE_OF(tests) };
