/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The one clock: deadlines, leases, keepalives, back-offs and expiries are times of
 * clock_ns(), which is CLOCK_MONOTONIC. A test may move it, see struct clock_page.
 *
 * A wait is bounded by what clock_wait_ms(), clock_wait_ts() or clock_until_ts() say,
 * and is over when clock_ns() has reached the deadline. That a call returned by its
 * own limit proves nothing: under a moved clock that limit is a slice, after which
 * the waiter looks again, as clock_poll() does. A waiter keeps its deadline: one that
 * is computed anew after each slice never comes. What the time is told to, an argument
 * or a message, gets clock_left_ms(), which is never a slice.
 *
 * Real time stays what no test has to wait for: naps of micro- or milliseconds in
 * loops that look at a condition; CPU clocks, which limit what a thread uses;
 * CLOCK_REALTIME in traces; the kernel's keepalive of TCP, etcd's own count of a
 * lease, and limits of libcurl's. Whoever measures reads clock_ns() as well.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

/* A deadline that never comes. */
#define CLOCK_NEVER UINT64_MAX

/*
 * How a test moves the clock. The page may be shared by processes: it is mapped before
 * the fork. @shift_ns only grows, so that no thread sees time run backwards. A waiter
 * sleeps at most @slice_ns of real time before it reads the clock again.
 *
 * Both are read with relaxed order. A thread that learned of a move by other means
 * (a lock, a message) reads the new shift, as each field is one atomic object and
 * happens-before orders the accesses to it; a thread that did not learn of it may see
 * it late, as it may see time itself.
 */
struct clock_page {
	_Atomic uint64_t shift_ns;
	_Atomic uint64_t slice_ns;
};

/*
 * NULL but in a test, which sets it before it starts a thread that reads the clock.
 * Relaxed accesses suffice: what the page holds is atomic by itself, and a page of
 * zeros moves nothing. Weak: each library and each program has one of its own, without
 * a file that all of them would link. Tests that move the clock link the insides.
 */
__attribute__((weak, visibility("hidden"))) struct clock_page *kedge__clock;

static inline uint64_t clock_of(clockid_t id)
{
	struct clock_page *page = __atomic_load_n(&kedge__clock, __ATOMIC_RELAXED);
	struct timespec ts;
	uint64_t ns;

	clock_gettime(id, &ts);
	ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
	if (__builtin_expect(page != NULL, 0))
		ns += atomic_load_explicit(&page->shift_ns, memory_order_relaxed);
	return ns;
}

static inline uint64_t clock_ns(void)
{
	return clock_of(CLOCK_MONOTONIC);
}

/* A clock that moves in steps of milliseconds, and is cheaper to read. */
static inline uint64_t clock_coarse_ns(void)
{
	return clock_of(CLOCK_MONOTONIC_COARSE);
}

/* The time in @ns from now; CLOCK_NEVER where there is no such time. */
static inline uint64_t clock_after_ns(uint64_t ns)
{
	uint64_t at;

	return __builtin_add_overflow(clock_ns(), ns, &at) ? CLOCK_NEVER : at;
}

static inline uint64_t clock_after_ms(uint64_t ms)
{
	return ms > UINT64_MAX / 1000000u ? CLOCK_NEVER : clock_after_ns(ms * 1000000u);
}

/* The same of an argument: negative is for ever. */
static inline uint64_t clock_deadline(int timeout_ms)
{
	return timeout_ms < 0 ? CLOCK_NEVER : clock_after_ms((uint64_t)timeout_ms);
}

/* The sooner of @deadline and @ns from now. */
static inline uint64_t clock_sooner(uint64_t deadline, uint64_t ns)
{
	const uint64_t at = clock_after_ns(ns);

	return at < deadline ? at : deadline;
}

/* 0: it is over. */
static inline uint64_t clock_left_ns(uint64_t deadline)
{
	const uint64_t now = clock_ns();

	return deadline > now ? deadline - now : 0;
}

