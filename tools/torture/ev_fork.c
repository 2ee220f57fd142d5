// SPDX-License-Identifier: BSD-2-Clause
/*
 * fork: the parent writes on while a child lives; the child looks its own
 * memory up through what it inherited, or through a cache of its own.
 *
 * A forked child reports through a pipe and its exit status. The device is the
 * parent's, so where a child is handed a registration the parent makes the
 * transfer and the child compares.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/torture/case.h"
#include "tools/common/raw.h"

/* No status that a sanitizer or libc ends a process with. */
#define CHILD_STALE  81
#define CHILD_ERROR  82
#define CHILD_ROUNDS 8
/* A child that takes longer hangs: it is killed and told of. */
#define CHILD_SECONDS 20

struct ask {
	uint64_t handle;
	uint64_t shift;
};

static pid_t do_fork(struct run *x)
{
	pid_t pid;

	if (x->row->route == ROUTE_LIBC)
		pid = fork();
	else
		pid = (pid_t)raw_syscall6(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(CHILD_SECONDS);
	}
	return pid < 0 && x->row->route == ROUTE_LIBC ? -errno : pid;
}

static int reap(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return status;
}

/* The living child of a parent that writes ends when told by a signal. */
static int prep_writes(struct run *x)
{
	if (x->state) {
		kill((pid_t)x->state, SIGKILL);
		reap((pid_t)x->state);
	}
	x->state = 0;
	return 0;
}

static int fire_writes(struct run *x)
{
	pid_t pid = do_fork(x);

	if (pid < 0)
		return why(x, pid, "fork: %s", strerror(-pid));
	while (!pid)
		raw_syscall6(SYS_ppoll, 0, 0, 0, 0, 0, 0);
	x->state = pid;
	return 0;
}

static void fini_writes(struct run *x)
{
	prep_writes(x);
	anon_fini(x);
}

/* The same address, the child's own pages. */
static int child_remap(struct run *x)
{
	if (munmap(x->addr, x->len))
		return -errno;
	return mmap(x->addr, x->len, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
		    0) == x->addr
		       ? 0
		       : -EEXIST;
}

static int child_looks(struct run *x, int sock)
{
	const uint64_t nonce = util_rng_next(&x->lane->rng) | 1;
	struct ref ref;
	struct ask ask;
	uint64_t seen;
	int rc;

	if (child_remap(x))
		return CHILD_ERROR;
	poke64(x->addr, nonce);
	rc = rig_get(&x->lane->t->rig, x->addr, x->len, &ref);
	if (rc)
		return rc == -ECHILD ? 0 : CHILD_ERROR;
	ask = (struct ask){ ref.handle, ref.shift };
	if (write(sock, &ask, sizeof(ask)) != sizeof(ask) ||
	    read(sock, &seen, sizeof(seen)) != sizeof(seen))
		return CHILD_ERROR;
	return seen == nonce ? 0 : CHILD_STALE;
}

static int child_renews(struct run *x, int sock)
{
	struct torture *t = x->lane->t;
	char text[WHY_MAX] = "opening what is under test failed";
	int i, rc;

	/*
	 * The notifier's name is the parent's; the cache, and the way to the
	 * device, are our own.
	 */
	rc = rig_open(&t->rig, t->rig.dio, t->rig.dio_name,
		      t->rig.cache ? t->rig.info.backend : NULL, t->rig.which);
	if (!rc)
		rc = t->rig.dio->open(&t->rig, &x->lane->port);
	for (i = 0; !rc && i < CHILD_ROUNDS; i++) {
		rc = check_data(x->lane, x->addr, x->len, NULL, text);
		if (!rc)
			rc = child_remap(x);
		if (!rc)
			rc = check_data(x->lane, x->addr, x->len, NULL, text);
	}
	if (rc && write(sock, text, sizeof(text)) != sizeof(text))
		return CHILD_ERROR;
	return rc < 0 ? CHILD_ERROR : rc ? CHILD_STALE : 0;
}

