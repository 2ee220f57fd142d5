// SPDX-License-Identifier: BSD-2-Clause
/*
 * timed COMMAND...: run it, end as it ends, and append the seconds of processor time that it and
 * its children took, and its command line, to the file that TESTS_CPU_LOG names. scripts/test.py
 * has meson run each test by this: meson's own log knows how long a test took, and not whether
 * it worked or waited.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define END_S 5

static double seconds(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

/* One write, so that lines of tests that end at the same time stay whole. */
static void note(const char *path, const struct rusage *u, char **command)
{
	char line[4096];
	size_t len;
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

	if (fd < 0)
		return;
	len = (size_t)snprintf(line, sizeof(line), "%.2f",
			       seconds(u->ru_utime) + seconds(u->ru_stime));
	for (; *command && len + strlen(*command) + 2 < sizeof(line); command++)
		len += (size_t)sprintf(line + len, " %s", *command);
	line[len++] = '\n';
	if (write(fd, line, len) < 0)
		perror(path);
	close(fd);
}

static volatile sig_atomic_t ending;

static void kill_all(int sig)
{
	(void)sig;
	kill(0, SIGKILL);
}

/* The runner of the tests was killed. meson gives each test a process group of its own: its shells
 * remove what they made, and what is left after that time is killed. */
static void end_all(int sig)
{
	(void)sig;
	ending = 1;
	signal(SIGTERM, SIG_IGN);
	signal(SIGALRM, kill_all);
	kill(0, SIGTERM);
	alarm(END_S);
}

int main(int argc, char **argv)
{
	const pid_t parent = getppid();
	char *path = getenv("TESTS_CPU_LOG");
	struct rusage u;
	sigset_t none;
	int status;
	pid_t pid;

	if (argc < 2)
		return 2;
	/* The test's crash, told by raise() below, would be none to a caller that blocks it. */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (path)
		path = strdup(path);
	/* The test finds the environment that it has without this. */
	unsetenv("TESTS_CPU_LOG");
	if (getpgrp() == getpid()) {
		signal(SIGUSR1, end_all);
		prctl(PR_SET_PDEATHSIG, SIGUSR1);
		if (getppid() != parent)
			return 1;
	}
	pid = fork();
	if (!pid) {
		/* meson ends a test by its process group; a lone SIGKILL reaches this one alone. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execvp(argv[1], argv + 1);
		perror(argv[1]);
		_exit(127);
	}
	if (pid < 0 || wait4(pid, &status, 0, &u) != pid)
		return 1;
	while (ending)
		pause();
	if (path)
		note(path, &u, argv + 1);
	if (!WIFSIGNALED(status))
		return WEXITSTATUS(status);
	signal(WTERMSIG(status), SIG_DFL);
	raise(WTERMSIG(status));
	return 128 + WTERMSIG(status);
}
