// SPDX-License-Identifier: BSD-2-Clause
/*
 * Locks that signals cannot interrupt: what is blocked, how it nests, and what is
 * put back.
 */
#include "base/base.h"
#include "base/lock.h"
#include "cases.h"

static struct sig_lock a = SIG_LOCK_INIT, b = SIG_LOCK_INIT;
static volatile sig_atomic_t handled;

static void on_signal(int sig)
{
	handled++;
	/* A handler takes them, too: what it finds is not ours. */
	sig_lock(&b);
	sig_unlock(&b);
}

static bool blocked(int sig)
{
	sigset_t now;

	pthread_sigmask(SIG_BLOCK, NULL, &now);
	return sigismember(&now, sig);
}

static int setup(void **state)
{
	handled = 0;
	signal(SIGUSR1, on_signal);
	return 0;
}

static void holder_is_not_interrupted(void **state)
{
	sig_lock(&a);
	raise(SIGUSR1);
	assert_int_equal(handled, 0);
	sig_unlock(&a);
	assert_int_equal(handled, 1);
	assert_false(blocked(SIGUSR1));
}

static void stays_blocked_until_the_last_is_let_go(void **state)
{
	sig_lock(&a);
	sig_lock(&b);
	raise(SIGUSR1);
	sig_unlock(&a); /* in another order than they were taken */
	assert_int_equal(handled, 0);
	sig_unlock(&b);
	assert_int_equal(handled, 1);
	assert_false(blocked(SIGUSR1));
}

static void nested_in_a_section_the_mask_is_left_alone(void **state)
{
	signals_block();
	sig_lock(&a);
	sig_unlock(&a);
	raise(SIGUSR1);
	assert_int_equal(handled, 0);
	signals_restore();
	assert_int_equal(handled, 1);
}

static void what_was_blocked_before_stays_so(void **state)
{
	sigset_t own, before;

	sigemptyset(&own);
	sigaddset(&own, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &own, NULL);
	sig_lock(&a);
	sig_lock(&b);
	signals_before(&before);
	assert_true(sigismember(&before, SIGUSR2));
	assert_false(sigismember(&before, SIGUSR1));
	sig_unlock(&b);
	sig_unlock(&a);
	assert_true(blocked(SIGUSR2));
	assert_false(blocked(SIGUSR1));
	pthread_sigmask(SIG_UNBLOCK, &own, NULL);
}

static void own_faults_stay_open(void **state)
{
	static const int faults[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP,
				      SIGABRT, SIGSYS };
	unsigned int i;

	sig_lock(&a);
	for (i = 0; i < ARRAY_SIZE(faults); i++)
		assert_false(blocked(faults[i]));
	sig_unlock(&a);
}

static void cancel_state_is_put_back(void **state)
{
	int now;

	sig_lock(&a);
	sig_lock(&b);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &now);
	assert_int_equal(now, PTHREAD_CANCEL_DISABLE);
	sig_unlock(&b);
	sig_unlock(&a);
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &now);
	assert_int_equal(now, PTHREAD_CANCEL_ENABLE);
}

/* Signals that come at any moment find nothing half done. */
static void *bother(void *arg)
{
	pid_t pid = getpid();
	unsigned int i;

	for (i = 0; i < 20000; i++)
		syscall(SYS_tgkill, pid, *(int *)arg, SIGUSR1);
	return NULL;
}

static void handlers_in_between_leave_it_as_it_was(void **state)
{
	int tid = (int)syscall(SYS_gettid), now;
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, bother, &tid), 0);
	while (pthread_tryjoin_np(t, NULL)) {
		int seen;

		sig_lock(&a);
		seen = handled;
		signals_block();
		signals_restore();
		assert_int_equal(handled, seen);
		sig_unlock(&a);
		assert_false(blocked(SIGUSR1));
		pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &now);
		assert_int_equal(now, PTHREAD_CANCEL_ENABLE);
	}
	assert_true(handled);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(holder_is_not_interrupted, setup),
		cmocka_unit_test_setup(stays_blocked_until_the_last_is_let_go,
				       setup),
		cmocka_unit_test_setup(
			nested_in_a_section_the_mask_is_left_alone, setup),
		cmocka_unit_test_setup(what_was_blocked_before_stays_so, setup),
		cmocka_unit_test_setup(own_faults_stay_open, setup),
		cmocka_unit_test_setup(cancel_state_is_put_back, setup),
		cmocka_unit_test_setup(handlers_in_between_leave_it_as_it_was,
				       setup),
	};

	return RUN(tests);
}
