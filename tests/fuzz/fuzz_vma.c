// SPDX-License-Identifier: BSD-2-Clause
/*
 * The notifier's reader of /proc/self/maps: hostile text does no harm, and what
 * the kernel would write is understood.
 */
#include "calls.h"
#include "maps_text.h"
#include "notify/internal.h"

/* The mapping that @addr is in. */
static const struct map_line *at(const struct maps *m, uint64_t addr)
{
	int i;

	for (i = 0; i < m->cnt; i++)
		if (addr >= m->at[i].start && addr < m->at[i].end)
			return &m->at[i];
	return NULL;
}

static int expected(const struct maps *m, uint64_t start, uint64_t end,
		    struct vma_span *whole)
{
	const struct map_line *v;

	*whole = (struct vma_span){ 0, 0 };
	while (start < end) {
		v = at(m, start);
		if (!v)
			return -EFAULT;
		if (v->perm[3] == 's' || v->inode)
			return -EOPNOTSUPP;
		if (!whole->end)
			whole->start = v->start;
		whole->end = start = v->end;
	}
	return 0;
}

static void try_next(const struct maps *m, uint64_t at)
{
	struct vma_span got = { 0, 0 };
	int i = 0, rc = vma_next(FEED_KEPT_FD, at, &got);

	CHECK(feed_is_closed());
	CHECK(!rc || rc == -ENOENT);
	if (m->cnt < 0)
		return;
	while (i < m->cnt && (m->at[i].end <= at || m->at[i].perm[3] == 's' ||
			      m->at[i].inode))
		i++;
	CHECK(rc == (i < m->cnt ? 0 : -ENOENT));
	CHECK(rc || (got.start == m->at[i].start && got.end == m->at[i].end));
}

/* The state of a walk over all mappings. */
struct walk {
	const struct maps *m;
	int cnt;
};

static void same_span(void *arg, uint64_t start, uint64_t end)
{
	struct walk *w = arg;
	int i = w->cnt++;

	if (w->m->cnt >= 0)
		CHECK(i < w->m->cnt && start == w->m->at[i].start &&
		      end == w->m->at[i].end);
}

static void same_mapping(void *arg, const struct vma_info *v)
{
	struct walk *w = arg;
	const struct map_line *want = &w->m->at[w->cnt];
	uint32_t prot;

	same_span(arg, v->start, v->end);
	if (w->m->cnt < 0)
		return;
	prot = (want->perm[0] == 'r' ? 1u : 0) |
	       (want->perm[1] == 'w' ? 2u : 0) |
	       (want->perm[2] == 'x' ? 4u : 0);
	CHECK(v->prot == prot);
	CHECK(v->plain == (want->perm[3] == 'p' && !want->inode));
	CHECK(v->shared == (want->perm[3] != 'p'));
}

static void try_walks(const struct maps *m)
{
	struct walk w = { m, 0 };
	int fd;

	CHECK(!vma_walk(same_mapping, &w));
	CHECK(feed_is_closed());
	CHECK(m->cnt < 0 || w.cnt == m->cnt);
	w.cnt = 0;
	fd = fuzz_open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	vma_each(fd, same_span, &w);
	fuzz_close(fd);
	CHECK(m->cnt < 0 || w.cnt == m->cnt);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct bytes in, range;
	struct vma_span got, want;
	uint64_t start, end;
	struct maps m;
	int rc;

	if (!take_control(data, len, &range, &in))
		return 0;
	maps_feed(&m, &in);
	if (!maps_range(&m, &range, &start, &end))
		return 0;

	/* The kernel does not know the query, so the file is read. */
	rc = vma_check(FEED_KEPT_FD, start, end, &got);
	CHECK(feed_is_closed());
	CHECK(rc == 0 || rc == -EFAULT || rc == -EOPNOTSUPP);
	try_next(&m, start);
	try_walks(&m);
	if (m.cnt < 0)
		return 0;
	CHECK(rc == expected(&m, start, end, &want));
	CHECK(rc || (got.start == want.start && got.end == want.end));
	return 0;
}
