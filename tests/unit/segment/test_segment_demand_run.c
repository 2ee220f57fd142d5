// SPDX-License-Identifier: BSD-2-Clause
/* Memory that is converted as it is attached, while its owner runs, is full, and ends. */
#include <sys/prctl.h>

#include "demand.h"

/* ---- while it runs ---- */

static _Atomic bool stops;
static uint64_t *run_at;

static void *stores(void *arg)
{
	volatile uint64_t *w = run_at + (uintptr_t)arg * 8;
	uint64_t n = 0;

	while (!atomic_load(&stops)) {
		if (*w != n)
			return (void *)1;
		*w = ++n;
	}
	return NULL;
}

static void *maps(void *arg)
{
	const size_t page = page_len();
	uint64_t *p;

	(void)arg;
	while (!atomic_load(&stops)) {
		p = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			 0);
		if (p == MAP_FAILED)
			return (void *)1;
		p[0] = 1;
		if (p[0] != 1)
			return (void *)1;
		munmap(p, 4 * page);
	}
	return NULL;
}

/* An allocator gives such pages out as zeros. */
static void *empties(void *arg)
{
	const size_t page = page_len();
	volatile uint64_t *w = run_at + (8 + 2 * (uintptr_t)arg) * page / sizeof(*run_at);

	while (!atomic_load(&stops)) {
		*w = 1;
		if (madvise((void *)(uintptr_t)w, page, MADV_DONTNEED) || *w)
			return (void *)1;
	}
	return NULL;
}

static void what_is_emptied_is_zero(void **state)
{
	pthread_t thread[2];
	uintptr_t i;
	pid_t pid;
	int n;

	run_at = words(LEN / 8);
	begin(NULL, 0, &whole);
	atomic_store(&stops, false);
	for (i = 0; i < 2; i++)
		pthread_create(&thread[i], NULL, empties, (void *)i);
	for (n = 0; n < (int)by_circle(12, 40); n++) {
		/* It may change all the time. */
		if (!peer_attach(&peer, (uintptr_t)run_at, LEN / 8)) {
			if (n % 4 == 0) {
				pid = fork();
				if (!pid)
					_exit(0);
				waitpid(pid, NULL, 0);
			}
			assert_int_equal(peer_detach(&peer), 0);
		}
		assert_int_equal(peer_release(&peer), 0);
		assert_int_equal(peer_get(&peer, &id, RW), 0);
	}
	atomic_store(&stops, true);
	join_threads(thread, 2);
	assert_int_equal(run_at[7], 7);
	end();
}

static void no_store_is_lost(void **state)
{
	pthread_t thread[5];
	uintptr_t i;
	int n;

	run_at = words(LEN);
	memset(run_at, 0, LEN);
	begin(NULL, 0, &whole);
	atomic_store(&stops, false);
	for (i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, stores, (void *)i);
	pthread_create(&thread[4], NULL, maps, NULL);
	for (n = 0; n < (int)by_circle(12, 40); n++) {
		attach_in_time((uintptr_t)run_at, LEN);
		assert_int_equal(peer_store(&peer, LEN - 8, n), 0);
		assert_int_equal(run_at[LEN / 8 - 1], n);
		assert_int_equal(peer_detach(&peer), 0);
		assert_int_equal(peer_release(&peer), 0);
		assert_int_equal(peer_get(&peer, &id, RW), 0);
	}
	atomic_store(&stops, true);
	join_threads(thread, 5);
	end();
}

/* A segment of the same memory, converted as a whole. */
static void *makes_and_removes(void *arg)
{
	struct kedge_segment *s;

	while (!atomic_load(&stops))
		if (!kedge_segment_make(run_at, LEN / 8, NULL, &s))
			kedge_segment_remove(s);
	return arg;
}

static void another_segment_comes_and_goes(void **state)
{
	pthread_t thread;
	uint64_t n, v;

	run_at = words(LEN / 8);
	begin(NULL, 0, &whole);
	atomic_store(&stops, false);
	assert_int_equal(pthread_create(&thread, NULL, makes_and_removes, NULL), 0);
	for (n = 0; n < by_circle(60, 200); n++) {
		if (peer_attach(&peer, (uintptr_t)run_at, LEN / 8))
			continue;
		__atomic_store_n(run_at, n, __ATOMIC_SEQ_CST);
		/* Loaded first, and asked about then. */
		if (!peer_load(&peer, 0, &v) && peer_valid(&peer))
			assert_int_equal(v, n);
		assert_int_equal(peer_detach(&peer), 0);
	}
	atomic_store(&stops, true);
	pthread_join(thread, NULL);
	assert_int_equal(run_at[9], 9);
	end();
}

/* Detached memory is given back before it is too much, and a full table empties. */
static void many_small_parts_come_and_go(void **state)
{
	const size_t len = 1400 * 17 * page_len();
	size_t i;
	char *p;

	p = new_map(len);
	begin(NULL, 0, &whole);
	for (i = 0; i < 1400; i++) {
		char *at = p + i * 17 * page_len();

		*at = (char)i;
		attach_in_time(addr_of(at), 8);
		assert_int_equal(loaded(0), (uint8_t)i);
		assert_int_equal(peer_detach(&peer), 0);
	}
	end();
	munmap(p, len);
}

/* The owner ends, by a kill: nothing hangs. */
static void an_owner_that_is_killed_is_stale(void **state)
{
	uint64_t *w = words(LEN), v;
	pid_t pid = 0;
	int fd[2];

	need_convert();
#ifdef __SANITIZE_THREAD__
	skip();
#endif
	assert_int_equal(pipe(fd), 0);
	peer_start(&peer, 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		CHILD_CHECK(!kedge_segment_make(w, LEN, &later, &segment));
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
		kedge_segment_id(segment, &id);
		CHILD_CHECK(write(fd[1], &id, sizeof(id)) == sizeof(id));
		for (;;)
			pause();
	}
	assert_int_equal(read(fd[0], &id, sizeof(id)), sizeof(id));
	assert_int_equal(peer_get(&peer, &id, RW), 0);
	assert_int_equal(peer_attach(&peer, 0, LEN / 2), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	while (peer_load(&peer, 0, &v) != -EFAULT)
		usleep(1000);
	assert_false(peer_valid(&peer));
	assert_int_equal(peer_detach(&peer), 0);
	assert_int_equal(peer_attach(&peer, 0, LEN), -ESTALE);
	assert_int_equal(peer_release(&peer), 0);
	peer_end(&peer);
	close(fd[0]);
	close(fd[1]);
}

/* Last: this process closes what it does not know, one by one. Parts are converted all the same. */
static void an_owner_without_its_descriptors_goes_on(void **state)
{
	uint64_t *w = words(2 * LEN);
	int fd;

	begin(w, 2 * LEN, &later);
	assert_int_equal(peer_attach(&peer, 0, 8), 0);
	assert_int_equal(peer_detach(&peer), 0);
	for (fd = 3; fd < 65536; fd++)
		if (fd != peer.sock)
			close(fd);
	assert_int_equal(peer_attach(&peer, LEN, 8), 0);
	assert_int_equal(loaded(0), LEN / sizeof(*w));
	assert_int_equal(peer_detach(&peer), 0);
	assert_int_equal(peer_attach(&peer, 0, 8), 0);
	assert_int_equal(loaded(0), 0);
	end();
	assert_int_equal(w[99], 99);
}

#define LISTED PLAIN
#include "test_segment_demand_run.cases.h"

int main(int argc, char **argv)
{
	peer_main(argc, argv);
	return RUN(cases);
}
