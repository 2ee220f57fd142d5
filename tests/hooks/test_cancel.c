// SPDX-License-Identifier: BSD-2-Clause
/*
 * Threads that are cancelled inside free(), munmap() and shmdt(), which are no
 * cancellation points, while a notifier's descriptor is in use: none of them
 * ends with a lock of kedge's, and none ends inside those calls at all.
 */
#include <poll.h>
#include <sys/shm.h>

#include <kedge/kedge.h>

#include "check.h"

#define LEN    ((size_t)256 << 10)
#define ROUNDS 60
#define NO_UFFD 77

static struct kedge_notifier *nf;
static _Atomic uint64_t cookies;
static _Atomic uint64_t turns; /* of the loops, by all threads */
static _Atomic int inside;     /* threads in a call that is no such point */
static int segment;

/* A later change of it writes to the pipe. */
static void watch(void *p, size_t len)
{
	kedge_watch_add(nf, p, len, atomic_fetch_add(&cookies, 1));
}

static void *frees(void *arg)
{
	for (;; atomic_fetch_add(&turns, 1)) {
		char *p = malloc(LEN);

		watch(p, LEN);
		atomic_fetch_add(&inside, 1);
		free(p);
		atomic_fetch_sub(&inside, 1);
		pthread_testcancel();
	}
	return NULL;
}

static void *unmaps(void *arg)
{
	for (;; atomic_fetch_add(&turns, 1)) {
		char *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		CHECK(p != MAP_FAILED);
		watch(p, LEN);
		atomic_fetch_add(&inside, 1);
		munmap(p, LEN);
		atomic_fetch_sub(&inside, 1);
		pthread_testcancel();
	}
	return NULL;
}

static void *detaches(void *arg)
{
	for (;; atomic_fetch_add(&turns, 1)) {
		char *p = shmat(segment, NULL, 0);

		CHECK(p != (void *)-1);
		atomic_fetch_add(&inside, 1);
		shmdt(p);
		atomic_fetch_sub(&inside, 1);
		pthread_testcancel();
	}
	return NULL;
}

/* Empty the queue, so that the next event writes to the pipe again. */
static void drain(void)
{
	struct kedge_event ev[64];
	ssize_t n, i;

	do {
		n = kedge_notifier_read(nf, ev, 64);
		CHECK(n > 0);
		for (i = 0; i < n; i++)
			if (ev[i].kind != KEDGE_EVENT_LAST)
				kedge_watch_remove(nf, ev[i].cookie);
	} while (ev[n - 1].kind != KEDGE_EVENT_LAST);
}

static void cancelled(void *(*fn)(void *))
{
	uint64_t before = atomic_load(&turns);
	pthread_t thread;
	void *ret;

	CHECK(!pthread_create(&thread, NULL, fn, NULL));
	/* The request stands from here on, in the middle of some call. */
	while (atomic_load(&turns) == before)
		drain();
	CHECK(!pthread_cancel(thread));
	CHECK(!pthread_join(thread, &ret));
	CHECK(ret == PTHREAD_CANCELED);
	CHECK(atomic_load(&inside) == 0);
	drain();
}

int main(void)
{
	struct kedge_notifier_opts o = { .size = sizeof(o), .backend = "uffd" };
	int i, rc = kedge_notifier_open(&o, &nf);

	alarm(60);
	if (rc) {
		printf("skipped: %s\n", kedge_strerror(rc));
		return NO_UFFD;
	}
	segment = shmget(IPC_PRIVATE, LEN, 0600 | IPC_CREAT);
	CHECK(segment >= 0);
	CHECK(kedge_notifier_fd(nf) >= 0);
	for (i = 0; i < ROUNDS; i++) {
		cancelled(frees);
		cancelled(unmaps);
		cancelled(detaches);
	}
	shmctl(segment, IPC_RMID, NULL);
	kedge_notifier_close(nf);
	return 0;
}
