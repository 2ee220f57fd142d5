// SPDX-License-Identifier: BSD-2-Clause
/*
 * Memory that libc gives back within itself: large chunks, thread stacks, libraries. And
 * processes that share memory.
 * Linked with the shared library. argv: a library, and one that needs it.
 */
#include <dlfcn.h>
#include <malloc.h>
#include <sched.h>
#include <sys/wait.h>
#include <threads.h>

#include <kedge/hooks.h>

#include "check.h"
#include "recorder.h"

#define LARGE	    (1u << 20)
#define MAPPED	    ((size_t)64 << 20) /* a chunk with a mapping of its own */
#define UNSET_ERRNO 4711

/* The address that the callback looks for, and how often it was announced. */
static _Atomic uintptr_t wanted;
static _Atomic int seen;

static void look(const struct record *r)
{
	uintptr_t w = atomic_load(&wanted);

	if (w && r->start <= w && w < r->end)
		atomic_fetch_add(&seen, 1);
}

/* @p by value: after free() it is only a number. */
static void expect_one(uint32_t kind, uintptr_t p, size_t len)
{
	recorder_stop();
	CHECK(record_cnt == 1 && record_open == 0);
	CHECK(record[0].kind == kind && record[0].ended);
	CHECK(record[0].start == p && record[0].end == p + len);
	CHECK(record[0].mapped_at_begin);
}

static void large_chunks_are_announced_when_freed(void)
{
	char *p = malloc(LARGE);
	size_t len = malloc_usable_size(p);
	uintptr_t at = (uintptr_t)p;

	CHECK(p);
	memset(p, 1, LARGE);
	errno = UNSET_ERRNO;
	recorder_start();
	free(p);
	expect_one(KEDGE_EVENT_UNMAP, at, len);
	CHECK(errno == UNSET_ERRNO);
}

static void small_chunks_are_not(void)
{
	void *p = malloc(1000), *q = malloc(60000);

	recorder_start();
	free(p);
	q = realloc(q, 65000);
	free(q);
	free(NULL);
	recorder_stop();
	CHECK(record_cnt == 0);
}

static void realloc_announces_what_may_move(void)
{
	char *p = malloc(MAPPED), *q;
	size_t len = malloc_usable_size(p);
	uintptr_t at = (uintptr_t)p;

	CHECK(p);
	memset(p, 7, MAPPED);
	recorder_start();
	q = realloc(p, len - 100);
	recorder_stop();
	CHECK(record_cnt == 0 && (uintptr_t)q == at);
	len = malloc_usable_size(q);
	recorder_start();
	q = realloc(q, 2 * MAPPED);
	expect_one(KEDGE_EVENT_REMAP, at, len);
	CHECK(q && q[0] == 7 && q[MAPPED - 101] == 7);
	at = (uintptr_t)q;
	len = malloc_usable_size(q);
	recorder_start();
	q = realloc(q, MAPPED);
	expect_one(KEDGE_EVENT_REMAP, at, len);
	free(q);
}

/* A whole page less may be a page given back; a byte short of it is not. */
static void realloc_announces_from_one_page_on(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), had;
	char *p = malloc(MAPPED);
	uintptr_t at;

	CHECK(p);
	had = malloc_usable_size(p);
	at = (uintptr_t)p;
	recorder_start();
	p = realloc(p, had - page + 1);
	recorder_stop();
	CHECK(p && record_cnt == 0);
	had = malloc_usable_size(p);
	at = (uintptr_t)p;
	recorder_start();
	p = realloc(p, had - page);
	expect_one(KEDGE_EVENT_REMAP, at, had);
	free(p);
}

/* The pages of a chunk that has a mapping of its own, its first one whole. */
static void expect_given(const void *p, size_t len)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t at = (uintptr_t)p & ~(page - 1);

	recorder_stop();
	CHECK(p && given_cnt == 1 && !given[0].cut);
	CHECK(given[0].start == at && given[0].end >= (uintptr_t)p + len);
	CHECK(given[0].end == (uintptr_t)p + malloc_usable_size((void *)p));
}

