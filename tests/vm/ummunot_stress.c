// SPDX-License-Identifier: BSD-2-Clause
/*
 * 16 threads on one open file of /dev/ummunot, and on others of their own:
 * register, unregister, munmap, read, fork, close.
 *
 *	ummunot_stress SECONDS
 *
 * Claims at any moment: when munmap() of a range that the thread itself watches
 * has returned, the counter has moved twice; a call fails only as documented.
 * And at the end: each thread's watches are there to be unregistered, and a
 * drained file says what the counter says.
 */
#include "ummunot_lib.h"

#define THREADS	16
#define AREAS	8	/* of each thread */
#define AREA_LEN (4 * PAGE)

struct worker {
	pthread_t thread;
	unsigned int state;
	uint64_t base;			/* of its cookies */
	char *area[AREAS];
	bool watched[AREAS];
	unsigned long ops;
};

static struct um shared;
static atomic_bool stop;
static atomic_ulong faults;

static void fault(const char *what, long rc)
{
	if (atomic_fetch_add(&faults, 1) < 20)
		warnx("%s: %ld", what, rc);
}

static void op_register(struct worker *w, unsigned int i)
{
	int rc = um_watch(&shared, w->area[i], AREA_LEN, w->base + i, 0);

	if (rc != (w->watched[i] ? -EEXIST : 0))
		fault("register", rc);
	w->watched[i] = true;
}

static void op_unregister(struct worker *w, unsigned int i)
{
	int rc = um_unwatch(&shared, w->base + i);

	if (rc != (w->watched[i] ? 0 : -ENOENT))
		fault("unregister", rc);
	w->watched[i] = false;
}

static void op_unmap(struct worker *w, unsigned int i)
{
	uint64_t before, after;

	memset(w->area[i], 1, AREA_LEN);
	before = um_counter(&shared);
	munmap(w->area[i], AREA_LEN);
	after = um_counter(&shared);
	if (w->watched[i] && after < before + 2)
		fault("munmap was not told", (long)(after - before));
	/* Elsewhere, maybe: the watch stays with the addresses. */
	if (w->watched[i])
		op_unregister(w, i);
	w->area[i] = vm_memory(AREA_LEN / PAGE);
}

static void op_drop(struct worker *w, unsigned int i)
{
	const uint64_t before = um_counter(&shared);

	madvise(w->area[i], AREA_LEN, MADV_DONTNEED);
	if (w->watched[i] && um_counter(&shared) < before + 2)
		fault("MADV_DONTNEED was not told", 0);
	*w->area[i] = 1;
}

static void op_read(struct worker *w)
{
	struct ummunot_event ev[20];
	const uint64_t before = um_counter(&shared);
	ssize_t i, n = um_read(&shared, ev, 1 + vm_random(&w->state) % 20);

	if (n <= 0 && n != -EAGAIN)
		fault("read", n);
	for (i = 0; i < n; i++) {
		if (ev[i].type == UMMUNOT_EVENT_TYPE_LAST &&
		    ev[i].user_cookie_counter > um_counter(&shared))
			fault("LAST from the future", 0);
		if (ev[i].type == UMMUNOT_EVENT_TYPE_INVAL &&
		    ev[i].hint_start >= ev[i].hint_end)
			fault("an empty hint", 0);
	}
	if (um_counter(&shared) < before)
		fault("the counter went back", 0);
}

static void op_fork(struct worker *w)
{
	struct ummunot_event ev;
	pid_t pid = fork();

	if (!pid) {
		if (um_read(&shared, &ev, 1) != -ESRCH)
			_exit(1);
		munmap(w->area[0], AREA_LEN);
		_exit(0);
	}
	if (pid > 0) {
		int status;

		waitpid(pid, &status, 0);
		if (status)
			fault("child", status);
	}
}

/* A file of its own, closed with watches, events and a mapping left. */
static void op_own(struct worker *w)
{
	char *m = vm_memory(2);
	struct um u;
	unsigned int i;

	um_open(&u, O_NONBLOCK);
	for (i = 0; i < 4; i++)
		if (um_watch(&u, m, PAGE + i, i, 0))
			fault("register in a file of its own", 0);
	munmap(m, PAGE);
	/* More, where another thread has got that page meanwhile. */
	if (um_moved(&u) < 2)
		fault("a file of its own", (long)um_moved(&u));
	munmap(m + PAGE, PAGE);
	/* The descriptor first, or the mapping: either may be the last. */
	if (vm_random(&w->state) % 2) {
		close(u.fd);
		munmap((void *)u.counter, PAGE);
	} else {
		um_close(&u);
	}
}

static void *work(void *arg)
{
	struct worker *w = arg;
	unsigned int i, r;

	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		i = vm_random(&w->state) % AREAS;
		r = vm_random(&w->state) % 400;
		if (r < 100)
			op_register(w, i);
		else if (r < 150)
			op_unregister(w, i);
		else if (r < 230)
			op_unmap(w, i);
		else if (r < 300)
			op_drop(w, i);
		else if (r < 396)
			op_read(w);
		else if (r < 398)
			op_fork(w);
		else
			op_own(w);
		w->ops++;
	}
	return NULL;
}

static void settle(struct worker *workers)
{
	struct pollfd p = { shared.fd, POLLIN, 0 };
	struct ummunot_event ev;
	struct news n;
	unsigned int t, i;

	um_drain(&shared, &n);
	if (n.last && n.last != um_counter(&shared))
		fault("the last LAST", (long)n.last);
	if (um_read(&shared, &ev, 1) != -EAGAIN || poll(&p, 1, 0))
		fault("not drained", 0);
	for (t = 0; t < THREADS; t++)
		for (i = 0; i < AREAS; i++)
			op_unregister(&workers[t], i);
	um_drain(&shared, &n);
	if (n.cnt)
		fault("an event of no watch", n.cnt);
}

int main(int argc, char **argv)
{
	static struct worker workers[THREADS];
	unsigned long ops = 0;
	unsigned int t, i;

	um_open(&shared, O_NONBLOCK);
	for (t = 0; t < THREADS; t++) {
		workers[t].state = 1000 + t;
		workers[t].base = (uint64_t)(t + 1) << 32;
		for (i = 0; i < AREAS; i++)
			workers[t].area[i] = vm_memory(AREA_LEN / PAGE);
	}
	for (t = 0; t < THREADS; t++)
		if (pthread_create(&workers[t].thread, NULL, work, &workers[t]))
			errx(1, "no thread");
	sleep(argc > 1 ? (unsigned int)atoi(argv[1]) : 10);
	atomic_store(&stop, true);
	for (t = 0; t < THREADS; t++) {
		pthread_join(workers[t].thread, NULL);
		ops += workers[t].ops;
	}
	settle(workers);
	um_close(&shared);
	printf("%lu operations, %lu faults\n", ops, atomic_load(&faults));
	return atomic_load(&faults) != 0;
}
