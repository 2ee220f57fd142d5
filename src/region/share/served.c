// SPDX-License-Identifier: BSD-2-Clause
/*
 * Accesses that the thread "kedge-handles" does for peers that have not the memory. It does them
 * with shares_lock, which a suspension, a change of the length, a move and a revocation take
 * as well: each access is before or after them, and no gate is needed.
 *
 * The region is mapped once more for that: a program that has unmapped a part of its own mapping
 * may have other memory there now.
 */
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "base/process/own.h"
#include "region/share/share.h"
#include "region/stream.h"
#include "region/watch/look.h"

static const uint32_t needs[] = {
	[STREAM_PUT] = KEDGE_HANDLE_WRITE,
	[STREAM_GET] = KEDGE_HANDLE_READ,
	[STREAM_ADD] = KEDGE_HANDLE_ATOMIC,
	[STREAM_SWAP] = KEDGE_HANDLE_ATOMIC,
	[STREAM_QUERY] = KEDGE_HANDLE_READ | KEDGE_HANDLE_WRITE | KEDGE_HANDLE_ATOMIC,
};

void served_end(struct kedge_region *r)
{
	if (r->view)
		own_unmap(r->view, r->view_len);
	r->view = NULL;
}

/* Its pages as they are, all that peers may access. */
int served_view(struct kedge_region *r)
{
	long at;

	if (r->view && r->view_epoch == r->epoch && r->view_len >= r->open_len)
		return 0;
	served_end(r);
	at = syscall(SYS_mmap, NULL, r->open_len, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_NORESERVE, r->fd, 0);
	if (at == -1)
		return -ENOMEM;
	r->view = (char *)at;
	r->view_len = r->open_len;
	r->view_epoch = r->epoch;
	r->views++;
	if (!madvise(r->view, r->view_len, MADV_DONTFORK))
		return 0;
	served_end(r);
	return -ENOMEM;
}

static int check_range(const struct stream_req *q, uint64_t has)
{
	const bool number = q->op == STREAM_ADD || q->op == STREAM_SWAP;

	if (number && (q->offset % sizeof(uint64_t) || q->len != sizeof(uint64_t)))
		return -EINVAL;
	if (q->offset > has || q->len > has - q->offset)
		return -EFAULT;
	/* A piece of an access of which not all is there. */
	return q->end > has ? -EFAULT : 0;
}

static int check(const struct conn *c, const struct stream_req *q, uint64_t *has)
{
	const struct slot *s = c->slot;
	int rc = s ? slot_state(s) : -EKEYREVOKED;

	if (c->moved)
		return REGION_MOVED;
	if (rc)
		return rc;
	*has = part_of(s, s->region->open_len);
	if (!(s->access & needs[q->op]))
		return -EACCES;
	if (q->op == STREAM_QUERY)
		return 0;
	if (s->region->suspended || s->region->stage == REGION_LEAVING)
		return -EAGAIN;
	return check_range(q, *has);
}

static void access_it(char *at, const struct stream_req *q, void *data, struct stream_reply *a)
{
	uint64_t *number = (uint64_t *)(void *)at;

	switch (q->op) {
	case STREAM_PUT:
		memcpy(at, data, q->len);
		break;
	case STREAM_GET:
		memcpy(data, at, q->len);
		a->len = q->len;
		break;
	case STREAM_ADD:
		a->value = __atomic_fetch_add(number, q->value, __ATOMIC_SEQ_CST);
		break;
	case STREAM_SWAP:
		a->value = q->value;
		__atomic_compare_exchange_n(number, &a->value, q->other, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
	}
}

/* With shares_lock, as the bits are taken: so the bytes are there before they are read again. */
static void note(struct kedge_region *r, uint64_t from, uint64_t len)
{
	uint64_t page = from / kedge__page_size();

	for (; len && page <= (from + len - 1) / kedge__page_size(); page++)
		r->dirty[page / 64] |= UINT64_C(1) << page % 64;
}

/* An access of several pieces counts once, with its first one. */
static void count(struct region_counts *n, const struct stream_req *q)
{
	n->served += q->first == q->seq;
	n->served_bytes += q->len;
}

/* What is missing is told in the handle's numbers. */
static int refuse(const struct conn *c, const struct gap *gap, struct stream_reply *a)
{
	const uint64_t start = gap->from < c->slot->offset ? c->slot->offset : gap->from;
	const uint64_t units = (gap->to - start) / STREAM_GAP_UNIT;

	a->value = start - c->slot->offset;
	a->gap = units < UINT32_MAX ? (uint32_t)units : UINT32_MAX;
	return -ENODATA;
}

/* With gaps_lock, so the access is before a change is heard of, or after it. A change that is not
 * told of is found by a look, which begins after the access has. */
static int access_checked(struct conn *c, const struct stream_req *q, void *data,
			  struct stream_reply *a)
{
	const uint64_t from = c->slot->offset + q->offset;
	const struct gap *gap;
	struct gap found;
	int rc = 0;

	if (q->len && look_is_needed(c->region))
		rc = look_at_access(c->region, from, from + q->len, &found);
	if (rc)
		return rc == -ENODATA ? refuse(c, &found, a) : rc;
	sig_lock_blocked(&gaps_lock);
	gap = q->len ? gaps_find(&c->region->gaps, from, from + q->len) : NULL;
	if (gap)
		rc = refuse(c, gap, a);
	else
		access_it(c->region->view + from, q, data, a);
	sig_unlock_blocked(&gaps_lock);
	return rc;
}

int served_do(struct conn *c, const struct stream_req *q, void *data, struct stream_reply *a)
{
	int rc;

	*a = (struct stream_reply){ .seq = q->seq };
	sig_lock_blocked(&shares_lock);
	rc = check(c, q, &a->has);
	if (!rc)
		rc = served_view(c->region);
	if (!rc)
		rc = access_checked(c, q, data, a);
	if (!rc && q->op != STREAM_QUERY)
		count(&c->region->counts, q);
	if (!rc && c->region->dirty && q->op != STREAM_GET)
		note(c->region, c->slot->offset + q->offset, q->len);
	sig_unlock_blocked(&shares_lock);
	a->rc = rc;
	return rc;
}