/* The parent's part: make the transfer that a child asks for. */
static void serve(struct run *x, int sock)
{
	struct lane *l = x->lane;
	uint8_t *at = x->addr;
	uint64_t in = 0, out = 0;
	struct ref ref = { 0 };
	struct ask ask;
	ssize_t n;

	do
		n = read(sock, &ask, sizeof(ask));
	while (n < 0 && errno == EINTR);
	if (n != sizeof(ask))
		return;
	ref.handle = ask.handle;
	ref.shift = ask.shift;
	if (l->t->rig.dio->move(&l->t->rig, &l->port, &ref, &at, &in, &out, 1))
		return;
	if (write(sock, &out, sizeof(out)) != sizeof(out))
		why(x, -EPIPE, "the child went");
}

/* Reads the finds of a child with a cache of its own, if there are any. */
static void listen_to(int sock, char text[WHY_MAX])
{
	ssize_t n;

	do
		n = read(sock, text, WHY_MAX - 1);
	while (n < 0 && errno == EINTR);
	text[n > 0 ? n : 0] = '\0';
}

static int verdict(struct run *x, int status, const char *text)
{
	if (status < 0)
		return why(x, status, "waitpid: %s", strerror(-status));
	if (WIFSIGNALED(status))
		return why(x, -EIO, "the child ended by signal %d%s",
			   WTERMSIG(status),
			   WTERMSIG(status) == SIGALRM ? ": it hung" : "");
	if (WEXITSTATUS(status) == CHILD_STALE)
		check_count(x->row, 1,
			    *text ? text
				  : "the child's lookup gave other pages "
				    "than the child's");
	else if (WEXITSTATUS(status) == CHILD_ERROR)
		return why(x, -EIO, "in the child: %s",
			   *text ? text
				 : "the lookup failed otherwise than with "
				   "ECHILD");
	else if (WEXITSTATUS(status))
		return why(x, -EIO, "the child exited with %d, which is none "
			   "of our own", WEXITSTATUS(status));
	return 0;
}

static int fire_child(struct run *x)
{
	char text[WHY_MAX] = "";
	int sock[2];
	pid_t pid;

	if (x->ev->arg && HAVE_TSAN)
		return why(x, -EOPNOTSUPP,
			   "TSan lets no forked child start "
			   "threads");
	if ((x->lane->t->rig.libfabric || x->lane->t->rig.ucx) &&
	    (x->row->mode == MODE_STORM || x->row->route != ROUTE_LIBC))
		return why(x, -EOPNOTSUPP, "another thread of the parent may "
			   "have the library's locks");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock))
		return why(x, -errno, "socketpair: %s", strerror(errno));
	pid = do_fork(x);
	if (!pid) {
		close(sock[0]);
		_exit(x->ev->arg ? child_renews(x, sock[1])
				 : child_looks(x, sock[1]));
	}
	close(sock[1]);
	if (pid > 0 && x->ev->arg)
		listen_to(sock[0], text);
	else if (pid > 0)
		serve(x, sock[0]);
	close(sock[0]);
	if (pid < 0)
		return why(x, pid, "fork: %s", strerror(-pid));
	return verdict(x, reap(pid), text);
}

const struct event ev_fork[] = {
	{ .name = "fork-parent-writes",
	  .routes = R(LIBC) | R(RAW),
	  .pages = P(4K),
	  .setup = anon_setup,
	  .prep = prep_writes,
	  .fire = fire_writes,
	  .fini = fini_writes },
	{ .name = "fork-child-looks-up",
	  .routes = R(LIBC) | R(RAW),
	  .pages = P(4K),
	  .flags = EV_STALE | EV_SOLO,
	  .setup = anon_setup,
	  .fire = fire_child,
	  .fini = anon_fini },
	{ .name = "fork-child-renews",
	  .routes = R(LIBC),
	  .pages = P(4K),
	  .flags = EV_STALE | EV_SOLO | EV_NOSTORM,
	  .arg = 1,
	  .setup = anon_setup,
	  .fire = fire_child,
	  .fini = anon_fini },
	{ .name = NULL },
};
