// SPDX-License-Identifier: BSD-2-Clause
/*
 * Peers: they connect, ask for a segment once, and are told of changes for as long as the
 * connection is there. Their user and groups the kernel says (SO_PEERCRED, as of their
 * connect()). One that does not read what it is told is cut off; its thread takes that for
 * the end of the grant.
 */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "segment/thread/thread.h"

#define BACKLOG 128
#define TRIES	64
#define GROUPS	1024

static int listener = -1, spare = -1;

/* ---- connections ---- */

static void owes_no_more(struct conn *c)
{
	if (c->owes)
		atomic_fetch_sub(&seg->owed, 1);
	c->owes = 0;
}

/* With lock. */
static void hang_up(struct conn *c)
{
	owes_no_more(c);
	if (c->segment && !c->part)
		c->segment->grants--;
	if (c->part && c->extent >= 0)
		convert_post();
	fds_close(c->fd);
	*c = (struct conn){ .fd = -1, .extent = -1 };
}

static bool tell(const struct conn *c, const void *what, size_t len)
{
	return syscall(SYS_sendto, c->fd, what, len, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0) ==
	       (long)len;
}

void serve_hang_up(const struct kedge_segment *s)
{
	struct conn *c;

	for (c = seg->conn; c < seg->conn + CONNS; c++)
		if (c->fd >= 0 && c->segment == s)
			hang_up(c);
}

void serve_hang_up_extent(int index)
{
	struct conn *c;

	for (c = seg->conn; c < seg->conn + CONNS; c++)
		if (c->fd >= 0 && c->segment && c->extent == index)
			hang_up(c);
}

/* ---- one that asks ---- */

static bool in_group(int fd, gid_t gid)
{
	gid_t list[GROUPS];
	socklen_t len = sizeof(list);
	size_t i;

	if (syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERGROUPS, list, &len))
		return false;
	for (i = 0; i < len / sizeof(list[0]); i++)
		if (list[i] == gid)
			return true;
	return false;
}

/* The three bits that are the peer's, as of a file. */
static bool may(int fd, const struct kedge_segment *s, uint32_t access)
{
	struct ucred who;
	socklen_t len = sizeof(who);
	uint32_t bits = s->mode, want = 4;

	if (syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &who, &len))
		return false;
	if (who.uid == s->uid)
		bits >>= 6;
	else if (who.gid == s->gid || in_group(fd, s->gid))
		bits >>= 3;
	if (access & KEDGE_SEGMENT_WRITE)
		want |= 2;
	return (bits & want) == want;
}

/* To another user a memfd that has more than the segment is not handed out. */
static bool is_stranger(int fd, const struct kedge_segment *s)
{
	struct ucred who;
	socklen_t len = sizeof(who);

	return syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &who, &len) ||
	       who.uid != s->uid;
}

static struct kedge_segment *find(uint64_t word)
{
	struct kedge_segment *s;

	for (s = seg->segments; s && s->id.word[0] != word; s = s->next)
		;
	return s;
}

static int decide(const struct conn *c, uint64_t id, struct kedge_segment **s)
{
	*s = find(id);
	if (!*s)
		return -ENOENT;
	if (!may(c->fd, *s, c->access))
		return -EACCES;
	/* The owner forks: its memory is private for that moment. */
	if ((*s)->extent >= 0 && (*s)->backend == KEDGE_SEGMENT_CONVERT &&
	    seg->extent[(*s)->extent].away)
		return -EAGAIN;
	return 0;
}

