/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Churn: threads that allocate, transfer and free, as applications do, all at
 * once. Freed addresses go round between the threads, so a registration that
 * outlives its mapping is soon handed to another thread.
 *
 * The engine needs neither the command nor its libraries, and calls kedge
 * through a table: test programs run it without libkedge-hooks, with it, and
 * on libraries that dlopen() brought in.
 */
#ifndef TORTURE_CHURN_H
#define TORTURE_CHURN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kedge/kedge.h>
#include <kedge/uring.h>

#define CHURN_MAX_THREADS 16
#define CHURN_TEXT	  160

/* The allocations of each round; the sizes are the defaults. */
enum churn_alloc {
	CHURN_MALLOC, /* malloc() of 40 MB, which is a mapping of its own */
	CHURN_MMAP,   /* mmap() of 256 KiB */
	CHURN_MIXED,  /* either, 64 KiB to 40 MB */
	CHURN_ALLOCS
};
extern const char *const churn_alloc_names[CHURN_ALLOCS + 1];

/* The routes to mmap() and munmap(). malloc() calls libc's inside. */
enum churn_route {
	CHURN_LIBC,    /* libc's functions */
	CHURN_SYSCALL, /* libc's syscall() */
	CHURN_RAW,     /* the instruction */
	CHURN_ROUTES
};
extern const char *const churn_route_names[CHURN_ROUTES + 1];

/**
 * struct churn_api - the calls of kedge under test
 */
struct churn_api {
	__typeof__(kedge_device_open_uring) *device_open_uring;
	__typeof__(kedge_device_close) *device_close;
	__typeof__(kedge_notifier_open) *notifier_open;
	__typeof__(kedge_notifier_info) *notifier_info;
	__typeof__(kedge_notifier_close) *notifier_close;
	__typeof__(kedge_cache_open) *cache_open;
	__typeof__(kedge_cache_close) *cache_close;
	__typeof__(kedge_cache_get) *cache_get;
	__typeof__(kedge_cache_put) *cache_put;
	__typeof__(kedge_cache_stats) *cache_stats;
	__typeof__(kedge_strerror) *error_text;
};

/* A table of what the program itself is linked with. */
#define CHURN_API_LINKED                                        \
	{                                                       \
		.device_open_uring = kedge_device_open_uring,   \
		.device_close = kedge_device_close,             \
		.notifier_open = kedge_notifier_open,           \
		.notifier_info = kedge_notifier_info,           \
		.notifier_close = kedge_notifier_close,         \
		.cache_open = kedge_cache_open,                 \
		.cache_close = kedge_cache_close,               \
		.cache_get = kedge_cache_get,                   \
		.cache_put = kedge_cache_put,                   \
		.cache_stats = kedge_cache_stats,               \
		.error_text = kedge_strerror,                   \
	}

/**
 * struct churn_opts - what to run
 * @api:      borrowed
 * @threads:  1 to CHURN_MAX_THREADS
 * @alloc:    what is allocated
 * @size:     bytes of each allocation; 0 is @alloc's default
 * @transfer: bytes got and read each time, a multiple of 8
 * @route:    how mappings come and go
 * @apart:    a ring, device, notifier and cache for each thread
 * @defaults: pass NULL for the notifier and all options, and take every
 *            KEDGE_* variable out of the environment
 * @notifier: backend, or NULL for the default; not with @defaults
 * @flags:    KEDGE_NOTIFIER_*; not with @defaults
 * @seconds:  how long at most; 0 is no limit
 * @gets:     how many gets at most, of all threads; 0 is no limit
 * @seed:     of the random numbers
 * @tick:     called now and then by the thread that called churn_run(), with
 *            the milliseconds that have passed; may be NULL
 */
struct churn_opts {
	const struct churn_api *api;
	unsigned int threads;
	enum churn_alloc alloc;
	size_t size, transfer;
	enum churn_route route;
	bool apart, defaults;
	const char *notifier;
	uint32_t flags;
	double seconds;
	uint64_t gets, seed;
	void (*tick)(void *arg, uint64_t ms);
	void *tick_arg;
};

/**
 * struct churn_result - what came of it
 * @gets:     rounds: registrations got, used and compared
 * @stale:    rounds in which the CPU did not see what the device had read
 * @refused:  gets that failed for a limit (-ENOMEM, -ENOSPC); no rounds
 * @hits:     as the caches count them
 * @uncached: as the caches count them
 * @hooked:   libkedge-hooks stands before libc's munmap()
 * @backend:  the notifier's name; "default" where the caches opened their own
 * @level:    the notifier's; 0 where the caches opened their own
 * @ns:       how long the threads ran
 * @error:    0, or the negative errno of what else went wrong; @text says what
 * @text:     the first error, else the first stale round
 */
struct churn_result {
	uint64_t gets, stale, refused, hits, uncached;
	bool hooked;
	char backend[16];
	uint32_t level;
	uint64_t ns;
	int error;
	char text[CHURN_TEXT];
};

/* 0, or a negative errno if it could not start; @res->text says why. */
int churn_run(const struct churn_opts *opts, struct churn_result *res);

#endif /* TORTURE_CHURN_H */
