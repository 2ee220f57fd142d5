// SPDX-License-Identifier: BSD-2-Clause
/*
 * Lists of regions where the system refuses something, here or in the owner, which is this
 * process, too: each call in turn fails once. The list fails with a reason, or has the region, or
 * says of the process why not; nothing is left, and the owner's peers go on.
 */
#include "listed.h"

#include "look.h"
#include "refuse.h"

WRAP(ssize_t, recv, int fd, void *p, size_t len, int flags)
{
	return fails() ? -1 : __real_recv(fd, p, len, flags);
}

WRAP(void *, realloc, void *p, size_t len)
{
	return fails() ? NULL : __real_realloc(p, len);
}

WRAP(FILE *, fopen64, const char *path, const char *mode)
{
	return fails() ? NULL : __real_fopen64(path, mode);
}

/* The first line alone: how many there are is other processes' affair. */
static bool has_line;

WRAP(ssize_t, getline, char **line, size_t *room, FILE *f)
{
	const bool first = !has_line;

	has_line = true;
	return first && fails() ? -1 : __real_getline(line, room, f);
}

#define ENOUGH 10 /* steps that no call was left for */

struct outcome {
	unsigned int steps;
	unsigned int refused;
	unsigned int silent;
	unsigned int left_out;
	unsigned int listed;
};

static bool is_excuse(int status)
{
	return status == -EBUSY || status == -EACCES || status == -EOPNOTSUPP ||
	       status == -EPROTO;
}

static void list_once(struct outcome *o)
{
	const struct kedge_regions_opts opts = { .size = sizeof(opts), .pid = getpid(),
						 .timeout_ms = SOON_MS };
	struct kedge_regions *const before = (void *)&opts, *l = before;
	struct kedge_region_entry e = { .size = sizeof(e) };
	const int rc = kedge_regions_open(&opts, &l);
	int n = 0;

	atomic_store(&fail_at, 0);
	has_line = false;
	if (rc) {
		assert_ptr_equal(l, before);
		if ((rc != -fail_with && rc != -ENOMEM) || strlen(kedge_strerror(rc)) < 10)
			fail_msg("%d: %s", rc, kedge_strerror(rc));
		o->refused++;
		return;
	}
	while (kedge_regions_next(l, &e) > 0)
		n++;
	kedge_regions_close(l);
	assert_true(n <= 1);
	if (n && e.status && !is_excuse(e.status))
		fail_msg("%d", e.status);
	o->left_out += !n;
	o->silent += n && e.status;
	o->listed += n && !e.status;
}

/* Other processes' owners are met as well, and come and go: no step may be the last by chance. */
static void list_at_each_step(void **error)
{
	struct outcome o = { 0 };
	unsigned int fds, missed;
	char c = 1;

	begin_remote(NULL);
	only();
	fds = open_fds();
	fail_with = *(int *)*error;
	for (missed = 0; missed < ENOUGH; missed += atomic_load(&calls) < o.steps) {
		o.steps++;
		fail_from(o.steps);
		list_once(&o);
		assert_int_equal(open_fds(), fds);
		assert_int_equal(only().len, LEN);
		assert_int_equal(kedge_remote_put(remote, 0, &c, 1, SOON_MS), 0);
	}
	print_message("%u steps: %u refused, %u say why not, %u left out, %u listed\n", o.steps,
		      o.refused, o.silent, o.left_out, o.listed);
	assert_true(o.refused >= 5);
	assert_true(o.listed >= ENOUGH);
	end_remote();
}

static const struct CMUnitTest tests[] = {
	error_case(list_at_each_step, ENOMEM),
	error_case(list_at_each_step, EMFILE),
};

/* Those of the thread that answers, which looks for more at any time later. */
const long counted_calls[] = { SYS_recvfrom, SYS_accept4, SYS_getsockopt, SYS_epoll_ctl, SYS_sendto,
			       0 };
const struct suite suite = { "region_list_faults", SUITE_OF(tests), .by = "mapped" };
