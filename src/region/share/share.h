/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Handles of the regions of this process (slots.c), and gates of the peers that have come with
 * one (gates.c). The thread that they come to is in serve.c. One lock
 * for all, held for moments; it is taken within a region's.
 */
#ifndef REGION_SHARE_H
#define REGION_SHARE_H

#include "region/gate.h"
#include "region/internal.h"
#include "region/wire.h"

/*
 * Handles of a region that has migrated to @to: peers are told so until then, of clock_ns().
 */
struct departure {
	struct list of_all;
	struct list slots;
	struct owner_place to;
	uint64_t until;
};

/*
 * A handle's place in the table, and what it gives. Free if @region and @left are NULL.
 * @alias: it was made by another process; NULL: by this one
 * @left:  its region has
 */
struct alias;
struct loan;
struct slot {
	struct kedge_region *region;
	struct departure *left;
	struct alias *alias;
	struct list node; /* of the region's, or the departure's */
	struct list conns;
	uint32_t index;
	uint32_t generation;
	uint32_t access;
	uint32_t next_free;
	uint64_t offset;
	uint64_t len;
	uint64_t expires;
	unsigned char key[KEY_LEN];
	bool served; /* no peer has the memory */
	bool revoked; /* and is free once no access is under way */
};

/*
 * A peer that has come; with a handle if it has a @region. Without @slot that was revoked: the
 * region counts the peer still, as it may be inside.
 *
 * @lingers: its connection has ended while it was inside. That is the end of its process, or
 *           the program has closed the socket: it is inside until it comes out, or until
 *           its memory is gone. There is no @gate then, but its file.
 * @local:   it is on this host
 * @to:      where the region is that has migrated, if @moved; @told: the
 *           answer that says so is made, and @owed as long as it has not gone out
 * @stream:  one for which accesses are done here (streams.c); without a gate.
 * @leased:  it puts and gets by @line, of @loan (lease.c), and is in an access for all that is
 *           known here.
 *           It is to give that back if @recalled, as it has been told if @recall_said; @cut: it is
 *           not waited for. These change with gaps_lock
 */
struct conn {
	struct list of_all; /* serve.c's */
	struct listed at; /* in its list of regions, if that has begun */
	struct list of_slot;
	struct list of_region;
	struct kedge_region *region;
	struct slot *slot;
	struct gate *gate;
	struct stream *stream;
	uint32_t wants; /* what its connection is watched for */
	bool lingers;
	bool local;
	bool moved;
	bool told;
	bool owed; /* guarded by shares_lock */
	struct loan *loan;
	struct fabric_line *line;
	bool leased;
	bool recalled;
	bool recall_said;
	bool cut;
	struct owner_place to;
	int gate_fd; /* in the keeper's table, as is: */
	int fd;
	pid_t pid;
};

extern struct sig_lock shares_lock;

/* With peers that are in the way of a trim or a revocation. */
#define PATIENCE_MS 1000
#define PEER_NAME   32 /* bytes of peer_name() */

/* ---- slots.c: with shares_lock ---- */

/* A new one for the region, or NULL: *@rc says why. */
struct slot *slot_make(struct kedge_region *r, int *rc);
/* It is ended for good. */
void slot_free(struct slot *s);
/* The slot of a handle of this process: 0, -EKEYEXPIRED or REGION_MOVED; or -EKEYREJECTED, or
 * -EKEYREVOKED. */
int slot_find(const struct handle_words *w, struct slot **out);
void slots_forget(void);

/* The one of that number, whatever key is shown: 0 or -EKEYREJECTED; or -EKEYREVOKED, and another
 * may be there now. */
int slot_look(uint64_t name, uint32_t index, uint32_t generation, struct slot **out);
/* 0, -EKEYREVOKED, -EKEYEXPIRED or REGION_MOVED. */
int slot_state(const struct slot *s);
/* Of a region's @len bytes, what the handle gives. */
uint64_t part_of(const struct slot *s, uint64_t len);

