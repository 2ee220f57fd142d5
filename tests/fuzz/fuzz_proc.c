// SPDX-License-Identifier: BSD-2-Clause
/*
 * The devices' reading of /proc to explain a refusal: hostile text does no
 * harm, and text as the kernel writes it is understood.
 */
#include "maps_text.h"

#include <stdbool.h>

#include "device/proc.h"

static bool shared_file(const struct map_line *v)
{
	return v->perm[3] == 's' && !has_prefix(v, "/memfd:") &&
	       !has_prefix(v, "/dev/zero") && !has_prefix(v, "/SYSV") &&
	       !has_prefix(v, "/dev/shm/") && !has_prefix(v, "anon_inode:");
}

static enum proc_fault fault_in(const struct map_line *v, bool writes)
{
	if (!writes)
		return v->perm[0] == '-' ? PROC_NO_READ : PROC_NO_FAULT;
	if (v->perm[1] == '-')
		return PROC_NO_WRITE;
	return shared_file(v) ? PROC_SHARED_FILE : PROC_NO_FAULT;
}

/* *@which: the mapping at fault; *@hole: where there is none. */
static enum proc_fault expected(const struct maps *m, uint64_t start,
				uint64_t end, bool writes, int *which,
				uint64_t *hole)
{
	enum proc_fault fault;
	int i;

	for (i = 0; i < m->cnt && start < end; i++) {
		const struct map_line *v = &m->at[i];

		if (v->end <= start)
			continue;
		if (v->start > start)
			break;
		fault = fault_in(v, writes);
		*which = i;
		if (fault)
			return fault;
		start = v->end;
	}
	*hole = start;
	return start < end ? PROC_HOLE : PROC_NO_FAULT;
}

static void compare(const struct maps *m, uint64_t start, uint64_t end,
		    bool writes, enum proc_fault got, const struct proc_vma *v)
{
	const struct map_line *want;
	uint64_t hole = 0;
	int which = -1;

	CHECK(got == expected(m, start, end, writes, &which, &hole));
	if (got == PROC_HOLE)
		CHECK(v->start == hole);
	if (got == PROC_HOLE || got == PROC_NO_FAULT)
		return;
	want = &m->at[which];
	CHECK(v->start == want->start && v->end == want->end);
	CHECK(!strcmp(v->perm, want->perm));
	CHECK(strlen(v->name) <= want->name_len &&
	      !memcmp(v->name, want->name, strlen(v->name)));
}

static void try_maps(struct bytes *in, struct bytes *range, bool writes)
{
	enum proc_fault got;
	struct proc_vma v;
	uint64_t start, end;
	struct maps m;

	maps_feed(&m, in);
	if (!maps_range(&m, range, &start, &end))
		return;
	memset(&v, 'X', sizeof(v));
	got = kedge__proc_fault(start, end, writes, &v);
	CHECK(feed_is_closed());
	CHECK(got <= PROC_SHARED_FILE);
	if (got != PROC_NO_FAULT && got != PROC_HOLE)
		CHECK(memchr(v.name, '\0', sizeof(v.name)) &&
		      v.start < v.end && strlen(v.perm) == 4);
	if (m.cnt >= 0)
		compare(&m, start, end, writes, got, &v);
}

static void try_status(struct bytes *in, struct bytes *control)
{
	int64_t want = status_vmpin((const char *)in->at, in->left);
	uint64_t got;

	feed_set(in->at, in->left, (size_t)take_number(control, 2),
		 take(control) & 1);
	got = kedge__proc_pinned();
	CHECK(feed_is_closed());
	if (want >= 0)
		CHECK(got == (uint64_t)want * 1024);
}

/* The text is a user's own who made the namespace. */
static void try_uid_map(struct bytes *in, struct bytes *control)
{
	static const char first[] = "         0          0 4294967295\n";
	bool is_first;

	feed_set(in->at, in->left, (size_t)take_number(control, 2),
		 take(control) & 1);
	is_first = kedge__proc_may_pin(); /* capget gives all */
	CHECK(feed_is_closed());
	if (in->left >= sizeof(first) - 1 &&
	    !memcmp(in->at, first, sizeof(first) - 1))
		CHECK(is_first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct bytes in, control;
	uint8_t what;

	if (!take_control(data, len, &control, &in))
		return 0;
	what = take(&control);
	if (!(what & 1))
		try_maps(&in, &control, !(what & 2));
	else if (what & 2)
		try_uid_map(&in, &control);
	else
		try_status(&in, &control);
	return 0;
}
