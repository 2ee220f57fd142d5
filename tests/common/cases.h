/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The vocabulary of tests: how cases are listed, run and skipped, and what most of them do with
 * threads, children and memory; with the system's headers that most of them need.
 */
#ifndef TESTS_CASES_H
#define TESTS_CASES_H

#include "core.h"

#ifdef __SANITIZE_THREAD__
#define UNDER_TSAN true
#else
#define UNDER_TSAN false
#endif
#ifdef __SANITIZE_ADDRESS__
#define UNDER_SANITIZER true
#else
#define UNDER_SANITIZER UNDER_TSAN
#endif

#ifndef ARRAY_SIZE
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#endif

/* CASE has the fixture of its file, PLAIN has none. A list that cases.py makes uses CASE, or what
 * LISTED is by then. */
#define CASE(f)	 cmocka_unit_test_setup_teardown(f, setup, teardown)
#define PLAIN(f) cmocka_unit_test(f)

/* The exit status: of all cases, or 77 after printing why there is no userfaultfd here. */
#define RUN(tests)	     (cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0)
#define RUN_WITH_UFFD(tests) (need_uffd() ? 77 : RUN(tests))

/* The cases that main.c runs in a test without a main(). @needed is need_uffd() or the like, or
 * NULL: the file says so by NEEDED, before its list. */
struct main_cases {
	const struct CMUnitTest *cases;
	size_t cnt;
	const char *name;
	int (*needed)(void);
};
extern const struct main_cases main_cases;

/* Skips the case if @cond holds, and says why. */
static inline void skip_if(bool cond, const char *why)
{
	if (!cond)
		return;
	print_message("skipped: %s\n", why);
	skip();
}

/* The same of a call that returned @rc, if that is an error. */
static inline void skip_if_refused(int rc)
{
	skip_if(rc < 0, kedge_strerror(rc));
}

/* The reason of the error that this thread had last has @words in it. */
static inline void expect_words(int rc, const char *words)
{
	assert_true(reason_says(rc, words));
}

/* Each call asserts that its threads begin, or end, well. */
pthread_t run_thread(void *(*fn)(void *), void *arg);
void *join_thread(pthread_t t);
/* Both: what @fn returned. */
void *in_thread(void *(*fn)(void *), void *arg);
/* Each has its own part of @args, of @size bytes. */
void run_threads(pthread_t *t, size_t cnt, void *(*fn)(void *), void *args, size_t size);
/* Each has returned NULL. */
void join_threads(const pthread_t *t, size_t cnt);

/* The child has ended with 0. */
void ended_well(pid_t pid);

/* Private anonymous memory that has no pages yet. */
void *new_map(size_t len);

#endif /* TESTS_CASES_H */
