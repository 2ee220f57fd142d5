// SPDX-License-Identifier: BSD-2-Clause
/*
 * Segments where the system refuses something: each call in turn fails once. The segment
 * is refused, or had in another way, the memory is as it was, and all works afterwards.
 */
#include "peer.h"

#define LEN ((size_t)256 << 10)
#define RW  (KEDGE_SEGMENT_READ | KEDGE_SEGMENT_WRITE)

/* Of the calls that are counted, by any thread, the one that fails; 0: none. */
static _Atomic unsigned int fail_at, calls;
static _Atomic int fail_with;

static bool for_ever; /* it and all that follow */

static bool fails(void)
{
	if (!fail_at || (++calls < fail_at) || (calls > fail_at && !for_ever))
		return false;
	errno = fail_with;
	return true;
}

#define WRAP(type, name, ...)                  \
	extern type __real_##name(__VA_ARGS__); \
	extern type __wrap_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__)

/* One signal in the middle of a call. */
static _Atomic bool signals;

WRAP(int, memfd_create, const char *name, unsigned int flags)
{
	if (atomic_exchange(&signals, false))
		raise(SIGUSR1);
	return fails() ? -1 : __real_memfd_create(name, flags);
}

WRAP(int, ftruncate64, int fd, off_t len)
{
	return fails() ? -1 : __real_ftruncate64(fd, len);
}

WRAP(int, socketpair, int domain, int type, int protocol, int sv[2])
{
	return fails() ? -1 : __real_socketpair(domain, type, protocol, sv);
}

WRAP(int, socket, int domain, int type, int protocol)
{
	return fails() ? -1 : __real_socket(domain, type, protocol);
}

WRAP(int, connect, int fd, const struct sockaddr *a, socklen_t len)
{
	return fails() ? -1 : __real_connect(fd, a, len);
}

WRAP(ssize_t, send, int fd, const void *p, size_t len, int flags)
{
	return fails() ? -1 : __real_send(fd, p, len, flags);
}

WRAP(ssize_t, recvmsg, int fd, struct msghdr *m, int flags)
{
	return fails() ? -1 : __real_recvmsg(fd, m, flags);
}

WRAP(int, pthread_create, pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
	return fails() ? EAGAIN : __real_pthread_create(t, a, fn, arg);
}

WRAP(ssize_t, recv, int fd, void *p, size_t len, int flags)
{
	return fails() ? -1 : __real_recv(fd, p, len, flags);
}

WRAP(void *, realloc, void *p, size_t size)
{
	return fails() ? NULL : __real_realloc(p, size);
}

WRAP(void *, calloc, size_t cnt, size_t size)
{
	return fails() ? NULL : __real_calloc(cnt, size);
}

WRAP(void *, mmap64, void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	return fails() ? MAP_FAILED : __real_mmap64(at, len, prot, flags, fd, off);
}

/* While a program's data are made anonymous, what becomes of a store there: before the fork,
 * after the look at it, and before the exchange. */
#define STORES 3u
static struct {
	int from; /* a pipe; 0: none is tried */
	char *to;
	unsigned int tries;
	unsigned int refused;
} store;

/* Later it would wait for the pages to come back, which this thread moves. */
static void try_store(void)
{
	if (!store.from || store.tries == STORES)
		return;
	store.tries++;
	store.refused += read(store.from, store.to, 1) < 0 && errno == EFAULT;
}

extern void *__real_mremap(void *from, size_t len, size_t new_len, int flags, ...);
extern void *__wrap_mremap(void *from, size_t len, size_t new_len, int flags, ...);
void *__wrap_mremap(void *from, size_t len, size_t new_len, int flags, ...)
{
	va_list ap;
	void *to;

	va_start(ap, flags);
	to = va_arg(ap, void *);
	va_end(ap);
	try_store();
	return fails() ? MAP_FAILED : __real_mremap(from, len, new_len, flags, to);
}

/* The calls by which the thread makes its descriptors. */
static bool is_counted(long nr)
{
	switch (nr) {
	case SYS_userfaultfd:
	case SYS_openat:
	case SYS_epoll_create1:
	case SYS_epoll_ctl:
	case SYS_socket:
	case SYS_bind:
	case SYS_listen:
	case SYS_memfd_create:
	case SYS_accept4:
	case SYS_sendmsg:
	case SYS_pidfd_open:
	case SYS_mprotect:
	case SYS_clone:
	case SYS_pread64:
		return true;
	}
	return false;
}

/* Each time. Without an error it reads zeros. */
static struct {
	long nr;
	int with;
} call_that_fails = { -1, 0 };

