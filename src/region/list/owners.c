// SPDX-License-Identifier: BSD-2-Clause
/*
 * The processes of this host that have regions, and what they tell of them. The kernel says which
 * user's a socket is; those of other users are not asked, unless by root.
 *
 * Some may be stopped, and some may lie. None is waited for alone: many are asked at a time, by
 * sockets that do not block, and all of them have until one deadline. What a process says is kept
 * apart until it has said all of it, and is dropped if it ends. Whenever the deadline passes, the
 * next ones have half as long: a user with thousands of sockets that do not answer delays a list,
 * and does not prevent it.
 */
#include <poll.h>
#include <stdlib.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/base.h"
#include "region/list/list.h"

#define AT_A_TIME 64
#define RETRY_NS  10000000
/* An owner that ends, or makes room for other peers, may be connected to again. */
#define TRIES	  8
#define HALVED	  5 /* times, at the most */
/* Of all processes together: a list is not to take all memory because of those that lie. */
#define IN_LIST	  (1u << 20)
/* Fields of the first version. */
#define ITEM_V1	  STRUCT_END(struct list_item, to)

struct asking {
	const struct kedge_regions_opts *opts;
	struct owner owner[AT_A_TIME];
	struct pollfd poll[AT_A_TIME];
	size_t cnt;
	uint64_t deadline;
	uint32_t late; /* how often it has passed */
	size_t heard; /* regions, of all owners */
	char page[PAGE_LEN]; /* that was read last */
};

void region_owner_forget(struct owner *o)
{
	free(o->item);
	o->item = NULL;
	o->cnt = o->room = 0;
}

static void done(struct owner *o, int status)
{
	clofork_close(&o->sock);
	if (status)
		region_owner_forget(o);
	o->status = status;
	o->state = DONE;
}

static void leave_out(struct owner *o)
{
	done(o, 0);
	region_owner_forget(o);
	o->left_out = true;
}

/* It has ended, or there are many that ask it. */
static void hung_up(struct owner *o)
{
	clofork_close(&o->sock);
	region_owner_forget(o);
	o->state = WAITS;
	if (++o->tries == TRIES)
		done(o, -EBUSY);
}

static void ask_for_more(struct owner *o)
{
	const struct list_ask q = { .magic = LIST_MAGIC, .version = LIST_VERSION,
				    .seq = (uint32_t)o->cnt };

	/* One that turned this one away unheard has said why. */
	if (send(o->sock.fd, &q, sizeof(q), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(q) &&
	    errno != EPIPE && errno != ECONNRESET)
		hung_up(o);
}

static void meet(struct owner *o, const struct kedge_regions_opts *opts)
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
	return kedge_reason(-err, "an owner of regions cannot be asked: error %d", err);
}

/* 0, or a negative errno of this process's. */
static int connect_to(struct owner *o, const struct kedge_regions_opts *opts)
{
	struct sockaddr_un a;
	socklen_t len = handle_address(o->name, false, &a);
	int rc = clofork_begin();

	if (!rc)
		rc = clofork_end(&o->sock, socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC |
						  SOCK_NONBLOCK, 0));
	if (rc)
		return error_no_fd(-rc) ? error_no_fd(-rc)
					: kedge_reason(rc, "no socket to ask an owner of regions "
						       "by: error %d", -rc);
	if (connect(o->sock.fd, (const struct sockaddr *)&a, len))
		return not_met(o, errno);
	meet(o, opts);
	return 0;
}

/* ---- what it says ---- */

static bool is_sound(const struct list_item *i, uint64_t after)
{
	return i->serial > after && i->addr <= UINT64_MAX - i->max_len && i->len <= i->max_len &&
	       i->page_size && !(i->page_size & (i->page_size - 1)) &&
	       i->state <= KEDGE_REGION_LEFT;
}

static int make_room(struct owner *o, uint32_t more)
{
	const size_t room = 2 * o->room + more;
	struct list_item *item;

	if (o->cnt + more > REGIONS)
		return -EFBIG;
	if (o->cnt + more <= o->room)
		return 0;
	item = realloc(o->item, room * sizeof(*item));
	if (!item)
		return -ENOMEM;
	o->item = item;
	o->room = room;
	return 0;
}

/* -EAGAIN: there are more to be asked for. */
static int take_items(struct owner *o, const struct list_head *h, const char *items)
{
	const size_t len = h->item_len < sizeof(*o->item) ? h->item_len : sizeof(*o->item);
	uint64_t after = o->cnt ? o->item[o->cnt - 1].serial : 0;
	int rc = make_room(o, h->cnt);
	uint32_t n;

	for (n = 0; n < h->cnt && !rc; n++) {
		o->item[o->cnt] = (struct list_item){ .serial = 0 };
		memcpy(&o->item[o->cnt], items + (size_t)n * h->item_len, len);
		if (!is_sound(&o->item[o->cnt], after))
			return -EPROTO;
		after = o->item[o->cnt++].serial;
	}
	o->limit = h->limit;
	o->used = h->used;
	return rc || !h->more ? rc : -EAGAIN;
}

/* The question goes to all peers: one of an earlier version says that it knows no such. */
static int take_refusal(const struct region_answer *a)
{
	switch (a->rc) {
	case -EACCES:
		return -EACCES;
	case -EPROTO:
		return -EOPNOTSUPP;
	case -EMFILE:
	case -ENFILE:
	case -ENOMEM:
		return -EBUSY;
	}
	return -EPROTO;
}

