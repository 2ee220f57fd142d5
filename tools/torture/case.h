/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The border between the parts of kedge torture.
 *
 * An event changes what pages are behind an address; a route is the way on
 * which its system calls reach the kernel. A row is one event by one route on
 * one kind of pages in one mode, with its counts. A lane is a thread that runs
 * rounds: warm the cache, make the event, look up, move data through the
 * device in both directions, compare. Only the data decides; the cache is
 * never asked whether it is right.
 */
#ifndef TORTURE_CASE_H
#define TORTURE_CASE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kedge/kedge.h>

#include "tools/common/util.h"
#include "tools/torture/dio.h"
#include "tools/torture/peer.h"
#include "tools/torture/rig.h"
#include "tools/torture/worker.h"

/* gcc and clang say differently that a sanitizer is built in. */
#if defined(__SANITIZE_THREAD__)
#define HAVE_TSAN 1
#elif defined(__SANITIZE_ADDRESS__)
#define HAVE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAVE_TSAN 1
#elif __has_feature(address_sanitizer)
#define HAVE_ASAN 1
#endif
#endif
#ifndef HAVE_TSAN
#define HAVE_TSAN 0
#endif
#ifndef HAVE_ASAN
#define HAVE_ASAN 0
#endif

#define WHY_MAX	  200
#define MAX_LANES 8

/* An event's function says: nothing was tested, set up anew. */
#define EV_AGAIN 1

enum pages { PAGES_4K, PAGES_THP, PAGES_HUGETLB, PAGES_CNT };
enum mode {
	MODE_SINGLE, /* one thread */
	MODE_STORM,  /* others look the range up while it changes */
	MODE_CROWD,  /* every thread makes events of its own */
	MODE_RACE,   /* a race with its own choreography */
	MODE_CNT,
};

enum status {
	STATUS_OK,
	STATUS_STALE,
	STATUS_UNPROMISED, /* stale where the notifier promises nothing */
	STATUS_SKIPPED,
	STATUS_ERROR,
};

struct lane;
struct run;
struct torture;
struct race;

/* enum event flags */
#define EV_PART	    (1u << 0) /* may change a part of the range alone */
#define EV_STALE    (1u << 1) /* pinned pages go stale: a naive cache fails */
#define EV_SOLO	    (1u << 2) /* of several threads, one at a time */
#define EV_RECYCLE  (1u << 3) /* the kernel chooses the address again */
#define EV_REMAPSHM (1u << 4) /* KEDGE_BLIND_SHM_REMAP is about it */
#define EV_GUARD    (1u << 5) /* KEDGE_BLIND_GUARD is about it */
#define EV_NOSTORM  (1u << 6) /* others must not look the range up */
#define EV_TAIL	    (1u << 7) /* changes an end of the range, not all */

/**
 * struct event - one way to change pages
 * @name:   of the row
 * @routes: 1 << enum route_id, or'ed
 * @pages:  1 << enum pages, or'ed
 * @flags:  EV_*
 * @arg:    for functions that serve several events
 * @setup:  map the memory of a slice: fills addr, len and what fire needs
 * @prep:   bring it into the state before the event; may be NULL
 * @fire:   the event; on return addr is mapped again
 * @fini:   undo setup
 * @race:   the whole choreography, in the place of all of those
 *
 * Each returns 0, EV_AGAIN, -EOPNOTSUPP after why() for "not here", or
 * another negative errno after why().
 */
struct event {
	const char *name;
	uint32_t routes;
	uint32_t pages;
	uint32_t flags;
	long arg;
	int (*setup)(struct run *x);
	int (*prep)(struct run *x);
	int (*fire)(struct run *x);
	void (*fini)(struct run *x);
	void (*race)(struct race *r, struct lane *l);
};

/* A family's table, ended by an entry without a name. */
extern const struct event ev_map[], ev_remap[], ev_advice[], ev_file[];
extern const struct event ev_shm[], ev_heap[], ev_thread[], ev_dl[];
extern const struct event ev_fork[], ev_race[];

