// SPDX-License-Identifier: BSD-2-Clause
/*
 * The processes of this host that have segments without the module, and what they tell of
 * them. They are found by the names of their sockets, which /proc shows to all; the kernel
 * says which user's a socket is. Those of other users are not asked, unless by root.
 *
 * Some may be stopped, and some may lie. Nothing here waits for one alone: many are asked at
 * a time, by sockets that do not block, and all of them have until one deadline. What a
 * process says is kept apart until it has said all of it, and is dropped if it ends. Whenever
 * the deadline passes, the next ones have half as long: a user with thousands of sockets that
 * do not answer delays a list, and does not prevent it.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>
#include <unistd.h>

#include "segment/owners.h"

#define AT_A_TIME 64
#define RETRY_NS  10000000
/* A process that ends may be connected to twice: while it closes its descriptors. */
#define TRIES	  3
#define HALVED	  5 /* times, at the most */
#define LISTENS	  0x10000u /* of a socket's flags in /proc */

/* ---- the names of their sockets ---- */

struct names {
	uint32_t *name;
	size_t cnt;
	size_t room;
};

static int name_add(struct names *n, uint32_t name)
{
	size_t room = n->room ? 2 * n->room : 64;
	uint32_t *more;

	if (n->cnt == n->room) {
		more = realloc(n->name, room * sizeof(*more));
		if (!more)
			return -ENOMEM;
		n->name = more;
		n->room = room;
	}
	n->name[n->cnt++] = name;
	return 0;
}

bool segment_owner_name(const char *line, uint32_t *name)
{
	unsigned int flags, type, end = 0;
	struct sockaddr_un a;
	size_t len;

	if (sscanf(line, "%*s %*s %*s %x %x %*s %*s @kedge-segment-%6x%n", &flags, &type,
		   name, &end) != 3 || !end || !(flags & LISTENS) || type != SOCK_SEQPACKET ||
	    *name >> ID_NAME_BITS)
		return false;
	/* It is written as it is made, and nothing is behind it. */
	len = id_address(*name, &a) - offsetof(struct sockaddr_un, sun_path) - 1;
	return end > len && line[end - len - 1] == '@' && line[end] == '\n' &&
	       !memcmp(line + end - len, a.sun_path + 1, len);
}

static int by_number(const void *x, const void *y)
{
	const uint32_t *a = x, *b = y;

	return (*a > *b) - (*a < *b);
}

/* A path with a line's end in it may pass for another socket: each name is there once. */
static void sort(struct names *n)
{
	size_t i, kept = 0;

	if (!n->cnt)
		return;
	qsort(n->name, n->cnt, sizeof(*n->name), by_number);
	for (i = 0; i < n->cnt; i++)
		if (!i || n->name[i] != n->name[i - 1])
			n->name[kept++] = n->name[i];
	n->cnt = kept;
}

static int names_read(struct names *n)
{
	FILE *f = fopen("/proc/thread-self/net/unix", "re");
	char *line = NULL;
	size_t room = 0;
	uint32_t name;
	int rc = 0;

	if (!f)
		return errno != ENOENT && errno != EACCES ? -errno
		       : kedge_reason(-EOPNOTSUPP, "/proc/thread-self/net/unix cannot be read "
				      "(%s)", strerrordesc_np(errno));
	while (!rc && getline(&line, &room, f) > 0)
		if (segment_owner_name(line, &name))
			rc = name_add(n, name);
	if (!rc && ferror(f))
		rc = -ENOMEM;
	free(line);
	fclose(f);
	sort(n);
	return rc;
}

/* ---- one owner ---- */

struct asking {
	const struct kedge_segments_opts *opts;
	struct owner owner[AT_A_TIME];
	struct pollfd poll[AT_A_TIME];
	size_t cnt;
	uint64_t deadline;
	uint32_t late; /* how often it has passed */
	struct seg_page page; /* that was read last */
};

void segment_owner_forget(struct owner *o)
{
	free(o->item);
	o->item = NULL;
	o->cnt = 0;
}

static void done(struct owner *o, int status)
{
	clofork_close(&o->sock);
	if (status)
		segment_owner_forget(o);
	o->status = status;
	o->state = DONE;
}

static void leave_out(struct owner *o)
{
	done(o, 0);
	segment_owner_forget(o);
	o->silent = true;
}

/* It has ended, has no segment any more, had too many that ask, or does not know how. */
static void hung_up(struct owner *o)
{
	clofork_close(&o->sock);
	segment_owner_forget(o);
	o->state = WAITS;
	if (++o->tries == TRIES)
		done(o, -EPROTO);
}