/* With the descriptors, if there are any. */
static bool send_answer(const struct conn *c, const struct seg_answer *a, const int fd[2])
{
	char space[CMSG_SPACE(2 * sizeof(int))] = { 0 };
	struct iovec iov = { (void *)(uintptr_t)a, sizeof(*a) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *h;

	if (fd) {
		m.msg_control = space;
		m.msg_controllen = sizeof(space);
		h = CMSG_FIRSTHDR(&m);
		*h = (struct cmsghdr){ .cmsg_len = CMSG_LEN(2 * sizeof(int)),
				       .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(h), fd, 2 * sizeof(int));
	}
	return syscall(SYS_sendmsg, c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) ==
	       (long)sizeof(*a);
}

/* The start of the next part of it that is there, or its end. */
static uint64_t next_there(uint32_t index, uint64_t off)
{
	uint64_t next = seg->extent[index].len;
	const struct piece *p;

	for (p = seg->piece; p < seg->piece + seg->piece_max; p++)
		if (p->len && p->extent == index && p->off >= off && p->off < next &&
		    p->at - p->off == seg->extent[index].at)
			next = p->off;
	return next;
}

/* More holes than a peer knows apart. */
static bool has_many_holes(uint32_t index)
{
	const uint64_t len = seg->extent[index].len;
	uint64_t end = 0;
	int parts;

	for (parts = 0; end < len && parts < GONE_PARTS; parts++)
		end = next_there(index, piece_there_until(index, end));
	return end < len;
}

/* The part alone that was asked for: all around it is told as gone. */
static bool tell_around(const struct conn *c, uint32_t index, uint64_t count)
{
	const struct extent *e = &seg->extent[index];
	const uint64_t at = c->start - e->at, until = piece_there_until(index, at);
	struct seg_gone m = { .head = seg_head(SEG_GONE), .count = COUNT_LATER,
			      .end = piece_there_from(index, at) };

	if (!tell(c, &m, sizeof(m)))
		return false;
	m.start = until;
	m.end = e->len;
	m.count = count;
	return tell(c, &m, sizeof(m));
}

/* Parts that had gone before it came. The last may be told as more than it is. */
static bool tell_gone(const struct conn *c, uint32_t index, uint64_t count)
{
	struct seg_gone m = { .head = seg_head(SEG_GONE), .count = COUNT_LATER };
	uint64_t len = seg->extent[index].len;
	int parts = 0;

	for (m.end = 0; m.end < len; parts++) {
		m.start = piece_there_until(index, m.end);
		m.end = parts < GONE_PARTS - 1 ? next_there(index, m.start) : len;
		if (m.end == len)
			m.count = count;
		if (!tell(c, &m, sizeof(m)))
			return false;
	}
	return true;
}

/* With the memfd of an extent. */
static bool hand_out(struct conn *c, int index, struct seg_answer *a)
{
	const struct extent *e = &seg->extent[index];
	int fd[2] = { seg->check_fd, c->access & KEDGE_SEGMENT_WRITE ? e->fd : e->read_fd };

	c->extent = index;
	a->word = (uint32_t)index;
	a->file_len = e->len;
	/* It counts from what it hears next. */
	a->count = COUNT_LATER;
	if (!send_answer(c, a, fd))
		return false;
	return (c->part && has_many_holes(a->word) ? tell_around : tell_gone)
		(c, a->word, atomic_load(&seg->check->changes[index]));
}

static bool grant(struct conn *c, struct kedge_segment *s)
{
	struct seg_answer a = { .head = seg_head(SEG_ANSWER), .backend = s->backend,
				.proof = s->id.word[1], .addr = s->addr, .len = s->len };

	memcpy(a.reason, s->reason, sizeof(a.reason));
	c->segment = s;
	s->grants++;
	if (s->backend == KEDGE_SEGMENT_CONVERT && !s->on_attach &&
	    !extent_is_within(&seg->extent[s->extent], s) && is_stranger(c->fd, s))
		a.backend = KEDGE_SEGMENT_COPY;
	a.flags = s->on_attach ? SEG_IN_PARTS : 0;
	if (a.backend != KEDGE_SEGMENT_CONVERT || s->on_attach)
		return send_answer(c, &a, NULL);
	a.file_off = s->addr - seg->extent[s->extent].at;
	return hand_out(c, s->extent, &a);
}

static bool ask(struct conn *c, const struct seg_ask *q)
{
	struct seg_answer a = { .head = seg_head(SEG_ANSWER) };
	struct kedge_segment *s;

	c->access = q->access;
	a.rc = decide(c, q->id, &s);
	if (!a.rc)
		return grant(c, s);
	send_answer(c, &a, NULL);
	return false;
}

/* ---- parts ---- */

static bool no_part(const struct conn *c, int rc, uintptr_t until, const char *why)
{
	struct seg_answer a = { .head = seg_head(SEG_ANSWER), .rc = rc, .until = until };

	strncpy(a.reason, why, sizeof(a.reason) - 1);
	send_answer(c, &a, NULL);
	return false;
}

/* All of its memfd, of which the peer knows the part that it wants. */
static bool grant_part(struct conn *c, int index, uintptr_t until)
{
	const struct kedge_segment *s = c->segment;
	const struct extent *e = &seg->extent[index];
	struct seg_answer a = { .head = seg_head(SEG_ANSWER), .proof = s->id.word[1],
				.backend = KEDGE_SEGMENT_CONVERT, .addr = e->at,
				.len = e->len, .until = until < c->end ? until : c->end };

	c->ticket = 0;
	if (!extent_is_within(e, s) && is_stranger(c->fd, s))
		return no_part(c, -EOPNOTSUPP, 0, "it is in a larger segment: copy it");
	return hand_out(c, index, &a);
}

static bool is_part_of(const struct seg_part *q, const struct kedge_segment *s)
{
	const size_t page = kedge__page_size();

	return s->on_attach && !(q->start % page) && !(q->end % page) && q->start < q->end &&
	       q->start >= round_down(s->addr, page) &&
	       q->end <= round_up(s->addr + s->len, page);
}

/* Another thread, which may wait, sees to a part that is not there yet. */
static bool ask_part(struct conn *c, const struct seg_part *q)
{
	struct kedge_segment *s;
	uintptr_t until;
	int rc, index;

	c->access = q->access;
	rc = decide(c, q->id, &s);
	if (!rc && !is_part_of(q, s))
		rc = -EPROTO;
	if (rc)
		return no_part(c, rc, 0, "");
	c->segment = s;
	c->part = true;
	c->start = q->start;
	c->end = q->end;
	index = piece_at(c->start, &until);
	if (index >= 0 && !seg->extent[index].away)
		return grant_part(c, index, until);
	c->ticket = ++seg->tickets;
	convert_post();
	return true;
}

void serve_part(int conn, uint64_t ticket, int extent, uintptr_t until, const char *why)
{
	struct conn *c = &seg->conn[conn];

	sig_lock_blocked(&seg_lock);
	if (c->fd >= 0 && c->ticket == ticket &&
	    !(extent >= 0 ? grant_part(c, extent, until) : no_part(c, extent, until, why)))
		hang_up(c);
	sig_unlock_blocked(&seg_lock);
}

/* As of its connect(). */
static bool is_this_process(int fd)
{
	struct ucred who;
	socklen_t len = sizeof(who);

	return !syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &who, &len) &&
	       who.pid == getpid();
}

