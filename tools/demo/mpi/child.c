// SPDX-License-Identifier: BSD-2-Clause
/*
 * Commands that the demo runs, one at a time, each with an environment of its own and its output in
 * files. A signal that asks the demo to end is passed on, and is taken when the files are gone.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/common/util.h"
#include "tools/demo/mpi/mpi.h"

#define TICK_NS	     200000000l
#define SECOND_NS    1000000000ull
#define GRACE_MAX    10 /* seconds for launchers, which end what they have started */
#define GRACE_QUICK  1  /* and for one process alone, which may hang in its exit() */
#define NOT_FOUND    127
#define TOLD_BYTES   4096
#define FOLDERS	     16 /* that are open at a time, while all are removed */
#define MAX_DIR	     (PATH_MAX - 64) /* with a file's name behind it */

static const int ends[] = { SIGINT, SIGTERM, SIGHUP };

/* ---- a command ---- */

void mpi_word(struct mpi_command *c, const char *word)
{
	if (c->words < MPI_WORDS)
		c->word[c->words++] = word;
}

void mpi_words(struct mpi_command *c, const char *const *words)
{
	while (*words)
		mpi_word(c, *words++);
}

static void set(struct mpi_command *c, const char *name, const char *value, bool soft)
{
	if (c->sets == MPI_SETS)
		return;
	c->set[c->sets].name = name;
	c->set[c->sets].value = value;
	c->set[c->sets++].soft = soft;
}

void mpi_set(struct mpi_command *c, const char *name, const char *value)
{
	set(c, name, value, false);
}

void mpi_set_soft(struct mpi_command *c, const char *name, const char *value)
{
	set(c, name, value, true);
}

/* ---- the place ---- */

void mpi_place_path(const struct mpi_place *p, const char *name, char path[PATH_MAX])
{
	if (snprintf(path, PATH_MAX, "%s/%s", p->dir, name) >= PATH_MAX)
		*path = 0;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)st, (void)kind, (void)at;
	remove(path);
	return 0;
}

/* Signals that are ignored, as under nohup(1), stay so. */
static void choose_signals(sigset_t *set)
{
	struct sigaction old;
	size_t i;

	sigemptyset(set);
	sigaddset(set, SIGCHLD);
	for (i = 0; i < ARRAY_SIZE(ends); i++)
		if (!sigaction(ends[i], NULL, &old) && old.sa_handler != SIG_IGN)
			sigaddset(set, ends[i]);
}

int mpi_place_open(struct mpi_place *p, int timeout)
{
	const char *tmp = getenv("TMPDIR");
	const struct sigaction plain = { .sa_handler = SIG_DFL };
	int rc;

	memset(p, 0, sizeof(*p));
	p->timeout = timeout;
	if (snprintf(p->dir, MAX_DIR, "%s/kedge-demo-XXXXXX", tmp && *tmp ? tmp : "/tmp") >=
	    MAX_DIR)
		return util_fail(-ENAMETOOLONG, "TMPDIR");
	if (!mkdtemp(p->dir))
		return util_fail(-errno, "cannot make a folder for temporary files");
	mpi_place_path(p, "empty", p->empty);
	mpi_place_path(p, "tmp", p->tmp);
	if (mkdir(p->empty, 0700) || mkdir(p->tmp, 0700)) {
		rc = util_fail(-errno, "cannot make a folder for temporary files");
		nftw(p->dir, remove_one, FOLDERS, FTW_DEPTH | FTW_PHYS);
		return rc;
	}
	choose_signals(&p->awaited);
	sigprocmask(SIG_BLOCK, &p->awaited, &p->before);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	/* A child's status is lost where SIGCHLD is ignored. */
	sigaction(SIGCHLD, &plain, NULL);
	return 0;
}

void mpi_place_close(struct mpi_place *p)
{
	nftw(p->dir, remove_one, FOLDERS, FTW_DEPTH | FTW_PHYS);
	sigprocmask(SIG_SETMASK, &p->before, NULL);
	if (p->stopped) {
		signal(p->stopped, SIG_DFL);
		raise(p->stopped);
	}
}

/* ---- running it ---- */

