// SPDX-License-Identifier: BSD-2-Clause
/*
 * /dev/kedge-segment: who waits for whom. Owners whose own faults wait for a
 * userfaultfd; processes that have each other's memory attached; notifiers that
 * are registered while pages are reclaimed.
 *
 *	kseg_wait SECONDS
 *
 * The alarm ends a test that hangs.
 */
#include <linux/ummunot.h>
#include <linux/userfaultfd.h>

#include "kseg_lib.h"

static int seconds = 5;

/* A userfaultfd on missing pages of a range, which nobody serves yet. */
static int watch_missing(char *m, size_t len)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register r = {
		.range = { (uintptr_t)m, len },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ioctl(fd, UFFDIO_API, &api), 0);
	assert_int_equal(ioctl(fd, UFFDIO_REGISTER, &r), 0);
	return fd;
}

static void serve(int fd, char *page, char byte)
{
	static char buffer[PAGE];
	struct uffdio_copy c = { .dst = (uintptr_t)page,
				 .src = (uintptr_t)buffer, .len = PAGE };

	memset(buffer, byte, PAGE);
	assert_int_equal(ioctl(fd, UFFDIO_COPY, &c), 0);
}

static void an_attacher_waits_for_a_blocked_owner(void **state)
{
	char *m = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), v;
	int fd = ks_open(O_RDWR), rc, uffd;
	struct ks_id id;
	struct peer p, q;

	assert_int_equal(ks_make(fd, m, 4 * PAGE, 0600, &id), 0);
	peer_start(&p, id, KS_RW, 4 * PAGE);
	peer_start(&q, id, KS_RW, 4 * PAGE);
	uffd = watch_missing(m, 4 * PAGE);
	peer_begin_load(&p, PAGE);
	assert_false(peer_ended(&p, 500, &rc, &v));
	/* Nothing else waits: the owner's calls, another attacher. */
	munmap(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
	       PAGE);
	serve(uffd, m, 4);
	assert_int_equal(peer_load(&q, 0, &v), KS_OK);
	assert_int_equal(v, 4);
	serve(uffd, m + PAGE, 5);
	assert_true(peer_ended(&p, 5000, &rc, &v));
	assert_int_equal(rc, KS_OK);
	assert_int_equal(v, 5);
	/* One that waits can be killed. */
	peer_begin_load(&q, 2 * PAGE);
	assert_false(peer_ended(&q, 300, &rc, &v));
	kill(q.pid, SIGKILL);
	assert_int_equal(waitpid(q.pid, NULL, 0), q.pid);
	/* And is told when the segment goes. */
	peer_begin_load(&p, 3 * PAGE);
	assert_false(peer_ended(&p, 300, &rc, &v));
	assert_int_equal(ks_remove(fd, id), 0);
	close(uffd);
	assert_true(peer_ended(&p, 5000, &rc, &v));
	assert_int_equal(rc, KS_SIGBUS);
	peer_stop(&p);
	close(q.fd);
	close(fd);
	munmap(m, 4 * PAGE);
}

/* ---- two that have each other's memory ---- */

#define MUTUAL_PAGES 32

struct mutual {
	struct ks_id id[2];
	atomic_int ready, stop;
	atomic_ulong ops[2];
};

