// SPDX-License-Identifier: BSD-2-Clause
/* Peers that are processes of their own: at work, stopped, killed, and without an owner. */
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include "look.h"
#include "remote.h"
#include "suites.h"

#define ADDS	(way->served ? 4000 : 20000)
#define FOREVER (-1)

/* The words between a test and its children. */
static struct {
	_Atomic int go;
	_Atomic int ready;
	_Atomic int stop;
	_Atomic uint64_t done;
} *word;

static int make_word(void **state)
{
	word = shared_memory(sizeof(*word));
	return 0;
}

static int free_word(void **state)
{
	return munmap(word, sizeof(*word));
}

/* It begins once all are there, so that no thread of the owner's has work while another child is
 * forked: AddressSanitizer's allocator may be locked by one, and is so in the child for ever. */
static pid_t start(void (*run)(int), int arg)
{
	pid_t pid = fork_child();
	if (!pid) {
		while (!atomic_load(&word->go))
			usleep(100);
		CHILD_CHECK(!kedge_remote_open(&handle, SOON_MS, &remote));
		run(arg);
		kedge_remote_close(remote);
		_exit(0);
	}
	return pid;
}

static void wait_ready(int cnt)
{
	while (atomic_load(&word->ready) < cnt)
		usleep(1000);
}

/* ---- peers that do not go on ---- */

/* Its data is memory that nobody brings: it stays in the access, where the peer does it. */
static int uffd;

static void stays_inside(int unused)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register r = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	char *p = mmap(NULL, page_len(), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1);
	CHILD_CHECK(uffd >= 0 && p != MAP_FAILED && !ioctl(uffd, UFFDIO_API, &api));
	r.range.start = (uintptr_t)p;
	r.range.len = page_len();
	CHILD_CHECK(!ioctl(uffd, UFFDIO_REGISTER, &r));
	atomic_fetch_add(&word->ready, 1);
	kedge_remote_put(remote, 0, p, 1, FOREVER);
	CHILD_CHECK(false);
}

/* A child that is inside; not until it is does the call return. */
static pid_t one_inside(void (*run)(int))
{
	pid_t pid;

	need_threads_after_fork();
	if (need_uffd())
		skip();
	make_region(LEN, NULL);
	pid = start(run, 0);
	atomic_store(&word->go, 1);
	wait_ready(1);
	while (kedge_region_suspend(region, 20) == 0)
		assert_int_equal(kedge_region_resume(region), 0);
	return pid;
}

static void ends_then(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(kedge_region_suspend(region, FOREVER), 0);
	assert_int_equal(kedge_region_resume(region), 0);
	waitpid(pid, NULL, 0);
	kedge_region_close(region);
}

static void a_peer_that_is_inside_is_waited_for_until_it_ends(void **state)
{
	struct kedge_remote *other;
	char name[24], c = 1;
	pid_t pid;

	pid = one_inside(stays_inside);
	snprintf(name, sizeof(name), "process %d ", (int)pid);
	assert_non_null(strstr(kedge_strerror(-ETIMEDOUT), name));
	/* That suspended nothing. */
	other = open_it();
	assert_int_equal(kedge_remote_put(other, 0, &c, 1, 0), 0);
	assert_int_equal(kedge_region_resume(region), -EINVAL);
	/* A trim and a revocation go on without it. */
	assert_int_equal(kedge_region_grow(region, 2 * LEN), 0);
	assert_int_equal(kedge_region_trim(region, LEN), 0);
	assert_int_equal(kedge_remote_put(other, 0, &c, 1, 0), 0);
	/* Its access there could be beyond the end: that is not the region's before it is out. */
	assert_int_equal(kedge_region_grow(region, 2 * LEN), -ETIMEDOUT);
	assert_non_null(strstr(kedge_strerror(-ETIMEDOUT), name));
	assert_int_equal(kedge_remote_get(other, LEN, &c, 1, 0), -EFAULT);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	grow_to(2 * LEN);
	assert_int_equal(kedge_remote_put(other, LEN, &c, 1, 0), 0);
	kedge_remote_close(other);
	kedge_region_close(region);
}

