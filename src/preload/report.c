// SPDX-License-Identifier: BSD-2-Clause
/* The report of a process that ends: KEDGE_STATS, KEDGE_CHECK, and registrations that have changed
 * since the program registered last, as they would not be told otherwise. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "preload/held.h"
#include "preload/library.h"
#include "preload/posts.h"
#include "preload/preload.h"

static void print_stats(const struct kedge_cache_stats *t)
{
	char *text;

	if (asprintf(&text,
		"kedge: %llu registrations asked for: %llu cached, %llu made "
		"(%llu of them with access that ended with them, %llu not "
		"kept), %llu refused; %llu invalidated\n",
		(unsigned long long)(t->hits + t->misses + t->failures),
		(unsigned long long)t->hits, (unsigned long long)t->misses,
		(unsigned long long)t->lent, (unsigned long long)t->uncached,
		(unsigned long long)t->failures, (unsigned long long)t->invalidations) >= 0)
		library_say(text);
}

/* ---- the file of KEDGE_CHECK: see tools/run/checked.h ---- */

static const char *check_path(void)
{
	const char *path = secure_getenv("KEDGE_CHECK");

	return path && *path ? path : NULL;
}

/* A program may name itself as it likes. */
static void print_name(FILE *f, const char *word)
{
	char name[64];

	snprintf(name, sizeof(name), "%s", program_invocation_short_name);
	library_clean(name);
	fprintf(f, "%s %d %s\n", word, (int)getpid(), *name ? name : "-");
}

/* A limit of files' sizes must not end the program. */
static ssize_t write_whole(int fd, const char *text, size_t len)
{
	const struct timespec now = { 0, 0 };
	sigset_t big, before, pending;
	ssize_t n;
	bool was;

	sigemptyset(&big);
	sigaddset(&big, SIGXFSZ);
	sigpending(&pending);
	was = sigismember(&pending, SIGXFSZ);
	pthread_sigmask(SIG_BLOCK, &big, &before);
	n = write(fd, text, len);
	if (n < 0 && errno == EFBIG && !was)
		sigtimedwait(&big, NULL, &now);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return n;
}

/* In one write: other processes append theirs. */
static void append(const char *path, const char *text, size_t len)
{
	int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW), err = errno;
	char *why;

	if (fd < 0 || !text || write_whole(fd, text, len) != (ssize_t)len) {
		if (asprintf(&why, "kedge: cannot append to %s: %s\n", path,
			     strerror(fd < 0 ? err : errno)) >= 0)
			library_say(why);
	}
	if (fd >= 0)
		close(fd);
}

void report_began(void)
{
	const char *path = check_path();
	size_t len = 0;
	char *text = NULL;
	FILE *f = path ? open_memstream(&text, &len) : NULL;

	if (!f)
		return;
	print_name(f, "began");
	fclose(f);
	append(path, text, len);
	free(text);
}

static void append_check(const char *path, const struct kedge_cache_stats *t)
{
	size_t len = 0;
	char *text = NULL;
	FILE *f = open_memstream(&text, &len);

	if (f) {
		print_name(f, "process");
		fprintf(f, "counts %llu %llu %llu %llu %llu %llu\n", (unsigned long long)t->hits,
			(unsigned long long)t->misses, (unsigned long long)t->lent,
			(unsigned long long)t->uncached, (unsigned long long)t->failures,
			(unsigned long long)t->invalidations);
		if (posts_cnt())
			fprintf(f, "posts %llu\n", (unsigned long long)posts_cnt());
		held_report(f);
		fclose(f);
	}
	append(path, text, len);
	free(text);
}

__attribute__((destructor)) static void say_what_was(void)
{
	const char *path = check_path(), *stats = secure_getenv("KEDGE_STATS");
	struct kedge_cache_stats total;
	const bool was = inside;

	/* A program that has no use for us is quiet. */
	if (!domains_total(&total))
		return;
	inside = true;
	if (stats && !strcmp(stats, "1"))
		print_stats(&total);
	if (path)
		append_check(path, &total);
	else
		held_report(NULL);
	inside = was;
}
