/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The notifier's insides, and what the cache uses of them: watches that are
 * embedded in its regions instead of allocated one by one.
 *
 * The generation is even at rest and grows by 2 with every invalidation of a
 * watched range. It is odd while a backend has taken an event from the kernel
 * and has not yet queued it: a lookup that sees it odd takes the slow way, and
 * there waits for nf->lock, which the backend holds all that time.
 */
#ifndef NOTIFY_INTERNAL_H
#define NOTIFY_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <kedge/hooks.h>
#include <kedge/notifier.h>

#include "base/base.h"
#include "base/fd.h"
#include "base/lock.h"
#include "base/slab.h"
#include "base/tree.h"
#include "notify/announce/push.h"
#include "notify/threads.h"
#include "notify/watch/incoming.h"
#include "stats/stats.h"

#define GENERATION_FIRST 2u
#define GENERATION_STEP	 2u

/*
 * The generation's page. MADV_WIPEONFORK makes it zero in a forked child,
 * however the fork was made: generation 0 is no notifier's, owned is false.
 */
struct gen_page {
	_Atomic uint64_t generation;
	_Atomic uint64_t no_trips; /* stays 0: where there is no tripwire */
	_Atomic uint32_t owned;
	_Atomic uint32_t asks; /* enum asks; see settle.c */
};

/* The duty of a lookup to ask for changes under way, in rising order. */
enum asks {
	ASKS_NOT,    /* the generation tells in time */
	ASKS_KERNEL, /* by ops->settled */
	ASKS_LOST,   /* no way to tell is left: serve no hit */
};

/* The degrees to which a lookup may believe its finds, in rising order. */
enum trust {
	TRUST_NONE,	 /* a change is under way: believe no hit */
	TRUST_ANNOUNCED, /* hits in memory with announced changes */
	TRUST_ALL,
};

/*
 * The news for one user of a notifier: those of its watches that have something
 * to tell, oldest first. Guarded by the notifier's lock.
 */
struct queue {
	struct watch *first;
	struct watch *last;
};

struct watch {
	struct tree_node node; /* in nf->watches */
	struct queue *queue;   /* its user's */
	struct watch *next;    /* in the queue, if pending; before: incoming */
	struct watch *prev;
	uint64_t cookie;
	bool pending;
	uint32_t kind; /* what follows is valid while pending */
	uint32_t kinds; /* of all that happened: 1 << kind, or'ed */
	bool unsure; /* KEDGE_EVENT_UNSURE */
	bool gaps;	/* a part of the range may be unchanged */
	uint64_t start;
	uint64_t end;
	uint64_t generation;
};

/* A watch of kedge_watch_add(): with a cookie to be found by. */
struct public_watch {
	struct watch watch;
	struct tree_node by_cookie; /* start is the cookie, end too */
	bool ready;		    /* its add has returned */
};

/* A range with pages that were announced to go and may not have gone yet. */
struct taint {
	uint64_t start;
	uint64_t end;
	uint64_t serial; /* of the latest announcement in it; see taint.c */
};

#define TAINT_MAX 64

struct notify_ops;
struct carry;
struct taken;

struct kedge_notifier {
	struct kedge_notifier_head head; /* first: the inline load is public */
	const struct notify_ops *ops;
	struct gen_page *page;
	uint32_t blind;
	struct stats_object published;
	struct push push;
	struct incoming incoming;

	/* lock guards all that follows, and every store to the generation. */
	struct sig_lock lock;
	struct tree watches;
	struct carry *carries; /* moves under way: carry.c */
	struct queue queue; /* of the public watches */
	struct tree cookies; /* public watches by cookie */
	struct slab public_slab;
	int public_cnt; /* of what is in use of it */
	uint64_t events;
	uint64_t trips_seen;
	int pipe[2];
	struct fd_id pipe_id; /* of both ends */
	bool fd_wanted;
	bool fd_due; /* something was queued without a wakeup */
	bool fd_signalled;

