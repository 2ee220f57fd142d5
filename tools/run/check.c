// SPDX-License-Identifier: BSD-2-Clause
/*
 * kedge run --check. Each process of the program that has used libibverbs appends what it has seen
 * to a file at its exit (src/preload/report.c and held.c write it):
 *
 *	process PID NAME
 *	counts HITS MISSES LENT UNCACHED REFUSED INVALIDATED
 *	held FOLLOWED NOT-FOLLOWED
 *	stale COUNT LIBRARY		for each library
 *
 * A process that is killed, or ends by _exit(), has no lines there. The file is the user's own, and
 * what is in it is anybody's: what is no such line is left out.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "base/base.h"
#include "tools/common/util.h"
#include "tools/run/run.h"

#define NAME_MAX_ 64

struct process {
	char name[NAME_MAX_];
	int pid;
	unsigned long long hits, misses, lent, uncached, refused, invalidated;
	unsigned long long followed, not_followed;
};

struct stale {
	char name[NAME_MAX_];
	unsigned long long cnt;
};

struct checked {
	struct process *process;
	size_t processes;
	struct stale *stale; /* a library once */
	size_t stales;
	unsigned long long stale_cnt;
	bool no_memory;
};

/* ---- what they wrote ---- */

static void *one_more(struct checked *c, void **all, size_t *cnt, size_t size)
{
	void *bigger = reallocarray(*all, *cnt + 1, size);

	if (!bigger) {
		c->no_memory = true;
		return NULL;
	}
	*all = bigger;
	return memset((char *)bigger + (*cnt)++ * size, 0, size);
}

static void add_stale(struct checked *c, const struct stale *s)
{
	struct stale *to;
	size_t i;

	c->stale_cnt += s->cnt;
	for (i = 0; i < c->stales; i++) {
		if (!strcmp(c->stale[i].name, s->name)) {
			c->stale[i].cnt += s->cnt;
			return;
		}
	}
	to = one_more(c, (void **)&c->stale, &c->stales, sizeof(*s));
	if (to)
		*to = *s;
}

static void take_line(struct checked *c, const char *line)
{
	struct process got = { 0 }, *p = c->processes ? &c->process[c->processes - 1] : NULL;
	struct stale s = { 0 };

	if (sscanf(line, "process %d %63[^\n]", &got.pid, got.name) == 2) {
		p = one_more(c, (void **)&c->process, &c->processes, sizeof(*p));
		if (p)
			*p = got;
	} else if (sscanf(line, "stale %llu %63[^\n]", &s.cnt, s.name) == 2 && s.cnt) {
		add_stale(c, &s);
	} else if (p && sscanf(line, "held %llu %llu", &got.followed, &got.not_followed) == 2) {
		p->followed = got.followed;
		p->not_followed = got.not_followed;
	} else if (p) {
		sscanf(line, "counts %llu %llu %llu %llu %llu %llu", &p->hits, &p->misses,
		       &p->lent, &p->uncached, &p->refused, &p->invalidated);
	}
}

static void take_all(struct checked *c, FILE *f)
{
	char line[256];

	rewind(f);
	while (fgets(line, sizeof(line), f))
		take_line(c, line);
}

/* ---- what is printed ---- */

static unsigned long long asked(const struct process *p)
{
	return p->followed + p->not_followed;
}

/* What libibverbs made without the cache: it refused, or it could not be had. */
static unsigned long long not_served(const struct process *p)
{
	unsigned long long served = p->hits + p->misses;

	return asked(p) > served ? asked(p) - served : 0;
}

static void print_processes(const struct checked *c)
{
	const struct process *p;
	size_t i;

	fprintf(stderr, "%-24s %9s %9s %9s %9s %9s %9s\n", "process", "asked", "cached",
		"made", "not kept", "left", "changed");
	for (i = 0; i < c->processes; i++) {
		p = &c->process[i];
		fprintf(stderr, "%-15.15s %8d %9llu %9llu %9llu %9llu %9llu %9llu\n", p->name,
			p->pid, asked(p), p->hits, p->misses, p->lent + p->uncached,
			not_served(p), p->invalidated);
		if (p->not_followed)
			fprintf(stderr, "    %llu of them in memory that cannot be watched here, "
				"or that another notifier watches\n", p->not_followed);
	}
}

