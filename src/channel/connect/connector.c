// SPDX-License-Identifier: BSD-2-Clause
/*
 * Connecting beside the caller: a thread calls what waits, kedge_channel_open_*().
 * The steps of a handshake could be taken without one, but not the C library's
 * look-up of names, nor a provider of libfabric's.
 *
 * The connector is the caller's and the thread's. Both exchange @state when they
 * are done with it, the thread for DONE, the caller for LEFT: that which finds the
 * other's word there frees it. Acquire and release: the thread's results are
 * written before DONE, and read after it.
 *
 * They tell each other by a pair of sockets, which each shuts down: the thread's end
 * is what its waits look at beside the peer (wait.h), the caller's is readable then.
 * No byte is written, and an end is left alone if the application has closed its
 * number and used it again.
 *
 * The close of a connector ends its thread with the next wait, though not in the
 * middle of the C library's look-up of a name or of libfabric's connecting. The
 * thread is not joined, as close does not wait; the library's own end waits for such
 * threads, a while.
 */
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <kedge/tcp.h>

#include "base/lock.h"
#include "base/process/cancel.h"
#include "base/process/clofork.h"
#include "base/process/service.h"
#include "base/process/thread.h"
#include "channel/connect/connector.h"
#include "channel/connect/wait.h"
#include "channel/internal.h"
#include "channel/transport.h"

#define END_MS 1000 /* what those get that were left */

enum { CONNECTING, DONE, LEFT };

struct kedge_connector {
	struct connect_to to;
	connect_fn connect;
	struct service service;
	pthread_t thread;
	pid_t pid;
	struct clofork end;    /* the caller's, which it waits on */
	struct clofork wakeup; /* the thread's */
	int state;
	bool taken;
	/* The thread's until DONE. */
	int rc;
	struct kedge_channel *channel;
	char why[256];
};

/* Threads left behind by the close of their connectors. */
static _Atomic unsigned int left;

/* They are the parent's. */
static void in_child(void)
{
	atomic_store(&left, 0);
}

static int register_handlers(void)
{
	static _Atomic int state;

	return fork_handlers(&state, NULL, NULL, in_child);
}

/* In case the library is unloaded, or what the threads use ends with the process. */
__attribute__((destructor)) static void await_left(void)
{
	const struct timespec pause = { 0, 1000000 };
	unsigned int ms;

	for (ms = 0; atomic_load(&left) && ms < END_MS; ms++)
		syscall(SYS_nanosleep, &pause, NULL);
}

static void forget_secret(struct connect_to *to)
{
	void *secret = (void *)(uintptr_t)to->opts.secret;

	if (!secret)
		return;
	sodium_memzero(secret, to->opts.secret_len);
	free(secret);
	to->opts.secret = NULL;
}

static void connector_free(struct kedge_connector *c)
{
	kedge_channel_close(c->channel);
	forget_secret(&c->to);
	free(c->to.provider);
	free(c->to.node);
	free(c->to.service);
	clofork_close(&c->end);
	clofork_close(&c->wakeup);
	free(c);
}

static void wake(const struct clofork *end)
{
	if (clofork_ours(end))
		shutdown(end->fd, SHUT_RDWR);
}

static void *run(void *arg)
{
	struct kedge_connector *c = arg;

	wait_unless(&c->wakeup);
	c->rc = c->connect(&c->to, &c->channel);
	wait_unless(NULL);
	if (c->rc)
		snprintf(c->why, sizeof(c->why), "%s", kedge_strerror(c->rc));
	service_end(&c->service);
	if (__atomic_exchange_n(&c->state, DONE, __ATOMIC_ACQ_REL) == LEFT) {
		connector_free(c);
		atomic_fetch_sub(&left, 1);
	} else {
		/* This thread is joined before the connector is freed. */
		wake(&c->wakeup);
	}
	return NULL;
}

/* NULL is a copy of NULL. */
static bool copy(char **to, const char *from)
{
	*to = from ? strdup(from) : NULL;
	return *to || !from;
}

static int copy_opts(struct connect_to *to,
		     const struct kedge_channel_opts *user)
{
	const void *secret;
	void *own;
	int rc = kedge__channel_opts(&to->opts, user);

	secret = to->opts.secret;
	to->opts.secret = NULL;
	to->opts.size = sizeof(to->opts);
	if (rc || !secret)
		return rc;
	/* A secret that is too short is an error of the call that uses it. */
	if (to->opts.secret_len > SECRET_MAX)
		return kedge_reason(-EINVAL, "a secret has at most %u bytes",
				    SECRET_MAX);
	own = malloc(SECRET_MAX);
	if (!own)
		return -ENOMEM;
	to->opts.secret = memcpy(own, secret, to->opts.secret_len);
	return 0;
}

