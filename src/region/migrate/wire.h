/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages of two owners: one gives its region to the other. It comes with an invitation by the
 * handshake of region/stream.h; then:
 *
 *	from	BEGIN	how large it is
 *	to	OK, or REFUSE and why
 *	from	BORROW	its adapter, if it has one; DATA may go by that then
 *	to	LENT	memory, and the adapter; or @rc, and there is none
 *	from	DATA	as often as it takes, while the first owner's peers go on
 *		Then peers wait.
 *	from	DATA	what has changed since, and HANDLES
 *	from	SYNC
 *	to	OK	all of that has been read: what follows finds room in any socket
 *	from	FINAL
 *	to	READY	the copy is whole, and may be thrown away still
 *	from	COMMIT	the region is the other's
 *	to	DONE	it is its owner; peers are sent there from now on
 *	from	HEARD	the other may give the region on, and ends the connection
 *
 * UNLEND, which is answered by OK, ends what was lent; so does FINAL. Bytes that an adapter has put
 * are there before the next message is sent.
 *
 * ABORT instead of any of the first's: it stays the owner, and says so before a peer goes on. After
 * READY an end of this connection behind a whole message, without ABORT or COMMIT, is the first
 * owner's end, and the second is the owner; a connection that is lost otherwise proves nothing, and
 * the second waits for another, and may give up. The first, once it has said COMMIT, does not go on
 * by itself: the end of this connection without DONE, a copy that is not there any more, or a
 * process that is not there, show that no peer was served there, and it is the owner again; in any
 * other case it says ASKS, or resets this connection, and asks by another; the end of that proves
 * nothing. The second answers for as long as its process lives, and does not give the region on
 * before HEARD, or an end of this connection without HEARD and ASKS, which is the first owner's:
 * else its process, or its copy, could be gone while a third owner serves the region. Where HEARD
 * may be lost the first says it again by another connection.
 *
 * An error on a connection hides what came before it: where one was seen, an end is none. All
 * orders of that are in tests/model/migrate.pml.
 *
 * Numbers are little-endian. Handles are encrypted, as they have keys; the rest is neither that nor
 * signed.
 */
#ifndef REGION_MIGRATE_WIRE_H
#define REGION_MIGRATE_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "region/share/share.h"

enum msg_op {
	MSG_BEGIN = 1,
	MSG_OK,
	MSG_REFUSE,
	MSG_DATA,
	MSG_HANDLES,
	MSG_SYNC,
	MSG_FINAL,
	MSG_READY,
	MSG_COMMIT,
	MSG_DONE,
	MSG_HEARD,
	MSG_ABORT,
	MSG_BORROW,
	MSG_LENT,
	MSG_UNLEND,
	MSG_ASKS,
};

/* Of one DATA: bytes of the region, in as many ranges. */
#define MSG_DATA_MAX ((uint64_t)1 << 20)
#define MSG_RUNS_MAX 256u
#define REASON_LEN   192
#define HANDLES_MAX  1024u

/*
 * @rc:  of REFUSE and LENT
 * @id:  random, the migration's
 * @off: of DATA how many ranges, which come before the bytes of all of them; of HANDLES, how many
 * @len: bytes that follow
 */
struct msg {
	uint32_t op;
	int32_t rc;
	uint64_t id;
	uint64_t off;
	uint64_t len;
};

struct msg_begin {
	uint64_t region;
	uint64_t len;
	uint64_t max_len;
	uint64_t page_size;
};

/* Of the region; as struct fabric_run. */
struct msg_run {
	uint64_t off;
	uint64_t len;
};

/* @left_ms: until it expires; 0: never */
struct msg_handle {
	uint64_t name;
	uint32_t slot;
	uint32_t generation;
	uint64_t offset;
	uint64_t len;
	uint64_t left_ms;
	uint32_t access;
	uint32_t served;
	unsigned char key[KEY_LEN];
};

/* A batch of them, sealed. */
#define SEALED_LEN(cnt) ((cnt) * sizeof(struct msg_handle) + 16)

/*
 * A connection, of a thread with the keeper's table of descriptors.
 *
 * @fd:     or -1
 * @sealed: messages that were, of this side's
 * @opened: of the other's
 * @whole:  no message has been read in part
 * @lost:   an error was seen
 */
struct wire {
	int fd;
	bool tcp;
	bool whole;
	bool lost;
	unsigned char seal[SEAL_LEN];
	uint64_t sealed;
	uint64_t opened;
};

void wire_begin(struct wire *w, int fd, bool tcp, const unsigned char seal[SEAL_LEN]);
void wire_end(struct wire *w);
/* The other side sees that the connection is lost, and not that it ended, where TCP can tell. */
void wire_break(struct wire *w);

/*
 * Negative errnos, without a reason: -ETIMEDOUT, at @until, or the other's host does not answer;
 * -EPIPE, the connection has ended, and all that the other has said was read; -ECONNRESET, it was
 * lost.
 */
int wire_send(struct wire *w, const struct msg *m, const void *data, uint64_t until);
/* DATA, of what is at @base. */
int wire_send_runs(struct wire *w, uint64_t id, const char *base, const struct msg_run *run,
		   uint32_t cnt, uint64_t until);
/* The ranges behind @m go to @base, where there are @len bytes: -EPROTO, or as above. */
int wire_read_runs(struct wire *w, const struct msg *m, char *base, uint64_t len,
		   uint64_t until);
/* Its head. */
int wire_hear(struct wire *w, struct msg *m, uint64_t until);
/* Bytes of no message. */
int wire_write(struct wire *w, const void *data, uint64_t len, uint64_t until);
/* @len bytes of what follows. */
int wire_read(struct wire *w, void *data, uint64_t len, uint64_t until);
/* True: there is something to be read, or its end; false at @until. */
bool wire_wait(struct wire *w, uint64_t until);

/* @cnt handles, HANDLES_MAX at most. */
int wire_send_handles(struct wire *w, uint64_t id, const struct msg_handle *h, uint32_t cnt,
		      uint64_t until);
/* The handles behind @m: -EPROTO, or as above. */
int wire_read_handles(struct wire *w, const struct msg *m, struct msg_handle *h, uint64_t until);

/*
 * Show the invitation @to: 0, and *@state is what became of migration *@id; or a negative errno
 * with its reason: -ECONNREFUSED, its process is not there; -EKEYREJECTED, it is another, or has
 * closed the invitation; others, as the system says, and it is not known.
 */
int wire_dial(struct wire *w, const struct handle_words *to, uint64_t until,
	      enum invite_state *state, uint64_t *id);

#endif /* REGION_MIGRATE_WIRE_H */