enum route_id {
	ROUTE_LIBC,
	ROUTE_SYSCALL,
	ROUTE_RAW,
	ROUTE_URING,
	ROUTE_THREAD,
	ROUTE_THREAD_RAW,
	ROUTE_VFORK,
	ROUTE_CLONE, /* a process that shares the memory */
	ROUTE_PROCESS,
	ROUTE_CNT,
};

#define R(id) (1u << ROUTE_##id)
#define ROUTES_CALL \
	(R(LIBC) | R(SYSCALL) | R(RAW) | R(THREAD) | R(THREAD_RAW) | R(VFORK) | R(CLONE))
#define ROUTES_ADVICE (ROUTES_CALL | R(URING))
#define ROUTES_FILE   (ROUTES_CALL | R(URING) | R(PROCESS))
#define P(id)	      (1u << PAGES_##id)
#define PAGES_ANON    (P(4K) | P(THP) | P(HUGETLB))

extern const char *const route_name[ROUTE_CNT];
extern const char *const pages_name[PAGES_CNT];
extern const char *const mode_name[MODE_CNT];

/* One case and what became of it. Lanes add to it at the same time. */
struct row {
	const struct event *ev;
	enum route_id route;
	enum pages pages;
	enum mode mode;
	bool promised;
	atomic_bool off; /* not run any more */
	atomic_int rc;	 /* the first error, or why it is skipped */
	atomic_ullong rounds, stale, again, errors;
	uint64_t gets, hits, uncached;
	char why[WHY_MAX];   /* of skipped and error */
	char found[WHY_MAX]; /* the first stale data */
};

/* A thread that runs rounds, and what it has of its own. */
struct lane {
	struct torture *t;
	unsigned int id;
	unsigned int arena; /* the next arena's number */
	struct util_rng rng;
	struct dio_port port;
	struct worker helper;  /* of the thread routes; started when needed */
	struct io_uring *ring; /* of the uring route; the same */
	void *vstack;	       /* of the vfork route; the same */
};

struct span {
	size_t off, len;
};

/* Lane 0 asks lane 1 to judge what it just changed. */
enum hand { HAND_NONE, HAND_ASKED, HAND_DONE };

/* A row's slice on a lane. */
struct run {
	/* Those others read in a storm; they outlive a new setup. */
	_Atomic(uint8_t *) addr;
	atomic_size_t len;
	atomic_int hand;       /* enum hand */
	int hand_rc;           /* what the judgement returned */
	atomic_bool stop;      /* the lookers shall end */
	struct span hand_span; /* what hand is about */

	struct lane *lane;
	struct row *row;
	const struct event *ev;
	uint8_t *arena;
	size_t zone;   /* the arena is ZONES of these */
	size_t unit;   /* what pages come in */
	uint8_t *also; /* a second place to check, or NULL */
	size_t also_len;
	struct span hot;  /* what this round changes */
	struct span hole; /* what the application lost for good */
	int fd, fd2;
	int shm[2]; /* System V segments and where they are kept */
	void *keep[2];
	void *ptr; /* the rest is the event's own */
	size_t size;
	long state;
	char why[WHY_MAX];
};

#define ZONES 4

/* A race under way: every lane runs the event's race function on it. */
struct race {
	struct run x;
	uint64_t end_ns;
	unsigned int lanes;
};

struct torture {
	double seconds;
	uint64_t rounds; /* of each row, and then it ends; 0: all the time */
	uint64_t seed;
	int threads;
	const char *event, *route, *mode;
	bool naive, strict;
	enum rig_cache which;
	const struct dio_ops *dio;
	const char *dio_name;

	struct rig rig;
	struct peer peer;
	struct lane lane[MAX_LANES];
	struct worker crew[MAX_LANES]; /* [0] is the caller itself */
	struct row *rows;
	size_t row_cnt;
	struct util_progress progress;
	uint64_t start_ns, end_ns, elapsed_ns;
	atomic_ullong signals;
};

