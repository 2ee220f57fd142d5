// SPDX-License-Identifier: BSD-2-Clause
/*
 * When a dropped range may be kept again: threads that are stopped in the middle
 * of MADV_DONTNEED, that wait, compute, end, and io_uring's workers. A drop is
 * stopped by holding the lock that the monitor needs to read its event.
 */
#include <liburing.h>
#include <semaphore.h>

#include "notify/internal.h"
#include "notifier.h"

static char *page;
static sem_t go, gone;
static atomic_bool stop;

static int setup(void **state)
{
	nf = open_uffd();
	page = new_pages(1);
	sem_init(&go, 0, 0);
	sem_init(&gone, 0, 0);
	atomic_store(&stop, false);
	assert_true(kedge_watch_add(nf, page, 1, 1) >= 0);
	return 0;
}

static void lines_are_told_apart(void **state)
{
	char line[99];

	assert_int_equal(thread_where("running\n"), THREAD_RUNS);
	assert_int_equal(thread_where(""), THREAD_RUNS);
	assert_int_equal(thread_where("-1 0x7ffe 0x7f11\n"), THREAD_OUT);
	assert_int_equal(thread_where("-1 0x7ffe\n"), THREAD_RUNS);
	snprintf(line, sizeof(line), "%d 0x1 0x2 0x3 0x4 0x5 0x6 0x7f 0x80\n",
		 SYS_read);
	assert_int_equal(thread_where(line), THREAD_OUT);
	snprintf(line, sizeof(line), "%d 0x1 0x2 0x3 0x4 0x5 0x6 0x7f 0x80\n",
		 SYS_madvise);
	assert_int_equal(thread_where(line), THREAD_MAYBE_IN);
	snprintf(line, sizeof(line), "%d 0x1 0x2 0x3 0x4 0x5 0x6 0x7f 0x80\n",
		 SYS_process_madvise);
	assert_int_equal(thread_where(line), THREAD_MAYBE_IN);
	snprintf(line, sizeof(line), "%d 0x1 0x2 0x3 0x4 0x5 0x6 0x7f 0x80\n",
		 SYS_clone3);
	assert_int_equal(thread_where(line), THREAD_MAYBE_IN);
	assert_int_equal(thread_where("426 0x3 0x1 0x0 0x0 0x0 0x8 0x0 0x0\n"),
			 THREAD_KERNELS);
	/* Cut short: nothing is known. */
	assert_int_equal(thread_where("0 0x1 0x2 0x3\n"), THREAD_RUNS);
}

static bool provisional(void)
{
	int rc;

	assert_int_equal(kedge_watch_remove(nf, 1), 0);
	rc = kedge_watch_add(nf, page, 1, 1);
	assert_true(rc >= 0);
	return rc == KEDGE_WATCH_PROVISIONAL;
}

static void until_kept(void)
{
	while (provisional())
		sched_yield();
}

static void raw_drop(void)
{
	assert_int_equal(syscall(SYS_madvise, page, page_len(), MADV_DONTNEED),
			 0);
}

static void *drop_and_wait(void *arg)
{
	raw_drop();
	sem_post(&gone);
	sem_wait(&go);
	return NULL;
}

static void *drop_and_compute(void *arg)
{
	volatile unsigned long n = 0;

	raw_drop();
	sem_post(&gone);
	while (!atomic_load(&stop))
		n++;
	return NULL;
}

/* The caller itself is in no such call. */
static void ones_own_drop_is_over(void **state)
{
	int i;

	for (i = 0; i < 100; i++) {
		raw_drop();
		until_kept();
	}
}

static void a_thread_that_waits_is_out(void **state)
{
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, drop_and_wait, NULL), 0);
	sem_wait(&gone);
	until_kept();
	sem_post(&go);
	pthread_join(t, NULL);
}

static void a_thread_that_computes_is_out(void **state)
{
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, drop_and_compute, NULL), 0);
	sem_wait(&gone);
	until_kept();
	atomic_store(&stop, true);
	pthread_join(t, NULL);
}

static void a_thread_that_has_ended_is_out(void **state)
{
	sem_post(&go);
	in_thread(drop_and_wait, NULL);
	until_kept();
}

static bool in_madvise(int tid)
{
	char path[64], line[256] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
	f = fopen(path, "re");
	assert_non_null(f);
	assert_non_null(fgets(line, sizeof(line), f));
	fclose(f);
	return thread_where(line) == THREAD_MAYBE_IN;
}

static atomic_int dropper;

static void *say_and_drop(void *arg)
{
	atomic_store(&dropper, (int)syscall(SYS_gettid));
	raw_drop();
	return NULL;
}

/* A thread that was joined may be in the list for a moment. */
static void until_out(uint64_t serial)
{
	while (threads_out(&nf->threads, serial, serial) != serial) {
		nf->threads.next_ns = 0;
		sched_yield();
	}
}

/*
 * A drop whose event has been read, but whose thread has not gone on: nothing
 * that is done to the mapping ends it. Stopped before the event is read, which
 * is the same to threads_out().
 */