static void ask_for_more(struct owner *o)
{
	const struct seg_list q = { .head = seg_head(SEG_LIST),
				    .before = o->cnt ? o->item[o->cnt - 1].serial
						     : UINT64_MAX };

	if (send(o->sock.fd, &q, sizeof(q), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(q))
		hung_up(o);
}

static void meet(struct owner *o, const struct kedge_segments_opts *opts)
{
	socklen_t len = sizeof(o->cred);
	uid_t me = geteuid();

	o->state = ASKED;
	if (getsockopt(o->sock.fd, SOL_SOCKET, SO_PEERCRED, &o->cred, &len))
		leave_out(o);
	else if (opts->pid && o->cred.pid != opts->pid)
		leave_out(o);
	else if (me && o->cred.uid != me)
		done(o, -EACCES);
	else
		ask_for_more(o);
}

static int not_met(struct owner *o, int err)
{
	clofork_close(&o->sock);
	switch (err) {
	case EAGAIN: /* many are about to be accepted */
	case EINTR:
		return 0;
	case ECONNREFUSED:
	case ENOENT:
		leave_out(o);
		return 0;
	case EACCES:
	case EPERM:
		done(o, -EACCES);
		return 0;
	}
	return -err;
}

/* 0, or a negative errno of this process's. */
static int connect_to(struct owner *o, const struct kedge_segments_opts *opts)
{
	struct sockaddr_un a;
	unsigned int len = id_address(o->name, &a);
	int rc = clofork_begin();

	if (!rc)
		rc = clofork_end(&o->sock, socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC |
						  SOCK_NONBLOCK, 0));
	if (rc)
		return rc;
	if (connect(o->sock.fd, (const struct sockaddr *)&a, len))
		return not_met(o, errno);
	meet(o, opts);
	return 0;
}

/* ---- what it says ---- */

static bool is_sound(const struct seg_item *i, uint64_t before)
{
	return i->serial < before && i->addr <= UINT64_MAX - i->len && !(i->mode & ~0777u) &&
	       (i->backend == KEDGE_SEGMENT_COPY || i->backend == KEDGE_SEGMENT_CONVERT);
}

