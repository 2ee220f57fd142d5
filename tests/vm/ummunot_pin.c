// SPDX-License-Identifier: BSD-2-Clause
/*
 * The promise itself, under race: what was pinned without an event after it is
 * the page that the program sees, for as long as the counter stands still.
 *
 *	ummunot_pin SECONDS
 *
 * Threads drop a range's pages over and over, all of it or parts, by every way
 * that leaves an address where it is. Another one pins a page of it (vmsplice
 * takes a reference to the page and a pipe keeps it), reads events until a LAST
 * carries the mapped counter, and if none was for its watch, writes a number at
 * the address and reads it from the pinned page. If the counter has not moved
 * by then, the two are the same page.
 *
 * Half of the time the watch is a new one: a change that was running when it was
 * registered must be waited for, too.
 *
 * It is the kernel that writes the number (process_vm_writev), by the page
 * tables: a processor may go on using the old page from its cache of translations
 * until the call that dropped it returns, which is after the second event. A
 * store there meanwhile is lost, as if it had come just before.
 *
 * Where the second event of a change is missing, or a LAST is given before it,
 * this fails within seconds. Prints how often it believed and was right.
 */
#include "ummunot_lib.h"

#define PAGES	512	/* so that a change takes its time */
#define DROPPERS 3

static char *area;
static atomic_bool stop;

struct tally {
	unsigned long pins, told, believed, moved, wrong;
};

static void touch(size_t from, size_t to)
{
	for (; from < to; from++)
		*(volatile char *)(area + from * PAGE + 64) = 1;
}

static void drop(unsigned int *state)
{
	size_t from = vm_random(state) % 8 ? 0 : vm_random(state) % PAGES;
	size_t cnt = PAGES - from;

	switch (vm_random(state) % 4) {
	case 0:
		mmap(area + from * PAGE, cnt * PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		break;
	default:
		madvise(area + from * PAGE, cnt * PAGE, MADV_DONTNEED);
	}
}

/* Waits a little now and then: without pauses nothing is ever believed. */
static void *dropper(void *arg)
{
	unsigned int state = 77 + (unsigned int)(uintptr_t)arg;

	while (!atomic_load(&stop)) {
		touch(0, PAGES);
		usleep(vm_random(&state) % 3000);
		drop(&state);
	}
	return NULL;
}

/*
 * Reads until a LAST carries the mapped counter, which is returned; *told says
 * whether an event came first. 0 if a change went on for too long.
 */
static uint64_t settle(struct um *u, bool *told)
{
	struct ummunot_event ev[4];
	uint64_t now;
	ssize_t i, n;
	int tries;

	for (tries = 0; tries < 1000; tries++) {
		now = um_counter(u);
		n = um_read(u, ev, 4);
		if (n == -EAGAIN)
			return now; /* the last LAST told all */
		for (i = 0; i < n; i++) {
			if (ev[i].type == UMMUNOT_EVENT_TYPE_INVAL)
				*told = true;
			else if (ev[i].user_cookie_counter == um_counter(u))
				return ev[i].user_cookie_counter;
		}
	}
	return 0;
}

static bool pin(int pipe_in, char *at)
{
	struct iovec v = { at, sizeof(uint64_t) };

	return vmsplice(pipe_in, &v, 1, SPLICE_F_NONBLOCK) == sizeof(uint64_t);
}

/* By the page tables, whatever this processor remembers of them. */
static void write_there(char *at, uint64_t value)
{
	struct iovec from = { &value, sizeof(value) };
	struct iovec to = { at, sizeof(value) };

	if (process_vm_writev(getpid(), &from, 1, &to, 1, 0) != sizeof(value))
		err(1, "process_vm_writev");
}

static void try_once(struct um *u, const int pipes[2], unsigned int *state,
		     struct tally *t)
{
	char *at = area + vm_random(state) % PAGES * PAGE;
	uint64_t counter, pinned, value;
	bool told = false, ignored;

	settle(u, &ignored);
	if (vm_random(state) % 2 &&
	    (um_unwatch(u, 1) || um_watch(u, area, PAGES * PAGE, 1, 0)))
		errx(1, "cannot watch anew");
	*(volatile char *)(at + 64) = 2;
	if (!pin(pipes[1], at))
		return;
	t->pins++;
	counter = settle(u, &told);
	value = ((uint64_t)vm_random(state) << 32) | vm_random(state);
	if (!told && counter) {
		/* A change that begins now is not over at once. */
		if (vm_random(state) % 2)
			usleep(vm_random(state) % 500);
		if (um_counter(u) == counter)
			t->believed++;
		write_there(at, value);
	}
	if (read(pipes[0], &pinned, sizeof(pinned)) != sizeof(pinned))
		err(1, "pipe");
	if (told || !counter)
		t->told++;
	else if (um_counter(u) != counter)
		t->moved++;
	else if (pinned != value)
		t->wrong++;
}

int main(int argc, char **argv)
{
	const time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 10);
	unsigned int state = 4711;
	pthread_t threads[DROPPERS];
	struct tally t = { 0 };
	int pipes[2];
	struct um u;
	long i;

	area = vm_memory(PAGES);
	um_open(&u, O_NONBLOCK);
	if (pipe(pipes) || um_watch(&u, area, PAGES * PAGE, 1, 0))
		err(1, "setup");
	for (i = 0; i < DROPPERS; i++)
		if (pthread_create(&threads[i], NULL, dropper, (void *)i))
			errx(1, "no thread");
	while (time(NULL) < end && !t.wrong)
		try_once(&u, pipes, &state, &t);
	atomic_store(&stop, true);
	for (i = 0; i < DROPPERS; i++)
		pthread_join(threads[i], NULL);
	um_close(&u);
	printf("%lu pins, %lu told, %lu believed, %lu moved, %lu wrong\n",
	       t.pins, t.told, t.believed, t.moved, t.wrong);
	if (!t.believed)
		errx(1, "never believed: nothing was tested");
	return t.wrong != 0;
}