/* Changes its own memory and touches the other's. */
static void mutual_change(char *m, unsigned int r)
{
	char *p = m + r % MUTUAL_PAGES * PAGE;

	switch (r / MUTUAL_PAGES % 4) {
	case 0:
		madvise(p, PAGE, MADV_DONTNEED);
		break;
	case 1:
		mprotect(p, PAGE, PROT_READ);
		mprotect(p, PAGE, PROT_READ | PROT_WRITE);
		break;
	case 2:
		mmap(p, PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		break;
	default:
		madvise(m, MUTUAL_PAGES * PAGE, MADV_PAGEOUT);
	}
}

struct half {
	struct mutual *s;
	char *m, *a;
	int fd, which;
};

static void *mutual_changes(void *arg)
{
	struct half *h = arg;
	unsigned int r = 1;

	while (!atomic_load(&h->s->stop)) {
		r = r * 1103515245 + 12345;
		mutual_change(h->m, r >> 8);
	}
	return NULL;
}

static int mutual_half(struct mutual *s, int which)
{
	struct half h = { s, vm_memory(MUTUAL_PAGES), NULL, ks_open(O_RDWR),
			  which };
	int g = ks_open(O_RDWR);
	pthread_t t;
	unsigned int i;
	char v;

	if (ks_make(h.fd, NULL, 0, 0600, &s->id[which]))
		return 1;
	atomic_fetch_add(&s->ready, 1);
	while (atomic_load(&s->ready) < 2)
		usleep(1000);
	if (ks_get(g, s->id[!which], KS_RW))
		return 2;
	/* Both have forked from one: the addresses are the same. */
	h.a = ks_map(g, MUTUAL_PAGES * PAGE, PROT_READ | PROT_WRITE,
		     (off_t)(uintptr_t)h.m);
	if (ks_errno(h.a) || pthread_create(&t, NULL, mutual_changes, &h))
		return 3;
	for (i = 0; !atomic_load(&s->stop); i++) {
		ks_load(h.a + i % MUTUAL_PAGES * PAGE, &v);
		ks_store(h.a + i * 7 % MUTUAL_PAGES * PAGE, v);
		if (i % 64 == 0)
			mprotect(h.a, PAGE, PROT_READ | PROT_WRITE);
		atomic_fetch_add(&s->ops[which], 1);
	}
	pthread_join(t, NULL);
	return 0;
}

static void two_attach_each_other(void **state)
{
	struct mutual *s = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid[2];
	int i, status;

	for (i = 0; i < 2; i++) {
		pid[i] = fork();
		if (!pid[i])
			_exit(mutual_half(s, i));
	}
	sleep((unsigned int)seconds);
	atomic_store(&s->stop, 1);
	for (i = 0; i < 2; i++) {
		assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
		assert_int_equal(status, 0);
		assert_true(atomic_load(&s->ops[i]) > 10);
	}
	print_message("%lu and %lu accesses\n", atomic_load(&s->ops[0]),
		      atomic_load(&s->ops[1]));
	munmap(s, PAGE);
}

/* ---- registering takes all locks of an address space ---- */

static atomic_bool stop;

/* Reclaim holds the lock of a page's mappings when it comes to the notifiers. */
static void *pages_out(void *arg)
{
	while (!atomic_load(&stop))
		madvise(arg, MUTUAL_PAGES * PAGE, MADV_PAGEOUT);
	return NULL;
}

static void *touches(void *arg)
{
	unsigned int i;

	for (i = 0; !atomic_load(&stop); i++)
		((volatile char *)arg)[i % MUTUAL_PAGES * PAGE]++;
	return NULL;
}

/* Watches with the other module, if it is loaded: that registers a notifier. */
static int register_another(char *m)
{
	struct ummunot_register_ioctl r = { .start = (uintptr_t)m,
					    .end = (uintptr_t)m + PAGE };
	int fd = open("/dev/ummunot", O_RDONLY | O_CLOEXEC);

	return fd < 0 ? 0 : ioctl(fd, UMMUNOT_REGISTER_REGION, &r);
}

/* A relative: its pages have the same anon_vma, and it has them attached, too. */
static int relative(struct ks_id id)
{
	int fd = ks_open(O_RDWR), i;
	char *a, v;

	if (ks_get(fd, id, KS_RW))
		return 1;
	a = ks_map(fd, MUTUAL_PAGES * PAGE, PROT_READ, 0);
	for (i = 0; i < MUTUAL_PAGES; i++)
		ks_load(a + i * PAGE, &v);
	return register_another(a) ? 2 : 0;
}

static void registering_meets_reclaim(void **state)
{
	char *m = vm_memory(MUTUAL_PAGES), *a;
	int fd = ks_open(O_RDWR), g = ks_open(O_RDWR), status;
	time_t end = time(NULL) + seconds;
	unsigned long n = 0;
	struct ks_id id;
	pthread_t t[2];
	pid_t pid;

	assert_int_equal(ks_make(fd, m, MUTUAL_PAGES * PAGE, 0600, &id), 0);
	assert_int_equal(ks_get(g, id, KS_RW), 0);
	a = ks_map(g, MUTUAL_PAGES * PAGE, PROT_READ | PROT_WRITE, 0);
	assert_int_equal(ks_errno(a), 0);
	assert_int_equal(pthread_create(&t[0], NULL, pages_out, m), 0);
	assert_int_equal(pthread_create(&t[1], NULL, touches, a), 0);
	while (time(NULL) < end) {
		pid = fork();
		if (!pid)
			_exit(relative(id));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		n++;
	}
	atomic_store(&stop, true);
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
	print_message("%lu rounds\n", n);
	munmap(a, MUTUAL_PAGES * PAGE);
	munmap(m, MUTUAL_PAGES * PAGE);
	close(g);
	close(fd);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_attacher_waits_for_a_blocked_owner),
		cmocka_unit_test(two_attach_each_other),
		cmocka_unit_test(registering_meets_reclaim),
	};

	if (argc > 1)
		seconds = atoi(argv[1]);
	alarm((unsigned int)seconds * 3 + 60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