	struct tree armed; /* disjoint; see armed.c */
	struct tree registered; /* disjoint; see armed.c */
	struct tree back;  /* disjoint; see rearm.c */
	struct tree whole; /* disjoint; see armed.c */
	struct slab range_slab;
	uint64_t cuts;
	bool exact;		  /* KEDGE_NOTIFIER_EXACT_RANGES; never changes */
	bool can_ask;		  /* ops->settled answers; never changes */
	uint64_t budget_left;	  /* intervals until the next count: budget.c */
	uint64_t budget_refusals; /* so many, until the next count */

	struct taint taint[TAINT_MAX];
	unsigned int taint_cnt;
	uint64_t taint_serial;
	struct threads threads; /* with a lock of its own */
	int maps_fd;
	struct fd_id maps_id;

	void *backend; /* ops->open's */
};

/* One backend. */
struct notify_ops {
	const char *name;
	uint32_t level;
	bool announced_only; /* without events of the kernel's */

	/* 0 or a negative errno with a reason; sets nf->backend, nf->blind. */
	int (*open)(struct kedge_notifier *nf,
		    const struct kedge_notifier_opts *opts);
	/* In the owner: no range is armed and no thread runs afterwards. */
	void (*close)(struct kedge_notifier *nf);
	/* In a forked child: only free memory and descriptors. */
	void (*abandon)(struct kedge_notifier *nf);
	/*
	 * Make the kernel report on [start, end). Without the lock. -EAGAIN:
	 * not while mappings are being moved.
	 */
	int (*arm)(struct kedge_notifier *nf, uint64_t start, uint64_t end);
	/* The reverse, for a range of nf->registered. Called with the lock. */
	void (*disarm)(struct kedge_notifier *nf, uint64_t start, uint64_t end);

	/*
	 * Set if the kernel keeps the watches and their queue itself: these
	 * take the place of the two above and of queue.c, all with the lock,
	 * and the notifier gets no announcements. add: 0,
	 * KEDGE_WATCH_PROVISIONAL or a negative errno. take: as notify_take().
	 */
	int (*add)(struct kedge_notifier *nf, struct watch *w);
	/* As add, but what the caller's thread does is not told until end_quiet.
	 * NULL: that cannot be had. 0 or a negative errno. */
	int (*add_quiet)(struct kedge_notifier *nf, struct watch *w);
	int (*end_quiet)(struct kedge_notifier *nf, struct watch *w);
	void (*remove)(struct kedge_notifier *nf, struct watch *w);
	size_t (*take)(struct kedge_notifier *nf, struct queue *q,
		       struct taken *out, size_t max, uint64_t *drained);
	int (*fd)(struct kedge_notifier *nf);

	/*
	 * NULL if lookups need not ask. With nf->can_ask: whether all changes
	 * that were begun before the call are visible in the generation after
	 * it. One system call, no lock. May turn ASKS_KERNEL into ASKS_LOST.
	 */
	bool (*settled)(struct kedge_notifier *nf);
};

/* info.c */
uint32_t nf_blind(const struct kedge_notifier *nf);
extern const struct stats_kind notifier_counters;

extern const struct notify_ops notify_ummunot;
extern const struct notify_ops notify_uffd;
extern const struct notify_ops notify_hooks;
extern const struct notify_ops notify_none;

static inline bool nf_owned(const struct kedge_notifier *nf)
{
	return atomic_load_explicit(&nf->page->owned, memory_order_relaxed);
}

static inline uint32_t nf_asks(const struct kedge_notifier *nf)
{
	return atomic_load_explicit(&nf->page->asks, memory_order_relaxed);
}

int nf_not_owned(void); /* -ECHILD, with its reason */

/* settle.c. The first with nf->lock held. */
void notify_must_ask(struct kedge_notifier *nf, enum asks asks);
/* True if every change begun before the call shows in the generation. */
bool notify_settled(struct kedge_notifier *nf);
/* The same, waiting for it a little. */
enum trust notify_settle(struct kedge_notifier *nf);
/* As notify_settle(), without waiting. */
enum trust notify_settle_now(struct kedge_notifier *nf);
/* As notify_settle(), by asking the kernel though announcements might do. */
enum trust notify_settle_asking(struct kedge_notifier *nf);
/* True if TRUST_ANNOUNCED is enough in [start, end). */
bool notify_announced(struct kedge_notifier *nf, uint64_t start, uint64_t end);
/* True if what is looked up in [start, end) can ever be believed. */
bool notify_can_tell(struct kedge_notifier *nf, uint64_t start, uint64_t end);

