// SPDX-License-Identifier: BSD-2-Clause
/*
 * Regions in a process that has less around it than others: no /proc, no /dev, no long files, no
 * descriptor. A call fails with an errno that says which of these it is, and the reason has the
 * remedy; nothing ends the process.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "core.h"

#define LEN	((size_t)64 << 10)
#define SOON_MS 600000
#define CANNOT	77

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

static void run(int (*fn)(void *), void *arg)
{
	const int status = in_child(fn, arg);

	if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT)
		skip();
	assert_int_equal(status, 0);
}

/* ---- no /proc ---- */

/* Of a region that is gone: its owner is not asked. */
static int give_handle(void *handle)
{
	CHILD_CHECK(!kedge_region_advertise(make(), NULL, handle));
	return 0;
}

static int no_proc(void *handle)
{
	struct kedge_region *r;
	struct kedge_invitation *i;
	struct kedge_regions *list;
	struct kedge_remote *remote;
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
	CHILD_CHECK(kedge_remote_open(handle, SOON_MS, &remote) == -EOPNOTSUPP);
	CHILD_CHECK(reason_says(-EOPNOTSUPP, "mount /proc"));
	kedge_region_close(r);
	return 0;
}

static void without_proc_it_says_so(void **state)
{
	struct kedge_handle *h = mmap(NULL, page_len(), PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(h, MAP_FAILED);
	assert_int_equal(in_child(give_handle, h), 0);
	run(no_proc, h);
	munmap(h, page_len());
}

/* ---- no /dev ---- */

static int no_dev(void *unused)
{
	struct kedge_region *r;
	struct kedge_invitation *i;
	struct kedge_remote *remote;
	struct kedge_handle h;
	char c = 1;

	(void)unused;
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

static void no_device_is_needed(void **state)
{
	run(no_dev, NULL);
}

/* ---- no descriptor ---- */

static int no_descriptor(void *unused)
{
	struct kedge_region *r = make();
	struct kedge_handle h;
	struct rlimit was, none;

	(void)unused;
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

static void without_a_descriptor_it_says_so(void **state)
{
	run(no_descriptor, NULL);
}

/* ---- short files ---- */

static int short_files(void *unused)
{
	const struct rlimit rl = { LEN, LEN }, none = { 0, 0 };
	struct kedge_region_info info = { .size = sizeof(info) };
	struct kedge_region *r, *other = NULL;
	struct kedge_remote *remote;
	struct kedge_handle h;

	(void)unused;
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

static void the_limit_of_files_is_an_error(void **state)
{
	run(short_files, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_proc_it_says_so),
		cmocka_unit_test(no_device_is_needed),
		cmocka_unit_test(without_a_descriptor_it_says_so),
		cmocka_unit_test(the_limit_of_files_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
