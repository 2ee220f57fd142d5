// SPDX-License-Identifier: BSD-2-Clause
#include <dirent.h>
#include <sys/resource.h>

#include "core.h"
#include "look.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* Kilobytes behind "@key:" in @line, as bytes. */
static bool value(const char *line, const char *key, uint64_t *v)
{
	size_t len = strlen(key);

	if (strncmp(line, key, len) || line[len] != ':')
		return false;
	*v = strtoull(line + len + 1, NULL, 10) << 10;
	return true;
}

uint64_t look_smaps(const void *at, const char *key)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	unsigned long start, end;
	bool within = false;
	uint64_t v = 0;
	char line[512];

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			within = (uintptr_t)at >= start && (uintptr_t)at < end;
		else if (within && value(line, key, &v))
			break;
	}
	fclose(f);
	return v;
}

uint64_t look_status(const char *key)
{
	FILE *f = fopen("/proc/self/status", "re");
	uint64_t v = 0;
	char line[512];

	assert_non_null(f);
	while (fgets(line, sizeof(line), f) && !value(line, key, &v))
		;
	fclose(f);
	return v;
}

bool look_readable(const void *at)
{
	int fds[2];
	bool can;

	assert_int_equal(pipe(fds), 0);
	can = write(fds[1], at, 1) == 1;
	close(fds[0]);
	close(fds[1]);
	return can;
}

uint64_t look_faults(void)
{
	struct rusage r;

	getrusage(RUSAGE_THREAD, &r);
	return SANITIZED ? 0 : (uint64_t)r.ru_minflt + (uint64_t)r.ru_majflt;
}

/* The thread's folder in /proc; false: there is none. */
static bool find_thread(char *path, size_t size)
{
	DIR *tasks = opendir("/proc/self/task");
	char name[32] = "";
	struct dirent *e;
	FILE *f;

	assert_non_null(tasks);
	while (strcmp(name, "kedge-regions\n") && (e = readdir(tasks))) {
		snprintf(path, size, "/proc/self/task/%.20s/comm", e->d_name);
		f = fopen(path, "re");
		if (!f || !fgets(name, sizeof(name), f))
			*name = '\0';
		if (f)
			fclose(f);
		snprintf(path, size, "/proc/self/task/%.20s/fd", e->d_name);
	}
	closedir(tasks);
	return *name;
}

unsigned int look_files(uint64_t *bytes)
{
	unsigned int n = 0;
	struct dirent *e;
	struct stat st;
	char path[64];
	DIR *fds;

	*bytes = 0;
	if (!find_thread(path, sizeof(path)))
		return 0;
	fds = opendir(path);
	assert_non_null(fds);
	while ((e = readdir(fds)))
		if (*e->d_name != '.' && !fstatat(dirfd(fds), e->d_name, &st, 0)) {
			*bytes += (uint64_t)st.st_blocks * 512;
			n++;
		}
	closedir(fds);
	return n;
}

unsigned int look_maps(void)
{
	return SANITIZED ? 0 : map_lines();
}

static char huge_before[16]; /* "": nothing is to be put back */

static bool huge_set(const char *text)
{
	int fd = open("/proc/sys/vm/nr_hugepages", O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 && write(fd, text, strlen(text)) > 0;

	if (fd >= 0)
		close(fd);
	return done;
}

void look_huge_begin(int cnt)
{
	FILE *f = fopen("/proc/sys/vm/nr_hugepages", "re");
	char more[16];

	*huge_before = '\0';
	if (!f)
		return;
	if (!fgets(huge_before, sizeof(huge_before), f))
		*huge_before = '\0';
	fclose(f);
	snprintf(more, sizeof(more), "%d", atoi(huge_before) + cnt);
	if (!huge_set(more))
		*huge_before = '\0';
}

void look_huge_end(void)
{
	if (*huge_before)
		huge_set(huge_before);
}

void look_asleep(const _Atomic pid_t *tid)
{
	pid_t is;

	do {
		usleep(200);
		is = atomic_load(tid);
	} while (!is || (!is_asleep(is) && !syscall(SYS_tgkill, getpid(), is, 0)));
}
