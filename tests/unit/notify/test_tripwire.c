// SPDX-License-Identifier: BSD-2-Clause
/*
 * The tripwire: a change that userfaultfd does not report moves the generation all
 * the same, before the call returns, and in this process alone. The calls are made
 * by an instruction of our own, so that nothing interposed can see them. A process
 * that may not have one gets a notifier that tells its blind spots.
 */
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/uio.h>

#include "notify/internal.h"
#include "notify/tripwire/tripwire.h"
#include "tests/common/notifier.h"
#include "tools/common/raw.h"

#define ADVICE_GUARD_INSTALL 102
#define ADVICE_GUARD_REMOVE  103
#define ROUNDS		     10000

static uint32_t covered;
static int segment = -1;

static char *mem;

static int setup(void **state)
{
	nf = open_uffd();
	mem = new_pages(4);
	assert_int_equal(kedge_watch_add(nf, mem, page_len(), 1), 0);
	assert_int_equal(
		kedge_watch_add(nf, mem + 2 * page_len(), page_len(), 2), 0);
	return 0;
}

static void need(uint32_t spot)
{
	if (!(covered & spot))
		skip();
}

static long guard(char *at)
{
	return raw_syscall6(SYS_madvise, (long)at, (long)page_len(),
			    ADVICE_GUARD_INSTALL, 0, 0, 0);
}

static void unguard(char *at)
{
	raw_syscall6(SYS_madvise, (long)at, (long)page_len(),
		     ADVICE_GUARD_REMOVE, 0, 0, 0);
	*at = 1;
}

static long remap(char *at)
{
	return raw_syscall6(SYS_shmat, segment, (long)at, SHM_REMAP, 0, 0, 0);
}

/* Either of the two that this kernel has and the tripwire covers. */
static void spring(char *at)
{
	if (covered & KEDGE_BLIND_SHM_REMAP)
		remap(at);
	else
		guard(at);
}

/* Both watches tell that something happened, and then nothing does. */
static void assert_told(uint64_t before)
{
	struct kedge_event ev[4];

	assert_true(kedge_notifier_generation(nf) > before);
	assert_int_equal(kedge_notifier_read(nf, ev, 4), 3);
	assert_int_equal(ev[0].kind, KEDGE_EVENT_OTHER);
	assert_int_equal(ev[1].kind, KEDGE_EVENT_OTHER);
	assert_int_equal(ev[0].flags, KEDGE_EVENT_UNSURE);
	assert_int_equal(ev[0].cookie + ev[1].cookie, 3);
	assert_int_equal(ev[2].kind, KEDGE_EVENT_LAST);
	assert_int_equal(ev[2].generation, kedge_notifier_generation(nf));
}

static void blind_spots_are_what_is_not_covered(void **state)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };

	assert_int_equal(kedge_notifier_info(nf, &info), 0);
	assert_int_equal(info.blind & covered, 0);
}

static void a_guard_page_is_seen_each_time(void **state)
{
	uint64_t g;
	int i;

	need(KEDGE_BLIND_GUARD);
	for (i = 0; i < ROUNDS; i++) {
		g = kedge_notifier_generation(nf);
		assert_int_equal(guard(mem), 0);
		assert_told(g);
		unguard(mem);
	}
}

static void a_guard_page_by_process_madvise_is_seen(void **state)
{
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	struct iovec iov = { mem, page_len() };
	uint64_t g = kedge_notifier_generation(nf);

	need(KEDGE_BLIND_GUARD);
	assert_true(fd >= 0);
	assert_int_equal(raw_syscall6(SYS_process_madvise, fd, (long)&iov, 1,
				      ADVICE_GUARD_INSTALL, 0, 0),
			 page_len());
	assert_told(g);
	close(fd);
}

static void shm_remap_is_seen_each_time(void **state)
{
	uint64_t g;
	int i;

	need(KEDGE_BLIND_SHM_REMAP);
	for (i = 0; i < ROUNDS; i++) {
		g = kedge_notifier_generation(nf);
		assert_int_equal(remap(mem), (long)mem);
		assert_told(g);
		pages_at(mem, 1);
	}
}

static void *spring_on_thread(void *arg)
{
	spring(arg);
	return NULL;
}

static void another_thread_counts(void **state)
{
	uint64_t g = kedge_notifier_generation(nf);

	in_thread(spring_on_thread, mem);
	assert_told(g);
}

static void spring_in_vfork_child(void *arg)
{
	spring(arg);
	raw_syscall6(SYS_exit, 0, 0, 0, 0, 0, 0);
}

static void a_vfork_child_counts(void **state)
{
	static char stack[65536] __attribute__((aligned(16)));
	uint64_t g = kedge_notifier_generation(nf);
	long pid;

	pid = raw_clone(CLONE_VM | CLONE_VFORK | SIGCHLD, stack + sizeof(stack),
			spring_in_vfork_child, mem);
	assert_true(pid > 0);
	assert_int_equal(waitpid((pid_t)pid, NULL, 0), pid);
	assert_told(g);
}

/* Each in a process of its own, on memory at the same address. */
static int trip_many(void *arg)
{
	int i;

	for (i = 0; i < 1000; i++) {
		guard(mem);
		remap(mem);
		pages_at(mem, 1);
	}
	return 0;
}

