// SPDX-License-Identifier: BSD-2-Clause
/*
 * The counter is never late: a reader that sees the content after a change of a
 * watched page finds the counter moved.
 *
 *	ummunot_late SECONDS
 *
 * One thread writes a number to a page, notes the counter, and takes the page
 * away with many behind it, in ways that leave something else at the address. The
 * other has the kernel read that address without end (a processor could go on
 * seeing the old page in its cache of translations); when the number is gone it
 * reads the counter at once, which is past the one noted. Prints how often it saw
 * that before the change was over, and fails where the counter was late, or it
 * never saw it.
 */
#include "ummunot_lib.h"

/* So that a change takes its time. */
#define LEN (1024 * PAGE)

static struct um u;
static char *page;
static int fd;
static _Atomic uint64_t noted;	/* the counter before the change; 0: none yet */
static _Atomic uint64_t seen;	/* rounds that the other thread is done with */
static _Atomic uint64_t over;	/* rounds whose change is over */
static atomic_bool stop;
static unsigned long sightings, late;

static uint64_t look(void)
{
	uint64_t n = 0;
	struct iovec to = { &n, sizeof(n) }, from = { page, sizeof(n) };

	if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != sizeof(n))
		err(1, "process_vm_readv");
	return n;
}

static void *watcher(void *arg)
{
	uint64_t round = 1, counter, before;

	while (!stop) {
		before = noted;
		if (!before)
			continue;
		/* The number is there, or it is gone already. */
		while (look() == round && !stop)
			;
		counter = um_counter(&u);
		if (over < round)
			sightings++;
		late += counter <= before;
		noted = 0;
		seen = round++;
	}
	return NULL;
}

static void take_away(unsigned int how)
{
	switch (how) {
	case 1:
		madvise(page, LEN, MADV_DONTNEED);
		break;
	case 0:
		if (mmap(page, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE |
			 MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
			err(1, "mmap");
		break;
	case 2:
		if (mmap(page, LEN, PROT_READ | PROT_WRITE, MAP_SHARED |
			 MAP_FIXED, fd, 0) == MAP_FAILED)
			err(1, "mmap");
		break;
	default:	/* from under the mapping of the case before */
		if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			      LEN))
			err(1, "fallocate");
	}
}

static void change(uint64_t round)
{
	struct news n;
	size_t i;

	um_drain(&u, &n);
	/* Shared memory still has what the round before wrote to it. */
	if (round % 4 == 2)
		take_away(3);
	for (i = PAGE; i < LEN; i += PAGE)
		page[i] = 1;
	__atomic_store_n((uint64_t *)page, round, __ATOMIC_RELEASE);
	um_drain(&u, &n);
	noted = um_counter(&u);
	take_away((unsigned int)(round % 4));
	over = round;
	while (seen < round)
		;
}

int main(int argc, char **argv)
{
	const long seconds = argc > 1 ? atol(argv[1]) : 10;
	struct timespec now, end;
	pthread_t thread;
	uint64_t round = 0;

	fd = memfd_create("late", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, LEN))
		err(1, "memfd");
	page = vm_memory(LEN / PAGE);
	um_open(&u, O_NONBLOCK);
	if (um_watch(&u, page, PAGE, 1, 0))
		err(1, "register");
	if (pthread_create(&thread, NULL, watcher, NULL))
		errx(1, "no thread");
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += seconds;
	do {
		change(++round);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec < end.tv_sec || !sightings);
	stop = true;
	pthread_join(thread, NULL);
	printf("%llu changes, %lu seen before their call returned, %lu late\n",
	       (unsigned long long)round, sightings, late);
	return late != 0;
}