static int pair_open(struct kedge_connector *c)
{
	int sv[2] = { -1, -1 }, rc = register_handlers();

	if (!rc)
		rc = clofork_begin();
	if (rc)
		return rc;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
		       sv)) {
		rc = clofork_end(&c->end, -1);
		return channel_no_fd(rc);
	}
	clofork_end(&c->end, sv[0]);
	return clofork_keep(&c->wakeup, sv[1]);
}

/* The last thread of the application has ended: the channel will not be taken. */
static void service_ends(struct service *s)
{
	wake(&container_of(s, struct kedge_connector, service)->end);
}

/*
 * With a stack as all threads have that call what is not ours: the C library's
 * look-up of names, a provider.
 */
static int run_beside(struct kedge_connector *c)
{
	int rc = service_begin(&c->service);

	if (rc)
		return rc;
	signals_block();
	rc = pthread_create(&c->thread, NULL, run, c);
	signals_restore();
	if (!rc) {
		service_runs(&c->service);
		return 0;
	}
	service_end(&c->service);
	return kedge_reason(-rc, "no thread to connect: %s", strerror(rc));
}

int kedge__connector_open(connect_fn connect, const char *provider,
			  const char *node, const char *service,
			  const struct kedge_channel_opts *user,
			  int timeout_ms, struct kedge_connector **out)
{
	struct kedge_connector *c = calloc(1, sizeof(*c));
	NO_CANCEL();
	int rc;

	if (!c)
		return -ENOMEM;
	c->connect = connect;
	c->pid = getpid();
	c->service.end = service_ends;
	clofork_init(&c->end);
	clofork_init(&c->wakeup);
	c->to.timeout_ms = timeout_ms;
	rc = copy_opts(&c->to, user);
	if (rc)
		goto free_connector;
	rc = -ENOMEM;
	if (!copy(&c->to.provider, provider) || !copy(&c->to.node, node) ||
	    !copy(&c->to.service, service))
		goto free_connector;
	rc = pair_open(c);
	if (!rc)
		rc = run_beside(c);
	if (rc)
		goto free_connector;
	*out = c;
	return 0;

free_connector:
	connector_free(c);
	return rc;
}

/* ---- what is exported ---- */

static int connect_shm(const struct connect_to *to,
		       struct kedge_channel **channel)
{
	return kedge_channel_open_shm(to->service, &to->opts, to->timeout_ms,
				      channel);
}

static int connect_tcp(const struct connect_to *to,
		       struct kedge_channel **channel)
{
	return kedge_channel_open_tcp(to->node, to->service, &to->opts,
				      to->timeout_ms, channel);
}

KEDGE_API int kedge_connector_open_shm(const char *path,
				       const struct kedge_channel_opts *opts,
				       int timeout_ms,
				       struct kedge_connector **connector)
{
	if (!path || !connector)
		return channel_invalid("the path or the result is NULL");
	return kedge__connector_open(connect_shm, NULL, NULL, path, opts,
				     timeout_ms, connector);
}

KEDGE_API int kedge_connector_open_tcp(const char *node, const char *service,
				       const struct kedge_channel_opts *opts,
				       int timeout_ms,
				       struct kedge_connector **connector)
{
	if (!service || !connector)
		return channel_invalid("the service or the result is NULL");
	return kedge__connector_open(connect_tcp, NULL, node, service, opts,
				     timeout_ms, connector);
}

KEDGE_API int kedge_connector_fd(const struct kedge_connector *c)
{
	return c ? c->end.fd : channel_invalid("the connector is NULL");
}

KEDGE_API int kedge_connector_finish(struct kedge_connector *c,
				     struct kedge_channel **channel)
{
	if (!c || !channel)
		return channel_invalid("the connector or the result is NULL");
	if (c->pid != getpid())
		return kedge_reason(-ECHILD, "the connector belongs to the "
				    "parent process");
	if (__atomic_load_n(&c->state, __ATOMIC_ACQUIRE) == CONNECTING)
		return kedge_reason(-EINPROGRESS, "not connected yet");
	if (c->taken)
		return kedge_reason(-EINVAL, "the channel was taken before");
	if (c->rc)
		return kedge_reason(c->rc, "%s", c->why);
	*channel = c->channel;
	c->channel = NULL;
	c->taken = true;
	return 0;
}

KEDGE_API void kedge_connector_close(struct kedge_connector *c)
{
	NO_CANCEL();
	pthread_t thread;

	if (!c)
		return;
	/* The thread is the parent's: it does not run in this process. */
	if (c->pid != getpid()) {
		connector_free(c);
		return;
	}
	thread = c->thread;
	wake(&c->end);
	atomic_fetch_add(&left, 1);
	if (__atomic_exchange_n(&c->state, LEFT, __ATOMIC_ACQ_REL) != DONE) {
		pthread_detach(thread);
		return;
	}
	/* It has one system call to do. */
	pthread_join(thread, NULL);
	connector_free(c);
	atomic_fetch_sub(&left, 1);
}
