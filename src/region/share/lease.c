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
 * pages stay as long as the lease, also if the program unmaps its own mapping. So leases
 * are recalled before the program's call that unmaps returns (watch/watch.c), and are not given as
 * long as a part is missing.
 *
 * The leases of one handle share a loan: the memory is registered once for all of them, with one
 * key, and each has a line of its own. This is as safe as a loan each:
 * - A key is of use by the lines of its loan alone, as each loan has a protection domain. So leases
 *   of two handles have no part in each other: a handle to read has no line to the key of one to
 *   write, nor one of a part to the rest.
 * - All that have a line of the loan have the same handle, which gives them that memory, with those
 *   rights. A peer that forges packets of another one's line gets what its own handle gives.
 * - A lease that ends has its line closed first. The key that its peer knows is of no use to it
 *   then, as long as others have it, too: no line takes its packets.
 * - A call that changes what the handle gives, or the pages behind it, goes on once no lease of the
 *   handle is left (gates.c looks at @leased of each). The last one that ends, whichever that is,
 *   ends the loan before it counts as ended; so no key is alive then, and a peer that knows one has
 *   no line. Leases that are given later have a registration and lines of their own.
 * - The region may be longer meanwhile, and be mapped anew for that. Then there is another loan for
 *   the leases to come, as long as the former has any; its pages are the same file's.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "region/keeper.h"
#include "region/share/share.h"
#include "region/stream.h"
#include "region/watch/look.h"

/*
 * Guarded by shares_lock.
 * @leases: that have a line of it; the last one that ends ends it
 * @view:   of the region's mappings (@views) that which is lent, @len bytes of the handle's part
 * @place:  the address that the adapter has
 */
struct loan {
	struct fabric_loan *lent;
	uint32_t key;
	unsigned int leases;
	uint64_t view;
	uint64_t len;
	unsigned char place[16];
};

/* ---- from any thread ---- */

/* With gaps_lock. */
static bool recall(struct kedge_region *r, const struct slot *s, bool cut)
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

bool leases_recall(struct kedge_region *r, const struct slot *s, bool cut)
{
	bool any;

	sig_lock(&gaps_lock);
	any = recall(r, s, cut);
	sig_unlock(&gaps_lock);
	return any;
}

bool leases_any(const struct kedge_region *r)
{
	struct list *l, *tmp;

	list_for_each_safe(l, tmp, &r->conns)
		if (list_entry(l, struct conn, of_region)->leased)
			return true;
	return false;
}

bool leases_stop(struct kedge_region *r, bool cut)
{
	r->changing = true;
	return recall(r, NULL, cut);
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

void leases_wake(void)
{
	write_nudge(&nudge);
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
	return fabric() && !look_is_needed(s->region) ? 0 : -EOPNOTSUPP;
}

/* True: what the program changes from now on ends it first. */
static bool begin_lease(struct conn *c)
{
	const struct kedge_region *r = c->slot->region;
	bool may;

	sig_lock_blocked(&gaps_lock);
	may = r->noticed && !r->changing && !r->gaps.cnt;
	c->leased = may;
	c->recalled = c->recall_said = c->cut = false;
	sig_unlock_blocked(&gaps_lock);
	return may;
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

/* With shares_lock. The peers of a handle that have a lease have one loan, or two: the region has
 * grown since those of one were given. */
static struct loan *loan_of(const struct slot *s, const unsigned char place[16], uint64_t len)
{
	struct list *l, *tmp;
	struct loan *n;

	list_for_each_safe(l, tmp, &s->conns) {
		n = list_entry(l, struct conn, of_slot)->loan;
		if (n && n->view == s->region->views && n->len == len &&
		    !memcmp(n->place, place, sizeof(n->place)))
			return n;
	}
	return NULL;
}

static struct loan *make_loan(const struct slot *s, const unsigned char place[16], uint64_t len,
			      int *rc)
{
	struct loan *n = calloc(1, sizeof(*n));

	*rc = -ENOMEM;
	if (!n)
		return NULL;
	n->view = s->region->views;
	n->len = len;
	memcpy(n->place, place, sizeof(n->place));
	*rc = fabric()->lend(place, s->region->view + s->offset, len,
			     s->access & KEDGE_HANDLE_WRITE, &n->lent, &n->key);
	if (!*rc)
		return n;
	free(n);
	return NULL;
}

static void end_line(struct conn *c)
{
	struct loan *n = c->loan;

	if (c->line)
		fabric()->close(c->line);
	c->line = NULL;
	c->loan = NULL;
	if (!n || --n->leases)
		return;
	fabric()->unlend(n->lent);
	free(n);
}

static int open_line(struct conn *c, struct loan *n, const unsigned char place[16],
		     struct fabric_end *end)
{
	int rc;

	c->loan = n;
	n->leases++;
	rc = fabric()->open(place, n->lent, &c->line, end);
	if (rc)
		end_line(c);
	return rc;
}

/* With shares_lock. */
static int borrow(struct conn *c, const unsigned char place[16], uint64_t len,
		  struct fabric_end *end)
{
	struct loan *n = loan_of(c->slot, place, len);
	int rc;

	/* The device that had the address then may be gone, and another have it. */
	if (n && !open_line(c, n, place, end))
		return 0;
	n = make_loan(c->slot, place, len, &rc);
	return n ? open_line(c, n, place, end) : rc;
}

/* With shares_lock. */
static int lend(struct conn *c, const struct fabric_end *peer, struct stream_lease *out)
{
	const struct slot *s = c->slot;
	const uint64_t len = part_of(s, s->region->open_len);
	unsigned char place[16];
	int rc = place_of(c->fd, place);

	if (!rc && !len)
		rc = -EAGAIN;
	if (!rc && !begin_lease(c))
		rc = -EAGAIN;
	if (!rc)
		rc = served_view(s->region);
	if (!rc)
		rc = borrow(c, place, len, &out->end);
	if (!rc)
		rc = fabric()->join(c->line, peer);
	if (rc) {
		lease_end(c);
		return rc;
	}
	out->at = htole64((uintptr_t)s->region->view + s->offset);
	out->len = htole64(len);
	out->key = htole32(c->loan->key);
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
	end_line(c);
	sig_lock_blocked(&gaps_lock);
	c->leased = false;
	sig_unlock_blocked(&gaps_lock);
}

/* One that is cut is told as well: it would find out by an error. */
bool lease_look(struct conn *c)
{
	bool tell, over;

	sig_lock_blocked(&shares_lock);
	sig_lock_blocked(&gaps_lock);
	over = c->leased && (c->cut || !c->region);
	tell = c->recalled && !c->recall_said;
	sig_unlock_blocked(&gaps_lock);
	if (over)
		lease_end(c);
	sig_unlock_blocked(&shares_lock);
	return tell;
}