static int redirect(const struct mpi_place *p, const char *name, int to)
{
	char path[PATH_MAX];
	int fd;

	mpi_place_path(p, name, path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	return fd < 0 || dup2(fd, to) < 0 ? -1 : 0;
}

static int set_environment(const struct mpi_command *c)
{
	size_t i;
	int rc = 0;

	for (i = 0; i < c->sets && !rc; i++)
		rc = c->set[i].value ? setenv(c->set[i].name, c->set[i].value, !c->set[i].soft) :
				       unsetenv(c->set[i].name);
	return rc;
}

static void __attribute__((noreturn)) be(const struct mpi_place *p, const struct mpi_command *c)
{
	int none = open("/dev/null", O_RDONLY | O_CLOEXEC);

	setpgid(0, 0);
	sigprocmask(SIG_SETMASK, &p->before, NULL);
	if (none < 0 || dup2(none, STDIN_FILENO) < 0 || redirect(p, "out", STDOUT_FILENO) ||
	    redirect(p, "err", STDERR_FILENO) || setenv("TMPDIR", p->tmp, 1) || set_environment(c))
		_exit(NOT_FOUND);
	execvp(c->word[0], (char *const *)(uintptr_t)c->word);
	dprintf(STDERR_FILENO, "%s: %s\n", c->word[0], strerror(errno));
	_exit(NOT_FOUND);
}

/* The signal that has come, of those that wait; 0 after a moment. */
static int next_signal(const struct mpi_place *p)
{
	const struct timespec tick = { .tv_nsec = TICK_NS };
	int sig = sigtimedwait(&p->awaited, NULL, &tick);

	return sig < 0 ? 0 : sig;
}

/* It is asked to end, as a launcher ends its ranks then; and is ended if it does not, or if the
 * user asks again. */
static int watch(struct mpi_place *p, pid_t child, int *status)
{
	const uint64_t most = p->quick ? GRACE_QUICK : GRACE_MAX;
	const uint64_t grace = (uint64_t)p->timeout < most ? (uint64_t)p->timeout : most;
	const uint64_t limit = clock_ns() + (uint64_t)p->timeout * SECOND_NS;
	uint64_t kill_at = UINT64_MAX, now;
	int rc = 0, sig;
	pid_t got;

	for (;;) {
		got = waitpid(child, status, WNOHANG);
		if (got)
			return got < 0 && !rc ? -errno : rc;
		sig = next_signal(p);
		now = clock_ns();
		if (sig && sig != SIGCHLD) {
			kill_at = p->stopped ? now - 1 : kill_at;
			p->stopped = sig;
		}
		if (!rc && (p->stopped || now > limit)) {
			rc = p->stopped ? -EINTR : -ETIME;
			kill_at = now + grace * SECOND_NS;
			kill(child, SIGTERM);
		}
		if (now > kill_at)
			kill(child, SIGKILL);
		if (p->waited)
			p->waited(p->arg);
	}
}

/* Processes that the command has started are of its group, and ours since it has ended. */
static void end_group(pid_t child)
{
	pid_t got;

	kill(-child, SIGKILL);
	do
		got = waitpid(-child, NULL, 0);
	while (got > 0 || (got < 0 && errno == EINTR));
}

int mpi_run(struct mpi_place *p, const struct mpi_command *c)
{
	int status = 0, rc;
	pid_t child;

	if (c->words == MPI_WORDS || c->sets == MPI_SETS)
		return -E2BIG;
	child = fork();
	if (child < 0)
		return -errno;
	if (!child)
		be(p, c);
	/* Here as well: the child may not have come to it. */
	setpgid(child, child);
	rc = watch(p, child, &status);
	if (rc || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
		end_group(child);
	if (rc)
		return rc;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---- what it said ---- */

void mpi_last_line(const struct mpi_place *p, const char *name, char *line, size_t size)
{
	char path[PATH_MAX], one[1024];
	FILE *f;

	*line = 0;
	mpi_place_path(p, name, path);
	f = fopen(path, "re");
	while (f && fgets(one, sizeof(one), f)) {
		one[strcspn(one, "\n")] = 0;
		if (*one)
			snprintf(line, size, "%s", one);
	}
	if (f)
		fclose(f);
}

void mpi_print_err(const struct mpi_place *p)
{
	char path[PATH_MAX], text[TOLD_BYTES];
	size_t n;
	FILE *f;

	mpi_place_path(p, "err", path);
	f = fopen(path, "re");
	if (!f)
		return;
	if (fseek(f, -(long)sizeof(text), SEEK_END))
		rewind(f);
	n = fread(text, 1, sizeof(text), f);
	fwrite(text, 1, n, stderr);
	fclose(f);
}