static void print_text(const struct checked *c)
{
	size_t i;

	if (!c->processes) {
		util_error("--check: no process of the program has registered memory by "
			   "ibv_reg_mr() and its kin, or none has come to its exit: kedge has done "
			   "nothing for it");
		return;
	}
	print_processes(c);
	for (i = 0; i < c->stales; i++)
		util_error("--check: %s held %llu registrations whose pages had gone",
			   c->stale[i].name, c->stale[i].cnt);
	if (!c->stales)
		util_error("--check: no registration lost its pages while it was held");
}

static json_t *process_row(const void *of, size_t i)
{
	const struct process *p = &((const struct checked *)of)->process[i];

	return json_pack("{si so sI sI sI sI sI sI sI sI sI}", "pid", p->pid, "name",
			 util_json_text(p->name), "asked", (json_int_t)asked(p),
			 "cached", (json_int_t)p->hits, "made",
			 (json_int_t)p->misses, "lent", (json_int_t)p->lent, "uncached",
			 (json_int_t)p->uncached, "refused", (json_int_t)p->refused, "invalidated",
			 (json_int_t)p->invalidated, "followed", (json_int_t)p->followed,
			 "not_followed", (json_int_t)p->not_followed);
}

static json_t *stale_row(const void *of, size_t i)
{
	const struct stale *s = &((const struct checked *)of)->stale[i];

	return json_pack("{so sI}", "library", util_json_text(s->name), "registrations",
			 (json_int_t)s->cnt);
}

static int print(const struct checked *c, int status)
{
	if (c->no_memory)
		return util_fail(-ENOMEM, "--check");
	if (util_flags.json) {
		if (util_json_print(json_pack("{si so so}", "status", status, "processes",
					      util_json_rows(c->processes, process_row, c), "stale",
					      util_json_rows(c->stales, stale_row, c))))
			return CMD_CANNOT;
	} else {
		print_text(c);
	}
	return !status && c->stale_cnt ? CMD_FINDING : status;
}

/* ---- the program ---- */

static volatile pid_t child;

static void pass_on(int sig)
{
	int err = errno;

	if (child > 0)
		kill(child, sig);
	errno = err;
}

/* Those that a terminal sends reach the program by themselves: it is in our group. */
static void be_patient(void)
{
	struct sigaction s = { .sa_handler = SIG_IGN }, pass = { .sa_handler = pass_on };

	sigaction(SIGINT, &s, NULL);
	sigaction(SIGQUIT, &s, NULL);
	sigaction(SIGTERM, &pass, NULL);
	sigaction(SIGHUP, &pass, NULL);
}

/* With those signals blocked, which the program gets as they were. */
static pid_t start(char **argv, const sigset_t *before)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	sigprocmask(SIG_SETMASK, before, NULL);
	exit(run_exec(argv));
}

static int run_and_wait(char **argv)
{
	sigset_t block, before;
	int status = 0;

	sigemptyset(&block);
	sigaddset(&block, SIGINT);
	sigaddset(&block, SIGQUIT);
	sigaddset(&block, SIGTERM);
	sigaddset(&block, SIGHUP);
	sigprocmask(SIG_BLOCK, &block, &before);
	child = start(argv, &before);
	if (child < 0) {
		sigprocmask(SIG_SETMASK, &before, NULL);
		return util_fail(-errno, "cannot start the program");
	}
	be_patient();
	sigprocmask(SIG_SETMASK, &before, NULL);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static FILE *make_file(char *path)
{
	int fd = mkostemp(path, O_CLOEXEC);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");

	if (fd >= 0 && !f) {
		unlink(path);
		close(fd);
	}
	return f;
}

int run_checked(char **argv)
{
	const char *tmp = getenv("TMPDIR");
	struct checked c = { 0 };
	char path[256];
	FILE *f;
	int rc;

	snprintf(path, sizeof(path), "%.200s/kedge-check-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	f = make_file(path);
	if (!f)
		return util_fail(-errno, "cannot make a file in the folder for temporary files");
	if (setenv("KEDGE_CHECK", path, 1))
		rc = util_fail(-ENOMEM, "cannot set the environment");
	else
		rc = run_and_wait(argv);
	unlink(path);
	take_all(&c, f);
	fclose(f);
	rc = print(&c, rc);
	free(c.process);
	free(c.stale);
	return rc;
}
