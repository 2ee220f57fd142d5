// SPDX-License-Identifier: BSD-2-Clause
/*
 * A control group says how much it may have, and how much it has; page cache is in the
 * latter, and is dropped where it is clean. Both versions of control groups are hierarchies:
 * each group above has a limit of its own, so all are looked at. Their files have other
 * names (v1, v2), and a group that cannot be seen from here, in a container, is the root of
 * what is mounted.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/base.h"
#include "region/limits.h"

struct version {
	const char *root[2]; /* where it is mounted */
	const char *limit, *used;
	const char *cache[2]; /* lines of memory.stat: page cache that can be dropped */
	const char *kills;
};

static const struct version v1 = {
	.root = { "/sys/fs/cgroup/memory", NULL },
	.limit = "memory.limit_in_bytes", .used = "memory.usage_in_bytes",
	.cache = { "total_inactive_file ", "total_active_file " },
};
static const struct version v2 = {
	.root = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" },
	.limit = "memory.max", .used = "memory.current",
	.cache = { "inactive_file ", "active_file " },
	.kills = "memory.oom.group",
};

/* The text of a file of the kernel's, cut at @size - 1 bytes; false: it cannot be read. */
static bool read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t n = 1;

	if (fd < 0)
		return false;
	while (n > 0 && len < size - 1) {
		n = read(fd, text + len, size - 1 - len);
		len += n > 0 ? (size_t)n : 0;
	}
	close(fd);
	text[len] = '\0';
	return n >= 0;
}

/* The number behind @key, which begins a line of @text; 0 without one. */
static uint64_t value_of(const char *text, const char *key)
{
	const char *at = text;
	size_t len = strlen(key);

	while (strncmp(at, key, len)) {
		at = strchr(at, '\n');
		if (!at++)
			return 0;
	}
	return strtoull(at + len, NULL, 10);
}

/* ---- control groups ---- */

static bool read_number(const char *group, const char *file, uint64_t *v)
{
	char path[4352], text[64], *end;

	snprintf(path, sizeof(path), "%s/%s", group, file);
	if (!read_text(path, text, sizeof(text)))
		return false;
	*v = strtoull(text, &end, 10);
	if (end == text)
		*v = UINT64_MAX; /* "max" */
	return true;
}

static uint64_t cache_of(const char *group, const struct version *v)
{
	char path[4352], text[8192];

	snprintf(path, sizeof(path), "%s/memory.stat", group);
	if (!read_text(path, text, sizeof(text)))
		return 0;
	return value_of(text, v->cache[0]) + value_of(text, v->cache[1]);
}

static void group_limit(struct limit *l, const char *group, const struct version *v)
{
	uint64_t limit, used, cache, kills = 0, left;

	/* Also of a group without a limit: it ends as a whole at that of one above. */
	if (v->kills)
		read_number(group, v->kills, &kills);
	l->kills |= kills == 1;
	if (!read_number(group, v->limit, &limit) ||
	    !read_number(group, v->used, &used) || limit > UINT64_MAX / 4)
		return;
	cache = cache_of(group, v);
	used -= cache < used ? cache : used;
	left = used < limit ? limit - used : 0;
	if (left < l->free) {
		l->bound = KEDGE_BOUND_CGROUP;
		l->limit = limit;
		l->free = left;
	}
}

/* The group @path below @root, and all above it. */
static void groups_limit(struct limit *l, const char *root, const char *path,
			 const struct version *v)
{
	char group[4200], *slash;
	size_t len = strlen(root);

	snprintf(group, sizeof(group), "%s%s", root, path);
	for (;;) {
		group_limit(l, group, v);
		slash = strrchr(group, '/');
		if (!slash || slash < group + len)
			return;
		*slash = '\0';
	}
}

/* The path of a line of /proc/self/cgroup: "4:memory:/a" of v1, "0::/a" of v2. */
static const char *group_path(char *line, const struct version **v)
{
	char *controllers = strchr(line, ':'), *path;

	path = controllers ? strchr(controllers + 1, ':') : NULL;
	if (!path)
		return NULL;
	*path++ = '\0';
	controllers++;
	*v = *controllers ? &v1 : &v2;
	if (*controllers && strcmp(controllers, "memory") &&
	    !strstr(controllers, "memory,") && !strstr(controllers, ",memory"))
		return NULL;
	return path;
}

static void cgroup_limit(struct limit *l)
{
	char text[8192], *line, *end;
	const struct version *v;
	const char *path;
	int i;

	if (!read_text("/proc/self/cgroup", text, sizeof(text)))
		return;
	for (line = text; *line; line = end) {
		end = strchr(line, '\n');
		if (end)
			*end++ = '\0';
		else
			end = line + strlen(line);
		path = group_path(line, &v);
		for (i = 0; path && i < 2 && v->root[i]; i++)
			groups_limit(l, v->root[i], path, v);
	}
}

/* ---- the machine ---- */

void limit_memory(struct limit *l)
{
	char text[8192];

	*l = (struct limit){ .bound = KEDGE_BOUND_SYSTEM, .limit = UINT64_MAX,
			     .free = UINT64_MAX };
	if (read_text("/proc/meminfo", text, sizeof(text))) {
		l->limit = value_of(text, "MemTotal:") << 10;
		l->free = value_of(text, "MemAvailable:") << 10;
	}
	cgroup_limit(l);
}

bool limit_huge(uint64_t page_size, struct limit *l)
{
	char group[96];
	uint64_t all, idle, promised;

	snprintf(group, sizeof(group), "/sys/kernel/mm/hugepages/hugepages-%" PRIu64
		 "kB", page_size >> 10);
	if (!read_number(group, "nr_hugepages", &all) ||
	    !read_number(group, "free_hugepages", &idle) ||
	    !read_number(group, "resv_hugepages", &promised))
		return false;
	*l = (struct limit){ .bound = KEDGE_BOUND_SYSTEM, .limit = all * page_size };
	l->free = idle > promised ? (idle - promised) * page_size : 0;
	return true;
}

/* ---- locked memory ---- */

/* The kernel refuses to lock more than the limit leaves before it looks at the pages, so
 * pages without access tell whether the limit holds for this process. */
static bool binds(uint64_t more)
{
	const size_t len = round_up(more, kedge__page_size());
	void *at;
	bool bound;

	if (more > UINT64_MAX / 4)
		return false;
	at = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return true;
	bound = mlock2(at, len, MLOCK_ONFAULT) != 0;
	munmap(at, len);
	return bound;
}

void limit_memlock(struct limit *l)
{
	char text[8192];
	struct rlimit rl;
	uint64_t used = 0;

	*l = (struct limit){ .bound = KEDGE_BOUND_MEMLOCK, .limit = UINT64_MAX,
			     .free = UINT64_MAX };
	if (getrlimit(RLIMIT_MEMLOCK, &rl) || rl.rlim_cur == RLIM_INFINITY)
		return;
	if (read_text("/proc/self/status", text, sizeof(text)))
		used = value_of(text, "VmLck:") << 10;
	if (!binds((used < rl.rlim_cur ? rl.rlim_cur - used : 0) + kedge__page_size()))
		return;
	l->limit = rl.rlim_cur;
	l->free = used < rl.rlim_cur ? round_down(rl.rlim_cur - used, kedge__page_size()) : 0;
}
