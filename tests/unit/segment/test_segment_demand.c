// SPDX-License-Identifier: BSD-2-Clause
/*
 * Memory that is converted as it is attached: of the address space, of ranges with holes, of
 * what the program asks that for. Without the kernel module; then its threads are stopped for
 * a moment.
 */
#include "demand.h"

static _Alignas(65536) uint64_t bss[8192]; /* no page of it is of the file */

/* "1234-5678 rw-s ..." of the mapping that has @at: shared. */
static bool is_shared(const void *at)
{
	unsigned long start, stop;
	char line[512], perms[8];
	bool is = false;
	FILE *f = fopen("/proc/self/maps", "re");

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %7s", &start, &stop, perms) == 3 &&
		    start <= (unsigned long)at && (unsigned long)at < stop)
			is = perms[3] == 's';
	fclose(f);
	return is;
}

/* ---- cases ---- */

static void just_what_is_attached_is_converted(void **state)
{
	uint64_t *w = words(LEN);

	begin(w, LEN, &later);
	assert_false(is_shared(w));
	assert_int_equal(peer_attach(&peer, LEN / 2, 100), 0);
	assert_int_equal(loaded(0), LEN / 16);
	assert_true(is_shared(w + LEN / 16));
	assert_false(is_shared(w));
	assert_false(is_shared((char *)w + LEN - 1));
	w[LEN / 16] = 7;
	assert_int_equal(loaded(0), 7);
	assert_int_equal(peer_store(&peer, 8, 8), 0);
	assert_int_equal(w[LEN / 16 + 1], 8);
	assert_true(peer_valid(&peer));
	end();
	assert_false(is_shared(w + LEN / 16));
	assert_int_equal(w[LEN / 16 + 1], 8);
}

static void it_is_private_again_with_its_last_peer(void **state)
{
	uint64_t *w = words(LEN);

	begin(w, LEN, &later);
	assert_int_equal(peer_attach(&peer, 0, LEN), 0);
	assert_int_equal(peer_store(&peer, 16, 99), 0);
	assert_true(is_shared(w));
	assert_int_equal(peer_detach(&peer), 0);
	assert_int_equal(peer_release(&peer), 0);
	while (is_shared(w))
		usleep(1000);
	assert_int_equal(w[2], 99);
	assert_int_equal(w[3], 3);
	/* And once more. */
	assert_int_equal(peer_get(&peer, &id, RW), 0);
	assert_int_equal(peer_attach(&peer, 0, LEN), 0);
	assert_int_equal(loaded(16), 99);
	end();
}

/* Parts that were attached before are parts of what is attached later. */
static void parts_overlap(void **state)
{
	const size_t page = page_len();
	uint64_t *w = words(LEN);
	size_t i;

	begin(w, LEN, &later);
	for (i = 0; i < 4; i++) {
		assert_int_equal(peer_attach(&peer, i * 64 * page + 8, 16), 0);
		assert_int_equal(loaded(0), i * 8 * page + 1);
		assert_int_equal(peer_detach(&peer), 0);
	}
	assert_int_equal(peer_attach(&peer, 0, LEN), 0);
	for (i = 0; i < LEN / sizeof(*w); i += 97)
		assert_int_equal(loaded(i * sizeof(*w)), i);
	for (i = 0; i < LEN; i += page) {
		assert_int_equal(peer_store(&peer, i, i + 1), 0);
		assert_int_equal(w[i / sizeof(*w)], i + 1);
	}
	assert_true(peer_valid(&peer));
	munmap((char *)w + LEN - page, page);
	assert_false(peer_valid(&peer));
	while (!faults(LEN - page))
		usleep(1000);
	assert_int_equal(loaded(0), 1);
	end();
	munmap(w, LEN - page);
}