/* -EAGAIN: there are more to be asked for. */
static int take_items(struct owner *o, const struct seg_page *p)
{
	uint64_t before = o->cnt ? o->item[o->cnt - 1].serial : UINT64_MAX;
	struct seg_item *more;
	uint32_t i;

	if (o->cnt + p->cnt > SEGMENTS)
		return -EPROTO;
	more = realloc(o->item, (o->cnt + p->cnt + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	o->item = more;
	for (i = 0; i < p->cnt; i++) {
		if (!is_sound(&p->item[i], before))
			return -EPROTO;
		before = p->item[i].serial;
		o->item[o->cnt++] = p->item[i];
	}
	return p->cnt < SEG_ITEMS ? 0 : -EAGAIN;
}

int segment_owner_take(struct owner *o, const struct seg_page *p, size_t len)
{
	const size_t head = offsetof(struct seg_page, item);

	/* The start of an answer is like that of a page, and is one to those turned away. */
	if (len == sizeof(struct seg_answer) && seg_is(&p->head, SEG_ANSWER) &&
	    p->rc == -EBUSY)
		return -EBUSY;
	if (len < head || !seg_is(&p->head, SEG_PAGE) || p->cnt > SEG_ITEMS ||
	    len != head + p->cnt * sizeof(p->item[0]))
		return -EPROTO;
	if (p->rc)
		return p->rc == -EACCES && !p->cnt ? -EACCES : -EPROTO;
	return take_items(o, p);
}

/* Descriptors that come with it are closed by the kernel, as there is no room for any. */
static ssize_t receive(int sock, struct seg_page *p)
{
	ssize_t n = recv(sock, p, sizeof(*p), MSG_DONTWAIT | MSG_TRUNC);

	/* An owner that turned this one away unheard: what it said is behind that. */
	if (n < 0 && errno == ECONNRESET)
		n = recv(sock, p, sizeof(*p), MSG_DONTWAIT | MSG_TRUNC);
	return n;
}

static int hear(struct owner *o, struct seg_page *p)
{
	ssize_t n = receive(o->sock.fd, p);
	int rc;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0) {
		hung_up(o);
		return 0;
	}
	rc = segment_owner_take(o, p, (size_t)n);
	if (rc == -ENOMEM)
		return rc;
	if (rc == -EAGAIN)
		ask_for_more(o);
	else
		done(o, rc);
	return 0;
}

/* ---- some at a time ---- */

static bool all_done(const struct asking *a)
{
	size_t i;

	for (i = 0; i < a->cnt; i++)
		if (a->owner[i].state != DONE)
			return false;
	return true;
}

static int connect_all(struct asking *a)
{
	size_t i;
	int rc = 0;

	for (i = 0; i < a->cnt && !rc; i++)
		if (a->owner[i].state == WAITS)
			rc = connect_to(&a->owner[i], a->opts);
	return rc;
}

/* Until one of them has something to say. */
static void wait_for_any(struct asking *a)
{
	uint64_t until = a->deadline;
	size_t i;

	for (i = 0; i < a->cnt; i++) {
		a->poll[i] = (struct pollfd){ .fd = -1, .events = POLLIN };
		if (a->owner[i].state == ASKED)
			a->poll[i].fd = a->owner[i].sock.fd;
		else if (a->owner[i].state == WAITS)
			until = clock_sooner(a->deadline, RETRY_NS);
	}
	if (clock_poll_ms(a->poll, a->cnt, clock_wait_ms(until)) <= 0)
		for (i = 0; i < a->cnt; i++)
			a->poll[i].revents = 0;
}

/* Answers that have come are heard before the time is looked at. */
static int ask_all(struct asking *a)
{
	bool late = false;
	size_t i;
	int rc;

	for (;;) {
		rc = connect_all(a);
		if (rc || all_done(a))
			return rc;
		if (late) {
			a->late += a->late < HALVED;
			return 0;
		}
		wait_for_any(a);
		late = clock_ns() >= a->deadline;
		for (i = 0; i < a->cnt && !rc; i++)
			if (a->poll[i].revents)
				rc = hear(&a->owner[i], &a->page);
		if (rc)
			return rc;
	}
}

/* ---- what is told of them ---- */

static int tell_item(const struct owner *o, const struct seg_item *i, found_fn *add, void *to)
{
	struct kedge_segment_entry e = {
		.pid = o->cred.pid, .uid = o->cred.uid, .gid = o->cred.gid,
		.backend = i->backend, .mode = i->mode, .grants = i->grants,
		.flags = i->addr ? 0 : KEDGE_SEGMENT_WHOLE,
		.attachments = KEDGE_SEGMENT_UNKNOWN, .addr = i->addr, .len = i->len,
		.changes = i->changes };

	memcpy(e.reason, i->reason, sizeof(e.reason) - 1);
	return add(to, &e);
}

int segment_owner_tell(const struct owner *o, found_fn *add, void *to)
{
	struct kedge_segment_entry e = { .status = o->status, .pid = o->cred.pid,
					 .uid = o->cred.uid, .gid = o->cred.gid };
	size_t i;
	int rc = 0;

	if (o->status)
		return add(to, &e);
	for (i = o->cnt; i && !rc; i--)
		rc = tell_item(o, &o->item[i - 1], add, to);
	return rc;
}

static int tell_all(struct asking *a, found_fn *add, void *to)
{
	size_t i;
	int rc = 0;

	for (i = 0; i < a->cnt && !rc; i++) {
		/* One that was not even met has no pid here. */
		if (a->owner[i].state != DONE)
			done(&a->owner[i], -ETIMEDOUT);
		if (!a->owner[i].silent)
			rc = segment_owner_tell(&a->owner[i], add, to);
	}
	return rc;
}

static int ask_some(struct asking *a, const uint32_t *name, size_t cnt, found_fn *add, void *to)
{
	size_t i;
	int rc;

	a->cnt = cnt;
	a->deadline = clock_ns() + (a->opts->timeout_ms * 1000000ull >> a->late);
	for (i = 0; i < cnt; i++) {
		a->owner[i] = (struct owner){ .name = name[i],
					      .cred = { .uid = (uid_t)-1, .gid = (gid_t)-1 } };
		clofork_init(&a->owner[i].sock);
	}
	rc = ask_all(a);
	if (!rc)
		rc = tell_all(a, add, to);
	for (i = 0; i < cnt; i++) {
		clofork_close(&a->owner[i].sock);
		segment_owner_forget(&a->owner[i]);
	}
	return rc;
}

int owners_list(const struct kedge_segments_opts *o, found_fn *add, void *to)
{
	struct asking *a = calloc(1, sizeof(*a));
	struct names n = { 0 };
	size_t i, cnt;
	int rc = a ? names_read(&n) : -ENOMEM;

	for (i = 0; i < n.cnt && !rc; i += cnt) {
		cnt = n.cnt - i < AT_A_TIME ? n.cnt - i : AT_A_TIME;
		a->opts = o;
		rc = ask_some(a, n.name + i, cnt, add, to);
	}
	free(n.name);
	free(a);
	return rc;
}