static void a_revoked_peer_that_is_inside_is_waited_for(void **state)
{
	pid_t pid;

	pid = one_inside(stays_inside);
	/* It is revoked, and what it does there goes on. */
	assert_int_equal(kedge_region_revoke(region, &handle), -ETIMEDOUT);
	assert_int_equal(kedge_region_revoke(region, &handle), -ENOENT);
	assert_int_equal(kedge_region_suspend(region, 50), -ETIMEDOUT);
	assert_int_equal(kedge_region_move(region, NULL, 50, NULL), -ETIMEDOUT);
	ends_then(pid);
}

static void *closes_all(void *arg)
{
	while (!atomic_load(&word->stop))
		usleep(1000);
	/* But for that which keeps it inside. */
	syscall(SYS_close_range, uffd + 1, ~0u, 0);
	syscall(SYS_close_range, 3, uffd - 1, 0);
	atomic_fetch_add(&word->ready, 1);
	return arg;
}

static void stays_inside_and_closes(int arg)
{
	pthread_t t;

	CHILD_CHECK(!pthread_create(&t, NULL, closes_all, NULL));
	stays_inside(arg);
}

/* The end of its connection is not its own. */
static void a_peer_without_its_socket_is_waited_for(void **state)
{
	pid_t pid;

	pid = one_inside(stays_inside_and_closes);
	atomic_store(&word->stop, 1);
	wait_ready(2);
	assert_int_equal(kedge_region_suspend(region, 100), -ETIMEDOUT);
	assert_int_equal(kedge_region_suspend(region, 100), -ETIMEDOUT);
	ends_then(pid);
}

static void stays_inside_with_a_child(int arg)
{
	/* No handler closes the parent's sockets in it. */
	if (!syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL)) {
		while (!atomic_load(&word->stop))
			usleep(1000);
		_exit(0);
	}
	stays_inside(arg);
}

static void a_child_is_not_its_parent(void **state)
{
	pid_t pid;

	pid = one_inside(stays_inside_with_a_child);
	ends_then(pid);
	atomic_store(&word->stop, 1);
}

/* ---- an owner that ends ---- */

/* An owner in a child; its handle is @handle. */
static pid_t start_owner(bool suspended)
{
	int fd[2];
	pid_t pid;

	need_threads_after_fork();
	assert_int_equal(pipe(fd), 0);
	pid = fork_child();
	if (!pid) {
		make_region(LEN, NULL);
		if (suspended)
			CHILD_CHECK(!kedge_region_suspend(region, 0));
		CHILD_CHECK(write(fd[1], &handle, sizeof(handle)) == sizeof(handle));
		for (;;)
			pause();
	}
	assert_int_equal(read(fd[0], &handle, sizeof(handle)), sizeof(handle));
	close(fd[0]);
	close(fd[1]);
	return pid;
}

static void an_owner_is_killed(bool suspended)
{
	const pid_t pid = start_owner(suspended);
	char c = 1;
	int rc;

	remote = open_it();
	if (way->leased && !suspended)
		wait_for_lease(remote);
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, 0), suspended ? -ETIMEDOUT : 0);
	kill(pid, SIGKILL);
	while ((rc = kedge_remote_put(remote, 0, &c, 1, suspended ? FOREVER : 0)) == 0)
		usleep(1000);
	assert_int_equal(rc, -ECONNRESET);
	assert_int_equal(kedge_remote_get(remote, 0, &c, 1, FOREVER), -ECONNRESET);
	kedge_remote_close(remote);
	waitpid(pid, NULL, 0);
	assert_int_equal(kedge_remote_open(&handle, SOON_MS, &remote), -ECONNREFUSED);
}

static void peers_of_a_killed_owner_are_told(void **state)
{
	an_owner_is_killed(false);
}

static void peers_that_wait_for_a_killed_owner_are_told(void **state)
{
	an_owner_is_killed(true);
}

static void a_stopped_owner_is_waited_for_in_time_only(void **state)
{
	const pid_t pid = start_owner(false);

	kill(pid, SIGSTOP);
	waitpid(pid, NULL, WUNTRACED);
	assert_int_equal(kedge_remote_open(&handle, 50, &remote), -ETIMEDOUT);
	kill(pid, SIGCONT);
	kedge_remote_close(open_it());
	kill_child(pid);
}

/* ---- threads ---- */

static void *adds(void *arg)
{
	int n;

	for (n = 0; n < ADDS; n++)
		if (kedge_remote_fetch_add(remote, 8, 1, NULL, FOREVER))
			return (void *)1;
	return NULL;
}

