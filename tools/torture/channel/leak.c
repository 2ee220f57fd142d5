// SPDX-License-Identifier: BSD-2-Clause
/* Possessions of a process: descriptors, threads and mappings, before and after. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/torture/case.h"
#include "tools/torture/channel/chan.h"

/* Of AddressSanitizer, if it is built in. */
extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

int chan_leaks(void)
{
	return __lsan_do_recoverable_leak_check
		       ? __lsan_do_recoverable_leak_check() : 0;
}

/* Descriptors that the library keeps to swap pages with, from the first swap on. */
static bool is_kept(int dir, const char *name)
{
	static const char *const ends[] = { "[userfaultfd]", "/pagemap",
					    "/maps", "/ummunot" };
	char to[128];
	ssize_t len = readlinkat(dir, name, to, sizeof(to) - 1);
	size_t i, n;

	if (len < 0)
		return false;
	for (i = 0; i < ARRAY_SIZE(ends); i++) {
		n = strlen(ends[i]);
		if ((size_t)len >= n && !memcmp(to + len - n, ends[i], n))
			return true;
	}
	return false;
}

/* A thread that looks after swaps, or waits for the end of that one: both end by
 * themselves, a second after the last swap. */
static bool is_passing(int dir, const char *name)
{
	char path[300], comm[32];
	ssize_t len = -1;
	int fd;

	snprintf(path, sizeof(path), "%s/comm", name);
	fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		len = read(fd, comm, sizeof(comm) - 1);
		close(fd);
	}
	comm[len > 0 ? len : 0] = '\0';
	return !strcmp(comm, "kedge-pages\n") || !strcmp(comm, "kedge-keeper\n");
}

static unsigned int entries(const char *path)
{
	DIR *dir = opendir(path);
	unsigned int n = 0;
	struct dirent *e;

	if (!dir)
		return 0;
	while ((e = readdir(dir)))
		n += e->d_name[0] != '.' && !is_kept(dirfd(dir), e->d_name) &&
		     !is_passing(dirfd(dir), e->d_name);
	closedir(dir);
	return n;
}

/* Addresses that nobody can use are no leak: they are kept from being used
 * while a peer may write there. */
static void count_maps(struct chan_owned *o)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];

	if (!f)
		return;
	while (fgets(line, sizeof(line), f)) {
		if (strstr(line, " ---p "))
			continue;
		o->maps++;
		o->areas += strstr(line, "memfd:kedge-channel") != NULL;
	}
	fclose(f);
}

void chan_owned_read(struct chan_owned *o)
{
	*o = (struct chan_owned){ 0 };
	o->fds = entries("/proc/self/fd");
	o->threads = entries("/proc/self/task");
	count_maps(o);
	/* A sanitizer has some of its own. */
	if (HAVE_ASAN || HAVE_TSAN)
		o->threads = o->maps = 0;
}