/* notifier.c: open a named backend without probing others. */
int nf_open_backend(const struct notify_ops *ops,
		    const struct kedge_notifier_opts *opts,
		    struct kedge_notifier **out);
const struct notify_ops *nf_backend(unsigned int index);

/* queue.c. With nf->lock held: */
size_t queue_publish(struct kedge_notifier *nf, uint32_t kind, uint64_t start,
		     uint64_t end);
/* Or'ed to a kind: what happens there from now on may not be told. */
#define KIND_UNSEEN (1u << 31)
/* Likewise: it may not have happened there (KEDGE_EVENT_UNSURE). */
#define KIND_POSSIBLE (1u << 30)
/* Likewise: for public watches alone. */
#define KIND_PUBLIC (1u << 29)
void queue_tell(struct watch *w, uint32_t kind, uint64_t start, uint64_t end,
		uint64_t generation);
void queue_forget(struct watch *w);
void queue_check_trips(struct kedge_notifier *nf);
/* The oldest, at most @max. */
size_t queue_pop(struct queue *q, struct taken *out, size_t max);
/* With nf->lock held: wake whoever polls the descriptor. */
void queue_signal(struct kedge_notifier *nf);

struct taken {
	struct watch *watch;
	uint64_t cookie;
	uint32_t kind;
	uint32_t kinds; /* as in struct watch */
	bool unsure;
	bool gaps;
	uint64_t start;
	uint64_t end;
	uint64_t generation;
};
/*
 * Take at most @max of a user's pending watches. If that empties its queue
 * *drained is the generation at which it was empty, else 0.
 */
size_t notify_take(struct kedge_notifier *nf, struct queue *q,
		   struct taken *out, size_t max, uint64_t *drained);

/*
 * watch.c: as kedge_watch_add() and kedge_watch_remove(), for a watch that the
 * caller keeps, with its queue set; start and end are whole pages. own is what the caller was asked
 * about; the rest (a neighbour that is merged with it) may be unmapped by its
 * user at any moment, so it must be armed already: -ESTALE if it is not.
 */
struct own_range {
	uint64_t start;
	uint64_t end;
};

/* For tests, which have their own; empty. The mapping was found to be right. */
void watch_looked(void);

int notify_watch_add(struct kedge_notifier *nf, struct watch *w, uint64_t start,
		     uint64_t end, struct own_range own);
/* The same for memory that cannot be watched: it is told what is announced. False: not even
 * that, and there is no watch. */
bool notify_watch_announced(struct kedge_notifier *nf, struct watch *w,
			    uint64_t start, uint64_t end);
/* @keep: the range will be watched again soon; let the kernel go on. */
void notify_watch_remove(struct kedge_notifier *nf, struct watch *w, bool keep);

/* armed.c. With nf->lock held. */
/* The armed range that has all of it, or NULL. */
const struct tree_node *armed_whole(struct kedge_notifier *nf, uint64_t start, uint64_t end);
void armed_first_gap(struct kedge_notifier *nf, uint64_t *start, uint64_t *end);
void armed_add(struct kedge_notifier *nf, uint64_t start, uint64_t end);
void armed_cut(struct kedge_notifier *nf, uint64_t start, uint64_t end);
void whole_add(struct kedge_notifier *nf, uint64_t start, uint64_t end);
bool whole_find(struct kedge_notifier *nf, uint64_t start, uint64_t end,
		uint64_t *whole_start, uint64_t *whole_end);
int registered_room(struct kedge_notifier *nf);
int registered_add(struct kedge_notifier *nf, uint64_t start, uint64_t end);
void registered_cut(struct kedge_notifier *nf, uint64_t start, uint64_t end);
/* A part of it may be registered. Takes nf->lock; signals are blocked. */
bool registered_overlaps(struct kedge_notifier *nf, uint64_t start,
			 uint64_t end);