extern long __real_syscall(long nr, ...);
extern long __wrap_syscall(long nr, ...);
long __wrap_syscall(long nr, ...)
{
	long a[6];
	va_list ap;
	int i;

	va_start(ap, nr);
	for (i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (nr == SYS_clone || nr == SYS_kill)
		try_store();
	if (nr == call_that_fails.nr) {
		errno = call_that_fails.with;
		if (errno)
			return -1;
		memset((void *)a[1], 0, (size_t)a[2]);
		return a[2];
	}
	if (is_counted(nr) && fails())
		return -1;
	return __real_syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void fail_call(unsigned int n, int with)
{
	fail_with = with;
	calls = 0;
	fail_at = n;
}

static bool intact(const uint64_t *w)
{
	size_t i;

	for (i = 0; i < LEN / sizeof(*w); i++)
		if (w[i] != i)
			return false;
	return true;
}

/* ---- cases ---- */

static const int errors[] = { ENOMEM, EMFILE, EPERM };

static const struct kedge_segment_opts later = { .size = sizeof(later),
						 .flags = KEDGE_SEGMENT_ON_ATTACH };

static void calls_of_make_fail(const struct kedge_segment_opts *o)
{
	struct kedge_segment *s;
	uint64_t *w;
	unsigned int n, e, last;
	int rc;

	need_convert();
	for (e = 0; e < 3; e++)
		for (n = 1, last = 1; last; n++) {
			w = words(LEN);
			fail_call(n, errors[e]);
			rc = kedge_segment_make(w, LEN, o, &s);
			last = calls >= fail_at;
			fail_call(0, 0);
			if (!rc)
				kedge_segment_remove(s);
			assert_true(intact(w));
			assert_int_equal(kedge_segment_make(w, LEN, o, &s), 0);
			kedge_segment_remove(s);
			assert_true(intact(w));
			free_pages(w, LEN / page_len());
		}
}

static void each_call_of_make_fails(void **state)
{
	calls_of_make_fail(NULL);
	calls_of_make_fail(&later);
}

/* Initialised data are private pages of a file, as these are. A page was never written. */
static uint64_t *data_words(void)
{
	int fd = memfd_create("data", MFD_CLOEXEC);
	uint64_t *w = words(LEN);
	size_t i;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, w, LEN), LEN);
	assert_ptr_equal(mmap(w, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0),
			 w);
	close(fd);
	for (i = 0; i < (LEN - page_len()) / sizeof(*w); i++)
		w[i] = i;
	return w;
}

static const struct kedge_segment_opts now = { .size = sizeof(now),
					       .backend = KEDGE_SEGMENT_CONVERT };

/* Data becomes a segment while the program has no other. */
static void need_one_thread(void)
{
	need_convert();
#ifdef __SANITIZE_THREAD__
	print_message("skipped: ThreadSanitizer has a thread of its own\n");
	skip();
#endif
}

/* They are as they were, can be stored to, and made a segment. */
static void assert_data_are_well(uint64_t *w, const struct kedge_segment_opts *o)
{
	struct kedge_segment *s;
	size_t i;

	assert_true(intact(w));
	for (i = 0; i < LEN / sizeof(*w); i++)
		w[i] = ~i;
	for (i = 0; i < LEN / sizeof(*w); i++)
		w[i] = i;
	assert_int_equal(kedge_segment_make(w, LEN, o, &s), 0);
	kedge_segment_remove(s);
	assert_true(intact(w));
	free_pages(w, LEN / page_len());
}

static void each_call_of_make_of_data_fails(void **state)
{
	struct kedge_segment *s;
	unsigned int n, e, last;
	uint64_t *w;
	int rc;

	need_one_thread();
	for (e = 0; e < 3; e++)
		for (n = 1, last = 1; last; n++) {
			w = data_words();
			fail_call(n, errors[e]);
			rc = kedge_segment_make(w, LEN, NULL, &s);
			last = calls >= fail_at;
			fail_call(0, 0);
			if (!rc)
				kedge_segment_remove(s);
			/* Where there is no memory to end one, they stay shared. */
			assert_data_are_well(w, NULL);
		}
}

