// SPDX-License-Identifier: BSD-2-Clause
/*
 * The cost of a watch for munmap(): of 64 KiB that were touched, with no file of
 * /dev/ummunot open, one that watches nothing, one with 4,096 watches
 * elsewhere, and one with a watch on the memory itself.
 *
 *	ummunot_cost [BASELINE]
 *
 * Meant for "vm.py run --icount", where a nanosecond is an instruction of the
 * guest. Prints a line a case: its name, the median and, where BASELINE (the
 * median without the module) is given, their ratio and the bar; exits with 1
 * where it is over. Without the module it prints the first case alone.
 */
#include "ummunot_lib.h"

#define LEN	65536
#define ROUNDS	1001
#define OTHERS	4096

static char *area; /* where the memory comes and goes */

static uint64_t median_munmap(int fd)
{
	static uint64_t took[ROUNDS];
	struct ummunot_event ev[4];
	uint64_t start;
	char *p;
	int i;

	for (i = 0; i < ROUNDS; i++) {
		p = mmap(area, LEN, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
			 0);
		if (p != area)
			err(2, "mmap");
		memset(p, 1, LEN);
		start = vm_now();
		munmap(p, LEN);
		took[i] = vm_now() - start;
		/* So that each round finds the queue empty. */
		if (fd >= 0 && read(fd, ev, sizeof(ev)) < 0 && errno != EAGAIN)
			err(2, "read");
	}
	qsort(took, ROUNDS, sizeof(took[0]), vm_by_size);
	return took[ROUNDS / 2];
}

static void watch(int fd, const char *start, size_t len, uint64_t cookie)
{
	struct ummunot_register_ioctl r = {
		.start = (uintptr_t)start,
		.end = (uintptr_t)start + len,
		.user_cookie = cookie,
	};

	if (ioctl(fd, um_request(fd, UMMUNOT_REGISTER_REGION), &r))
		err(2, "register");
}

static int report(const char *what, uint64_t ns, double baseline, double bar)
{
	if (baseline <= 0) {
		printf("%-8s %6llu\n", what, (unsigned long long)ns);
		return 0;
	}
	printf("%-8s %6llu  %.4fx, bar %.3fx\n", what, (unsigned long long)ns,
	       (double)ns / baseline, bar);
	return (double)ns > bar * baseline;
}

int main(int argc, char **argv)
{
	double baseline = argc > 1 ? atof(argv[1]) : 0;
	int failed, fd, i;

	area = mmap(NULL, LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (area == MAP_FAILED)
		err(2, "mmap");
	munmap(area, LEN);

	failed = report("closed", median_munmap(-1), baseline, 1.005);
	fd = open("/dev/ummunot", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? failed : 2;
	failed |= report("open", median_munmap(fd), baseline, 1.01);
	for (i = 0; i < OTHERS; i++)
		watch(fd, (char *)0x10000000 + (size_t)i * 2 * LEN, LEN, i);
	failed |= report("others", median_munmap(fd), baseline, 1.02);
	watch(fd, area, LEN, OTHERS);
	failed |= report("itself", median_munmap(fd), baseline, 1.10);
	return failed;
}
