// SPDX-License-Identifier: BSD-2-Clause
/*
 * Segments where the kernel's limits end, and of memory with properties that shared memory in
 * its place would not have.
 */
#include <sys/resource.h>

#include "lists.h"
#include "shared.h"

#define LEN    ((size_t)1 << 20)

static bool intact(const uint64_t *w)
{
	size_t i;

	for (i = 0; i < LEN / sizeof(*w) && w[i] == i; i++)
		;
	return i == LEN / sizeof(*w);
}

/* ---- descriptors ---- */

#define FEW 24

/* The calls fail, or not, and work when there are enough again. */
static void try_with(const struct kedge_segment_opts *o, rlim_t most, struct peer *p)
{
	struct rlimit was, few;
	struct kedge_segment *s;
	uint64_t *w = words(LEN), v;
	int rc;

	getrlimit(RLIMIT_NOFILE, &was);
	few = was;
	few.rlim_cur = most;
	setrlimit(RLIMIT_NOFILE, &few);
	rc = kedge_segment_make(w, LEN, o, &s);
	assert_true(!rc || rc == -EMFILE || rc == -EAGAIN);
	if (!rc && !kedge_segment_id(s, &id) && !peer_get(p, &id, KEDGE_SEGMENT_READ)) {
		if (!peer_attach(p, 0, LEN))
			peer_detach(p);
		peer_release(p);
	}
	setrlimit(RLIMIT_NOFILE, &was);
	if (rc)
		assert_int_equal(kedge_segment_make(w, LEN, o, &s), 0);
	assert_int_equal(kedge_segment_id(s, &id), 0);
	assert_int_equal(peer_get(p, &id, KEDGE_SEGMENT_READ), 0);
	assert_int_equal(peer_attach(p, 0, LEN), 0);
	assert_int_equal(peer_load(p, 80, &v), 0);
	assert_int_equal(v, 10);
	peer_detach(p);
	peer_release(p);
	kedge_segment_remove(s);
	assert_true(intact(w));
	free_pages(w, LEN / page_len());
}

static void a_lack_of_descriptors_is_not_for_ever(void **state)
{
	static const struct kedge_segment_opts later = { .size = sizeof(later),
							 .flags = KEDGE_SEGMENT_ON_ATTACH };
	struct peer p;
	rlim_t n;

	need_stopping();
	for (n = 3; n < FEW; n++) {
		peer_start(&p, 0);
		try_with(NULL, n, &p);
		try_with(&later, n, &p);
		peer_end(&p);
	}
}

/* ---- mappings ---- */

/* Every other page of @room is of another protection, until the kernel lets no more be. */
static size_t fill_mappings(char *room, size_t pages)
{
	size_t i;

	for (i = 0; i < pages && !mprotect(room + i * page_len(), page_len(), PROT_READ); i += 2)
		;
	return i < pages ? i : 0;
}

static size_t limit_of_mappings(void)
{
	FILE *f = fopen("/proc/sys/vm/max_map_count", "re");
	size_t n = 0;

	if (f && fscanf(f, "%zu", &n) != 1)
		n = 0;
	if (f)
		fclose(f);
	return n;
}

