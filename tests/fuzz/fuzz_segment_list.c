// SPDX-License-Identifier: BSD-2-Clause
/*
 * Answers of an owner of segments, and lines of /proc/net/unix: a list that passes is sound,
 * in the order that it has to be in, and no longer than an owner's may be.
 */
#include "feed.h"
#include "segment/owners.h"

static void check(const struct owner *o)
{
	size_t i;

	CHECK(o->cnt <= SEGMENTS);
	for (i = 0; i < o->cnt; i++) {
		CHECK(!i || o->item[i].serial < o->item[i - 1].serial);
		CHECK(o->item[i].addr + o->item[i].len >= o->item[i].addr);
		CHECK(o->item[i].backend == KEDGE_SEGMENT_COPY ||
		      o->item[i].backend == KEDGE_SEGMENT_CONVERT);
	}
}

static int count(void *to, const struct kedge_segment_entry *e)
{
	CHECK(memchr(e->reason, 0, sizeof(e->reason)));
	++*(size_t *)to;
	return 0;
}

/* Pages one after the other, each as long as the input says, and no longer than it is. */
static void pages(struct bytes *in)
{
	struct owner o = { .sock = { .fd = -1 } };
	size_t len, there, told = 0;
	struct seg_page p;
	int rc = -EAGAIN;

	while (rc == -EAGAIN && in->left) {
		len = take_number(in, 2) % (sizeof(p) + 8);
		there = len < in->left ? len : in->left;
		memset(&p, 0xa5, sizeof(p));
		memcpy(&p, in->at, there < sizeof(p) ? there : sizeof(p));
		in->at += there;
		in->left -= there;
		rc = segment_owner_take(&o, &p, len);
		CHECK(rc == 0 || rc == -EAGAIN || rc == -EPROTO || rc == -EACCES ||
		      rc == -EBUSY);
	}
	o.status = rc == -EAGAIN ? 0 : rc;
	if (!o.status)
		check(&o);
	CHECK(!segment_owner_tell(&o, count, &told) && told == (o.status ? 1 : o.cnt));
	segment_owner_forget(&o);
}

static void line(const struct bytes *in)
{
	char *text = text_copy(in->at, in->left), name[64];
	uint32_t n;

	if (segment_owner_name(text, &n)) {
		CHECK(n < 1u << ID_NAME_BITS);
		snprintf(name, sizeof(name), "@kedge-segment-%06x\n", n);
		CHECK(strstr(text, name));
	}
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct bytes in = { data, len };

	if (take(&in) & 1)
		line(&in);
	else
		pages(&in);
	return 0;
}