static void large_chunks_are_told_of(void)
{
	const size_t big = (size_t)64 << 20; /* a mapping of its own */
	char *p, *q = NULL;

	errno = UNSET_ERRNO;
	recorder_start();
	p = malloc(big);
	expect_given(p, big);
	CHECK(errno == UNSET_ERRNO);
	recorder_start();
	p = realloc(p, 2 * big);
	expect_given(p, 2 * big);
	free(p);
	p = malloc(100);
	recorder_start();
	p = realloc(p, big);
	expect_given(p, big);
	free(p);
	recorder_start();
	p = calloc(big / 16, 16);
	expect_given(p, big);
	free(p);
	recorder_start();
	p = aligned_alloc(1u << 16, big);
	expect_given(p, big);
	free(p);
	recorder_start();
	p = memalign(64, big);
	expect_given(p, big);
	free(p);
	recorder_start();
	CHECK(!posix_memalign((void **)&q, 4096, big));
	expect_given(q, big);
	free(q);
}

/* Within the allocator's memory: what is the chunk's, and not a byte more. */
static void a_large_chunk_of_the_heap_is_told_of_as_it_is(void)
{
	char *p, *low = malloc(100);
	size_t len;

	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	recorder_start();
	p = malloc(LARGE + 1000);
	recorder_stop();
	len = malloc_usable_size(p);
	CHECK(p && given_cnt == 1 && given[0].cut);
	CHECK(given[0].start == (uintptr_t)p && given[0].end == (uintptr_t)p + len);
	free(p);
	free(low);
}

/* However little it gives back: a page may end there. And once more where it fails. */
static void a_chunk_of_the_heap_is_given_up_by_each_realloc(void)
{
	const size_t to[] = { LARGE, LARGE - 8, 2 * LARGE, 65000 };
	volatile size_t much = (size_t)1 << 62;
	char *p, *low = malloc(100);
	unsigned int i;
	size_t had;

	p = malloc(LARGE);
	CHECK(p && low);
	for (i = 0; i < 4; i++) {
		uintptr_t at = (uintptr_t)p;

		had = malloc_usable_size(p);
		recorder_start();
		p = realloc(p, to[i]);
		expect_one(KEDGE_EVENT_REMAP, at, had);
		CHECK(p && record[0].flags == KEDGE_HOOK_TELL_ONLY);
		CHECK(given_cnt == (to[i] > 65536));
		if (given_cnt)
			CHECK(given[0].cut && given[0].start == (uintptr_t)p);
	}
	free(p);
	p = malloc(LARGE);
	recorder_start();
	CHECK(p && !realloc(p, much));
	CHECK(record_cnt == 1 && given_cnt == 1 && given[0].start == (uintptr_t)p);
	recorder_stop();
	recorder_start();
	CHECK(!realloc(p, 0));
	recorder_stop();
	CHECK(record_cnt == 1 && !given_cnt);
	free(low);
}

static void small_and_refused_chunks_are_not_told_of(void)
{
	volatile size_t much = (size_t)1 << 62;
	void *volatile p, *q = NULL;

	recorder_start();
	p = malloc(65000);
	free(p);
	p = calloc(10, 6500);
	free(p);
	p = aligned_alloc(64, 65024);
	free(p);
	p = memalign(64, 65024);
	free(p);
	CHECK(!posix_memalign(&q, 64, 65024));
	free(q);
	CHECK(!malloc(much) && errno == ENOMEM);
	CHECK(!calloc(much, 16));
	CHECK(!memalign(64, much));
	recorder_stop();
	CHECK(!given_cnt);
	q = p = malloc((size_t)64 << 20);
	recorder_start();
	CHECK(posix_memalign(&q, 3, 1 << 20) == EINVAL);
	recorder_stop();
	CHECK(!given_cnt);
	free(p);
}

