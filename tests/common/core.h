/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The common ground of the core's tests: memory to watch, a child to ask, and a
 * device that registers nothing but counts, and keeps a table that knows which
 * of its handles are alive.
 */
#ifndef TESTS_CORE_H
#define TESTS_CORE_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <kedge/kedge.h>

#define CHILD_TIMEOUT 60 /* seconds, after which a child that hangs has failed */

/* In a child: say what is wrong and end. cmocka's own would jump away. */
#define CHILD_CHECK(x)                                                         \
	do {                                                                   \
		if (!(x)) {                                                    \
			fprintf(stderr, "%s:%d: in the child: %s\n", __FILE__, \
				__LINE__, #x);                                 \
			_exit(1);                                              \
		}                                                              \
	} while (0)

/*
 * Wait for @cond, which another thread or the kernel makes true in its own time.
 * The limit ends a test that hangs; no result depends on it.
 */
#define HANG_S 600
#define WAIT_FOR(cond)                                                     \
	do {                                                               \
		uint64_t wait_end_ = now_ns() + HANG_S * 1000000000ull;    \
		while (!(cond)) {                                          \
			if (now_ns() > wait_end_)                          \
				fail_msg("waiting for %s hangs", #cond);   \
			usleep(1000);                                      \
		}                                                          \
	} while (0)

/* True: that thread of this process waits in a call. */
bool is_asleep(pid_t tid);

/* One of the two: the whole, which is run with TESTS_WHOLE set, does more rounds than the gate. */
uint32_t by_circle(uint32_t gate, uint32_t whole);

/* The reason of the error that this thread had last has @text in it. */
static inline bool reason_says(int rc, const char *text)
{
	const char *why = kedge_strerror(rc);

	if (strstr(why, text))
		return true;
	fprintf(stderr, "no \"%s\" in: %s\n", text, why);
	return false;
}

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

size_t page_len(void);

/* @cnt private anonymous pages, each written to. A case need not unmap them: they are few, and what
 * it has unmapped may be somebody else's memory by its end. */
char *new_pages(size_t cnt);
/* The same at @at, whatever is there. */
void pages_at(void *at, size_t cnt);
void free_pages(void *at, size_t cnt);

/* A notifier of the backend "uffd". */
struct kedge_notifier *open_uffd(void);
/* 0, or 77 after printing why there can be none here. */
int need_uffd(void);

/*
 * Fork, run @fn there under alarm(CHILD_TIMEOUT), and return what waitpid()
 * said: 0 if @fn returned 0.
 */
int in_child(int (*fn)(void *), void *arg);
/* The same by the system call alone: no atfork handler runs. */
int in_raw_child(int (*fn)(void *), void *arg);

/* A case that is @fn, in a child of the test's; one that returns 77 is skipped. */
void case_in_child(void **state);
#define child_case(fn) { #fn, case_in_child, NULL, NULL, (void *)(uintptr_t)(fn) }

/* The system call @nr is refused to this process with EPERM, for ever. False: no filter. */
bool refuse_call(unsigned int nr);

/* Skips the case where a sanitizer would end a forked child for its threads. */
void need_threads_after_fork(void);

/* Open descriptors of this process, and lines of its maps. */
unsigned int open_fds(void);
unsigned int map_lines(void);
/* Without the one that looks after moves of pages, and ends when there are none for a while. */
unsigned int threads_now(void);
bool threads_are(unsigned int want);
bool has_watchdog(void);
/* No other thread shares this one's descriptors; true where none can tell. */
bool threads_have_own_tables(void);

#define NODEV_HANDLES (1u << 20)
#define NODEV_KEPT    64
#define NODEV_SPANS   64

/* A device that registers nothing. Handles are never used twice. */
struct nodev {
	_Atomic uint32_t next;
	_Atomic uint64_t regs;
	_Atomic uint64_t deregs;
	_Atomic uint64_t wrong; /* deregistered twice, or never registered */
	_Atomic uint64_t live;
	uint64_t max_live; /* -ENOSPC beyond; 0 is no limit */
	int fail_rc;	   /* what reg returns, */
	int fail_cnt;	   /* so many times; -1 is for ever */
	_Atomic int stuck_rc; /* what try_dereg returns, while it is not 0 */
	bool exclusive;	   /* reg answers -EEXIST where ranges overlap, */
	_Atomic uint64_t refused; /* so many times */
	struct nodev_span {
		uint64_t start, end, handle;
	} spans[NODEV_SPANS];
	struct kedge_device_attr attr;
	void (*on_reg)(struct nodev *d, void *addr, size_t len);
	_Atomic uint64_t last_addr;
	_Atomic uint64_t last_len;
	_Atomic uint32_t last_access;
	_Atomic uint64_t windows; /* bound now */
	_Atomic uint64_t binds;
	_Atomic uint64_t replaces; /* what they were asked to exchange: */
	_Atomic uint64_t changed;
	_Atomic uint64_t changed_len;
	_Atomic uint32_t kept_cnt; /* calls of preserve, the first of them: */
	struct {
		uint64_t start, end;
		uint32_t flags;
	} kept[NODEV_KEPT];
	void (*on_preserve)(struct nodev *d);
	int bind_rc;	/* what bind returns, */
	int replace_rc; /* and replace */
	_Atomic uint8_t alive[NODEV_HANDLES];
	struct kedge_device *dev;
};

struct nodev *nodev_new(void);
/* The same with the ops that not every device has. */
#define NODEV_WINDOWS (1u << 0)
#define NODEV_REPLACE (1u << 1)
#define NODEV_PRESERVE (1u << 2)
#define NODEV_STUCK (1u << 3)
#define NODEV_EXCLUSIVE (1u << 4) /* one that does not say so in its flags */
struct nodev *nodev_new_with(unsigned int what);
void nodev_free(struct nodev *d);

static inline uint64_t addr_of(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

#endif /* TESTS_CORE_H */