static int self = -1; /* what serve_conn() returns */

/* It is no peer's any more. */
static bool ask_self(struct conn *c)
{
	if (!is_this_process(c->fd))
		return false;
	self = c->fd;
	*c = (struct conn){ .fd = -1, .extent = -1 };
	return true;
}

static bool packet(struct conn *c, const void *raw, long n)
{
	const struct seg_head *h = raw;
	const struct seg_ask *q = raw;
	const struct seg_ack *k = raw;
	const struct seg_list *l = raw;
	const struct seg_part *p = raw;

	if (n == (long)sizeof(*p) && seg_is(&p->head, SEG_PART) && !c->segment)
		return ask_part(c, p);
	if (n == (long)sizeof(*l) && seg_is(&l->head, SEG_LIST) && !c->segment)
		return listing_answer(c->fd, l);
	if (n == (long)sizeof(*q) && seg_is(&q->head, SEG_ASK) && !c->segment)
		return ask(c, q);
	if (n == (long)sizeof(*h) && seg_is(h, SEG_SELF) && !c->segment)
		return ask_self(c);
	if (n == (long)sizeof(*k) && seg_is(&k->head, SEG_ACK)) {
		c->ready = true;
		if (k->ack == c->owes)
			owes_no_more(c);
		return true;
	}
	return false;
}

/* With lock. */
static void read_one(struct conn *c)
{
	union { struct seg_ask q; struct seg_ack k; struct seg_list l; struct seg_part p;
		char room[64]; } raw;
	long n = syscall(SYS_recvfrom, c->fd, &raw, sizeof(raw), MSG_DONTWAIT | MSG_TRUNC,
			 NULL, NULL);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0 || !packet(c, &raw, n))
		hang_up(c);
}

int serve_conn(uint32_t index)
{
	sig_lock_blocked(&seg_lock);
	self = -1;
	if (seg->conn[index].fd >= 0)
		read_one(&seg->conn[index]);
	sig_unlock_blocked(&seg_lock);
	return self;
}

/* ---- changes ---- */

/*
 * A peer is waited for only if it may have attached something, which it says before: else
 * two calls could wait for one another, this one and that which is about to have the
 * grant. What it said may not have been read yet. Later it cannot attach what goes now: the
 * generation is odd, or the count has moved.
 */
static bool must_answer(struct conn *c)
{
	if (!c->ready)
		read_one(c);
	return c->fd >= 0 && c->ready;
}

