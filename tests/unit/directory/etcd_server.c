// SPDX-License-Identifier: BSD-2-Clause
/* See etcd_server.h. */
#include <arpa/inet.h>
#include <ftw.h>
#include <netinet/in.h>
#include <sys/prctl.h>

#include "core.h"
#include "etcd_server.h"

extern char **environ;

bool server_there(void)
{
	const char *path = getenv("PATH"), *end;
	char name[4200];

	for (; path && *path; path = *end ? end + 1 : end) {
		end = strchrnul(path, ':');
		snprintf(name, sizeof(name), "%.*s/etcd", (int)(end - path), path);
		if (!access(name, X_OK))
			return true;
	}
	return false;
}

static int loopback(unsigned int port, struct sockaddr_in *a)
{
	*a = (struct sockaddr_in){ AF_INET, htons((uint16_t)port), { htonl(INADDR_LOOPBACK) },
				   { 0 } };
	return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

/* Another process may take it before etcd does: server_start() tries with others then. */
static unsigned int free_port(void)
{
	struct sockaddr_in a;
	int fd = loopback(0, &a);
	socklen_t len = sizeof(a);

	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	close(fd);
	return ntohs(a.sin_port);
}

/* Options in the environment would be heeded, too. */
static void clear_environment(void)
{
	char name[256];
	char **e = environ;

	while (*e) {
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(*e, "="), *e);
		if (strncmp(name, "ETCD_", 5)) {
			e++;
		} else {
			unsetenv(name);
			e = environ;
		}
	}
}

static void become_etcd(const struct server *s, pid_t parent)
{
	char data[100], log[100], cluster[100];
	const char *argv[] = {
		"etcd", "--name", "t", "--data-dir", data, "--listen-client-urls", s->url,
		"--advertise-client-urls", s->url, "--listen-peer-urls", s->peer_url,
		"--initial-advertise-peer-urls", s->peer_url, "--initial-cluster", cluster,
		/* It is alone: what it waits for others keeps it from its beginning. */
		"--heartbeat-interval", "10", "--election-timeout", "50", "--bcrypt-cost", "4",
		s->option, NULL,
	};
	int fd;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	snprintf(data, sizeof(data), "%s/data", s->dir);
	snprintf(log, sizeof(log), "%s/log", s->dir);
	snprintf(cluster, sizeof(cluster), "t=%s", s->peer_url);
	fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	dup2(fd, 1);
	dup2(fd, 2);
	clear_environment();
	execvp("etcd", (char **)argv);
	_exit(127);
}

static bool connects(unsigned int port)
{
	struct sockaddr_in a;
	int fd = loopback(port, &a);
	bool yes = !connect(fd, (struct sockaddr *)&a, sizeof(a));

	close(fd);
	return yes;
}

/* It listens once it has a leader. False: it has ended. */
static bool run(struct server *s)
{
	const pid_t parent = getpid();
	int status;

	fflush(NULL);
	s->pid = fork();
	assert_int_not_equal(s->pid, -1);
	if (!s->pid)
		become_etcd(s, parent);
	while (!connects(s->port)) {
		if (waitpid(s->pid, &status, WNOHANG) == s->pid)
			return false;
		usleep(10000);
	}
	return true;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *f)
{
	return remove(path);
}

static void remove_data(struct server *s)
{
	nftw(s->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* A test has one server at a time. */
static struct server *volatile running;
static pid_t starter;

/* A signal ends the test: its data do not stay. A process that it has forked just ends. */
static void remove_and_end(int sig)
{
	if (running && getpid() == starter) {
		if (running->pid > 0 && !kill(running->pid, SIGKILL))
			waitpid(running->pid, NULL, 0);
		execl("/bin/sh", "sh", "-c", "rm -rf \"$0\"; exit 1", running->dir, (char *)NULL);
	}
	_exit(1);
}

struct server *server_start(const char *option)
{
	struct server *s = calloc(1, sizeof(*s));
	int tries;

	assert_non_null(s);
	s->option = option;
	starter = getpid();
	running = s;
	signal(SIGHUP, remove_and_end);
	signal(SIGINT, remove_and_end);
	signal(SIGTERM, remove_and_end);
	for (tries = 0; tries < 20; tries++) {
		strcpy(s->dir, "/tmp/kedge-etcd-XXXXXX");
		assert_non_null(mkdtemp(s->dir));
		s->port = free_port();
		snprintf(s->url, sizeof(s->url), "%s://127.0.0.1:%u", option ? "https" : "http",
			 s->port);
		snprintf(s->peer_url, sizeof(s->peer_url), "http://127.0.0.1:%u", free_port());
		if (run(s))
			return s;
		remove_data(s);
	}
	fail_msg("etcd does not start");
	return NULL;
}

static void end_by(struct server *s, int sig)
{
	int status;

	assert_int_equal(kill(s->pid, sig), 0);
	assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
	s->pid = 0;
}

void server_stop(struct server *s)
{
	end_by(s, SIGTERM);
}

void server_kill(struct server *s)
{
	end_by(s, SIGKILL);
}

void server_go_on(struct server *s)
{
	assert_true(run(s));
}

void server_end(struct server *s)
{
	server_kill(s);
	remove_data(s);
	running = NULL;
	free(s);
}

char *server_post(const struct server *s, const char *path, const char *body)
{
	char *answer = calloc(1, 65536);
	struct sockaddr_in a;
	int fd = loopback(s->port, &a);
	size_t len = 0;
	ssize_t n;

	assert_non_null(answer);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	dprintf(fd, "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
		"Content-Length: %zu\r\n\r\n%s", path, strlen(body), body);
	while ((n = recv(fd, answer + len, 65535 - len, 0)) > 0)
		len += (size_t)n;
	close(fd);
	return answer;
}