static void threads_share_a_remote(void **state)
{
	pthread_t t[4];
	uint64_t n;
	void *bad;
	int i;

	begin_remote(NULL);
	for (i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, adds, NULL), 0);
	for (i = 0; i < 200; i++) {
		assert_int_equal(kedge_region_suspend(region, FOREVER), 0);
		assert_int_equal(kedge_region_resume(region), 0);
		if (i % 20 == 0)
			assert_int_equal(kedge_region_move(region, NULL, FOREVER, NULL), 0);
	}
	for (i = 0; i < 4; i++) {
		pthread_join(t[i], &bad);
		assert_null(bad);
	}
	assert_int_equal(kedge_remote_get(remote, 8, &n, sizeof(n), SOON_MS), 0);
	assert_int_equal(n, 4 * ADDS);
	end_remote();
}

#define peers_test(f)  cmocka_unit_test_setup_teardown(f, make_word, free_word)
#define mapped_test(f) { #f, f, make_word, free_word, (void *)(uintptr_t)FOR_MAPPED }

/* Of three, which put at once. */
struct one_of {
	uint64_t at;
	_Atomic pid_t tid;
	pthread_t thread;
};

static void *puts_at_once(void *arg)
{
	struct one_of *o = arg;
	char c = 1;

	atomic_store(&o->tid, gettid());
	kedge_remote_put(remote, o->at, &c, 1, SOON_MS);
	return NULL;
}

/* Threads of the parent's that wait for the region, or for each other, are not there in a child. */
static void a_child_closes_what_others_wait_for(void **state)
{
	struct one_of o[3] = { { .at = 0 }, { .at = 1 }, { .at = 2 } };
	size_t i;
	pid_t pid;

	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	for (i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&o[i].thread, NULL, puts_at_once, &o[i]), 0);
	for (i = 0; i < 3; i++)
		look_asleep(&o[i].tid);
	pid = fork_child();
	if (!pid) {
		kedge_remote_close(remote);
		_exit(0);
	}
	reap(pid);
	assert_int_equal(kedge_region_resume(region), 0);
	for (i = 0; i < 3; i++)
		pthread_join(o[i].thread, NULL);
}

/* It waits for what a stopped peer has: a lease that came before it stopped is never given back. */
static bool suspended_beside(pid_t stopped)
{
	int rc = kedge_region_suspend(region, way->leased ? 500 : SOON_MS);

	if (!rc)
		return true;
	assert_true(way->leased && rc == -ETIMEDOUT);
	kill(stopped, SIGKILL);
	assert_int_equal(waitpid(stopped, NULL, 0), stopped);
	kedge_region_close(region);
	return false;
}

/* Another that has heard of its end may have put since. */
static void what_a_killed_peer_waited_for_is_not_done(void **state)
{
	char c = 'a';
	pid_t pid;
	int n;

	need_threads_after_fork();
	for (n = 0; n < 20; n++) {
		make_region(LEN, NULL);
		pid = fork_child();
		if (!pid) {
			remote = open_it();
			raise(SIGSTOP);
			kedge_remote_put(remote, 0, &c, 1, SOON_MS);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
		if (!suspended_beside(pid))
			continue;
		kill(pid, SIGCONT);
		usleep(5000);
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		assert_int_equal(kedge_region_resume(region), 0);
		remote = open_it();
		assert_int_equal(kedge_remote_put(remote, 0, "b", 1, SOON_MS), 0);
		usleep(1000);
		assert_int_equal(region_at()[0], 'b');
		end_remote();
	}
}

static const struct CMUnitTest tests[] = {
	mapped_test(a_peer_that_is_inside_is_waited_for_until_it_ends),
	mapped_test(a_revoked_peer_that_is_inside_is_waited_for),
	mapped_test(a_peer_without_its_socket_is_waited_for),
	mapped_test(a_child_is_not_its_parent),
	peers_test(peers_of_a_killed_owner_are_told),
	peers_test(peers_that_wait_for_a_killed_owner_are_told),
	peers_test(a_stopped_owner_is_waited_for_in_time_only),
	peers_test(threads_share_a_remote),
	remote_case(a_child_closes_what_others_wait_for),
	cmocka_unit_test(what_a_killed_peer_waited_for_is_not_done),
};

const struct suite suite_remote_peers = {
	.name = "remote_peers", SUITE_OF(tests), .by = "mapped",
};
