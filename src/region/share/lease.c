// SPDX-License-Identifier: BSD-2-Clause
/*
 * A lease: a peer of another host puts and gets by its adapter, past this process's processor. It
 * has a connection of its own for that, by which the lease is asked for, recalled, and given back;
 * its other accesses, and those that a lease is not for, are done here as before.
 *
 * This process does not see an access by an adapter. So a call that changes the region recalls its
 * leases first, and waits: the peer gives a lease back when its access is over, and begins no
 * other. A region that is suspended, or on its way, has none. A peer that does not give it back
 * makes a suspension fail, as one does that stays in an access; where the memory itself goes, or
 * the right to it, the lease is cut: the adapter takes no more packets of that peer.
 *
 * The memory that is lent is that of the mapping that accesses are done by here (served.c), and its
 * pages stay as long as the lease: an unmapping by the program changes nothing of that.
 */
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "region/keeper.h"
#include "region/share/share.h"
#include "region/stream.h"

/* ---- from any thread ---- */

bool leases_recall(struct kedge_region *r, const struct slot *s, bool cut)
{
	struct list *l, *tmp;
	struct conn *c;
	bool any = false;

	list_for_each_safe(l, tmp, &r->conns) {
		c = list_entry(l, struct conn, of_region);
		if (!c->leased || (s && c->slot != s))
			continue;
		c->recalled = true;
		c->cut |= cut;
		any = true;
	}
	return any;
}

static int write_nudge(void *fd)
{
	const uint64_t one = 1;

	return syscall(SYS_write, *(int *)fd, &one, sizeof(one)) == sizeof(one) ? 0 : -errno;
}

static int nudge = -1;

void leases_nudge_is(int fd)
{
	nudge = fd;
}

bool leases_nudge(void)
{
	return !keeper_call(write_nudge, &nudge);
}

/* ---- by the thread of serve.c ---- */

static int check(const struct conn *c, uint64_t len)
{
	const uint32_t both = KEDGE_HANDLE_READ | KEDGE_HANDLE_WRITE;
	const struct slot *s = c->slot;
	int rc = s ? slot_state(s) : -EKEYREVOKED;

	if (c->moved)
		return REGION_MOVED;
	if (rc)
		return rc;
	if (len != sizeof(struct fabric_end) || c->line)
		return -EPROTO;
	/* A handle that ends by itself would have to be recalled at its time; and a peer that may
	 * write alone could read what it has put, which is how it is known to be there. */
	if (c->local || s->served || s->expires || (s->access & both) == KEDGE_HANDLE_WRITE)
		return -EOPNOTSUPP;
	if (s->region->suspended || s->region->unlent || s->region->stage != REGION_HERE)
		return -EAGAIN;
	return fabric() ? 0 : -EOPNOTSUPP;
}

static int place_of(int fd, unsigned char place[16])
{
	union place a;
	socklen_t len = sizeof(a);

	if (syscall(SYS_getsockname, fd, &a, &len))
		return -errno;
	stream_place(&a, place);
	return 0;
}

/* With shares_lock. */
static int lend(struct conn *c, const struct fabric_end *peer, struct stream_lease *out)
{
	const struct slot *s = c->slot;
	const uint64_t len = part_of(s, s->region->open_len);
	uint32_t key = 0;
	unsigned char place[16];
	int rc = place_of(c->fd, place);

	if (!rc && !len)
		rc = -EAGAIN;
	if (!rc)
		rc = served_view(s->region);
	if (!rc)
		rc = fabric()->open(place, false, &c->line, &out->end);
	if (rc)
		return rc;
	rc = fabric()->lend(c->line, s->region->view + s->offset, len,
			    s->access & KEDGE_HANDLE_WRITE, &key);
	if (!rc)
		rc = fabric()->join(c->line, peer);
	if (rc) {
		lease_end(c);
		return rc;
	}
	out->at = htole64((uintptr_t)s->region->view + s->offset);
	out->len = htole64(len);
	out->key = htole32(key);
	c->leased = true;
	c->recalled = c->recall_said = c->cut = false;
	return 0;
}

void lease_give(struct conn *c, const struct stream_req *q, void *data, struct stream_reply *a)
{
	struct stream_lease out = { .zero = 0 };
	struct fabric_end peer;

	*a = (struct stream_reply){ .seq = q->seq };
	sig_lock_blocked(&shares_lock);
	a->rc = check(c, q->len);
	if (!a->rc) {
		memcpy(&peer, data, sizeof(peer));
		a->rc = lend(c, &peer, &out);
	}
	sig_unlock_blocked(&shares_lock);
	if (a->rc)
		return;
	memcpy(data, &out, sizeof(out));
	a->len = sizeof(out);
}

void lease_end(struct conn *c)
{
	if (c->line)
		fabric()->close(c->line);
	c->line = NULL;
	c->leased = false;
}

/* One that is cut is told as well: it would find out by an error. */
bool lease_look(struct conn *c)
{
	bool tell;

	sig_lock_blocked(&shares_lock);
	if (c->leased && (c->cut || !c->region))
		lease_end(c);
	tell = c->recalled && !c->recall_said;
	sig_unlock_blocked(&shares_lock);
	return tell;
}