/* A chunk that surely stays mapped, or goes by another call, is only told. */
static void chunks_within_the_heap_are_only_told(void)
{
	char *mapped = malloc((size_t)64 << 20), *low = malloc(LARGE);
	char *high = malloc(LARGE);

	CHECK(mapped && low && high);
	recorder_start();
	free(mapped);
	CHECK(record_cnt == 1 && !record[0].flags);
	free(low);
	recorder_stop();
	CHECK(record_cnt == 2 && record[1].flags == KEDGE_HOOK_TELL_ONLY);
	free(high);
}

static void malloc_trim_announces_everything(void)
{
	recorder_start();
	malloc_trim(0);
	recorder_stop();
	CHECK(record_cnt == 1 && record[0].ended);
	CHECK(record[0].kind == KEDGE_EVENT_REMOVE && record[0].flags == KEDGE_HOOK_TELL_ONLY);
	CHECK(record[0].start == 0 &&
	      record[0].end > (uintptr_t)__builtin_frame_address(0));
}

static void *thread(void *arg)
{
	char here = 0;

	atomic_store(&seen, 0);
	atomic_store(&wanted, (uintptr_t)&here);
	if (!strcmp(arg, "exit"))
		pthread_exit(arg);
	while (!strcmp(arg, "cancel"))
		pause();
	return arg;
}

static int thread_c11(void *arg)
{
	thread(arg);
	return 42;
}

static void *thread_that_counts(void *arg)
{
	*(int *)arg = atomic_load(&seen);
	return NULL;
}

static int join_by(size_t way, pthread_t t)
{
	struct timespec past = { 0 };

	if (way == 0)
		return pthread_tryjoin_np(t, NULL);
	if (way == 1)
		return pthread_timedjoin_np(t, NULL, &past);
	return pthread_clockjoin_np(t, NULL, CLOCK_MONOTONIC, &past);
}

static void *thread_with_a_guard(void *arg)
{
	pthread_attr_t attr;
	void *low;
	size_t len;

	CHECK(!pthread_getattr_np(pthread_self(), &attr));
	CHECK(!pthread_attr_getstack(&attr, &low, &len));
	pthread_attr_destroy(&attr);
	atomic_store(&seen, 0);
	atomic_store(&wanted, (uintptr_t)low - 1);
	return arg;
}

/* Guard pages may have been another thread's stack, and be so again. */
static void the_guard_is_announced_with_its_stack(void)
{
	pthread_attr_t attr;
	pthread_t t;

	CHECK(!pthread_attr_init(&attr));
	CHECK(!pthread_attr_setguardsize(&attr, 65536));
	CHECK(!pthread_create(&t, &attr, thread_with_a_guard, NULL));
	CHECK(!pthread_join(t, NULL));
	CHECK(atomic_load(&seen) == 2);
	pthread_attr_destroy(&attr);
}

