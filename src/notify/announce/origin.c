// SPDX-License-Identifier: BSD-2-Clause
/*
 * The origin of memory. With libkedge-hooks a change is announced before it is
 * made, if it is made through libc. A runtime that makes its own system calls
 * unmaps unannounced; but it does that to memory that it mapped itself. So the
 * hooks say what libc has handed out, and take it back when it is undone: a bit
 * for each page, and chunks.c for what an allocator cuts from memory of its own.
 * Memory without either may vanish unannounced, and lookups there ask the kernel
 * first (settle.c).
 *
 * Every error is on the side of asking: only the thread that was given a page
 * marks it, after the call that gave it, and it is cleared before the call that
 * takes it away, so a mark never outlives its mapping. Memory that was mapped
 * through libc and is unmapped around it is the exception; see
 * kedge_hook_mapped() for what covers that, and hooks_were_passed_by() in
 * uffd_monitor.c for the rest.
 *
 * Threads. Two set or clear the same page only where one has been given memory
 * that the other gives back: then the kernel's lock of the address space orders
 * the clearing before the call that unmaps, and the setting after the call that
 * maps. Words shared with neighbours are changed by atomic read-modify-writes.
 * relaxed: a thread that asks about memory was told of it by the one that set
 * the mark, which orders both; a leaf is published with release and read with
 * acquire.
 *
 * No lock is taken: it may all happen in a signal handler. A leaf is mapped where
 * the first page of its GiB is marked; memory of kedge's own is never marked.
 */
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "base/process/own.h"
#include "notify/announce/chunks.h"
#include "notify/announce/origin.h"

#define SHIFT	    12 /* a bit's bytes, on every machine */
#define LEAF_SHIFT  30
#define ADDR_SHIFT  48
#define LEAF_BITS   (1u << (LEAF_SHIFT - SHIFT))
#define LEAF_WORDS  (LEAF_BITS / 64)
#define LEAF_CNT    (1u << (ADDR_SHIFT - LEAF_SHIFT))
#define LEAF_BYTES  ((uint64_t)1 << LEAF_SHIFT)
#define STACK_MAX   ((uint64_t)64 << 20) /* no other mapping is so near it */
#define HEAP_NEAR   ((uint64_t)64 << 30)

typedef _Atomic uint64_t word;

/* NULL: no page is marked; whole: every page is. */
static word whole_leaf[1];
static word *_Atomic leaves[LEAF_CNT];

static word *const whole = whole_leaf;

static word *leaf_new(unsigned char fill)
{
	word *leaf = own_map(LEAF_WORDS * sizeof(*leaf));

	if (leaf && fill)
		memset((void *)leaf, fill, LEAF_WORDS * sizeof(*leaf));
	return leaf;
}

static void leaf_free(word *leaf)
{
	own_unmap((void *)leaf, LEAF_WORDS * sizeof(*leaf));
}

/* Bits @from to @to of a leaf, both within one word or its ends. */
static uint64_t mask(unsigned int from, unsigned int to)
{
	return (~0ull >> (63 - (to - from))) << (from % 64);
}

typedef void change_fn(word *w, uint64_t bits);

static void set_bits(word *w, uint64_t bits)
{
	if (bits == ~0ull)
		atomic_store_explicit(w, bits, memory_order_relaxed);
	else if (~atomic_load_explicit(w, memory_order_relaxed) & bits)
		atomic_fetch_or_explicit(w, bits, memory_order_relaxed);
}

static void clear_bits(word *w, uint64_t bits)
{
	if (bits == ~0ull)
		atomic_store_explicit(w, 0, memory_order_relaxed);
	else if (atomic_load_explicit(w, memory_order_relaxed) & bits)
		atomic_fetch_and_explicit(w, ~bits, memory_order_relaxed);
}

/* Apply @fn to the bits @from to @last, both included, of a leaf. */
static void each_word(word *leaf, unsigned int from, unsigned int last,
		      change_fn *fn)
{
	while (from <= last) {
		unsigned int to = from | 63;

		if (to > last)
			to = last;
		fn(&leaf[from / 64], mask(from, to));
		from = to + 1;
	}
}

/* The part of [start, end) in one leaf, as bits. */
struct part {
	word *_Atomic *leaf;
	unsigned int from;
	unsigned int last;
	bool all;
};

/* The first part; the address where the next begins. */
static uint64_t first_part(uint64_t start, uint64_t end, struct part *p)
{
	uint64_t stop = round_down(start, LEAF_BYTES) + LEAF_BYTES;

	if (stop > end)
		stop = end;
	p->leaf = &leaves[start >> LEAF_SHIFT];
	p->from = (start >> SHIFT) % LEAF_BITS;
	p->last = ((stop - 1) >> SHIFT) % LEAF_BITS;
	p->all = stop - start == LEAF_BYTES;
	return stop;
}

static bool in_table(uint64_t start, uint64_t end)
{
	return start < end && end <= (uint64_t)1 << ADDR_SHIFT;
}

static void set_part(const struct part *p)
{
	word *leaf = atomic_load_explicit(p->leaf, memory_order_acquire);
	word *fresh = NULL;

	if (!leaf) {
		fresh = p->all ? whole : leaf_new(0);
		if (!fresh)
			return;
		if (atomic_compare_exchange_strong(p->leaf, &leaf, fresh))
			leaf = fresh;
		else if (fresh != whole)
			leaf_free(fresh);
	}
	if (leaf != whole)
		each_word(leaf, p->from, p->last, set_bits);
}