int region_owner_take(struct owner *o, const char *page, size_t len)
{
	struct region_answer a;
	struct list_head h;

	if (len == sizeof(a)) {
		memcpy(&a, page, sizeof(a));
		if (a.magic == REGION_MAGIC)
			return take_refusal(&a);
	}
	if (len < sizeof(h) || len > PAGE_LEN)
		return -EPROTO;
	memcpy(&h, page, sizeof(h));
	if (h.magic != LIST_MAGIC || h.version != LIST_VERSION || h.seq != (uint32_t)o->cnt ||
	    h.item_len < ITEM_V1 || h.item_len % 8 || h.cnt > PAGE_LEN / ITEM_V1 ||
	    len != sizeof(h) + (size_t)h.cnt * h.item_len)
		return -EPROTO;
	return take_items(o, &h, page + sizeof(h));
}

/* Descriptors that come with it are closed by the kernel, as there is no room for any. */
static ssize_t receive(int sock, char page[PAGE_LEN])
{
	ssize_t n = recv(sock, page, PAGE_LEN, MSG_DONTWAIT | MSG_TRUNC);

	/* An owner that turned this one away unheard: what it said is behind that. */
	if (n < 0 && errno == ECONNRESET)
		n = recv(sock, page, PAGE_LEN, MSG_DONTWAIT | MSG_TRUNC);
	return n;
}

static int hear(struct asking *a, struct owner *o)
{
	ssize_t n = receive(o->sock.fd, a->page);
	const size_t had = o->cnt;
	int rc;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0) {
		hung_up(o);
		return 0;
	}
	rc = region_owner_take(o, a->page, (size_t)n);
	a->heard += o->cnt - had;
	if (a->heard > IN_LIST)
		rc = -EFBIG;
	if (rc == -ENOMEM)
		return kedge_reason(rc, "no memory for a list of regions");
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
				rc = hear(a, &a->owner[i]);
		if (rc)
			return rc;
	}
}

/* ---- what is told of them ---- */

static struct kedge_region_entry entry_of(const struct owner *o, const struct list_item *i)
{
	return (struct kedge_region_entry){
		.pid = o->cred.pid, .uid = o->cred.uid, .gid = o->cred.gid,
		.budget_limit = o->limit, .budget_used = o->used,
		.addr = i->addr, .len = i->len, .max_len = i->max_len,
		.page_size = i->page_size, .state = i->state, .suspended = i->suspended,
		.handles = i->handles, .expired = i->expired, .revoked = i->revoked,
		.mapped = i->mapped, .local = i->local, .tcp = i->tcp, .inside = i->inside,
		.served = i->served, .served_bytes = i->served_bytes,
		.suspensions = i->suspensions, .missing = i->missing, .moves = i->moves,
		.migrations = i->migrations };
}

int region_owner_tell(const struct owner *o, found_fn *add, void *arg)
{
	const struct kedge_region_entry silent = { .status = o->status, .pid = o->cred.pid,
						   .uid = o->cred.uid, .gid = o->cred.gid };
	struct kedge_region_entry e;
	size_t i;
	int rc = 0;

	if (o->status)
		return add(arg, &silent, o->name, NULL);
	for (i = 0; i < o->cnt && !rc; i++) {
		e = entry_of(o, &o->item[i]);
		rc = add(arg, &e, o->name, &o->item[i].to);
	}
	return rc;
}

static int tell_all(struct asking *a, found_fn *add, void *arg)
{
	size_t i;
	int rc = 0;

	for (i = 0; i < a->cnt && !rc; i++) {
		/* One that was not even met has no pid here. */
		if (a->owner[i].state != DONE)
			done(&a->owner[i], -ETIMEDOUT);
		if (!a->owner[i].left_out)
			rc = region_owner_tell(&a->owner[i], add, arg);
	}
	return rc;
}

static int ask_some(struct asking *a, const uint64_t *name, size_t cnt, found_fn *add, void *arg)
{
	size_t i;
	int rc;

	a->cnt = cnt;
	a->deadline = clock_ns() + (a->opts->timeout_ms * UINT64_C(1000000) >> a->late);
	for (i = 0; i < cnt; i++) {
		a->owner[i] = (struct owner){ .name = name[i],
					      .cred = { .uid = (uid_t)-1, .gid = (gid_t)-1 } };
		clofork_init(&a->owner[i].sock);
	}
	rc = ask_all(a);
	if (!rc)
		rc = tell_all(a, add, arg);
	for (i = 0; i < cnt; i++) {
		clofork_close(&a->owner[i].sock);
		region_owner_forget(&a->owner[i]);
	}
	return rc;
}

int owners_ask(const struct kedge_regions_opts *o, found_fn *add, void *arg)
{
	struct asking *a = calloc(1, sizeof(*a));
	struct names n = { 0 };
	size_t i, cnt;
	int rc;

	if (!a)
		return kedge_reason(-ENOMEM, "no memory for a list of regions");
	rc = names_read(&n);
	for (i = 0; i < n.cnt && !rc; i += cnt) {
		cnt = n.cnt - i < AT_A_TIME ? n.cnt - i : AT_A_TIME;
		a->opts = o;
		rc = ask_some(a, n.name + i, cnt, add, arg);
	}
	free(n.name);
	free(a);
	return rc;
}
