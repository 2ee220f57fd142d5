// SPDX-License-Identifier: BSD-2-Clause
/*
 * Accesses that the thread "kedge-handles" does for peers that have not the memory. It does them
 * with shares_lock, which a suspension, a change of the length, a move and a revocation take
 * as well: each access is before or after them, and no gate is needed. One of several ranges has
 * all of them looked at before the first is stored, within one hold of the locks.
 *
 * The region is mapped once more for that: a program that has unmapped a part of its own mapping
 * may have other memory there now.
 */
#include <string.h>
#include <sys/mman.h>

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
	[STREAM_PUT_PARTS] = KEDGE_HANDLE_WRITE,
	[STREAM_GET_PARTS] = KEDGE_HANDLE_READ,
};

/*
 * The ranges of an access; a query has 0.
 *
 * @at:    @cnt of the handle's ranges, as they come: little-endian
 * @data:  their bytes, one after the other: @len
 * @start: of the handle in the region
 */
struct ranges {
	struct stream_range one;
	const struct stream_range *at;
	uint64_t cnt;
	char *data;
	uint64_t len;
	uint64_t start;
};

static struct stream_range range(const struct ranges *w, uint64_t i)
{
	return (struct stream_range){ le64toh(w->at[i].offset), le64toh(w->at[i].len) };
}

/* The table and the bytes, of a put those that came, of a get those of the answer, are PIECE_LEN at
 * most. */
static int read_table(const struct stream_req *q, char *data, struct ranges *w)
{
	const uint64_t most = PIECE_LEN / sizeof(*w->at);
	uint64_t table, i;

	if (!q->value || q->value > most)
		return -EINVAL;
	table = q->value * sizeof(*w->at);
	if (q->len < table)
		return -EINVAL;
	*w = (struct ranges){ .at = (const void *)data, .cnt = q->value, .data = data + table };
	for (i = 0; i < w->cnt; i++) {
		if (range(w, i).len > PIECE_LEN - table - w->len)
			return -EINVAL;
		w->len += range(w, i).len;
	}
	return q->len - table == (q->op == STREAM_PUT_PARTS ? w->len : 0) ? 0 : -EINVAL;
}

static int read_ranges(const struct stream_req *q, char *data, struct ranges *w)
{
	if (q->op == STREAM_PUT_PARTS || q->op == STREAM_GET_PARTS)
		return read_table(q, data, w);
	*w = (struct ranges){ .one = { htole64(q->offset), htole64(q->len) }, .at = &w->one,
			      .cnt = q->op != STREAM_QUERY, .data = data, .len = q->len };
	return 0;
}

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
	at = own_mmap(NULL, r->open_len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
		      r->fd, 0);
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

static int check_ranges(const struct stream_req *q, const struct ranges *w, uint64_t has)
{
	const bool number = q->op == STREAM_ADD || q->op == STREAM_SWAP;
	struct stream_range one;
	uint64_t i;

	if (number && (q->offset % sizeof(uint64_t) || q->len != sizeof(uint64_t)))
		return -EINVAL;
	for (i = 0; i < w->cnt; i++) {
		one = range(w, i);
		if (one.offset > has || one.len > has - one.offset)
			return -EFAULT;
	}
	/* Of an access of several requests not all may be there. */
	return q->end > has ? -EFAULT : 0;
}

static int check(const struct conn *c, const struct stream_req *q, const struct ranges *w,
		 uint64_t *has)
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
	return check_ranges(q, w, *has);
}

static void copy(char *start, const struct ranges *w, bool put)
{
	char *data = w->data;
	struct stream_range one;
	uint64_t i;

	for (i = 0; i < w->cnt; i++) {
		one = range(w, i);
		if (put)
			memcpy(start + one.offset, data, one.len);
		else
			memcpy(data, start + one.offset, one.len);
		data += one.len;
	}
}

/* @start: of the handle's bytes. */
static void access_it(char *start, const struct stream_req *q, const struct ranges *w,
		      struct stream_reply *a)
{
	uint64_t *number = (uint64_t *)(void *)(start + q->offset);

