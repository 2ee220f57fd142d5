/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists of regions as tests use them, and owners' sockets without the library's calls. */
#ifndef TESTS_REGION_LISTED_H
#define TESTS_REGION_LISTED_H

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/base.h"
#include "region/share/share.h"
#include "remote.h"

#define SHORT_MS 100 /* for those that never answer */
#define NOBODY	 65534

struct listed_regions {
	struct kedge_region_entry *e;
	size_t cnt;
};

static inline int list_within(pid_t pid, uint32_t timeout_ms, struct listed_regions *l)
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

static inline void list_of(pid_t pid, struct listed_regions *l)
{
	int rc = list_within(pid, SOON_MS, l);

	if (rc)
		fail_msg("%s", kedge_strerror(rc));
}

/* The only one of this process. */
static inline struct kedge_region_entry only(void)
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

/* ---- by hand ---- */

/* A connection to the owner that made @h, or -1. */
static inline int stranger(const struct kedge_handle *h)
{
	struct handle_words w;
	struct sockaddr_un a;
	socklen_t len;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (!handle_read(h, &w))
		return -1;
	len = handle_address(w.name, false, &a);
	return connect(fd, (struct sockaddr *)&a, len) ? -1 : fd;
}

struct packet {
	struct list_head head;
	struct list_item item[LIST_ITEMS];
};

static const struct list_ask all = { .magic = LIST_MAGIC, .version = LIST_VERSION, .seq = 7 };

/* The answer's length. */
static inline ssize_t ask_once(int fd, struct packet *p)
{
	if (send(fd, &all, sizeof(all), MSG_NOSIGNAL) != sizeof(all))
		return -errno;
	return recv(fd, p, sizeof(*p), 0);
}

/* ---- other processes ---- */

/* A child that ends with this process, and that has done @does() when this returns. */
static inline pid_t child(void (*does)(void *arg), void *arg)
{
	int fd[2];
	pid_t pid;
	char c;

	assert_int_equal(pipe(fd), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		does(arg);
		CHILD_CHECK(write(fd[1], "", 1) == 1);
		for (;;)
			pause();
	}
	close(fd[1]);
	assert_int_equal(read(fd[0], &c, 1), 1);
	close(fd[0]);
	return pid;
}

static inline void child_kill(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

#endif /* TESTS_REGION_LISTED_H */