/* ---- alias.c: with shares_lock ---- */

/* The handle that another process made as @slot and @generation of @name is to be @s here: 0 or
 * -ENOMEM. */
int alias_make(uint64_t name, uint32_t slot, uint32_t generation, struct slot *s);
/* It is found by that from now on, unless there is another one. */
void alias_insert(struct slot *s);
/* Or NULL. */
struct slot *alias_find(uint64_t name, uint32_t slot, uint32_t generation);
void alias_remove(struct slot *s);
/* The name of a handle's slot: the words that made it. */
void alias_words(const struct slot *s, uint64_t own, struct handle_words *w);
void aliases_forget(void);

/* ---- depart.c: a region on its way to another owner; gates.h's locks ---- */

/* Its peers that have the memory have it done here from now on: 0, or -ETIMEDOUT with the pid of
 * one that has an access under way, or -ENOMEM, and all is as it was. */
int depart_begin(struct kedge_region *r, int timeout_ms, pid_t *pid);
/* It may begin: 0, or -EBUSY with its reason. */
int depart_may(struct kedge_region *r);
/* Accesses are over, and wait from now on: 0, or -EBUSY with its reason. */
int depart_stop(struct kedge_region *r);
/* The region stays here after all. */
void depart_end(struct kedge_region *r);
/* It is at @to, as its peers are told; others by @d, zeroed but for @d->until. */
void depart_to(struct kedge_region *r, const struct owner_place *to, struct departure *d);
/* With shares_lock. A region has come, with its handles in @r->slots, and this process is its owner
 * from now on. */
void arrive(struct kedge_region *r);
/* The thread that answers is there, even without a region, as long as there is a departure. */
int departures_hold(void);
/* Those of which no peer is told any more; without a lock. */
void departures_expire(void);
/* In a child. */
void departures_forget(void);

/* ---- telling.c ---- */

/* With shares_lock. The peer is to be told where its region is. */
void telling_begin(struct conn *c);
/* With shares_lock. It has been, or its connection is over. */
void telling_end(struct conn *c);
/* Until all have been; @ms at most, as one that is stopped does not read. */
void telling_wait(unsigned int ms);
/* In a child. */
void telling_forget(void);

/* ---- gates.c ---- */

/* With shares_lock. The peer is one of the region's. */
void conn_join(struct conn *c, struct slot *s);

/* With shares_lock. The peer may go in, or waits where the region is suspended. */
void gate_open_to(struct conn *c, struct slot *s);
/* With shares_lock. The peer is the region's no more. */
void gate_take(struct conn *c);
/* With shares_lock. Its connection is over: true if it may be inside, and is waited for; then
 * *@gate is no more the peer's, and is to be unmapped. */
bool gate_lingers(struct conn *c, struct gate **gate);
/* By the thread of serve.c: one that lingers is out of the gate, or has not its memory any more. */
bool gate_is_gone(const struct conn *c);
/* With gaps_lock. The region's gaps are about to change: no access goes in before the second. */
void gates_gaps_change(struct kedge_region *r);
void gates_gaps_changed(struct kedge_region *r);
/* With shares_lock. Peers of the handle, or of all of a region's, are told that it is over. */
void gates_end(struct slot *s, int why);
/* With shares_lock. Peers of a handle that was revoked; each is the region's until it ends. */
void gates_part(struct slot *s);
/* With shares_lock, while no peer is inside: the region has other pages. */
void gates_moved(struct kedge_region *r);
/* With the region's lock. Peers may access up to @len. When it returns they access what is
 * beyond no more, but for a peer that is stopped. */
void gates_set_len(struct kedge_region *r, uint64_t len);
/* No access by the handle, or by any if that is NULL, is under way: 0, or -ETIMEDOUT with the
 * peer's pid. */
int gates_wait(struct kedge_region *r, struct slot *s, int timeout_ms, pid_t *pid);
/* Leases by the handle, or all, are over. */
void gates_cut(struct kedge_region *r, struct slot *s);
/* With the region's lock. Each access that may be to what was trimmed is over: 0, or -ETIMEDOUT
 * with its reason. */