/* Rounded up, at most INT_MAX; -1 for CLOCK_NEVER. */
static inline int clock_left_ms(uint64_t deadline)
{
	uint64_t ns;

	if (deadline == CLOCK_NEVER)
		return -1;
	ns = clock_left_ns(deadline);
	return ns / 1000000u >= INT_MAX ? INT_MAX : (int)((ns + 999999u) / 1000000u);
}

/* The longest sleep before the clock is to be read again, where @ns would do. */
static inline uint64_t clock_slice_ns(uint64_t ns)
{
	struct clock_page *page = __atomic_load_n(&kedge__clock, __ATOMIC_RELAXED);
	uint64_t slice;

	if (__builtin_expect(page == NULL, 1))
		return ns;
	slice = atomic_load_explicit(&page->slice_ns, memory_order_relaxed);
	return slice && slice < ns ? slice : ns;
}

/* For poll(), which waits @ms (negative: for ever) unless the clock is moved. */
static inline int clock_slice_ms(int ms)
{
	return ms <= 0 ? ms : (int)((clock_slice_ns((uint64_t)ms * 1000000u) + 999999u) / 1000000u);
}

/* For poll(), until @deadline: 0 when it is over. */
static inline int clock_wait_ms(uint64_t deadline)
{
	return clock_slice_ms(clock_left_ms(deadline));
}

#define CLOCK_REFUSED_NS 10000000

/*
 * poll() for @ms. The kernel refuses it (EINVAL) where RLIMIT_NOFILE is less than @cnt, as
 * sandboxes set it. Then this takes CLOCK_REFUSED_NS, so that no loop around it spins.
 */
static inline int clock_poll_ms(struct pollfd *fds, nfds_t cnt, int ms)
{
	const struct timespec nap = { 0, CLOCK_REFUSED_NS };
	int rc = poll(fds, cnt, ms), err = errno;

	if (rc < 0 && err != EINTR) {
		nanosleep(&nap, NULL);
		errno = err;
	}
	return rc;
}

/* poll() until @deadline: 0 says that it is over. */
static inline int clock_poll(struct pollfd *fds, nfds_t cnt, uint64_t deadline)
{
	int rc;

	do
		rc = clock_poll_ms(fds, cnt, clock_wait_ms(deadline));
	while (!rc && clock_ns() < deadline);
	return rc;
}

static inline struct timespec clock_ts(uint64_t ns)
{
	return (struct timespec){ (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };
}

/* For a futex or a nap: how long, until @deadline. CLOCK_NEVER is some centuries. */
static inline struct timespec clock_wait_ts(uint64_t deadline)
{
	return clock_ts(clock_slice_ns(clock_left_ns(deadline)));
}

/*
 * For pthread_cond_timedwait() and timers that are absolute: when, by the kernel's
 * CLOCK_MONOTONIC. Never 0, which would disarm a timer.
 */
static inline struct timespec clock_until_ts(uint64_t deadline)
{
	struct clock_page *page = __atomic_load_n(&kedge__clock, __ATOMIC_RELAXED);
	struct timespec now;

	if (__builtin_expect(page == NULL, 1))
		return clock_ts(deadline);
	/* clock_ns() less the shift would read it twice, and it may grow between the two. */
	clock_gettime(CLOCK_MONOTONIC, &now);
	return clock_ts((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec +
			clock_slice_ns(clock_left_ns(deadline)));
}

/* A condition for clock_cond_wait(): 0, or a positive errno. */
static inline int clock_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;
	int rc = pthread_condattr_init(&attr);

	if (rc)
		return rc;
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	rc = pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
	return rc;
}

/* ETIMEDOUT when @deadline is over; else 0, and what is waited for may not be there. */
static inline int clock_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline)
{
	const struct timespec until = clock_until_ts(deadline);
	const int rc = deadline == CLOCK_NEVER ? pthread_cond_wait(cond, lock)
					       : pthread_cond_timedwait(cond, lock, &until);

	return rc == ETIMEDOUT && clock_ns() < deadline ? 0 : rc;
}

#endif /* BASE_CLOCK_H */