static void a_stack_is_announced_when_its_thread_ends(void)
{
	static char *how[] = { "return", "exit", "cancel" };
	pthread_attr_t attr;
	pthread_t t;
	thrd_t c11;
	void *ret;
	size_t i;
	int res;

	for (i = 0; i < 3; i++) {
		atomic_store(&wanted, 0);
		CHECK(!pthread_create(&t, NULL, thread, how[i]));
		while (!atomic_load(&wanted))
			usleep(100);
		if (i == 2)
			pthread_cancel(t);
		CHECK(!pthread_join(t, &ret));
		CHECK(ret == (i == 2 ? PTHREAD_CANCELED : how[i]));
		CHECK(atomic_load(&seen) == 2); /* its end, and the join */
	}
	CHECK(thrd_create(&c11, thread_c11, "return") == thrd_success);
	CHECK(thrd_join(c11, &res) == thrd_success && res == 42);
	CHECK(atomic_load(&seen) == 2);
	/*
	 * The next thread gets that stack, and before it runs hears of it: the
	 * place that is looked for is still the last thread's.
	 */
	atomic_store(&seen, 0);
	CHECK(!pthread_create(&t, NULL, thread_that_counts, &res));
	CHECK(!pthread_join(t, NULL));
	CHECK(res == 1);
	/* Every way to join; one that does not join announces nothing. */
	for (i = 0; i < 3; i++) {
		atomic_store(&wanted, 0);
		CHECK(!pthread_create(&t, NULL, thread, "cancel"));
		while (!atomic_load(&wanted))
			usleep(100);
		CHECK(join_by(i, t) != 0 && atomic_load(&seen) == 0);
		pthread_cancel(t);
		while (join_by(i, t))
			usleep(100);
		CHECK(atomic_load(&seen) == 2);
	}
	/* A refusal of pthread_create() comes back as it is. */
	CHECK(!pthread_attr_init(&attr));
	CHECK(!pthread_attr_setstacksize(&attr, (size_t)1 << 50));
	CHECK(pthread_create(&t, &attr, thread, "return") == EAGAIN);
	pthread_attr_destroy(&attr);
	atomic_store(&wanted, 0);
}

/* @path's variable is announced: on the way, or in all that comes after. */
static void a_library_is_announced_when_closed(const char *path,
					       const char *symbol)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL), *var;

	if (!lib)
		fprintf(stderr, "%s\n", dlerror());
	CHECK(lib);
	var = dlsym(lib, symbol);
	CHECK(var);
	atomic_store(&seen, 0);
	atomic_store(&wanted, (uintptr_t)var);
	recorder_start();
	CHECK(!dlclose(lib));
	recorder_stop();
	CHECK(atomic_load(&seen) >= 1);
	CHECK(record_cnt >= 1 && record_open == 0);
	if (!strcmp(symbol, "plugin_bss")) {
		CHECK(record[0].mapped_at_begin && !record[0].mapped_at_end);
		CHECK(record_cnt == 1);
	}
	atomic_store(&wanted, 0);
}

static int end_at_once(void *code)
{
	return *(int *)code;
}

/* Not threads, nor children with memory of their own, nor those that their parent waits for. */
static void processes_that_share_memory_are_announced(void)
{
	static const int others[] = { 0, CLONE_VM | CLONE_VFORK };
	static char stack[65536] __attribute__((aligned(64)));
	int code = 42, status = 0, pid;
	size_t i;

	for (i = 0; i < 2; i++) {
		pid = clone(end_at_once, stack + sizeof(stack), others[i] | SIGCHLD, &code);
		CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
		CHECK(WEXITSTATUS(status) == 42 && !recorder_sharing[0]);
	}
	pid = clone(end_at_once, stack + sizeof(stack), CLONE_VM | SIGCHLD, &code);
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	CHECK(WEXITSTATUS(status) == 42);
	CHECK(recorder_sharing[0] == 1 && recorder_sharing[1] == pid);
	CHECK(clone(end_at_once, stack + sizeof(stack), CLONE_VM | CLONE_SIGHAND | CLONE_FS |
		    CLONE_NEWNS, &code) == -1);
	CHECK(recorder_sharing[1] == -1);
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	recorder_fn = look;
	large_chunks_are_announced_when_freed();
	small_chunks_are_not();
	realloc_announces_what_may_move();
	realloc_announces_from_one_page_on();
	chunks_within_the_heap_are_only_told();
	large_chunks_are_told_of();
	small_and_refused_chunks_are_not_told_of();
	a_large_chunk_of_the_heap_is_told_of_as_it_is();
	a_chunk_of_the_heap_is_given_up_by_each_realloc();
	malloc_trim_announces_everything();
	the_guard_is_announced_with_its_stack();
	a_stack_is_announced_when_its_thread_ends();
	processes_that_share_memory_are_announced();
	a_library_is_announced_when_closed(argv[1], "plugin_bss");
	a_library_is_announced_when_closed(argv[2], "plugin_bss_of_needed");
	return 0;
}
