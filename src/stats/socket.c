// SPDX-License-Identifier: BSD-2-Clause
/*
 * A Unix socket that tells the counters to each client and does not read from it, so that there is
 * no request for this process to get wrong. Its owner alone may connect, and root.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/base.h"
#include "stats/ways.h"
#include "stats/text.h"

static int set_name(struct sockaddr_un *name, const char *path)
{
	if (strlen(path) >= sizeof(name->sun_path))
		return kedge_reason(-ENAMETOOLONG, "the path of a socket has %zu bytes at most: %s",
				    sizeof(name->sun_path) - 1, path);
	memset(name, 0, sizeof(*name));
	name->sun_family = AF_UNIX;
	memcpy(name->sun_path, path, strlen(path));
	return 0;
}

static int new_socket(struct clofork *c)
{
	int rc = clofork_begin();

	return rc ? rc : clofork_end(c, socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
					       0));
}

/* True: it is a socket that no process listens at any more, and its name is free now. */
static bool take_over(const struct sockaddr_un *name)
{
	struct clofork c;
	struct stat st;
	int err = 0;

	if (lstat(name->sun_path, &st) || !S_ISSOCK(st.st_mode))
		return false;
	clofork_init(&c);
	if (new_socket(&c))
		return false;
	if (connect(c.fd, (const struct sockaddr *)name, sizeof(*name)))
		err = errno;
	clofork_close(&c);
	return err == ECONNREFUSED && !unlink(name->sun_path);
}

static int bind_to(const struct clofork *c, const struct sockaddr_un *name)
{
	const struct sockaddr *addr = (const struct sockaddr *)name;
	int err;

	/* The file that bind() makes has the mode of the socket. */
	if (fchmod(c->fd, 0600))
		return -errno;
	if (!bind(c->fd, addr, sizeof(*name)))
		return 0;
	err = errno;
	if (err == EADDRINUSE && take_over(name) && !bind(c->fd, addr, sizeof(*name)))
		return 0;
	if (err == EADDRINUSE)
		return kedge_reason(-err, "%s: another process answers there, or it is no socket: "
				    "name a folder, or a path with %%p", name->sun_path);
	return kedge_reason(-err, "%s: %s", name->sun_path, strerrordesc_np(err));
}

void socket_close(struct publisher *p)
{
	struct sockaddr_un name;
	socklen_t len = sizeof(name);
	struct stat st;

	if (!clofork_ours(&p->listen) ||
	    getsockname(p->listen.fd, (struct sockaddr *)&name, &len))
		return;
	clofork_close(&p->listen);
	if (!lstat(name.sun_path, &st) && S_ISSOCK(st.st_mode))
		take_over(&name);
}

static void note_name(struct publisher *p)
{
	struct stat st;

	p->name = (struct fd_id){ 0, 0 };
	if (!lstat(p->target.path, &st))
		p->name = (struct fd_id){ st.st_dev, st.st_ino };
}

bool socket_lost(const struct publisher *p)
{
	struct stat st;

	return !clofork_ours(&p->listen) || lstat(p->target.path, &st) ||
	       st.st_dev != p->name.dev || st.st_ino != p->name.ino;
}

int socket_open(struct publisher *p)
{
	struct sockaddr_un name;
	int rc = set_name(&name, p->target.path);

	if (!rc)
		rc = new_socket(&p->listen);
	if (rc)
		return rc;
	rc = bind_to(&p->listen, &name);
	if (rc) {
		clofork_close(&p->listen);
		return rc;
	}
	if (!listen(p->listen.fd, 64)) {
		note_name(p);
		return 0;
	}
	rc = -errno;
	socket_close(p);
	return rc;
}

/* False: the client is gone or slow, or the thread is to end. */
static bool can_send(const struct publisher *p, int fd, uint64_t end)
{
	struct pollfd fds[] = { { .fd = fd, .events = POLLOUT },
				{ .fd = clofork_ours(&p->wake) ? p->wake.fd : -1,
				  .events = POLLIN } };

	if (!clock_left_ns(end))
		return false;
	clock_poll(fds, 2, end);
	return fds[0].revents & POLLOUT && !fds[1].revents;
}

static void send_all(const struct publisher *p, int fd, const char *text, size_t len)
{
	const uint64_t end = clock_after_ms(CLIENT_MS);
	ssize_t n;

	while (len && can_send(p, fd, end)) {
		n = send(fd, text, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return;
		if (n > 0) {
			text += n;
			len -= (size_t)n;
		}
	}
}

bool socket_answer(struct publisher *p)
{
	struct clofork client;
	size_t len = 0;
	char *text;

	clofork_init(&client);
	if (clofork_begin() ||
	    clofork_end(&client, accept4(p->listen.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)))
		return false;
	text = stats_text(&len);
	if (text)
		send_all(p, client.fd, text, len);
	free(text);
	/* A child may have a copy of it, by a way that runs no handlers. */
	shutdown(client.fd, SHUT_WR);
	clofork_close(&client);
	return true;
}
