// SPDX-License-Identifier: BSD-2-Clause
/*
 * The thread that publishes counters where KEDGE_STATS says. It begins with the first object that
 * is entered, and ends with the process, after the file has had the last ones. In a forked child
 * it begins anew with the child's own first object.
 */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/base.h"
#include "base/lock.h"
#include "base/process/owner.h"
#include "base/process/service.h"
#include "stats/publish.h"
#include "stats/ways.h"

#define EVERY_MS 1000 /* a file is brought up to date */
#define PAUSE_MS 100  /* after what cannot be done now */

static _Atomic int owner; /* the process that what follows belongs to */
static struct sig_lock lock = SIG_LOCK_INIT; /* guards: */
static bool tried;
static bool runs;
/* The thread's, and that of its start and end. */
static struct publisher pub;
static struct service service;
static pthread_t thread;
static _Atomic bool stop;

static void anew(void)
{
	sig_lock_init(&lock);
	tried = runs = false;
	memset(&pub, 0, sizeof(pub));
	clofork_init(&pub.wake);
	clofork_init(&pub.listen);
	memset(&service, 0, sizeof(service));
	atomic_store(&stop, false);
}

bool stats_wanted(void)
{
	return target_named(kedge__env("KEDGE_STATS"));
}

/* Each failure is told once, not at each turn. */
static void tell(int rc)
{
	if (rc && rc != pub.failed)
		kedge__log(KEDGE_LOG_WARN, "KEDGE_STATS: counters are not published at %s: %s",
			   pub.target.path, kedge_strerror(rc));
	pub.failed = rc;
}

/* True: there is a socket to wait at. One that was another process's, or is lost, is tried for
 * again at each turn. */
static bool listens(void)
{
	if (!pub.target.socket)
		return false;
	if (!socket_lost(&pub))
		return true;
	/* Also one that the program has closed: it is forgotten, as its number may be another's. */
	clofork_close(&pub.listen);
	tell(socket_open(&pub));
	return clofork_ours(&pub.listen);
}

static void turn(void)
{
	const bool socket = listens();
	struct pollfd fds[] = {
		{ .fd = clofork_ours(&pub.wake) ? pub.wake.fd : -1, .events = POLLIN },
		{ .fd = socket ? pub.listen.fd : -1, .events = POLLIN },
	};

	if (!pub.target.socket)
		tell(file_write(&pub));
	/* The program may close the descriptor that wakes the thread, even meanwhile. */
	clock_poll(fds, 2, clock_after_ms(fds[0].fd < 0 ? PAUSE_MS : EVERY_MS));
	if (socket && fds[1].revents && clofork_ours(&pub.listen) && !socket_answer(&pub))
		clock_poll(fds, 1, clock_after_ms(PAUSE_MS));
}

/* The last words are this thread's as well: its signals are blocked, so that a limit of files'
 * sizes (SIGXFSZ) does not end the program. */
static void *run(void *unused)
{
	while (!atomic_load(&stop))
		turn();
	if (!pub.target.socket)
		tell(file_write(&pub));
	return unused;
}

static void end_thread(struct service *unused)
{
	(void)unused;
	atomic_store(&stop, true);
	if (clofork_ours(&pub.wake))
		eventfd_write(pub.wake.fd, 1);
	pthread_join(thread, NULL);
}

static int start(void)
{
	const char *value = kedge__env("KEDGE_STATS");
	int rc = target_named(value) ? target_parse(&pub.target, value, "prom") : -ENOENT;

	/* Here, so that it is there when the object is open. If it fails, the thread tries again,
	 * and tells. */
	if (!rc && pub.target.socket)
		socket_open(&pub);
	if (!rc)
		rc = clofork_keep(&pub.wake, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	service.end = end_thread;
	if (!rc)
		rc = service_start(&service, &thread, run, "kedge-stats", "publish counters");
	if (rc) {
		socket_close(&pub);
		clofork_close(&pub.wake);
	}
	return rc;
}

void stats_publish(void)
{
	int rc = 0;

	owner_adopt(&owner, anew);
	sig_lock(&lock);
	if (!tried) {
		tried = true;
		rc = start();
		runs = !rc;
	}
	sig_unlock(&lock);
	/* The application's own function is called for it: without the lock. Where it failed there
	 * is no thread that tells. */
	if (rc)
		tell(rc);
}

/* As the process ends, or the library goes. */
__attribute__((destructor)) static void end_publishing(void)
{
	bool was;

	if (atomic_load(&owner) != getpid())
		return;
	sig_lock(&lock);
	was = runs;
	runs = false;
	sig_unlock(&lock);
	if (!was)
		return;
	if (service_end(&service))
		end_thread(&service);
	socket_close(&pub);
	clofork_close(&pub.wake);
}
