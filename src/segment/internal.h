/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Segments: what the files of this room say to each other.
 *
 *	owner.c    make, remove
 *	extent/    converted memory: extent.c the table, its memfds; change.c how it is made shared
 *	           and private; data.c what is a file's first; watch.c what other threads change
 *	           while it is converted; piece.c where it is
 *	demand.c   what is converted when a part of it is attached
 *	peer/      the other side: calls.c what programs call; grant.c grants, copy.c copies;
 *	           attach.c attachments, attached.c those that are told of changes; parts.c of
 *	           segments that are converted part by part
 *	list.c     list, with owners.c, which asks the processes of this host
 *	module.c   the same by the kernel module, which needs nothing of what follows
 *	place.c    where a buffer is in a segment, for channels
 *	fork.c     a child, and memory that is private for a while
 *	thread/    service.c the thread, which
 *	monitor.c    hears what the kernel says about converted memory,
 *	drop.c       makes private what is about to be emptied,
 *	serve.c      answers peers, and tells them of changes,
 *	listing.c    tells the owner's user what segments are here,
 *	recall.c     and hears what owners tell this process;
 *	convert.c    and another thread, which may wait
 *	call.c     what the first ones ask of it
 *	tables.c   what all share; check.c the page of counters, uffd.c the userfaultfd, id.c ids
 *
 * Two locks. gate: held by an API call as a whole, which may wait for the thread, for
 * peers, or within munmap() for the thread. lock: guards the tables; its holder waits for
 * nothing, allocates and frees nothing, and unmaps nothing that is watched. The thread
 * takes lock alone, allocates nothing, ever, and touches no memory that may be converted
 * but under an operation that fails instead of waiting: whoever sits in munmap() within
 * an allocator always gets its answer.
 */
#ifndef SEGMENT_INTERNAL_H
#define SEGMENT_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include <kedge/segment_list.h>

#include "base/base.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/process/clofork.h"
#include "segment/wire.h"

#define SEGMENTS 1024u
#define EXTENTS	 500u
#define PEERS	 1024u
#define CONNS	 (PEERS + 1) /* the last is kept for this process itself */
#define GRANTS	 1024u
#define PIECES	 2048u

#define INFO_V1 STRUCT_END(struct kedge_segment_info, reason)

/* ---- check.c ---- */

/*
 * The owner's page. generation is odd while the thread reads events, and moves by two
 * if something changed; then the counter of the memory has moved, too.
 */
struct seg_check {
	_Atomic uint64_t generation;
	_Atomic uint64_t changes[EXTENTS];
};

/* ---- tables, guarded by lock ---- */

/* Memory that was converted. Free if len is 0. */
struct extent {
	uintptr_t at;
	size_t len;  /* also of the memfd, but for room to grow behind it */
	int fd;	     /* of the thread's table */
	int read_fd; /* the same, to be read alone */
	int uffd;
	bool woken; /* it was read, and is readable since: monitor.c */
	uint64_t inode; /* of the memfd, and its file system */
	uint64_t dev;
	uint32_t segments; /* that use it as a whole */
	bool on_attach;	   /* of others: as long as a peer has a part */
	bool away;   /* it is private for a while */
	bool left;   /* it could not be made private, and nothing watches all of it */
	bool resume; /* and can be converted once more */
};

/* The place of a part of an extent. Free if len is 0. */
struct piece {
	uintptr_t at;
	size_t len;
	uint64_t off; /* in the memfd */
	uint32_t extent;
};

struct kedge_segment {
	struct kedge_segment_id id;
	struct kedge_segment *next; /* in the table */
	uintptr_t addr;
	size_t len;
	uint32_t mode;
	uint32_t backend;
	int extent; /* or -1 */
	bool on_attach; /* parts are converted as they are attached */
	uint32_t grants;
	uint64_t serial;  /* of those of this process */
	uint64_t changes; /* of the memory, before it was a segment */
	pid_t pid;
	uid_t uid;
	gid_t gid;
	bool by_module; /* as backend, which a fork may change, but needs no lock */
	struct clofork dev; /* of the module's */
	char reason[128];
};