static void a_thread_that_is_stopped_in_it_is_not(void **state)
{
	pthread_t t;
	int i;

	atomic_store(&dropper, 0);
	until_out(1);
	sig_lock(&nf->lock);
	assert_int_equal(pthread_create(&t, NULL, say_and_drop, NULL), 0);
	while (!atomic_load(&dropper) || !in_madvise(atomic_load(&dropper)))
		sched_yield();
	for (i = 2; i < 20; i++) {
		nf->threads.next_ns = 0;
		assert_int_equal(threads_out(&nf->threads, 2, 2), 1);
	}
	sig_unlock(&nf->lock);
	pthread_join(t, NULL);
	until_out(2);
}

static void another_mapping_does_not_end_it(void **state)
{
	sig_lock(&nf->lock);
	taint_add(nf, addr_of(page), addr_of(page) + page_len());
	/* As if somebody's thread had never gone on. */
	nf->threads.usable = false;
	sig_unlock(&nf->lock);
	pages_at(page, 1);
	assert_true(provisional());
	assert_int_equal(munmap(page, page_len()), 0);
	pages_at(page, 1);
	assert_true(provisional());
	nf->threads.usable = true;
	until_kept();
}

static void an_idle_worker_is_out(void **state)
{
	struct io_uring ring;
	struct io_uring_cqe *cqe;
	int rc = io_uring_queue_init(4, &ring, 0);

	if (rc == -ENOSYS || rc == -EPERM) {
		print_message("skipped: io_uring: %s\n", strerror(-rc));
		skip();
	}
	assert_int_equal(rc, 0);
	io_uring_prep_madvise(io_uring_get_sqe(&ring), page, (off_t)page_len(),
			      MADV_DONTNEED);
	assert_int_equal(io_uring_submit(&ring), 1);
	assert_int_equal(io_uring_wait_cqe(&ring, &cqe), 0);
	assert_int_equal(cqe->res, 0);
	io_uring_cqe_seen(&ring, cqe);
	until_kept();
	io_uring_queue_exit(&ring);
}

/* A vfork() child drops pages of its parent's, which another thread wants. */
static void *vfork_and_drop(void *arg)
{
	int *pipe_fd = arg;
	char c;
	pid_t pid = vfork();

	if (!pid) {
		syscall(SYS_madvise, page, page_len(), MADV_DONTNEED);
		syscall(SYS_write, pipe_fd[1], "", 1);
		syscall(SYS_read, pipe_fd[2], &c, 1);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	return NULL;
}

static void a_child_that_shares_memory_may_be_in(void **state)
{
	int there[2], back[2], fds[3], i;
	pthread_t t;
	char c;

	need_threads_after_fork(); /* there vfork() is fork() */
	assert_int_equal(pipe(there), 0);
	assert_int_equal(pipe(back), 0);
	fds[0] = -1;
	fds[1] = there[1];
	fds[2] = back[0];
	assert_int_equal(pthread_create(&t, NULL, vfork_and_drop, fds), 0);
	assert_int_equal(read(there[0], &c, 1), 1);
	for (i = 0; i < 20; i++) {
		nf->threads.next_ns = 0;
		assert_true(provisional());
	}
	assert_int_equal(write(back[1], "", 1), 1);
	pthread_join(t, NULL);
	until_kept();
	for (i = 0; i < 2; i++) {
		close(there[i]);
		close(back[i]);
	}
}

static void *come_and_go(void *arg)
{
	return NULL;
}

static void *make_threads(void *arg)
{
	while (!atomic_load(&stop)) {
		pthread_t t;

		if (!pthread_create(&t, NULL, come_and_go, NULL))
			pthread_join(t, NULL);
	}
	return NULL;
}

/* The list may be cut short then: it is read again, and all is found out. */
static void threads_that_come_and_go_do_not_hide_others(void **state)
{
	pthread_t makers[2];
	int i;

	run_threads(makers, 2, make_threads, NULL, 0);
	for (i = 0; i < 20; i++) {
		raw_drop();
		until_kept();
	}
	atomic_store(&stop, true);
	join_threads(makers, 2);
}

static void a_closed_descriptor_proves_nothing(void **state)
{
	int fd = nf->threads.fd;

	raw_drop();
	nf->threads.fd = 0;
	assert_true(provisional());
	nf->threads.fd = fd;
	until_kept();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_are_told_apart),
		NF_CASE(ones_own_drop_is_over),
		NF_CASE(a_thread_that_waits_is_out),
		NF_CASE(a_thread_that_computes_is_out),
		NF_CASE(a_thread_that_has_ended_is_out),
		NF_CASE(a_thread_that_is_stopped_in_it_is_not),
		NF_CASE(another_mapping_does_not_end_it),
		NF_CASE(an_idle_worker_is_out),
		NF_CASE(a_child_that_shares_memory_may_be_in),
		NF_CASE(threads_that_come_and_go_do_not_hide_others),
		NF_CASE(a_closed_descriptor_proves_nothing),
	};

	return RUN_WITH_UFFD(tests);
}
