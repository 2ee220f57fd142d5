// SPDX-License-Identifier: BSD-2-Clause
/* Cases in children, and the watchdog. */
#include <dirent.h>
#include <fnmatch.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/prctl.h>

#include "proc.h"

#define SECONDS 60
#define TEXT	256

/* The words of a child, in memory that it shares with its parent. */
static char (*said)[TEXT];

int proc_fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(*said, TEXT, fmt, ap);
	va_end(ap);
	return 1;
}

int proc_skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(*said, TEXT, fmt, ap);
	va_end(ap);
	return PROC_SKIP;
}

/* The first line of a file of /proc. */
static void first_line(const char *path, char *line, size_t len)
{
	FILE *f = fopen(path, "re");

	line[0] = '\0';
	if (f && fgets(line, (int)len, f))
		line[strcspn(line, "\n")] = '\0';
	if (f)
		fclose(f);
}

static void print_threads(pid_t pid)
{
	char path[400], name[64], chan[64], nr[128];
	struct dirent *e;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir && (e = readdir(dir))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", (int)pid,
			 e->d_name);
		first_line(path, name, sizeof(name));
		snprintf(path, sizeof(path), "/proc/%d/task/%s/wchan",
			 (int)pid, e->d_name);
		first_line(path, chan, sizeof(chan));
		snprintf(path, sizeof(path), "/proc/%d/task/%s/syscall",
			 (int)pid, e->d_name);
		first_line(path, nr, sizeof(nr));
		nr[strcspn(nr, " ")] = '\0';
		printf("#   thread %s, %s: in %s, system call %s\n", e->d_name,
		       name, chan, nr);
	}
	if (dir)
		closedir(dir);
}

/* Has it said something else since? A case that goes on does not hang, however slow it is. */
static bool goes_on(char before[TEXT])
{
	bool same = !said || !strncmp(before, *said, TEXT);

	if (said)
		memcpy(before, *said, TEXT);
	return !same;
}

int proc_wait(pid_t pid, unsigned int seconds)
{
	int status = -1, fd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char before[TEXT] = "";
	int n;

	goes_on(before);
	do
		n = fd < 0 ? 1 : poll(&p, 1, (int)seconds * 1000);
	while ((n < 0 && errno == EINTR) || (!n && goes_on(before)));
	if (fd >= 0)
		close(fd);
	if (!n) {
		print_threads(pid);
		fflush(stdout);
		kill(pid, SIGKILL);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return n ? status : -1;
}

/* In the child: what the case leaves behind goes with its process group. */
__attribute__((noreturn))
static void child(const struct proc_case *c)
{
	int rc;

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	rc = c->fn ? c->fn() : c->with(c->variant);
	fflush(stdout);
	_exit(rc);
}

static int run_case(const struct proc_case *c, size_t nr)
{
	unsigned int seconds = c->seconds ? c->seconds : SECONDS;
	int status;
	pid_t pid;

	**said = '\0';
	fflush(stdout);
	pid = fork();
	if (pid < 0) {
		printf("not ok %zu - %s\n# fork: %s\n", nr, c->name,
		       strerror(errno));
		return 1;
	}
	if (!pid)
		child(c);
	status = proc_wait(pid, seconds);
	kill(-pid, SIGKILL);
	if (status >= 0 && WIFEXITED(status) &&
	    WEXITSTATUS(status) == PROC_SKIP) {
		printf("ok %zu - %s # SKIP %s\n", nr, c->name, *said);
		return PROC_SKIP;
	}
	if (status == 0) {
		printf("ok %zu - %s\n", nr, c->name);
		return 0;
	}
	printf("not ok %zu - %s\n", nr, c->name);
	if (status == -1)
		printf("# FAIL: it hangs (%u s)%s%s\n", seconds,
		       **said ? ": " : "", *said);
	else if (WIFSIGNALED(status))
		printf("# FAIL: %s%s%s\n", strsignal(WTERMSIG(status)),
		       **said ? ": " : "", *said);
	else
		printf("# FAIL: %s\n", **said ? *said : "it says nothing");
	return 1;
}

static bool chosen(const char *name, int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++)
		if (!fnmatch(argv[i], name, 0))
			return true;
	return argc < 2;
}

int proc_main(int argc, char **argv, const struct proc_case *cases, size_t cnt)
{
	size_t i, ran = 0, skipped = 0;
	bool failed = false;
	int rc;

	said = mmap(NULL, sizeof(*said), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (said == MAP_FAILED)
		return 1;
	for (i = 0; i < cnt; i++) {
		if (!chosen(cases[i].name, argc, argv))
			continue;
		rc = run_case(&cases[i], ++ran);
		failed |= rc == 1;
		skipped += rc == PROC_SKIP;
	}
	printf("1..%zu\n", ran);
	if (failed || !ran)
		return 1;
	return skipped == ran ? PROC_SKIP : 0;
}