static void another_process_does_not_count(void **state)
{
	uint64_t g = kedge_notifier_generation(nf);

	assert_int_equal(in_child(trip_many, NULL), 0);
	assert_int_equal(in_raw_child(trip_many, NULL), 0);
	assert_int_equal(kedge_notifier_generation(nf), g);
}

static void other_calls_do_not_count(void **state)
{
	char *p = new_pages(1);
	uint64_t g = kedge_notifier_generation(nf);
	void *at;

	assert_int_equal(madvise(p, page_len(), MADV_NORMAL), 0);
	assert_int_equal(madvise(p, page_len(), MADV_DONTNEED), 0);
	at = shmat(segment, NULL, 0);
	assert_ptr_not_equal(at, (void *)-1);
	shmdt(at);
	assert_int_equal(kedge_notifier_generation(nf), g);
}

/* The child's copy reads as no generation of the parent's, and closes. */
static int close_in_child(void *arg)
{
	CHILD_CHECK(!(kedge_notifier_generation(nf) % TRIPWIRE_STEP));
	kedge_notifier_close(nf);
	return 0;
}

static void a_child_that_closes_leaves_the_parents(void **state)
{
	uint64_t g;

	assert_int_equal(in_child(close_in_child, NULL), 0);
	g = kedge_notifier_generation(nf);
	spring(mem);
	assert_told(g);
}

/* A program that closes what it does not know loses nothing. */
static int close_all_descriptors(void *arg)
{
	struct kedge_notifier *own = open_uffd();
	uint64_t g = kedge_notifier_generation(own);

	CHILD_CHECK(kedge_watch_add(own, mem, page_len(), 1) >= 0);
	/* The monitor takes a table of its own when it starts. */
	WAIT_FOR(threads_have_own_tables());
	syscall(SYS_close_range, 3, ~0u, 0);
	spring(mem);
	CHILD_CHECK(kedge_notifier_generation(own) != g);
	return 0;
}

static void closed_descriptors_do_not_blind_it(void **state)
{
	assert_int_equal(in_child(close_all_descriptors, NULL), 0);
}

static void closing_leaves_nothing(void **state)
{
	unsigned int fds = open_fds(), maps = map_lines();
	struct tripwire *t;
	int i;

	for (i = 0; i < 20; i++) {
		t = NULL;
		if (!tripwire_open(&t))
			tripwire_close(t);
	}
	tripwire_close(NULL);
	assert_int_equal(open_fds(), fds);
	assert_true(map_lines() <= maps + 1);
}

/* Nobody, with no capability: refused in words, and the notifier is there. */
static int as_nobody(void *arg)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };
	struct tripwire *t = NULL;
	struct kedge_notifier *own;

	if (geteuid() == 0 && setresuid(65534, 65534, 65534))
		return 0;
	CHILD_CHECK(tripwire_open(&t) == -EPERM);
	CHILD_CHECK(!t);
	CHILD_CHECK(strstr(kedge_strerror(-EPERM), "CAP_BPF"));
	/* userfaultfd may be refused to nobody: that is another matter. */
	if (kedge_notifier_open(
		    &(struct kedge_notifier_opts){
			    .size = sizeof(struct kedge_notifier_opts),
			    .backend = "uffd" },
		    &own))
		return 0;
	CHILD_CHECK(!kedge_notifier_info(own, &info));
	CHILD_CHECK(info.blind & KEDGE_BLIND_SHM_REMAP);
	CHILD_CHECK(kedge_notifier_generation(own));
	kedge_notifier_close(own);
	return 0;
}

static void who_may_not_is_told_so(void **state)
{
	assert_int_equal(in_child(as_nobody, NULL), 0);
}

static int make_segment(void)
{
	void *keep;

	segment = shmget(IPC_PRIVATE, page_len(), IPC_CREAT | 0600);
	if (segment < 0)
		return -1;
	keep = shmat(segment, NULL, 0);
	shmctl(segment, IPC_RMID, NULL);
	return keep == (void *)-1 ? -1 : 0;
}

int main(void)
{
	const struct CMUnitTest always[] = {
		PLAIN(who_may_not_is_told_so),
		PLAIN(closing_leaves_nothing),
		NF_CASE(another_process_does_not_count),
		NF_CASE(other_calls_do_not_count),
	};
	const struct CMUnitTest tests[] = {
		NF_CASE(blind_spots_are_what_is_not_covered),
		NF_CASE(a_guard_page_is_seen_each_time),
		NF_CASE(a_guard_page_by_process_madvise_is_seen),
		NF_CASE(shm_remap_is_seen_each_time),
		NF_CASE(another_thread_counts),
		NF_CASE(a_vfork_child_counts),
		NF_CASE(a_child_that_closes_leaves_the_parents),
		NF_CASE(closed_descriptors_do_not_blind_it),
	};
	struct tripwire *t;
	int rc = need_uffd();

	if (rc)
		return rc;
	if (make_segment()) {
		printf("skipped: no System V memory here\n");
		return 77;
	}
	rc = cmocka_run_group_tests(always, NULL, NULL);
	if (rc)
		return rc;
	rc = tripwire_open(&t);
	if (rc) {
		printf("the rest is skipped: %s\n", kedge_strerror(rc));
		return 77;
	}
	covered = tripwire_covers(t);
	tripwire_close(t);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