/* Then they can be copied. */
static void where_pins_cannot_be_told_data_stay(void **state)
{
	static const struct { long nr; int with, rc; } on[] = {
		{ SYS_clone, EAGAIN, -EBUSY }, { SYS_clone, ENOMEM, -EBUSY },
		{ SYS_clone, EPERM, -EOPNOTSUPP }, { SYS_pread64, EIO, -EOPNOTSUPP },
		{ SYS_pread64, 0, -EOPNOTSUPP }, { SYS_mprotect, EPERM, -EOPNOTSUPP },
	};
	struct kedge_segment_info i = { .size = sizeof(i) };
	struct kedge_segment *s;
	uint64_t *w;
	size_t n;

	need_one_thread();
	for (n = 0; n < sizeof(on) / sizeof(on[0]); n++) {
		w = data_words();
		call_that_fails.with = on[n].with;
		call_that_fails.nr = on[n].nr;
		assert_int_equal(kedge_segment_make(w, LEN, &now, &s), on[n].rc);
		assert_non_null(strstr(kedge_strerror(on[n].rc), "pinned"));
		assert_int_equal(kedge_segment_make(w, LEN, NULL, &s), 0);
		call_that_fails.nr = -1;
		assert_int_equal(kedge_segment_info(s, &i), 0);
		assert_int_equal(i.backend, KEDGE_SEGMENT_COPY);
		assert_non_null(strstr(i.reason, "pinned"));
		kedge_segment_remove(s);
		assert_data_are_well(w, &now);
	}
}

/* io_uring may store there as this thread returns from a system call. */
static void no_store_to_data_is_lost(void **state)
{
	uint64_t *w;
	int fd[2];

	need_one_thread();
	w = data_words();
	assert_int_equal(pipe2(fd, O_NONBLOCK), 0);
	assert_int_equal(write(fd[1], "a", 1), 1);
	memset(&store, 0, sizeof(store));
	store.to = (char *)w;
	store.from = fd[0];
	assert_data_are_well(w, &now);
	store.from = 0;
	assert_int_equal(store.tries, STORES);
	assert_int_equal(store.refused, STORES);
	close(fd[0]);
	close(fd[1]);
}

static int get_and_attach(const struct kedge_segment_id *id)
{
	struct kedge_attachment *a;
	struct kedge_grant *g;
	const uint64_t *at = NULL;
	int rc = kedge_segment_get(id, RW, &g);

	if (rc)
		return rc;
	/* A part of it first: the rest is several. */
	if (!kedge_segment_attach(g, LEN / 2, 1, 0, &a))
		kedge_segment_detach(a);
	rc = kedge_segment_attach(g, 0, LEN, 0, &a);
	if (!rc) {
		at = kedge_segment_addr(a);
		assert_int_equal(at[77], 77);
		assert_true(kedge_segment_valid(a));
		rc = kedge_segment_reattach(&a);
		assert_int_equal(!a, !!rc);
	}
	if (!rc) {
		assert_ptr_equal(kedge_segment_addr(a), at);
		assert_int_equal(at[77], 77);
		assert_true(kedge_segment_valid(a));
		kedge_segment_detach(a);
	}
	kedge_segment_release(g);
	return rc;
}

static void calls_of_get_and_attach_fail(const struct kedge_segment_opts *o)
{
	struct kedge_segment_id id;
	struct kedge_segment *s;
	unsigned int n, e, last;
	uint64_t *w;

	need_convert();
	w = words(LEN);
	assert_int_equal(kedge_segment_make(w, LEN, o, &s), 0);
	assert_int_equal(kedge_segment_id(s, &id), 0);
	for (e = 0; e < 3; e++)
		for (n = 1, last = 1; last; n++) {
			fail_call(n, errors[e]);
			get_and_attach(&id);
			last = calls >= fail_at;
			fail_call(0, 0);
			/* A peer whose descriptor was not to be had is gone. */
			assert_int_equal(get_and_attach(&id), 0);
		}
	kedge_segment_remove(s);
	assert_true(intact(w));
	free_pages(w, LEN / page_len());
}

static void each_call_of_get_and_attach_fails(void **state)
{
	calls_of_get_and_attach_fail(NULL);
#ifndef __SANITIZE_THREAD__ /* which lets no thread be stopped */
	calls_of_get_and_attach_fail(&later);
#endif
}

/* The way to the thread is closed, and opened anew, if the system lets it. */
static void each_call_of_the_way_back_fails(void **state)
{
	struct kedge_segment *first, *s;
	unsigned int n, last;
	uint64_t *w = words(LEN), *more;
	int rc;

	need_convert();
	assert_int_equal(kedge_segment_make(w, LEN, NULL, &first), 0);
	for (n = 1, last = 1; last; n++) {
		more = words(LEN);
		__real_syscall(SYS_close_range, 3, ~0u, 0);
		fail_call(n, EMFILE);
		rc = kedge_segment_make(more, LEN, NULL, &s);
		last = calls >= fail_at;
		fail_call(0, 0);
		if (!rc)
			kedge_segment_remove(s);
		assert_true(intact(more));
		assert_int_equal(kedge_segment_make(more, LEN, NULL, &s), 0);
		kedge_segment_remove(s);
		assert_true(intact(more));
		free_pages(more, LEN / page_len());
	}
	kedge_segment_remove(first);
	assert_true(intact(w));
	free_pages(w, LEN / page_len());
}