/* As many as the process may have, but for a few: it says so, or does what it is to. */
static void where_mappings_are_few_nothing_hangs(void **state)
{
	size_t pages = 2 * limit_of_mappings() + 100, last, left;
	uint64_t *w = words(LEN);
	struct kedge_segment *s;
	char *room;
	int rc;

	need_convert();
	skip_if(UNDER_SANITIZER, "a sanitizer ends the program where it gets no mapping");
	room = mmap(NULL, pages * page_len(), PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	last = pages < 1000000 && room != MAP_FAILED ? fill_mappings(room, pages) : 0;
	skip_if(!last, "there is no limit of mappings that is met soon");
	for (left = 0; left < 24; left++) {
		rc = kedge_segment_make(w, LEN, NULL, &s);
		assert_true(intact(w));
		if (!rc)
			kedge_segment_remove(s);
		else
			assert_true(rc == -ENOMEM || rc == -EAGAIN || rc == -ENOSPC);
		assert_true(intact(w));
		last -= 2;
		mprotect(room + last * page_len(), page_len(), PROT_NONE);
	}
	munmap(room, pages * page_len());
	assert_int_equal(kedge_segment_make(w, LEN, NULL, &s), 0);
	kedge_segment_remove(s);
	assert_true(intact(w));
}

/* ---- properties ---- */

static int starts_empty(void *at)
{
	return *(uint64_t *)((char *)at + LEN - 8) != 0;
}

static void what_memory_is_kept_from_stays_so(void **state)
{
	static const struct { int advice; const char *word; } kept[] = {
		{ MADV_DONTFORK, "MADV_DONTFORK" }, { MADV_WIPEONFORK, "MADV_WIPEONFORK" },
		{ MADV_DONTDUMP, "MADV_DONTDUMP" },
	};
	const struct kedge_segment_opts later = { .size = sizeof(later),
						  .flags = KEDGE_SEGMENT_ON_ATTACH,
						  .backend = KEDGE_SEGMENT_CONVERT };
	struct kedge_segment_info info = { .size = sizeof(info) };
	struct kedge_segment *s;
	uint64_t *w;
	size_t i;

	need_convert();
	for (i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
		w = words(LEN);
		assert_int_equal(madvise((char *)w + LEN / 2, LEN / 2, kept[i].advice), 0);
		assert_int_equal(kedge_segment_make(w, LEN, NULL, &s), 0);
		assert_int_equal(kedge_segment_info(s, &info), 0);
		if (info.backend == KEDGE_SEGMENT_CONVERT)
			fail_msg("%s memory is converted", kept[i].word);
		if (info.backend == KEDGE_SEGMENT_COPY)
			assert_non_null(strstr(info.reason, kept[i].word));
		if (kept[i].advice == MADV_WIPEONFORK)
			assert_int_equal(in_child(starts_empty, w), 0);
		kedge_segment_remove(s);
#ifndef __SANITIZE_THREAD__ /* which lets no thread be stopped */
		assert_int_equal(kedge_segment_make(w, LEN, &later, &s), 0);
		assert_int_equal(kedge_segment_id(s, &id), 0);
		peer_start(&peer, 0);
		assert_int_equal(peer_get(&peer, &id, KEDGE_SEGMENT_READ), 0);
		assert_int_equal(peer_attach(&peer, LEN / 2, 8), -EOPNOTSUPP);
		assert_int_equal(peer_attach(&peer, 0, 8), 0);
		peer_end(&peer);
		kedge_segment_remove(s);
#endif
		assert_true(intact(w));
		free_pages(w, LEN / page_len());
	}
}

/* ---- users ---- */

static void to_copy_from_another_user_is_not_allowed(void **state)
{
	const struct kedge_segment_opts o = { .size = sizeof(o), .mode = 0444,
					      .backend = KEDGE_SEGMENT_COPY };
	uint64_t *w = words(LEN), v = 0;
	struct kedge_segment *s;

	need_root();
	assert_int_equal(kedge_segment_make(w, LEN, &o, &s), 0);
	assert_int_equal(kedge_segment_id(s, &id), 0);
	peer_start(&peer, NOBODY);
	assert_int_equal(peer_get(&peer, &id, KEDGE_SEGMENT_READ), 0);
	assert_int_equal(peer_copy(&peer, 0, &v, KEDGE_SEGMENT_READ), -EPERM);
	peer_end(&peer);
	kedge_segment_remove(s);
}

#define LISTED PLAIN
#include "test_segment_limits.cases.h"

int main(int argc, char **argv)
{
	peer_main(argc, argv);
	alarm(HANG_S);
	return RUN(cases);
}
