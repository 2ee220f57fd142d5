// SPDX-License-Identifier: BSD-2-Clause
#include "vm_lib.h"

char *vm_untouched(size_t pages)
{
	char *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		err(1, "mmap");
	madvise(p, pages * PAGE, MADV_NOHUGEPAGE);
	return p;
}

char *vm_memory(size_t pages)
{
	return memset(vm_untouched(pages), 1, pages * PAGE);
}

int vm_child(int (*fn)(void *), void *arg)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		err(1, "fork");
	if (!pid)
		_exit(fn(arg));
	if (waitpid(pid, &status, 0) != pid)
		err(1, "waitpid");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

int vm_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = write(fd, text, strlen(text));
	n = n < 0 ? -errno : 0;
	close(fd);
	return (int)n;
}

void vm_set(const char *path, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	assert_int_equal(vm_write(path, text), 0);
}

uint64_t vm_number(const char *path)
{
	unsigned long long n = 0;
	FILE *f = fopen(path, "re");

	if (!f)
		return 0;
	if (fscanf(f, "%llu", &n) != 1)
		n = 0;
	fclose(f);
	return n;
}

uint64_t vm_memory_kib(const char *name)
{
	FILE *f = fopen("/proc/meminfo", "re");
	unsigned long long n = 0;
	char line[128];

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, strlen(name))) {
			n = strtoull(line + strlen(name), NULL, 10);
			break;
		}
	if (f)
		fclose(f);
	return n;
}

bool vm_ksm(void)
{
	return !vm_write("/sys/kernel/mm/ksm/sleep_millisecs", "1") &&
	       !vm_write("/sys/kernel/mm/ksm/pages_to_scan", "1000") &&
	       !vm_write("/sys/kernel/mm/ksm/run", "1");
}

int vm_errno(long rc)
{
	return rc < 0 ? -errno : (int)rc;
}

int vm_map_errno(int fd, size_t len, int prot, int flags, off_t offset)
{
	void *p = mmap(NULL, len, prot, flags, fd, offset);

	if (p == MAP_FAILED)
		return -errno;
	munmap(p, len);
	return 0;
}

uint64_t vm_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

int vm_by_size(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

unsigned int vm_random(unsigned int *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}
