// SPDX-License-Identifier: BSD-2-Clause
/* Blocks, their versions, and their faults. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/base.h"
#include "tools/migrate/load.h"

#define WORDS	    (LOAD_BLOCK / sizeof(uint64_t))
#define PAUSE_NAP_NS 100000u

static size_t bytes_of(uint64_t blocks)
{
	return sizeof(struct load) + blocks * sizeof(struct load_block);
}

struct load *load_new(uint64_t len, unsigned int writers, uint64_t seed)
{
	const uint64_t blocks = len / LOAD_BLOCK;
	struct load *l = mmap(NULL, bytes_of(blocks), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (l == MAP_FAILED)
		return NULL;
	l->writers = writers;
	l->blocks = blocks;
	l->seed = seed;
	return l;
}

/* Relaxed: there are no other processes yet. */
void load_forget(struct load *l)
{
	uint64_t i;

	memset(l->writer, 0, sizeof(l->writer));
	atomic_store_explicit(&l->pause, 0, memory_order_relaxed);
	for (i = 0; i < l->blocks; i++) {
		atomic_store_explicit(&l->block[i].tried, 1, memory_order_relaxed);
		atomic_store_explicit(&l->block[i].done, 1, memory_order_relaxed);
	}
}

void load_free(struct load *l)
{
	if (l)
		munmap(l, bytes_of(l->blocks));
}

void load_found(struct load *l, _Atomic uint64_t *cnt, const char *fmt, ...)
{
	va_list ap;

	atomic_fetch_add(cnt, 1);
	if (atomic_exchange(&l->has_found, true))
		return;
	va_start(ap, fmt);
	vsnprintf(l->found, sizeof(l->found), fmt, ap);
	va_end(ap);
}

void load_nap(uint64_t ns)
{
	const struct timespec t = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };

	nanosleep(&t, NULL);
}

/* ---- a block ---- */

static uint64_t base_of(const struct load *l, uint64_t block, uint32_t version)
{
	return util_mix(util_mix(l->seed ^ block * UTIL_GOLDEN) ^ version);
}

void load_fill(const struct load *l, uint64_t block, uint32_t version, void *to)
{
	const uint64_t base = base_of(l, block, version);
	uint64_t *w = to;
	size_t i;

	w[0] = version;
	for (i = 1; i < WORDS; i++)
		w[i] = base + i * UTIL_GOLDEN;
}

/* Every word is of the version that the block begins with. */
static bool is_whole(const struct load *l, uint64_t block, const uint64_t *w)
{
	const uint64_t base = base_of(l, block, (uint32_t)w[0]);
	uint64_t differ = w[0] >> 32;
	size_t i;

	for (i = 1; i < WORDS; i++)
		differ |= w[i] ^ (base + i * UTIL_GOLDEN);
	return !differ;
}

static bool is_zero(const uint64_t *w)
{
	uint64_t any = 0;
	size_t i;

	for (i = 0; i < WORDS; i++)
		any |= w[i];
	return !any;
}

/* Versions @least to @most are right. */
static void judge(struct load *l, uint64_t block, const uint64_t *w, uint32_t least, uint32_t most)
{
	if (is_zero(w))
		load_found(l, &l->lost, "block %llu is empty, and version %u was acknowledged",
			   (unsigned long long)block, least);
	else if (!is_whole(l, block, w))
		load_found(l, &l->torn, "block %llu is torn: it begins with version %llu of %u",
			   (unsigned long long)block, (unsigned long long)w[0], most);
	else if (w[0] < least)
		load_found(l, &l->lost, "block %llu has version %llu, and %u was acknowledged",
			   (unsigned long long)block, (unsigned long long)w[0], least);
	else if (w[0] > most)
		load_found(l, &l->torn, "block %llu has version %llu, and %u is the last one",
			   (unsigned long long)block, (unsigned long long)w[0], most);
}

/* ---- writes ---- */

uint64_t load_pick(const struct load *l, unsigned int w, struct util_rng *rng)
{
	return w + l->writers * util_rng_below(rng, l->blocks / l->writers);
}

/* The fence pairs with that of load_read(): a reader that finds a byte of the new version finds,
 * behind its own fence, that it was tried. */
void load_begin(struct load *l, uint64_t block, void *to)
{
	const uint32_t version = atomic_fetch_add(&l->block[block].tried, 1) + 1;

	full_fence();
	load_fill(l, block, version, to);
}

/* Release, for load_before(): a reader that knows of the version has to find it. */
void load_done(struct load *l, uint64_t block)
{
	const uint32_t version = atomic_load_explicit(&l->block[block].tried,
						      memory_order_relaxed);

	atomic_store_explicit(&l->block[block].done, version, memory_order_release);
}

/* ---- reads ---- */

uint32_t load_before(const struct load *l, uint64_t block)
{
	return atomic_load_explicit(&l->block[block].done, memory_order_acquire);
}

void load_read(struct load *l, uint64_t block, uint32_t before, const void *data)
{
	full_fence();
	if (atomic_load_explicit(&l->block[block].tried, memory_order_relaxed) == before)
		judge(l, block, data, before, before);
}

void load_verify(struct load *l, uint64_t block, const void *data)
{
	const uint32_t done = atomic_load(&l->block[block].done);
	const uint32_t tried = atomic_load(&l->block[block].tried);

	if (done == tried) {
		judge(l, block, data, done, done);
		return;
	}
	/* A process killed in a copy leaves bytes of both, which are no version. */
	atomic_fetch_add(&l->unsure, 1);
	if (is_whole(l, block, data) || is_zero(data))
		judge(l, block, data, done, tried);
}

void load_heed(struct load *l, unsigned int w)
{
	uint64_t pause;

	while ((pause = atomic_load(&l->pause)) % 2) {
		atomic_store(&l->writer[w].paused, pause);
		load_nap(PAUSE_NAP_NS);
	}
}