int gates_empty(struct kedge_region *r);
/* "process 12", or, as one of another host has no number here, that. */
const char *peer_name(pid_t pid, char text[PEER_NAME]);
/* Suspend: 0, or -ETIMEDOUT and it is not; @timeout_ms -1: no limit. */
int gates_close(struct kedge_region *r, int timeout_ms, pid_t *pid);
/* With shares_lock. The peers that have the memory are told why they have not any more. */
void gates_turn_out(struct kedge_region *r, int why, const struct owner_place *to);
/* Resume: false: it was not suspended. */
bool gates_open(struct kedge_region *r);
/* The region has no handle and no peer from now on. */
void shares_close(struct kedge_region *r);
/* In a child. */
void gates_forget(void);

/* ---- invite.c: regions that come from another owner ---- */

#define SEAL_LEN 32

enum invite_state { INVITE_OPEN, INVITE_WHOLE, INVITE_OWNER };

/*
 * Of an owner that has come.
 *
 * @fd:   in the keeper's table; or -1
 * @copy: by it the region came that this process owns now
 * @seal: its key
 */
struct invite_conn {
	int fd;
	bool tcp;
	bool copy;
	unsigned char seal[SEAL_LEN];
};

/*
 * @number:  of the process's
 * @state:   whether a copy is whole here, or this process its region's owner; of migration @id
 * @conn:    the last one that has come, and was not taken
 * @arrived: how many have
 */
struct invite {
	struct list of_all;
	uint32_t number;
	unsigned char key[KEY_LEN];
	enum invite_state state;
	uint64_t id;
	struct invite_conn conn;
	_Atomic uint32_t arrived; /* to wait for one is to sleep on it, by futex */
};

void invite_add(struct invite *i);
void invite_remove(struct invite *i);
void invites_forget(void);
/* With shares_lock. Or NULL. */
struct invite *invite_find(uint32_t number);
/* With shares_lock. One has come; what came before it and was not taken is closed. */
void invite_arrive(struct invite *i, int fd, bool tcp, const unsigned char seal[SEAL_LEN]);
/* True: its descriptor is the caller's. */
bool invite_take(struct invite *i, struct invite_conn *c);
/* One that was taken is there again: false where another has come since. */
bool invite_keep(struct invite *i, const struct invite_conn *c);
/* The one that is there is closed. By any thread. */
void invite_drop(struct invite *i);
/* Until one has come, or @until: false. */
bool invite_wait(struct invite *i, uint64_t until);
void invite_is(struct invite *i, enum invite_state state, uint64_t id);

/* ---- give.c: by the thread of serve.c, to a peer that has the memory ---- */

struct ucred;

/* 0: the peer is root's, or of the user that this process is of now; or -EACCES. */
int give_may(int fd, struct ucred *peer);
/* 0 or a negative errno: it is told why, and its connection ends. */
int give_answer(struct conn *c, const struct region_ask *ask);
void give_refusal(int fd, uint32_t seq, int rc);

/* ---- listing.c: the regions of this process, told to its user and to root ---- */

void regions_add(struct kedge_region *r);
void regions_remove(struct kedge_region *r);
/* The next regions, by the thread of serve.c: 0, or a negative errno and the connection ends. */
int regions_answer(struct conn *c, const struct list_ask *q);
void regions_forget(void);

/* ---- served.c: accesses that are done here, by the thread of serve.c ---- */

struct stream_req;
struct stream_reply;

/*
 * Do it, with what stands behind the request at @data, PIECE_LEN bytes, which has the bytes of a
 * get then: behind its table, if it has one. 0, or @a has the error. -EAGAIN: the region is
 * suspended.
 */
int served_do(struct conn *c, const struct stream_req *q, char *data, struct stream_reply *a);
/* With shares_lock. The region is mapped at @r->view, all that peers may access: 0 or -ENOMEM. */
int served_view(struct kedge_region *r);
/* With shares_lock. The region is mapped for these no more. */
void served_end(struct kedge_region *r);

