// SPDX-License-Identifier: BSD-2-Clause
/*
 * What the io_uring device reads in /proc to explain a refusal: hostile text
 * does no harm, and what the kernel would write is understood.
 */
#include <sys/mman.h>

#include "maps_text.h"

static int fuzz_msync(void *addr, size_t len, int flags);

#define msync fuzz_msync
#include "device/uring_why.c"

/* No range has a hole in it: on to the text. */
static int fuzz_msync(void *addr, size_t len, int flags)
{
	return 0;
}

static const struct mapping *culprit(const struct maps *m, uint64_t start,
				     uint64_t end)
{
	int i;

	for (i = 0; i < m->cnt; i++) {
		const struct mapping *v = &m->at[i];

		if (v->end <= start || v->start >= end)
			continue;
		if (v->perm[1] == '-')
			return v;
		if (v->perm[3] == 's' && !has_prefix(v, "/memfd:") &&
		    !has_prefix(v, "/dev/zero") && !has_prefix(v, "/SYSV") &&
		    !has_prefix(v, "/dev/shm/") && !has_prefix(v, "anon_inode:"))
			return v;
	}
	return NULL;
}

static void try_maps(struct bytes *in, struct bytes *range)
{
	const struct uring u = { .fd = -1 };
	const struct mapping *want;
	uint64_t start, end;
	struct maps m;
	struct vma v;
	bool found;
	int rc;

	maps_feed(&m, in);
	start = maps_address(&m, range);
	end = maps_address(&m, range);
	if (end <= start)
		end = start + PAGE;
	if (end < start)
		return;
	memset(&v, 'X', sizeof(v));
	found = find_culprit(start, end, &v);
	CHECK(feed_is_closed());
	rc = kedge__uring_reg_refused(&u, -EFAULT, start, end - start);
	CHECK(feed_is_closed());
	CHECK(rc == -EFAULT || rc == -EOPNOTSUPP);
	if (m.cnt < 0)
		return;
	want = culprit(&m, start, end);
	CHECK(found == !!want);
	if (!want)
		return;
	CHECK(v.start == want->start && v.end == want->end);
	CHECK(!strcmp(v.perm, want->perm));
	CHECK(strlen(v.name) <= want->name_len &&
	      !memcmp(v.name, want->name, strlen(v.name)));
	CHECK(rc == (want->perm[1] == '-' ? -EFAULT : -EOPNOTSUPP));
}

static void try_status(struct bytes *in, struct bytes *control)
{
	const struct uring u = { .fd = -1 };
	int64_t want = status_vmpin((const char *)in->at, in->left);
	uint64_t got;

	feed_set(in->at, in->left, (size_t)take_number(control, 2),
		 take(control) & 1);
	got = pinned_bytes();
	CHECK(feed_is_closed());
	if (want >= 0)
		CHECK(got == (uint64_t)want * 1024);
	CHECK(kedge__uring_reg_refused(&u, -ENOMEM, 0, PAGE) == -ENOMEM);
	CHECK(feed_is_closed());
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct bytes in = { data, len }, control = { data, len < 8 ? len : 8 };

	if (len < 8)
		return 0;
	in.at += 8;
	in.left -= 8;
	if (take(&control) & 1)
		try_status(&in, &control);
	else
		try_maps(&in, &control);
	return 0;
}