void serve_gone(int index, uint64_t start, uint64_t end, bool ack)
{
	struct seg_gone m = { .head = seg_head(SEG_GONE), .start = start, .end = end };
	struct conn *c;

	m.count = atomic_fetch_add_explicit(&seg->check->changes[index], 1,
					    memory_order_relaxed) + 1;
	if (ack)
		m.ack = ++seg->acks;
	for (c = seg->conn; c < seg->conn + CONNS; c++) {
		if (c->fd < 0 || !c->segment || c->extent != index)
			continue;
		if (ack && must_answer(c)) {
			atomic_fetch_add(&seg->owed, !c->owes);
			c->owes = m.ack;
		}
		if (c->fd >= 0 && !tell(c, &m, sizeof(m)))
			hang_up(c);
	}
}

/*
 * Its memory goes back to the system, so that it is not kept by a peer that has it attached
 * still, and so that a mapping which is made longer into that part of the file finds zeros
 * there, as new memory has.
 */
void serve_piece_gone(const struct piece *part)
{
	serve_gone((int)part->extent, part->off, part->off + part->len, false);
	syscall(SYS_fallocate, seg->extent[part->extent].fd,
		FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, part->off, part->len);
}

/* ---- the socket ---- */

static struct conn *free_conn(void)
{
	struct conn *c;

	for (c = seg->conn; c < seg->conn + PEERS; c++)
		if (c->fd < 0)
			return c;
	return NULL;
}

/* A place for a peer: that of one which has not asked yet, if all are taken. */
static struct conn *conn_get(int fd)
{
	struct conn *c = free_conn(), *last = &seg->conn[PEERS];

	if (c)
		return c;
	for (c = seg->conn; c < seg->conn + PEERS; c++)
		if (!c->segment) {
			hang_up(c);
			return c;
		}
	return last->fd < 0 && is_this_process(fd) ? last : NULL;
}

static void turn_away(int fd, int rc)
{
	struct conn c = { .fd = fd };
	struct seg_answer a = { .head = seg_head(SEG_ANSWER), .rc = rc };

	send_answer(&c, &a, NULL);
	fds_close(fd);
}

/*
 * The table of descriptors is full. A peer that has not asked yet makes room, or the one
 * that comes is told, by a descriptor that is kept for that: it would be there to be
 * accepted for ever, and the thread would do nothing else.
 */
static void make_room(void)
{
	struct conn *c;
	int fd;

	sig_lock_blocked(&seg_lock);
	for (c = seg->conn; c < seg->conn + CONNS; c++)
		if (c->fd >= 0 && !c->segment)
			break;
	if (c < seg->conn + CONNS)
		hang_up(c);
	sig_unlock_blocked(&seg_lock);
	if (c < seg->conn + CONNS)
		return;
	fds_close(spare);
	fd = (int)syscall(SYS_accept4, listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0)
		turn_away(fd, -EMFILE);
	spare = (int)syscall(SYS_dup, listener);
}

void serve_accept(void)
{
	int fd = (int)syscall(SYS_accept4, listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct conn *c;

	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE)
			make_room();
		return;
	}
	sig_lock_blocked(&seg_lock);
	c = conn_get(fd);
	if (c)
		*c = (struct conn){ .fd = fd, .extent = -1 };
	if (c && fds_watch(fd, WATCH_CONN, (uint32_t)(c - seg->conn)))
		hang_up(c);
	sig_unlock_blocked(&seg_lock);
	if (!c)
		turn_away(fd, -EBUSY);
}

int serve_open(void)
{
	struct kedge_segment_id id;
	struct sockaddr_un a;
	int try, rc = -EADDRINUSE;
	unsigned int len;

	listener = (int)syscall(SYS_socket, AF_UNIX,
				SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listener < 0)
		return -errno;
	for (try = 0; try < TRIES && rc == -EADDRINUSE; try++) {
		rc = id_make(0, &id);
		seg->name = (uint32_t)(id.word[0] & ((1u << ID_NAME_BITS) - 1));
		len = id_address(seg->name, &a);
		if (!rc && syscall(SYS_bind, listener, &a, len))
			rc = -errno;
	}
	if (!rc && syscall(SYS_listen, listener, BACKLOG))
		rc = -errno;
	spare = (int)syscall(SYS_dup, listener);
	return rc ? rc : fds_watch(listener, WATCH_LISTEN, 0);
}

void serve_close(void)
{
	uint32_t i;

	sig_lock_blocked(&seg_lock);
	for (i = 0; i < CONNS; i++)
		if (seg->conn[i].fd >= 0)
			hang_up(&seg->conn[i]);
	sig_unlock_blocked(&seg_lock);
	fds_close(listener);
	fds_close(spare);
	listener = spare = -1;
}