/* Memory that cannot be undone at the time is there, a child has it, and it is a segment later. */
static void what_cannot_be_undone_is_undone_later(void **state)
{
	struct kedge_segment_info i = { .size = sizeof(i) };
	struct kedge_segment *s;
	unsigned int n, last;
	int rc, status;
	uint64_t *w;

	need_convert();
	need_threads_after_fork();
	for (n = 1, last = 1; last; n++) {
		w = words(LEN);
		for_ever = true;
		fail_call(n, ENOMEM);
		rc = kedge_segment_make(w, LEN, NULL, &s);
		last = calls >= fail_at;
		fail_call(0, 0);
		for_ever = false;
		assert_true(intact(w));
		if (!rc)
			kedge_segment_remove(s);
		if (n % 2) {
			if (!fork())
				_exit(!intact(w));
			assert_true(wait(&status) > 0 && !status);
		}
		assert_int_equal(kedge_segment_make(w, LEN, NULL, &s), 0);
		assert_int_equal(kedge_segment_info(s, &i), 0);
		assert_int_equal(i.backend, KEDGE_SEGMENT_CONVERT);
		kedge_segment_remove(s);
		assert_true(intact(w));
		free_pages(w, LEN / page_len());
	}
}

/* A list is whole, or fails; an owner that could not be asked is in it all the same. */
static void each_call_of_list_fails(void **state)
{
	const struct kedge_segments_opts o = { .size = sizeof(o), .pid = getpid() };
	struct kedge_segment_entry i = { .size = sizeof(i) };
	struct kedge_segments *const before = (void *)&i, *list;
	struct kedge_segment *s;
	unsigned int n, e, last;
	uint64_t *w;
	int rc;

	need_convert();
	w = words(LEN);
	assert_int_equal(kedge_segment_make(w, LEN, NULL, &s), 0);
	for (e = 0; e < 3; e++)
		for (n = 1, last = 1; last; n++) {
			list = before;
			fail_call(n, errors[e]);
			rc = kedge_segments_open(&o, &list);
			last = calls >= fail_at;
			fail_call(0, 0);
			if (rc) {
				assert_ptr_equal(list, before);
				continue;
			}
			if (kedge_segments_next(list, &i) == 1 && !i.status)
				assert_int_equal(i.len, LEN);
			kedge_segments_close(list);
		}
	assert_int_equal(kedge_segments_open(&o, &list), 0);
	assert_int_equal(kedge_segments_next(list, &i), 1);
	assert_int_equal(i.status, 0);
	assert_int_equal(i.len, LEN);
	kedge_segments_close(list);
	kedge_segment_remove(s);
	free_pages(w, LEN / page_len());
}

static void nothing_is_left(void **state)
{
	unsigned int fds = open_fds();

	each_call_of_make_fails(state);
	assert_int_equal(open_fds(), fds);
	each_call_of_make_of_data_fails(state);
	assert_int_equal(open_fds(), fds);
	each_call_of_get_and_attach_fails(state);
	assert_int_equal(open_fds(), fds);
	each_call_of_list_fails(state);
	assert_int_equal(open_fds(), fds);
}

static volatile sig_atomic_t forks;

static void fork_once(int sig)
{
	int status, saved = errno;
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	if (waitpid(pid, &status, 0) != pid || status)
		abort();
	forks++;
	errno = saved;
}

/* fork() wants what the call that is interrupted has. */
static void a_handler_may_fork(void **state)
{
	const struct sigaction act = { .sa_handler = fork_once };
	struct kedge_segment *s;
	struct sigaction was;
	char *p = new_pages(4);

	need_convert();
	sigaction(SIGUSR1, &act, &was);
	atomic_store(&signals, true);
	assert_int_equal(kedge_segment_make(p, 4 * page_len(), NULL, &s), 0);
	sigaction(SIGUSR1, &was, NULL);
	assert_int_equal(forks, 1);
	p[0] = 1;
	kedge_segment_remove(s);
	assert_int_equal(p[0], 1);
	free_pages(p, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_call_of_make_fails),
		cmocka_unit_test(each_call_of_make_of_data_fails),
		cmocka_unit_test(where_pins_cannot_be_told_data_stay),
		cmocka_unit_test(no_store_to_data_is_lost),
		cmocka_unit_test(each_call_of_get_and_attach_fails),
		cmocka_unit_test(each_call_of_the_way_back_fails),
		cmocka_unit_test(what_cannot_be_undone_is_undone_later),
		cmocka_unit_test(each_call_of_list_fails),
		cmocka_unit_test(nothing_is_left),
		cmocka_unit_test(a_handler_may_fork),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