int back_add(struct kedge_notifier *nf, uint64_t start, uint64_t end);
void back_cut(struct kedge_notifier *nf, uint64_t start, uint64_t end);

/* taint.c. With nf->lock held: */
void taint_add(struct kedge_notifier *nf, uint64_t start, uint64_t end);
/* The latest announcement that concerns [start, end), or 0. */
uint64_t taint_serial(const struct kedge_notifier *nf, uint64_t start,
		      uint64_t end);
void taint_expire(struct kedge_notifier *nf, uint64_t serial);
/* Without it, signals blocked: whether no page of [start, end) is on its way out. */
bool taint_over(struct kedge_notifier *nf, uint64_t start, uint64_t end);

/*
 * vma.c: 0 if [start, end) is private anonymous memory, or sealed against changes
 * by others, without a hole; -EFAULT if part of it is not mapped; -EOPNOTSUPP if
 * part of it is something else. On
 * 0, *whole are the mappings that the range lies in, from end to end.
 */
struct vma_span {
	uint64_t start;
	uint64_t end;
};
int vma_check(int maps_fd, uint64_t start, uint64_t end,
	      struct vma_span *whole);
/* Call @fn for each mapping, as read from @maps_fd by its own position. */
void vma_each(int maps_fd, void (*fn)(void *arg, uint64_t start, uint64_t end),
	      void *arg);
/*
 * The first mapping of private anonymous memory that ends after @at: 0 with
 * *whole, or a negative errno if it does not exist or /proc does not say.
 */
int vma_next(int maps_fd, uint64_t at, struct vma_span *whole);

struct vma_info {
	uint64_t start;
	uint64_t end;
	uint32_t prot;
	bool plain; /* private and anonymous */
	bool shared;
	uint64_t off; /* of a file */
	uint64_t inode; /* 0: of none */
	uint64_t dev; /* as makedev() has it */
};

/* seals.c: true of shared memory from which no other process can take a page. */
bool seals_keep_pages(const struct vma_info *v);

/*
 * own_files.c: the memfd @fd is kedge's, and no other process has it or a mapping of it; or that
 * ends. What its mappings lose by calls that are not made on them is announced before.
 */
void own_file_add(int fd);
void own_file_remove(int fd);
bool is_own_file(const struct vma_info *v);

/* For tests, which have their own; empty. A descriptor of the file was found. */
void seals_found(int fd);

/* The first mapping that ends behind @at: 0 or a negative errno, -ENOENT if there is none. */
int vma_from(int maps_fd, uint64_t at, struct vma_info *v);
/* The mapping that holds @at: likewise. */
int vma_at(int maps_fd, uint64_t at, struct vma_info *v);
/* The same by one system call, or -ENOTTY if the kernel lacks it. */
int vma_query(int maps_fd, uint64_t at, struct vma_info *v);
/* Call @fn for each mapping, upwards. 0 or a negative errno with a reason. */
int vma_walk(void (*fn)(void *arg, const struct vma_info *v), void *arg);

/* announce.c: the listeners of kedge_hook_begin(). */
int announce_attach(struct kedge_notifier *nf);
void announce_detach(struct kedge_notifier *nf);
/* Call @fn, with signals blocked, for each notifier of this process. */
void announce_each(void (*fn)(struct kedge_notifier *nf, void *arg), void *arg);
void announce_watch(uint64_t start, uint64_t end);
void announce_unwatch(uint64_t start, uint64_t end);
bool announce_active(uint64_t start, uint64_t end);
/* sharing.c: a process may share this one's memory. For watches that are in the tree. */
bool announce_shared(void);
/* The same, beside a change of just that range that the caller has announced. */
bool announce_active_beside(uint64_t start, uint64_t end);
/* A call is under way that fails if a part of its range is registered. */
bool announce_moving(void);
/*
 * hooked.c. hooked: libc's munmap() and free(), called by anybody, are announced
 * before they do anything, which was tried. attached: somebody says that they
 * are. @blind, which hooked takes as NULL too: what that leaves out.
 */
bool announce_hooked(uint32_t *blind);
bool announce_attached(uint32_t *blind);

#endif /* NOTIFY_INTERNAL_H */
