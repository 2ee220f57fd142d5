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

/* A handle's place in the table, and what it gives. Free if @region is NULL. */
struct slot {
	struct kedge_region *region;
	struct list node; /* of the region's */
	struct list conns;
	uint32_t index;
	uint32_t generation;
	uint32_t access;
	uint32_t next_free;
	uint64_t offset;
	uint64_t len;
	uint64_t expires;
	unsigned char key[KEY_LEN];
	bool revoked; /* and is free once no access is under way */
};

/*
 * A peer that has come; with a handle if it has a @region. Without @slot that was revoked: the
 * region counts the peer still, as it may be inside.
 *
 * @lingers: its connection has ended while it was inside. That is the end of its process, or
 *           the program has closed the socket: it is inside until it comes out, or until
 *           its memory is gone. There is no @gate then, but its file.
 */
struct conn {
	struct list of_all; /* serve.c's */
	struct list of_slot;
	struct list of_region;
	struct kedge_region *region;
	struct slot *slot;
	struct gate *gate;
	bool lingers;
	int gate_fd; /* in the keeper's table, as is: */
	int fd;
	pid_t pid;
};

extern struct sig_lock shares_lock;

/* With peers that are in the way of a trim or a revocation. */
#define PATIENCE_MS 1000

/* ---- slots.c: with shares_lock ---- */

/* A new one for the region, or NULL: *@rc says why. */
struct slot *slot_make(struct kedge_region *r, int *rc);
/* It is ended for good. */
void slot_free(struct slot *s);
/* What a handle of this process is of: 0 or -EKEYEXPIRED; or -EKEYREJECTED, or
 * -EKEYREVOKED. */
int slot_find(const struct handle_words *w, struct slot **out);
void slots_forget(void);

/* ---- gates.c ---- */

/* With shares_lock. The peer may go in, or waits where the region is suspended. */
void gate_open_to(struct conn *c, struct slot *s);
/* With shares_lock. The peer is the region's no more. */
void gate_take(struct conn *c);
/* With shares_lock. Its connection is over: true if it may be inside, and is waited for. */
bool gate_lingers(struct conn *c);
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
/* Suspend: 0, or -ETIMEDOUT and it is not; @timeout_ms -1: no limit. */
int gates_close(struct kedge_region *r, int timeout_ms, pid_t *pid);
/* Resume: false: it was not suspended. */
bool gates_open(struct kedge_region *r);
/* The region has no handle and no peer from now on. */
void shares_close(struct kedge_region *r);
/* In a child. */
void gates_forget(void);

/* ---- serve.c ---- */

/* The thread that answers peers is there, and *@name is its socket's: 0 or a negative errno. */
int serve_use(uint64_t *name);
void serve_forget(void);

#endif /* REGION_SHARE_H */
