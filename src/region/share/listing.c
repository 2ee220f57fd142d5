// SPDX-License-Identifier: BSD-2-Clause
/*
 * Regions of this process, told to its user and to root: where they are, their peers and what has
 * become of them, and no word of a handle. So a list gives no right to a region.
 *
 * The thread that answers does accesses as well, and shares_lock keeps all others waiting. So one
 * question has some regions told, in one packet that is not waited for, and what it looks at of
 * each is bounded: handles and peers are counted as they come and go, and are gone through only
 * where they are few. A peer's place in the list is an entry of the list, which stays right
 * whatever is made and closed between two questions.
 */
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <kedge/region_list.h>

#include "base/base.h"
#include "region/share/share.h"

#define LOOKS 256u  /* at the handles of a region, or its peers */
#define WORK  1024u /* for a question, after which no further region is begun */

/* Guarded by shares_lock: */
static struct list regions = { &regions, &regions };
static uint64_t last_serial;

/* The thread's: its stack is small. */
static struct {
	struct list_head head;
	struct list_item item[LIST_ITEMS];
} page;

void regions_add(struct kedge_region *r)
{
	sig_lock(&shares_lock);
	r->listed.region = r;
	r->serial = ++last_serial;
	r->uid = geteuid();
	list_add_tail(&regions, &r->listed.node);
	sig_unlock(&shares_lock);
}

void regions_remove(struct kedge_region *r)
{
	sig_lock(&shares_lock);
	list_remove(&r->listed.node);
	sig_unlock(&shares_lock);
}

void regions_forget(void)
{
	list_init(&regions);
}

/* ---- one region, with shares_lock ---- */

static enum kedge_region_state state_of(const struct kedge_region *r)
{
	const int refuses = atomic_load(&r->refuses);

	if (r->stage == REGION_LEFT)
		return KEDGE_REGION_LEFT;
	if (r->comes)
		return KEDGE_REGION_COMING;
	if (refuses == -EINPROGRESS)
		return KEDGE_REGION_IN_DOUBT;
	if (refuses || r->stage != REGION_HERE)
		return KEDGE_REGION_MIGRATING;
	return atomic_load(&r->moving) ? KEDGE_REGION_MOVING : KEDGE_REGION_HERE;
}

static uint32_t expired(const struct kedge_region *r, uint64_t now)
{
	const struct list *l;
	const struct slot *s;
	uint32_t n = 0;

	if (r->counts.handles > LOOKS)
		return KEDGE_REGION_UNKNOWN;
	for (l = r->slots.next; l != &r->slots; l = l->next) {
		s = list_entry(l, struct slot, node);
		n += s->expires && now >= s->expires;
	}
	return n;
}

/* Peers, not accesses: the number in a gate is its peer's word. */
static uint32_t inside(const struct kedge_region *r)
{
	const uint32_t *peers = r->counts.peers;
	const struct list *l;
	const struct conn *c;
	uint32_t n = 0;

	if ((uint64_t)peers[PEER_MAPPED] + peers[PEER_LOCAL] + peers[PEER_TCP] > LOOKS)
		return KEDGE_REGION_UNKNOWN;
	for (l = r->conns.next; l != &r->conns; l = l->next) {
		c = list_entry(l, struct conn, of_region);
		n += c->lingers || (c->gate && !gate_is_empty(c->gate));
	}
	return n;
}

static uint64_t missing(const struct kedge_region *r)
{
	uint64_t len;

	sig_lock_blocked(&gaps_lock);
	len = gaps_len(&r->gaps);
	sig_unlock_blocked(&gaps_lock);
	return len;
}

/* The length is what peers may access: the region's own has a lock that is held for long. */
static void describe(const struct kedge_region *r, uint64_t now, struct list_item *i)
{
	const struct region_counts *n = &r->counts;

	*i = (struct list_item){
		.serial = r->serial, .addr = (uintptr_t)r->at, .max_len = r->max_len,
		.page_size = r->page_size, .state = state_of(r), .suspended = r->suspended,
		.handles = n->handles, .expired = expired(r, now), .revoked = n->revoked,
		.mapped = n->peers[PEER_MAPPED], .local = n->peers[PEER_LOCAL],
		.tcp = n->peers[PEER_TCP], .inside = inside(r), .served = n->served,
		.served_bytes = n->served_bytes, .suspensions = n->suspensions,
		.missing = missing(r), .moves = r->epoch, .migrations = n->migrations };
	if (r->stage == REGION_LEFT)
		i->to = r->left_to;
	else
		i->len = r->open_len;
}

/* ---- a question ---- */

static uint32_t work_of(const struct list_item *i)
{
	return 1 + (i->expired == KEDGE_REGION_UNKNOWN ? 0 : i->handles) +
	       (i->inside == KEDGE_REGION_UNKNOWN ? 0 : i->mapped + i->local + i->tcp);
}

/* With shares_lock. What was made under another user id is that user's. */
static uint32_t fill(struct conn *c, uid_t uid)
{
	struct list *l = list_empty(&c->at.node) ? &regions : &c->at.node;
	const uint64_t now = clock_ns();
	const struct kedge_region *r;
	uint32_t work = 0, cnt = 0;

	for (l = l->next; l != &regions && cnt < LIST_ITEMS && work < WORK; l = l->next) {
		r = list_entry(l, struct listed, node)->region;
		work++;
		if (!r || (uid && uid != r->uid))
			continue;
		describe(r, now, &page.item[cnt]);
		work += work_of(&page.item[cnt++]);
	}
	list_remove(&c->at.node);
	if (l != &regions)
		list_add_tail(l, &c->at.node);
	page.head.more = l != &regions;
	return cnt;
}

int regions_answer(struct conn *c, const struct list_ask *q)
{
	struct ucred peer;
	size_t size;

	if (q->magic != LIST_MAGIC || q->version != LIST_VERSION)
		return -EPROTO;
	/* Both may have become another user's since the connection was made. */
	if (give_may(c->fd, &peer))
		return -EACCES;
	page.head = (struct list_head){ .magic = LIST_MAGIC, .version = LIST_VERSION,
					.seq = q->seq, .item_len = sizeof(page.item[0]),
					.limit = budget_limit(), .used = budget_used() };
	sig_lock_blocked(&shares_lock);
	page.head.cnt = fill(c, peer.uid);
	sig_unlock_blocked(&shares_lock);
	size = sizeof(page.head) + page.head.cnt * sizeof(page.item[0]);
	return syscall(SYS_sendto, c->fd, &page, size, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0) ==
			       (long)size ? 0 : -EAGAIN;
}
