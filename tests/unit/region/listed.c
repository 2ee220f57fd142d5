// SPDX-License-Identifier: BSD-2-Clause
/* See listed.h. */
#include <sys/un.h>

#include "listed.h"

int list_within(pid_t pid, uint32_t timeout_ms, struct listed_regions *l)
{
	const struct kedge_regions_opts o = { .size = sizeof(o), .pid = pid,
					      .timeout_ms = timeout_ms };
	struct kedge_region_entry e = { .size = sizeof(e) };
	struct kedge_regions *found;
	int rc = kedge_regions_open(&o, &found);

	l->cnt = 0;
	if (rc)
		return rc;
	while (kedge_regions_next(found, &e) > 0) {
		/* A process of another test that could not be asked has no pid here. */
		if (pid && !e.pid)
			continue;
		l->e = realloc(l->e, (l->cnt + 1) * sizeof(e));
		l->e[l->cnt++] = e;
	}
	kedge_regions_close(found);
	return 0;
}

void list_of(pid_t pid, struct listed_regions *l)
{
	int rc = list_within(pid, SOON_MS, l);

	if (rc)
		fail_msg("%s", kedge_strerror(rc));
}

struct kedge_region_entry only(void)
{
	struct listed_regions l = { NULL, 0 };
	struct kedge_region_entry e;

	list_of(getpid(), &l);
	assert_int_equal(l.cnt, 1);
	e = l.e[0];
	free(l.e);
	assert_int_equal(e.status, 0);
	return e;
}

const struct list_ask list_question = { .magic = LIST_MAGIC, .version = LIST_VERSION,
					 .seq = 7 };

bool ask_list(int fd, int flags)
{
	return send(fd, &list_question, sizeof(list_question), MSG_NOSIGNAL | flags) ==
	       sizeof(list_question);
}

ssize_t ask_once(int fd, struct packet *p)
{
	if (!ask_list(fd, 0))
		return -errno;
	return recv(fd, p, sizeof(*p), 0);
}

struct ready {
	void (*does)(void *arg);
	void *arg;
	int fd[2];
};

static void run_ready(void *arg)
{
	struct ready *r = arg;

	r->does(r->arg);
	CHILD_CHECK(write(r->fd[1], "", 1) == 1);
	for (;;)
		pause();
}

pid_t child(void (*does)(void *arg), void *arg)
{
	struct ready r = { does, arg, { -1, -1 } };
	pid_t pid;
	char c;

	assert_int_equal(pipe(r.fd), 0);
	pid = start_child(run_ready, &r);
	close(r.fd[1]);
	assert_int_equal(read(r.fd[0], &c, 1), 1);
	close(r.fd[0]);
	return pid;
}