/* Above it there is room for what is mapped next: holes stay holes. */
static uint64_t *words_below(size_t len)
{
	char *room = mmap(NULL, 256 * LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t *w = (void *)room;
	size_t i;

	assert_int_equal(mprotect(room, len, PROT_READ | PROT_WRITE), 0);
	for (i = 0; i < len / sizeof(*w); i++)
		w[i] = i;
	munmap(room + len, 256 * LEN - len);
	return w;
}

static void holes_are_a_sigbus(void **state)
{
	const size_t page = page_len();
	uint64_t *w = words_below(LEN), v;
	char *p = (char *)w;

	munmap(p, page);
	munmap(p + 8 * page, 4 * page);
	mprotect(p + 20 * page, page, PROT_NONE);
	munmap(p + LEN - page, page);
	/* As a program has it that knows nothing of all this. */
	begin(w, LEN, NULL);
	if (!access("/dev/kedge-segment", R_OK)) {
		end();
		skip();
	}
	assert_int_equal(peer_attach_with(&peer, 0, LEN, KEDGE_ATTACH_KEEP), -EFAULT);
	assert_int_equal(peer_attach(&peer, 0, LEN), 0);
	assert_true(faults(0));
	assert_true(faults(9 * page));
	assert_true(faults(20 * page));
	assert_int_equal(loaded(21 * page), 21 * page / 8);
	assert_true(faults(LEN - page));
	assert_int_equal(loaded(7 * page), 7 * page / 8);
	assert_int_equal(loaded(12 * page), 12 * page / 8);
	assert_true(peer_valid(&peer));
	/* Memory that comes to be there is attached anew. */
	assert_true(mmap(p + 8 * page, page, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
	w[page] = 123;
	assert_true(faults(8 * page));
	assert_int_equal(peer_reattach(&peer), 0);
	assert_int_equal(loaded(8 * page), 123);
	assert_true(faults(9 * page));
	assert_true(peer_valid(&peer));
	assert_int_equal(peer_copy(&peer, 8 * page, &v, R), 8);
	assert_int_equal(v, 123);
	assert_int_equal(peer_detach(&peer), 0);
	assert_int_equal(peer_attach(&peer, 0, page), -EFAULT);
	end();
	munmap(p, LEN);
}

/* kedge's mapping for its work goes into the hole, where there is no other room so high. */
static void a_hole_may_be_filled_by_the_call_itself(void **state)
{
	const size_t page = page_len();
	void *filled[2000];
	uint64_t *w;
	size_t i;

	need_convert();
	for (i = 0; i < 2000; i++)
		filled[i] = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	w = words(LEN);
	munmap((char *)w + 8 * page, 4 * page);
	assert_int_equal(kedge_segment_make(w, LEN, NULL, &segment), 0);
	kedge_segment_remove(segment);
	assert_int_equal(w[9], 9);
	munmap(w, 8 * page);
	munmap((char *)w + 12 * page, LEN - 12 * page);
	for (i = 0; i < 2000; i++)
		munmap(filled[i], page);
}

static void attaches(void *at, size_t len)
{
	uint64_t *w = at;

	w[0] = (uintptr_t)at ^ 1;
	assert_int_equal(peer_attach(&peer, (uintptr_t)at, len), 0);
	assert_int_equal(loaded(0), (uintptr_t)at ^ 1);
	assert_int_equal(peer_store(&peer, 8, 5), 0);
	assert_int_equal(w[1], 5);
	w[1] = 6;
	assert_int_equal(loaded(8), 6);
	assert_true(peer_valid(&peer));
	assert_int_equal(peer_detach(&peer), 0);
}

static void *on_a_stack(void *arg)
{
	uint64_t there[512];

	attaches(there, sizeof(there));
	return arg;
}

static void the_address_space_is_a_segment(void **state)
{
	static const uint64_t constant[2] = { 1, 2 };
	struct kedge_segment_info i = { .size = sizeof(i) };
	uint64_t *heap = malloc(100000), *big, *file, stack[512];

	begin(NULL, 0, &whole);
	assert_int_equal(kedge_segment_info(segment, &i), 0);
	assert_int_equal(i.backend, KEDGE_SEGMENT_CONVERT);
	/* Memory that comes to be later, too. */
	big = words(3 * LEN);
	attaches(heap, 100000);
	attaches(big, 3 * LEN);
	attaches(bss, sizeof(bss));
	attaches(stack, sizeof(stack));
	in_thread(on_a_stack, NULL);
	/* And what is not like that, not. */
	assert_int_equal(peer_attach(&peer, (uintptr_t)constant, 16), -EOPNOTSUPP);
	file = mmap(NULL, page_len(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(peer_attach(&peer, (uintptr_t)file, 16), -EOPNOTSUPP);
	assert_int_equal(peer_attach(&peer, 0, 4096), -EFAULT);
	munmap(file, page_len());
	end();
	free(heap);
}

static void others_own_segments_are_not_disturbed(void **state)
{
	uint64_t *w = words(LEN);
	struct kedge_segment *now;

	begin(NULL, 0, &whole);
	assert_int_equal(kedge_segment_make((char *)w + LEN / 4, LEN / 4, NULL, &now), 0);
	assert_int_equal(peer_attach(&peer, (uintptr_t)w, LEN), 0);
	assert_int_equal(loaded(LEN / 4 + 80), LEN / 32 + 10);
	/* The part that it had is the peer's of the address space now. */
	kedge_segment_remove(now);
	assert_true(peer_valid(&peer));
	w[LEN / 32 + 10] = 1;
	assert_int_equal(loaded(LEN / 4 + 80), 1);
	end();
	assert_false(is_shared(w + LEN / 32 + 10));
}

static void a_fork_ends_parts_and_no_segment(void **state)
{
	uint64_t *w = words(LEN);
	pid_t pid;

	begin(NULL, 0, &whole);
	assert_int_equal(peer_attach(&peer, (uintptr_t)w, LEN), 0);
	assert_int_equal(peer_store(&peer, 8, 10), 0);
	pid = fork();
	if (!pid)
		_exit(w[1] != 10 || w[2] != 2 || is_shared(w));
	ended_well(pid);
	assert_false(peer_valid(&peer));
	w[2] = 20;
	/* The segment is there still: attach anew, by the same grant. */
	assert_int_equal(peer_detach(&peer), 0);
	assert_int_equal(peer_attach(&peer, (uintptr_t)w, LEN), 0);
	assert_int_equal(loaded(16), 20);
	assert_int_equal(loaded(8), 10);
	end();
}

static void what_is_emptied_or_moved_is_attached_anew(void **state)
{
	const size_t page = page_len();
	uint64_t *w = words(LEN), *to;

	begin(NULL, 0, &whole);
	assert_int_equal(peer_attach(&peer, (uintptr_t)w, LEN), 0);
	madvise((char *)w + 4 * page, 2 * page, MADV_DONTNEED);
	assert_false(peer_valid(&peer));
	assert_int_equal(w[page / 2], 0);
	assert_int_equal(peer_detach(&peer), 0);
	w[page / 2] = 44;
	assert_int_equal(peer_attach(&peer, (uintptr_t)w, LEN), 0);
	assert_int_equal(loaded(4 * page), 44);
	assert_int_equal(loaded(5 * page), 0);
	assert_int_equal(loaded(6 * page), 6 * page / 8);
	assert_true(peer_valid(&peer));
	to = mremap((char *)w + LEN / 2, LEN / 2, LEN / 2, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
	if (to == MAP_FAILED) /* of shared memory it is not to be had */
		to = mremap((char *)w + LEN / 2, LEN / 2, LEN / 2, MREMAP_MAYMOVE);
	assert_true(to != MAP_FAILED);
	assert_int_equal(peer_detach(&peer), 0);
	assert_int_equal(peer_attach(&peer, (uintptr_t)w, LEN / 2), 0);
	assert_int_equal(loaded(0), 0);
	end();
	munmap(to, LEN / 2);
	munmap(w, LEN);
}

static void what_changes_is_mapped_at_the_same_addresses(void **state)
{
	const size_t page = page_len();
	uint64_t *w = words(LEN);
	size_t i;

	begin(NULL, 0, &whole);
	assert_int_equal(peer_attach(&peer, (uintptr_t)w + 8, LEN - 16), 0);
	for (i = 1; i < 6; i++) {
		madvise((char *)w + i * 4 * page, 2 * page, MADV_DONTNEED);
		assert_true(mmap((char *)w + i * 16 * page, page, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
		w[i * 4 * page / 8] = i;
		w[i * 16 * page / 8] = i + 10;
		assert_false(peer_valid(&peer));
		assert_int_equal(peer_reattach(&peer), 0);
		assert_true(peer_valid(&peer));
		assert_int_equal(loaded(i * 4 * page - 8), w[i * 4 * page / 8]);
		assert_int_equal(loaded(i * 16 * page - 8), i + 10);
		assert_int_equal(loaded(0), 1);
		assert_int_equal(loaded(LEN - 24), LEN / 8 - 2);
		assert_int_equal(peer_store(&peer, i * 4 * page, 5), 0);
		assert_int_equal(w[i * 4 * page / 8 + 1], 5);
	}
	/* Of what is not there any more nothing stays attached. */
	munmap(w, LEN);
	assert_int_equal(peer_reattach(&peer), -EFAULT);
	assert_int_equal(peer_reattach(&peer), -EINVAL);
	w = words(LEN);
	assert_int_equal(peer_attach(&peer, (uintptr_t)w, LEN), 0);
	remove_segment();
	assert_int_equal(peer_reattach(&peer), -ESTALE);
	end();
	munmap(w, LEN);
}

/* More pieces than a peer knows holes of one part apart. */
static void what_has_many_holes_is_attached(void **state)
{
	const size_t page = page_len();
	uint64_t *w = words(LEN);
	size_t i, k;

	begin(w, LEN, &later);
	assert_int_equal(peer_attach(&peer, 0, LEN), 0);
	for (i = 0; i < 40; i++)
		madvise((char *)w + (6 * i + 2) * page, 2 * page, MADV_DONTNEED);
	for (k = 0; k < 3; k++) {
		assert_int_equal(peer_reattach(&peer), 0);
		assert_true(peer_valid(&peer));
		for (i = 0; i < 40; i++) {
			assert_int_equal(loaded((6 * i + 2) * page), 0);
			assert_int_equal(loaded((6 * i + 1) * page), (6 * i + 1) * page / 8);
			assert_int_equal(loaded((6 * i + 4) * page), (6 * i + 4) * page / 8);
		}
	}
	end();
}

/* The attachment is the parent's, and stays. */
static int reattach_in_child(void *arg)
{
	struct kedge_attachment *a = arg;

	CHILD_CHECK(kedge_segment_reattach(&a) == -ECHILD);
	CHILD_CHECK(a == arg);
	return 0;
}

/* A few bytes in the middle of a part, which the owner empties. */
static void reattach_within(struct kedge_grant *g, uint64_t *w)
{
	const size_t at = 2 * page_len() + 8;
	struct kedge_attachment *a;
	uint64_t *there;

	assert_int_equal(kedge_segment_attach(g, at, 64, 0, &a), 0);
	there = kedge_segment_addr(a);
	assert_int_equal(*there, w[at / 8]);
	assert_int_equal(madvise((char *)w + 2 * page_len(), page_len(), MADV_DONTNEED), 0);
	assert_false(kedge_segment_valid(a));
	/* It is not valid as long as this process has not heard what is gone. */
	WAIT_FOR(!kedge_segment_reattach(&a) && kedge_segment_valid(a));
	assert_ptr_equal(kedge_segment_addr(a), there);
	assert_int_equal(*there, 0);
	*there = 77;
	assert_int_equal(w[at / 8], 77);
	kedge_segment_detach(a);
}

static void a_process_attaches_its_own(void **state)
{
	uint64_t *w = words(LEN), *there;
	struct kedge_attachment *a, *b;
	unsigned char in_core;
	struct kedge_grant *g;

	begin(w, LEN, &later);
	assert_int_equal(kedge_segment_get(&id, RW, &g), 0);
	assert_int_equal(kedge_segment_attach(g, LEN / 2, 64, 0, &b), 0);
	assert_int_equal(kedge_segment_attach(g, 0, LEN, 0, &a), 0);
	there = kedge_segment_addr(a);
	there[9] = 90;
	assert_int_equal(w[9], 90);
	assert_int_equal(*(uint64_t *)kedge_segment_addr(b), LEN / 16);
	assert_true(kedge_segment_valid(a));
	assert_true(kedge_segment_valid(b));
	munmap((char *)w + LEN / 2, page_len());
	assert_false(kedge_segment_valid(a));
	assert_false(kedge_segment_valid(b));
	assert_int_equal(kedge_segment_reattach(&a), 0);
	assert_ptr_equal(kedge_segment_addr(a), there);
	assert_true(kedge_segment_valid(a));
	assert_int_equal(in_raw_child(reattach_in_child, a), 0);
	assert_true(kedge_segment_valid(a));
	assert_int_equal(there[9], 90);
	reattach_within(g, w);
	kedge_segment_detach(a);
	assert_int_equal(mincore(there, page_len(), &in_core), -1);
	kedge_segment_detach(b);
	kedge_segment_release(g);
	end();
	assert_int_equal(w[9], 90);
	munmap(w, LEN);
}

#define LISTED PLAIN
#include "test_segment_demand.cases.h"

int main(int argc, char **argv)
{
	peer_main(argc, argv);
	return RUN(cases);
}