static void clear_part(const struct part *p)
{
	word *leaf = atomic_load_explicit(p->leaf, memory_order_acquire);
	word *fresh;

	if (leaf == whole) {
		/* If no leaf can be had, the whole GiB loses its marks. */
		fresh = p->all ? NULL : leaf_new(0xff);
		if (atomic_compare_exchange_strong(p->leaf, &leaf, fresh))
			leaf = fresh;
		else if (fresh)
			leaf_free(fresh);
	}
	if (leaf && leaf != whole)
		each_word(leaf, p->from, p->last, clear_bits);
}

void origin_set(uint64_t start, uint64_t end)
{
	struct part p;

	if (!in_table(start, end))
		return;
	while (start < end) {
		start = first_part(start, end, &p);
		set_part(&p);
	}
}

void origin_clear(uint64_t start, uint64_t end)
{
	struct part p;

	if (!in_table(start, end))
		return;
	chunks_remove_in(start, end);
	while (start < end) {
		start = first_part(start, end, &p);
		clear_part(&p);
	}
}

/* The share of a part that is marked. */
enum marked { NONE = 0, SOME = 1, ALL = 2 };

static enum marked part_marked(const struct part *p)
{
	word *leaf = atomic_load_explicit(p->leaf, memory_order_acquire);
	unsigned int from = p->from, to;
	uint64_t bits, got;
	bool some = false, gaps = false;

	if (!leaf || leaf == whole)
		return leaf ? ALL : NONE;
	for (; from <= p->last && !(some && gaps); from = to + 1) {
		to = (from | 63) < p->last ? from | 63 : p->last;
		bits = mask(from, to);
		got = bits & atomic_load_explicit(&leaf[from / 64],
						  memory_order_relaxed);
		some = some || got;
		gaps = gaps || got != bits;
	}
	return !some ? NONE : gaps ? SOME : ALL;
}

static bool marked(uint64_t start, uint64_t end, enum marked enough, bool all)
{
	struct part p;

	if (!in_table(start, end))
		return false;
	while (start < end) {
		start = first_part(start, end, &p);
		if ((part_marked(&p) >= enough) != all)
			return !all;
	}
	return all;
}

bool origin_some(uint64_t start, uint64_t end)
{
	return marked(start, end, SOME, false) || chunks_in(start, end);
}

/* ---- the heap: its end moves without anything being handed out ---- */

static _Atomic uint64_t heap_start = UINT64_MAX;
static _Atomic uint64_t heap_end; /* as of the last look; it hardly shrinks */

bool origin_in_heap(uint64_t start, uint64_t end)
{
	uint64_t low = atomic_load_explicit(&heap_start, memory_order_relaxed);
	uint64_t high = atomic_load_explicit(&heap_end, memory_order_relaxed);

	if (start < low || start >= high + HEAP_NEAR)
		return false;
	if (end > high) {
		high = round_up((uint64_t)syscall(SYS_brk, 0L),
				kedge__page_size());
		atomic_store_explicit(&heap_end, high, memory_order_relaxed);
	}
	return end <= high;
}

/* True if each page is marked, or has a part of a chunk. */
static bool in_chunks(uint64_t start, uint64_t end)
{
	uint64_t page = kedge__page_size(), at = start, to;

	for (; at < end; at = to) {
		to = chunks_cover(at);
		if (to > at)
			continue;
		to = at + page;
		if (!marked(at, to, ALL, true))
			return false;
	}
	return start < end;
}

bool origin_known(uint64_t start, uint64_t end)
{
	return marked(start, end, ALL, true) || origin_in_heap(start, end) ||
	       in_chunks(start, end);
}

/* ---- what there is from the start ---- */

static int mark_object(struct dl_phdr_info *info, size_t size, void *unused)
{
	const ElfW(Phdr) *p = info->dlpi_phdr, *end = p + info->dlpi_phnum;
	uint64_t page = kedge__page_size(), start;

	for (; p < end; p++) {
		if (p->p_type != PT_LOAD)
			continue;
		start = info->dlpi_addr + p->p_vaddr;
		origin_set(round_down(start, page),
			   round_up(start + p->p_memsz, page));
	}
	return 0;
}

/* Field @nr, from 1, of /proc/self/stat, behind the name in parentheses; or 0. */
static uint64_t stat_field(const char *text, unsigned int nr)
{
	const char *s = strrchr(text, ')');
	unsigned int at;

	for (at = 2; s && at < nr; at++)
		s = strchr(s + 1, ' ');
	return s ? strtoull(s, NULL, 10) : 0;
}

static void mark_stack(uint64_t at)
{
	uint64_t page = kedge__page_size(), len = STACK_MAX;
	struct rlimit rl;

	if (!getrlimit(RLIMIT_STACK, &rl) && rl.rlim_cur < len)
		len = rl.rlim_cur;
	if (at > len)
		origin_set(round_down(at - len, page), round_up(at, page));
}

void origin_start(void)
{
	const unsigned int start_stack = 28, start_brk = 47;
	char text[1024];
	long fd, n = 0;
	uint64_t at;

	dl_iterate_phdr(mark_object, NULL);
	fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/stat",
		     O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	n = syscall(SYS_read, fd, text, sizeof(text) - 1);
	syscall(SYS_close, fd);
	text[n > 0 ? n : 0] = '\0';
	mark_stack(stat_field(text, start_stack));
	at = stat_field(text, start_brk);
	if (at) {
		atomic_store_explicit(&heap_end, at, memory_order_relaxed);
		atomic_store_explicit(&heap_start, at, memory_order_relaxed);
	}
}
