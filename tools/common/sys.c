// SPDX-License-Identifier: BSD-2-Clause
/* The permissions of this process on this machine, as the kernel tells them. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/common/sys.h"

/* The value of "Name:\tvalue" in /proc/self/status, or false. */
static bool status_field(const char *name, int base, uint64_t *out)
{
	char line[256];
	size_t len = strlen(name);
	bool found = false;
	FILE *f;

	f = fopen("/proc/self/status", "re");
	if (!f)
		return false;
	while (!found && fgets(line, sizeof(line), f)) {
		if (strncmp(line, name, len) || line[len] != ':')
			continue;
		*out = strtoull(line + len + 1, NULL, base);
		found = true;
	}
	fclose(f);
	return found;
}

static uint64_t limit(rlim_t v)
{
	return v == RLIM_INFINITY ? UINT64_MAX : (uint64_t)v;
}

void sys_memlock(struct sys_memlock *m)
{
	struct rlimit rl;
	uint64_t v;

	*m = (struct sys_memlock){ .bound = true };
	if (!getrlimit(RLIMIT_MEMLOCK, &rl)) {
		m->soft = limit(rl.rlim_cur);
		m->hard = limit(rl.rlim_max);
	}
	if (status_field("VmLck", 10, &v))
		m->locked = v * 1024;
	if (status_field("VmPin", 10, &v))
		m->pinned = v * 1024;
	if (status_field("CapEff", 16, &v) && (v & (1ull << CAP_IPC_LOCK)))
		m->bound = false;
}

int sys_number(const char *path, int64_t *out)
{
	FILE *f = fopen(path, "re");
	int got;

	if (!f)
		return -errno;
	got = fscanf(f, "%" SCNd64, out);
	fclose(f);
	return got == 1 ? 0 : -EINVAL;
}

void sys_choice(const char *path, char *buf, unsigned int len)
{
	char line[256] = "";
	char *from, *to;
	FILE *f;

	buf[0] = '\0';
	f = fopen(path, "re");
	if (!f)
		return;
	if (!fgets(line, sizeof(line), f))
		line[0] = '\0';
	fclose(f);
	from = strchr(line, '[');
	to = from ? strchr(from, ']') : NULL;
	if (to)
		snprintf(buf, len, "%.*s", (int)(to - from - 1), from + 1);
}

uint64_t sys_map_count(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	uint64_t lines = 0;
	int c;

	if (!f)
		return 0;
	while ((c = getc(f)) != EOF)
		lines += c == '\n';
	fclose(f);
	return lines;
}

unsigned int sys_cpus(void)
{
	cpu_set_t set;
	long n;

	/* More than 1,024 CPUs do not fit the set: then take them all. */
	if (!sched_getaffinity(0, sizeof(set), &set))
		return (unsigned int)CPU_COUNT(&set);
	n = sysconf(_SC_NPROCESSORS_ONLN);
	return n > 0 ? (unsigned int)n : 1;
}

bool sys_seccomp(void)
{
	uint64_t v;

	return status_field("Seccomp", 10, &v) && v != 0;
}

bool sys_pfn_visible(void)
{
	/* This function's own stack page: present, and its frame is not 0. */
	volatile char here = 1;
	uint64_t entry = 0;
	off_t at = (off_t)((uintptr_t)&here / (size_t)sysconf(_SC_PAGESIZE) * sizeof(entry));
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return false;
	n = pread(fd, &entry, sizeof(entry), at);
	close(fd);
	return n == (ssize_t)sizeof(entry) && (entry & ((1ull << 55) - 1));
}
