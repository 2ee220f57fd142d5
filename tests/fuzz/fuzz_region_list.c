// SPDX-License-Identifier: BSD-2-Clause
/*
 * Answers of an owner of regions, and lines of /proc/net/unix: a list that passes is sound, in
 * the order that it has to be in, and no longer than an owner's may be; and a place is no text
 * but that of an address.
 */
#include <ctype.h>

#include "feed.h"
#include "region/list/list.h"

static void check(const struct owner *o)
{
	const struct list_item *i;
	size_t n;

	CHECK(o->cnt <= REGIONS && o->cnt <= o->room);
	for (n = 0; n < o->cnt; n++) {
		i = &o->item[n];
		CHECK(!n || i->serial > i[-1].serial);
		CHECK(i->len <= i->max_len && i->addr + i->max_len >= i->addr);
		CHECK(i->page_size && i->state <= KEDGE_REGION_LEFT);
	}
}

static void check_list(struct kedge_regions *l, const struct owner *o)
{
	struct kedge_region_entry e = { .size = sizeof(e) };
	size_t n = 0;
	const char *c;

	found_name_owners(l);
	while (kedge_regions_next(l, &e) > 0) {
		n++;
		CHECK(e.status == o->status && memchr(e.to, 0, sizeof(e.to)));
		for (c = e.to; *c; c++)
			CHECK(isxdigit((unsigned char)*c) || strchr("[].:", *c));
	}
	CHECK(n == (o->status ? 1 : o->cnt));
}

/* Pages one after the other, each as long as the input says, and no longer than it is. */
static void pages(struct bytes *in)
{
	static char page[PAGE_LEN];
	struct kedge_regions l = { .host = 1 };
	struct owner o = { .sock = { .fd = -1 }, .name = 7 };
	struct list_head h;
	size_t len, there;
	int rc = -EAGAIN;

	while (rc == -EAGAIN && in->left) {
		len = take_number(in, 2);
		there = len < in->left ? len : in->left;
		memset(page, 0xa5, sizeof(page));
		memcpy(page, in->at, there);
		in->at += there;
		in->left -= there;
		/* Words that the fuzzer cannot guess. */
		memcpy(&h, page, sizeof(h));
		if (take(in) & 1) {
			h.magic = LIST_MAGIC;
			h.version = LIST_VERSION;
			h.seq = (uint32_t)o.cnt;
			memcpy(page, &h, sizeof(h));
		}
		rc = region_owner_take(&o, page, len);
		CHECK(rc == 0 || rc == -EAGAIN || rc == -EPROTO || rc == -EACCES ||
		      rc == -EBUSY || rc == -EOPNOTSUPP || rc == -EFBIG);
	}
	o.status = rc == -EAGAIN ? 0 : rc;
	if (!o.status)
		check(&o);
	CHECK(!region_owner_tell(&o, found_add, &l));
	if (l.cnt)
		check_list(&l, &o);
	free(l.found);
	region_owner_forget(&o);
}

static void line(const struct bytes *in)
{
	char *text = text_copy(in->at, in->left), name[64];
	uint64_t n;

	if (region_owner_name(text, &n)) {
		snprintf(name, sizeof(name), "@kedge-region-%016llx\n", (unsigned long long)n);
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
