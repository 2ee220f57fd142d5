// SPDX-License-Identifier: BSD-2-Clause
/*
 * Requests of an access to several ranges. A table and data go out from where they are, and data
 * comes to where it belongs: no memory is taken, and what is no memory of the program is told by
 * the system. So a message is made as it goes out, a batch at a time, from the bytes on that
 * have gone.
 */
#include "region/peer/pieces.h"

/* ---- which ranges ---- */

static uint64_t table_len(uint64_t ranges)
{
	return ranges > 1 ? ranges * sizeof(struct stream_range) : 0;
}

static bool fits(const struct piece *p, uint64_t more)
{
	const uint64_t len = table_len(p->cnt + 1) + p->len;

	return len <= PIECE_LEN && more <= PIECE_LEN - len;
}

bool piece_find(const struct kedge_remote_part *part, size_t cnt, struct place_in *at,
		struct piece *p)
{
	size_t i;

	while (at->part < cnt && at->off == part[at->part].len)
		*at = (struct place_in){ at->part + 1, 0 };
	if (at->part == cnt)
		return false;
	*p = (struct piece){ .part = &part[at->part], .off = at->off, .cnt = 1, .span = 1,
			     .len = part[at->part].len - at->off };
	if (p->off || p->len > PIECE_LEN) {
		p->len = p->len < PIECE_LEN ? p->len : PIECE_LEN;
		return true;
	}
	for (i = at->part + 1; i < cnt && (!part[i].len || fits(p, part[i].len)); i++) {
		if (!part[i].len)
			continue;
		p->cnt++;
		p->len += part[i].len;
		p->span = i + 1 - at->part;
	}
	return true;
}

void piece_pass(const struct piece *p, struct place_in *at)
{
	if (p->cnt > 1)
		*at = (struct place_in){ at->part + p->span, 0 };
	else
		at->off += p->len;
}

void piece_ask(const struct piece *p, struct stream_req *q)
{
	const bool put = q->op == STREAM_PUT;

	if (p->cnt == 1) {
		q->offset = p->part->offset + p->off;
		q->len = p->len;
		return;
	}
	q->op = put ? STREAM_PUT_PARTS : STREAM_GET_PARTS;
	q->offset = 0;
	q->len = table_len(p->cnt) + (put ? p->len : 0);
	q->value = p->cnt;
}

uint64_t piece_sends(const struct stream_req *q)
{
	const bool more = q->op == STREAM_PUT || q->op == STREAM_PUT_PARTS ||
			  q->op == STREAM_GET_PARTS;

	return more ? q->len : 0;
}

/* ---- their bytes ---- */

bool batch_add(struct batch *b, void *data, uint64_t len)
{
	if (!len)
		return true;
	if (b->cnt == BATCH)
		return false;
	b->v[b->cnt++] = (struct iovec){ data, (size_t)len };
	return true;
}

/* From byte @skip of the table on. */
static bool add_table(struct batch *b, const struct piece *p, uint64_t skip)
{
	struct stream_range *to = &b->range[b->range_cnt];
	uint64_t before = skip / sizeof(*to), n = 0;
	size_t i;

	for (i = 0; i < p->span && b->range_cnt < BATCH; i++) {
		if (!p->part[i].len || (before && before--))
			continue;
		b->range[b->range_cnt++] = (struct stream_range){ htole64(p->part[i].offset),
								  htole64(p->part[i].len) };
		n++;
	}
	skip %= sizeof(*to);
	return (!n || batch_add(b, (char *)to + skip, n * sizeof(*to) - skip)) && i == p->span;
}

bool batch_add_data(struct batch *b, const struct piece *p, uint64_t skip)
{
	uint64_t left = p->len - skip, len;
	size_t i;

	skip += p->off;
	for (i = 0; i < p->span && left; i++) {
		len = p->part[i].len;
		if (skip >= len) {
			skip -= len;
			continue;
		}
		len = len - skip < left ? len - skip : left;
		if (!batch_add(b, (char *)p->part[i].data + skip, len))
			return false;
		left -= len;
		skip = 0;
	}
	return true;
}

bool batch_add_request(struct batch *b, const struct piece *p, bool put, uint64_t skip)
{
	const uint64_t table = table_len(p->cnt);

	if (skip < table) {
		if (!add_table(b, p, skip))
			return false;
		skip = table;
	}
	return !put || batch_add_data(b, p, skip - table);
}