/* plan.c: the rows that the command line asks for. 0 or a negative errno. */
int plan_make(struct torture *t);
void plan_free(struct torture *t);
enum status row_status(const struct row *row);
/* It is to be run: not given up, and with fewer rounds than were asked for. */
bool row_wanted(const struct torture *t, const struct row *row);

/* round.c */
int run_setup(struct run *x, struct lane *l, struct row *row);
void run_fini(struct run *x);
/* Judge [s.off, s.off + s.len) of the range by the data, on lane @l. 0, or
 * EV_AGAIN where the pool of huge pages has none for the range. */
int run_judge(struct run *x, struct lane *l, struct span s);
/* Set up, run rounds until @end_ns and at most @max of them, tear down. */
void run_slice(struct lane *l, struct row *row, uint64_t end_ns,
	       unsigned int max, struct run *shared);
/* Something went wrong in the row: the first reason stays. -EOPNOTSUPP, and
 * many more errors than rounds, take the row out. */
void row_fail(struct row *row, int rc, const char *why);

/* check.c: move data through the device and compare: 0, 1 for stale with the
 * finding in @why, or a negative errno. @hot may be NULL. */
int check_data(struct lane *l, uint8_t *addr, size_t len,
	       const struct span *hot, char why[WHY_MAX]);
/* The same with a pause between lookup and transfer, in which @hold runs. */
int check_held(struct lane *l, uint8_t *addr, size_t len,
	       const struct span *hot, void (*hold)(struct lane *),
	       char why[WHY_MAX]);
/* Count a check's result in @row. */
void check_count(struct row *row, int rc, const char *why);
/* Look up and forget, as a warm-up; errors are not its business. */
void check_touch(struct lane *l, uint8_t *addr, size_t len);
void poke64(uint8_t *at, uint64_t v);

/* sched.c: run it all. 0 or a negative errno. */
int sched_run(struct torture *t);
int lanes_init(struct torture *t);
void lanes_fini(struct torture *t);

/* report.c */
int report(struct torture *t);

/* route.c: make a system call on a route; its result or a negative errno. */
long route_call(struct lane *l, enum route_id route, long nr,
		const long arg[6]);
void route_fini(struct lane *l);
/* Run @fn(@arg) on the helper's thread for the thread routes, else here. */
int route_run(struct run *x, void (*fn)(void *), void *arg);

/* mem.c */
uint8_t *arena_zone(struct run *x, unsigned int n);
/* The system call of the event, by the row's route. */
long call(struct run *x, long nr, long a, long b, long c, long d, long e,
	  long f);
#define CALL(x, nr, a, b, c, d, e, f)                                      \
	call(x, nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), \
	     (long)(f))
/* mmap flags of the row's anonymous memory. */
int anon_flags(const struct run *x);
/* Say which pages the mapping at @at shall have. */
void anon_advise(struct run *x, void *at, size_t len);
/* Map anonymous memory over @at (ours) or into the hole there, by libc. */
int anon_over(struct run *x, void *at, size_t len);
int anon_setup(struct run *x);
void anon_fini(struct run *x);
/* A memfd of the range's length in fd. */
int memfd_setup(struct run *x);
/* Map anew, by the row's route, where [off, off + len) of the range was
 * unmapped: 0, EV_AGAIN if someone else has the place now, or an errno. */
int hole_fill(struct run *x, size_t off, size_t len);
/* Take it by libc with these flags and fd. */
int hole_fill_fd(struct run *x, size_t off, size_t len, int flags, int fd);
/* Map the memfd in fd over the range, shared: 0, EV_AGAIN or an errno. */
int memfd_over(struct run *x);
/* A range that is such a mapping from the start. */
int memfd_over_setup(struct run *x);
void pick_hot(struct run *x);
/*
 * Have every huge page of [at, at + len) present, by a store or by a
 * registration on lane @l, without SIGBUS where the pool is empty: false then.
 */
bool huge_present(struct lane *l, uint8_t *at, size_t len);
/* True if a mapping starts or ends inside [at, at + len) now. */
bool has_seam(const void *at, size_t len);
size_t sys_page(void);
/* Write down why, and return @rc. */
int why(struct run *x, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif /* TORTURE_CASE_H */