/* A peer. */
struct conn {
	int fd; /* of the thread's table; -1: free */
	struct kedge_segment *segment; /* NULL before it asked */
	int extent;    /* that was granted, or -1 */
	uint64_t owes; /* an acknowledgement, or 0 */
	bool ready;    /* it may have attached something */
	uint32_t access;
	bool part;	/* of a segment, that it asks for: */
	uint64_t ticket; /* it waits, for as long as there is one */
	uintptr_t start;
	uintptr_t end;
};

/* A part of another process's memory. */
struct grant_map {
	const struct seg_check *check;
	char *base; /* the whole memfd, once; attachments are made from it */
	size_t len;
};

/* Of the memfd; the owner has it no more. */
struct gone_part {
	uint64_t start;
	uint64_t end;
};

struct kedge_grant {
	struct list attachments; /* of a segment of this process's, with lock */
	struct kedge_attachment *_Atomic chain; /* of others: attached.c */
	struct kedge_attachment *spares;
	atomic_flag spares_taken;
	struct kedge_segment_id id;
	struct clofork dev; /* of the module's; then most of what follows is not used */
	struct kedge_segment_info info;
	struct grant_map map;
	uint64_t file_off; /* of the segment, in the memfd */
	uint32_t word;	   /* of the check page */
	bool own;	   /* of a segment of this process's */
	int slot;	   /* of the table */
	pid_t pid;	   /* the process that it was given to */
	struct clofork pidfd; /* the owner */
	bool in_parts;	      /* each of them is a grant of its own: */
	struct list parts;    /* with spares_taken */
	struct list part_node;
	struct kedge_grant *whole; /* of which this is one */
	_Atomic uint32_t users;	   /* of a part: attachments, and calls that look at it */
	bool left;		   /* nothing more is attached from it */
	bool ended;
	/* Written with lock. */
	_Atomic uint64_t count; /* changes that were heard of */
	_Atomic uint32_t gone_cnt;
	struct gone_part gone[GONE_PARTS];
};

struct seg_tables {
	struct seg_check *check;
	int check_fd; /* of the thread's table, to be read alone */
	int epoll;    /* likewise */
	uint32_t name; /* of this process's socket: 22 bits */
	struct kedge_segment *segments;
	uint32_t segment_cnt;
	uint64_t serial; /* of the last that was made */
	struct extent extent[EXTENTS];
	struct piece piece[PIECES];
	uint32_t piece_max; /* those behind it are free */
	struct conn conn[CONNS];
	struct kedge_grant *grant[GRANTS];
	int grant_fd[GRANTS]; /* of the thread's table */
	uint64_t tickets; /* likewise of a part's */
	uint64_t acks; /* the number of the last that was asked for */
	_Atomic uint32_t owed; /* peers that have one to send */
};

extern struct sig_lock seg_lock;
extern struct seg_tables *seg; /* there while the thread is */

/* ---- tables.c ---- */

void gate_lock(void);
void gate_unlock(void);
/* Or false, as soon as @stop is set. */
bool gate_lock_unless(const _Atomic bool *stop);
int tables_make(void);
void tables_free(void);
/* In a child, for which they are the parent's. */
void tables_forget(void);
/* With the gate. Memory is shared. */
bool tables_have_extents(void);

/* As of what place.c has found places. With lock, before those change: it moves. */
extern _Atomic uint64_t seg_epoch;
void place_forget(void);
/* As many segments were converted: of which place.c need not look at any if it is 0. */
extern _Atomic uint32_t seg_cnt;

/* With lock. A peer has a part in that extent, of another segment than @but. */
bool conns_have_part(int extent, const struct kedge_segment *but);

/* -ESTALE, and why. */
int segment_is_stale(void);