	switch (q->op) {
	case STREAM_PUT:
	case STREAM_PUT_PARTS:
		copy(start, w, true);
		break;
	case STREAM_GET:
	case STREAM_GET_PARTS:
		copy(start, w, false);
		a->len = w->len;
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

static void note_one(struct kedge_region *r, uint64_t from, uint64_t len)
{
	uint64_t page = from / kedge__page_size();

	for (; len && page <= (from + len - 1) / kedge__page_size(); page++)
		r->dirty[page / 64] |= UINT64_C(1) << page % 64;
}

/* With shares_lock, as the bits are taken: so the bytes are there before they are read again. */
static void note(struct kedge_region *r, const struct ranges *w)
{
	uint64_t i;

	for (i = 0; i < w->cnt; i++)
		note_one(r, w->start + range(w, i).offset, range(w, i).len);
}

/* An access of several requests counts once, with its first one. */
static void count(struct region_counts *n, const struct stream_req *q, const struct ranges *w)
{
	n->served += q->first == q->seq;
	n->served_bytes += w->len;
}

/* A gap is told in the handle's numbers. */
static int refuse(const struct conn *c, const struct gap *gap, struct stream_reply *a)
{
	const uint64_t start = gap->from < c->slot->offset ? c->slot->offset : gap->from;
	const uint64_t units = (gap->to - start) / STREAM_GAP_UNIT;

	a->value = start - c->slot->offset;
	a->gap = units < UINT32_MAX ? (uint32_t)units : UINT32_MAX;
	return -ENODATA;
}

/* A range has bytes of [@from, @to) of the region. */
static bool touches(const void *ranges, uint64_t from, uint64_t to)
{
	const struct ranges *w = ranges;
	struct stream_range one;
	uint64_t i;

	for (i = 0; i < w->cnt; i++) {
		one = range(w, i);
		if (one.len && w->start + one.offset < to && w->start + one.offset + one.len > from)
			return true;
	}
	return false;
}

/* One look for all: the kernel's list of mappings is opened once, however many ranges a peer asks
 * for. */
static int look(const struct kedge_region *r, const struct ranges *w, struct gap *found)
{
	uint64_t from = UINT64_MAX, to = 0, i;
	struct stream_range one;

	for (i = 0; i < w->cnt; i++) {
		one = range(w, i);
		if (!one.len)
			continue;
		from = one.offset < from ? one.offset : from;
		to = one.offset + one.len > to ? one.offset + one.len : to;
	}
	if (!to)
		return 0;
	return look_at_access(r, w->start + from, w->start + to, touches, w, found);
}

/* With gaps_lock. A gap that a range touches, or NULL. */
static const struct gap *find_gap(const struct gaps *g, const struct ranges *w)
{
	const struct gap *gap = NULL;
	struct stream_range one;
	uint64_t from, i;

	for (i = 0; i < w->cnt && !gap; i++) {
		one = range(w, i);
		from = w->start + one.offset;
		gap = one.len ? gaps_find(g, from, from + one.len) : NULL;
	}
	return gap;
}

/* With gaps_lock, so the access is before a change is heard of, or after it. A change that is not
 * told of is found by a look, which begins after the access has. */
static int access_checked(struct conn *c, const struct stream_req *q, const struct ranges *w,
			  struct stream_reply *a)
{
	const struct gap *gap;
	struct gap found;
	int rc = 0;

	if (w->len && look_is_needed(c->region))
		rc = look(c->region, w, &found);
	if (rc)
		return rc == -ENODATA ? refuse(c, &found, a) : rc;
	sig_lock_blocked(&gaps_lock);
	gap = find_gap(&c->region->gaps, w);
	if (gap)
		rc = refuse(c, gap, a);
	else
		access_it(c->region->view + w->start, q, w, a);
	sig_unlock_blocked(&gaps_lock);
	return rc;
}

/* With shares_lock. */
static int do_it(struct conn *c, const struct stream_req *q, struct ranges *w,
		 struct stream_reply *a)
{
	struct kedge_region *r = c->region;
	int rc = check(c, q, w, &a->has);

	if (rc || q->op == STREAM_QUERY)
		return rc;
	w->start = c->slot->offset;
	rc = served_view(r);
	if (!rc)
		rc = access_checked(c, q, w, a);
	if (rc)
		return rc;
	count(&r->counts, q, w);
	if (r->dirty && q->op != STREAM_GET && q->op != STREAM_GET_PARTS)
		note(r, w);
	return 0;
}

int served_do(struct conn *c, const struct stream_req *q, char *data, struct stream_reply *a)
{
	struct ranges w;

	*a = (struct stream_reply){ .seq = q->seq };
	a->rc = read_ranges(q, data, &w);
	if (a->rc)
		return a->rc;
	sig_lock_blocked(&shares_lock);
	a->rc = do_it(c, q, &w, a);
	sig_unlock_blocked(&shares_lock);
	return a->rc;
}
