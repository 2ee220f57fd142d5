// SPDX-License-Identifier: BSD-2-Clause
/* The report of a process that ends: KEDGE_STATS, KEDGE_CHECK, and registrations that have changed
 * since the program registered last, as they would not be told otherwise. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "preload/held.h"
#include "preload/posts.h"
#include "preload/preload.h"

static void print_stats(const struct kedge_cache_stats *t)
{
	fprintf(stderr,
		"kedge: %llu registrations asked for: %llu cached, %llu made "
		"(%llu of them with access that ended with them, %llu not "
		"kept), %llu refused; %llu invalidated\n",
		(unsigned long long)(t->hits + t->misses + t->failures),
		(unsigned long long)t->hits, (unsigned long long)t->misses,
		(unsigned long long)t->lent, (unsigned long long)t->uncached,
		(unsigned long long)t->failures, (unsigned long long)t->invalidations);
}

/* The lines that "kedge run --check" reads: see tools/run/checked.h. */
static void write_check(FILE *f, const struct kedge_cache_stats *t)
{
	fprintf(f, "process %d %s\ncounts %llu %llu %llu %llu %llu %llu\n", (int)getpid(),
		program_invocation_short_name, (unsigned long long)t->hits,
		(unsigned long long)t->misses, (unsigned long long)t->lent,
		(unsigned long long)t->uncached, (unsigned long long)t->failures,
		(unsigned long long)t->invalidations);
	if (posts_cnt())
		fprintf(f, "posts %llu\n", (unsigned long long)posts_cnt());
	held_report(f);
}

/* In one write: other processes append theirs. */
static void append_check(const char *path, const struct kedge_cache_stats *t)
{
	int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
	size_t len = 0;
	char *text = NULL;
	FILE *f = open_memstream(&text, &len);

	if (f) {
		write_check(f, t);
		fclose(f);
	}
	if (fd < 0 || !text || write(fd, text, len) != (ssize_t)len)
		fprintf(stderr, "kedge: cannot append to %s: %s\n", path, strerror(errno));
	free(text);
	if (fd >= 0)
		close(fd);
}

__attribute__((destructor)) static void say_what_was(void)
{
	const char *path = secure_getenv("KEDGE_CHECK"), *stats = secure_getenv("KEDGE_STATS");
	struct kedge_cache_stats total;
	const bool was = inside;

	/* A program that has no use for us is quiet. */
	if (!domains_total(&total))
		return;
	inside = true;
	if (stats && !strcmp(stats, "1"))
		print_stats(&total);
	if (path && *path)
		append_check(path, &total);
	else
		held_report(NULL);
	inside = was;
}