/* Descriptors of the thread's table: what is ready, and its index in a table. */
enum fds_kind { WATCH_CTL, WATCH_UFFD, WATCH_LISTEN, WATCH_CONN, WATCH_GRANT };
int fds_watch(int fd, enum fds_kind what, uint32_t index);
void fds_close(int fd);
/* The file of a descriptor, opened to be read alone; or a negative errno. */
int fds_read_only(int fd);

/* ---- call.c ---- */

/* Requests of a call to the thread, which it waits for. */
enum seg_op {
	SEG_OP_EXTENT = 1, /* look after it; with its memfd */
	SEG_OP_UFFD,	   /* with the userfaultfd of an extent, which hears of it */
	SEG_OP_DROP_EXTENT,
	SEG_OP_FILE,	/* hand over its memfd */
	SEG_OP_HEARS,	/* likewise its userfaultfd */
	SEG_OP_WATCH,	/* the kernel tells of changes from @start to @end */
	SEG_OP_UNWATCH, /* the kernel watches @start to @end no more */
	SEG_OP_RECALL,	/* peers let go of that part of its file */
	SEG_OP_GRANT,	/* listen to its owner; with the connection */
	SEG_OP_RELEASE,
	SEG_OP_HANG_UP, /* on peers of the segment that @start points to */
	SEG_OP_PART,	/* tell a peer, with the ticket @start, what became of its part */
};

struct seg_call {
	uint32_t op;
	int32_t index; /* of an extent, a grant or a peer */
	uint64_t start;
	uint64_t end;
};

/* All with the gate. @fd: handed to the thread, and closed here; or -1. */
int call_thread(const struct seg_call *call, int fd);
/* SEG_OP_FILE or SEG_OP_HEARS, of extent @index: for the caller to close. */
int call_for_fd(enum seg_op op, int index);
int call_open(int *thread_end);
void call_close(void);
/* The thread's next answer. */
int call_wait(void);
/* The thread sees the end. */
void call_hang_up(void);

/* The thread's. They come from that socket. */
void call_from(int fd);
/* 1: there is one; 0: there is none; -ESHUTDOWN: there comes none. */
int call_next(struct seg_call *call, int *fd);
void call_answer(int rc);
int call_send_file(int fd);

/* ---- check.c ---- */

int check_make(void);
/* With lock. Changes are told between the two. */
void check_begin(void);
void check_end(bool changed);

/* ---- extent.c ---- */

/* With the gate, without lock. The index, or a negative errno: @at is converted now, or
 * was before. */
int extent_get(uintptr_t at, size_t len);
/* Private again, if it was the last use. */
void extent_put(int index);
/* Of no segment yet, and converted while no other thread runs. The index, or a negative errno,
 * which -EPERM and -EAGAIN of base/process/stop.h may be; it has no reason with it. */
int extent_add(uintptr_t at, size_t len);
/* The kernel moves pages (Linux 6.8), or it fails, and nothing can be converted. */
int extent_can_lift(void);
/* Peers are asked to let go; wait for that; private again, or there still if that fails. */
void extent_recall(int index);
void extent_wait_acks(void);
void extent_drop(int index);
/* No memory of it is outside of the segment. */
bool extent_is_within(const struct extent *e, const struct kedge_segment *s);
/* It is converted, and has a part of that. */
bool extent_has(int index, uintptr_t start, uintptr_t end);
/* Peers that ask are to ask again. */
void extent_set_away(int index, bool away);
/* Private, with those marks; false: a part is shared still, and in the tables. */
bool extent_withdraw(int index, int mark);
/* Of such memory: 0 or a negative errno. */
int extent_share_again(int index, int mark);
/* It is in no table any more. */
void extent_forget(int index);
#define NO_MARK (-1)

/* ---- watch.c: with the gate ---- */

/* Of an extent with memfd @fd, which other threads may have changed since it was converted. */
int watch_all(int index, int fd);
/* It has no pieces any more. */
void watch_forget(uint32_t index);