/* ---- lease.c ---- */

/* With shares_lock. The leases by a handle, or all of the region's, are to be given back, or are
 * @cut. False: there are none; else leases_nudge() follows, without the lock; false: the thread
 * that does it has ended, and they with it. */
bool leases_recall(struct kedge_region *r, const struct slot *s, bool cut);
bool leases_nudge(void);
/* With gaps_lock. All are to be given back, or are @cut, and no other is given as long as
 * @changing: false, that is so already; else leases_wake() follows, without the lock. */
bool leases_stop(struct kedge_region *r, bool cut);
/* With gaps_lock. */
bool leases_any(const struct kedge_region *r);
/* By a thread with the keeper's table of descriptors, as leases_nudge(). */
void leases_wake(void);
/* The descriptor, in the keeper's table, that wakes the thread of serve.c. */
void leases_nudge_is(int fd);

/* By that thread: a peer asks for one. @data: what it sends, and the answer's. */
void lease_give(struct conn *c, const struct stream_req *q, void *data, struct stream_reply *a);
/* With shares_lock. It is over. */
void lease_end(struct conn *c);
/* True: the peer is to be told that it is recalled. */
bool lease_look(struct conn *c);

/* ---- streams.c: the connection of such a peer; likewise ---- */

/* Greet it, and hear no answer yet. 0 or a negative errno: the connection is over. */
int stream_begin(struct conn *c);
/* As far as it goes without waiting: the same. */
int stream_go_on(struct conn *c);
void stream_end(struct conn *c);
/* The last word to a peer before its connection ends. */
void stream_say_closed(struct conn *c);
/* There is no descriptor or no memory for the one that is connected by @fd. */
void stream_turn_away(int fd, int rc);
/* The region has migrated, as an answer that is not asked for. */
void stream_say_moved(struct conn *c);
/* The peer is to give its lease back, as an answer that is not asked for. */
void stream_say_recalled(struct conn *c);
/* All of that has gone out. */
bool stream_has_said_moved(const struct conn *c);
/* It has shown an invitation, and has been greeted: it has no business with handles. */
bool stream_is_arrival(const struct conn *c);
/* Its descriptor is the invitation's. */
void stream_hand_over(struct conn *c);
/* It has shown a handle. */
bool stream_is_known(const struct conn *c);
/* For a resumption, or its time. */
bool stream_waits(const struct conn *c);
uint32_t stream_wants(const struct conn *c);

/* ---- listen.c: in the keeper's table of descriptors ---- */

/* @port: of TCP at @place, or 0: on this host. @fd is stored last (release). */
struct listener {
	_Atomic int fd;
	bool stream;
	uint16_t port;
	unsigned char place[16];
};

#define PLACES 16u /* of TCP, as many as there may be */

/* Two on this host, of the name *@name; @epoll watches them, and those of TCP. */
int listen_begin(int epoll, uint64_t *name);
void listen_end(void);
void listen_forget(void);
/* The one that @ptr is, or NULL. */
const struct listener *listener_of(const void *ptr);
/* @arg: a struct listener with @place set, and @port, or 0 for any. It is there: 0, and @port
 * is set; or a negative errno. */
int listen_by_tcp(void *arg);

/* ---- place.c ---- */

/* Peers reach this process at @node, and @w says so: 0 or a negative errno with its reason. */
int place_use(const char *node, const char *service, struct handle_words *w);

/* ---- serve.c ---- */

/* By the keeper, if the thread is there: 0 or a negative errno. */
int serve_call(int (*fn)(void *arg), void *arg);
/* Its thread looks after peers of a region that has migrated. By a thread with the keeper's table
 * of descriptors. */
void serve_nudge(void);

/* The thread that answers peers is there, and *@name is its socket's: 0 or a negative errno. */
int serve_use(uint64_t *name);
void serve_forget(void);

#endif /* REGION_SHARE_H */