/* ---- demand.c: with the gate ---- */

/* There is a thread that converts, or -EOPNOTSUPP and why nothing can be; or another errno. */
int demand_use(void);
void demand_unuse(void);
/* By the thread: what became of a peer's part. */
void demand_tell(const struct seg_call *call);
/* @s is in no table any more: its peers let go. */
void demand_leave(const struct kedge_segment *s);
/* Parts that no peer and no segment has become private. True: there was one. */
bool demand_drop_idle(void);

/* ---- data.c ---- */

/* Private pages of files become anonymous memory: how many mappings, or a negative errno
 * and why not. Then all of the process's pages were shared with a child for a moment. */
int data_make_anonymous(uintptr_t at, size_t len);

/* ---- piece.c ---- */

/* With lock. NULL: there is no room. */
struct piece *piece_add(uintptr_t at, size_t len, uint32_t extent, uint64_t off);
/* With lock. Take [@start, @end) out of what there is of it: one part, if there was any. */
bool piece_cut(uint32_t extent, uintptr_t start, uintptr_t end, struct piece *part);
/* With lock. The next of its pieces behind @p, or the first, that has any of [@start, @end). */
struct piece *piece_next(struct piece *p, uint32_t extent, uintptr_t start, uintptr_t end);
/* The part of [@start, @end) that it has. */
void piece_part(const struct piece *p, uintptr_t start, uintptr_t end, struct piece *part);
/* With lock. The end of what is there without a hole from @off of its file on, where it was
 * converted. */
uint64_t piece_there_until(uint32_t extent, uint64_t off);
/* With lock. Likewise from where on there is no hole up to @off, which is there. */
uint64_t piece_there_from(uint32_t extent, uint64_t off);
/* With lock. The extent that has @at where it was converted, or -1; up to where it has. */
int piece_at(uintptr_t at, uintptr_t *until);
/* With lock. Take @part of it out of @p: what is behind it, or NULL. */
struct piece *piece_take(struct piece *p, const struct piece *part);

/* ---- id.c ---- */

#define ID_NAME_BITS 22
int id_make(uint32_t name, struct kedge_segment_id *id);
static inline uint32_t id_name(uint64_t word)
{
	return (uint32_t)(word >> (63 - ID_NAME_BITS));
}
/* The address of the socket, and its length. */
struct sockaddr_un;
unsigned int id_address(uint32_t name, struct sockaddr_un *a);

/* ---- module.c: the kernel module ---- */

/* -EOPNOTSUPP: there is none. */
int module_make(struct kedge_segment *s, bool whole);
void module_remove(struct kedge_segment *s);
uint32_t module_grants(const struct kedge_segment *s);
/* -ENOENT: there is none, or it has no such segment. */
int module_get(struct kedge_grant *g, const struct kedge_segment_id *id, uint32_t access);
void module_release(struct kedge_grant *g);
bool module_ended(const struct kedge_grant *g);
int module_attach(struct kedge_attachment *a);
/* @add each that this user may read; 0, or a negative errno, of @add's or another. */
typedef int found_fn(void *to, const struct kedge_segment_entry *e);
int module_list(const struct kedge_segments_opts *o, found_fn *add, void *to);

/* ---- owners.c ---- */

/* @add each segment of other backends, and owners that tell nothing. As above. */
int owners_list(const struct kedge_segments_opts *o, found_fn *add, void *to);

/* ---- attach.c ---- */

/* No mapping of the memfd is left there, and the addresses are not free yet: drop.c takes
 * what it does not know as an attachment for the owner's. */
void segment_unmap(void *at, size_t len);

/* ---- fork.c ---- */

int fork_ready(void);
/* Other memory, of the same contents, for its segments: no peer reaches it by what it had. */
void extent_renew(int index);

#endif /* SEGMENT_INTERNAL_H */
