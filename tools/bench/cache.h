/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kedge bench cache. The parent plans the rows and takes medians (cache_run.c),
 * and prints them (cache_report.c); a child a side fills its cache and serves
 * batches (cache_child.c) through that side's ops (cache_kedge.c, cache_ucx.c).
 *
 * Both sides register with a device that does nothing, at the same addresses,
 * in the same order.
 */
#ifndef TOOLS_BENCH_CACHE_H
#define TOOLS_BENCH_CACHE_H

#include "tools/bench/bench.h"

/* An entry is 64 KiB; as much again lies unregistered between two of them, so
 * that no cache merges neighbours, and aligned entries stay aligned. */
#define ENTRY_LEN     (64u << 10)
#define ENTRY_STRIDE  (2 * ENTRY_LEN)
#define OFFSET_LAYOUT 4096u
/* Fresh memory for misses and hints. */
#define SCRATCH_LEN (128u << 20)
#define MISS_SLOTS  (SCRATCH_LEN / ENTRY_STRIDE)
#define HINT_LEN    (1u << 20)
#define HINT_STRIDE (2 * HINT_LEN)
#define HINT_SLOTS  (SCRATCH_LEN / HINT_STRIDE)

#define MAX_ENTRIES 4000000u
#define MAX_THREADS 64u
#define WHY_LEN	    200

/**
 * enum bench_kind - what is measured
 * @KIND_HIT:        get and put of a registered entry
 * @KIND_MISS:       get and put of memory mapped a moment ago
 * @KIND_HINT:       "want all that cached" of 1 MiB mapped a moment ago; on a
 *                   side without hints a get and put
 * @KIND_INVALIDATE: madvise(MADV_DONTNEED) of a registered entry, get and put
 * @KIND_UNMAP:      munmap() of one, mmap() at the same address, get and put
 * @KIND_CALL:       a system call that does next to nothing, in turns with hits
 */
enum bench_kind {
	KIND_HIT,
	KIND_MISS,
	KIND_HINT,
	KIND_INVALIDATE,
	KIND_UNMAP,
	KIND_CALL,
	KIND_CNT,
};

extern const char *const kind_names[KIND_CNT + 1];

/** struct walk - addresses in a random order that both sides share
 * @base:   of entry 0
 * @stride: between entries
 * @len:    of an entry
 * @order:  indexes of entries, shuffled; borrowed
 * @cnt:    how many
 * @pos:    the next
 */
struct walk {
	char *base;
	uint64_t stride;
	uint64_t len;
	const uint32_t *order;
	uint32_t cnt;
	uint32_t pos;
};

static inline void *walk_next(struct walk *w)
{
	char *addr = w->base + w->order[w->pos] * w->stride;

	if (++w->pos == w->cnt)
		w->pos = 0;
	return addr;
}

/** struct cache_opts - the command line, as popt leaves it and as parsed */
struct cache_opts {
	char *peer_text;
	char *entries_text;
	char *threads_text;
	char *layout_text;
	char *bench_text;
	char *notifier;
	char *plot;
	int batches;
	double seconds;
	int single;
	int ask;
	int csv;
	const struct side *peer;
	struct number_list entries;
	struct number_list threads;
	uint32_t layouts;
	uint32_t kinds;
};

/** struct cache_cfg - what a child is started with
 * @area:     reserved address space for the entries, then the scratch area
 * @area_len: its length
 * @entries:  how many are registered
 * @offset:   of an entry from its aligned address
 * @threads:  most threads a batch will have
 * @seed:     of the random order
 * @single:   kedge's cache has KEDGE_CACHE_SINGLE_THREAD
 * @ask:      kedge's notifier has KEDGE_NOTIFIER_ASK
 * @notifier: kedge's backend, or NULL
 * @side:     who is measured
 */
struct cache_cfg {
	char *area;
	uint64_t area_len;
	uint64_t entries;
	uint64_t offset;
	uint64_t threads;
	uint64_t seed;
	bool single;
	bool ask;
	const char *notifier;
	const struct side *side;
};

/** struct side_info - what a side says of itself
 * @notifier: the backend that watches the memory
 * @level:    what it promises
 * @version:  of the library
 */
struct side_info {
	char notifier[16];
	char level[16];
	char version[16];
};

/**
 * struct side - a registration cache to measure
 * @name: as --peer has it
 * @open: a cache whose device does nothing; 0, or a negative errno with the
 *        reason in @why
 * @get_put: one get and put; 0 or a negative errno
 * @get_puts: @n of them on the walk; the same
 * @hints: the same of hints
 * @registrations: calls of the device so far
 */
struct side {
	const char *name;
	int (*open)(const struct cache_cfg *cfg, void **ctx,
		    struct side_info *info, char why[WHY_LEN]);
	void (*close)(void *ctx);
	int (*get_put)(void *ctx, void *addr, size_t len);
	int (*get_puts)(void *ctx, struct walk *w, uint64_t n);
	int (*hints)(void *ctx, struct walk *w, uint64_t n);
	uint64_t (*registrations)(void *ctx);
};

extern const struct side side_kedge;
/* NULL where this build has none. */
const struct side *side_ucx(void);

/** struct cache_req - a batch, to a child
 * @kind:    enum bench_kind
 * @threads: how many
 * @own:     each thread walks entries of its own; else all walk the same ones
 *           in the same order
 * @ops:     a thread
 */
struct cache_req {
	uint32_t kind;
	uint32_t threads;
	uint32_t own;
	uint32_t reserved;
	uint64_t ops;
};

/** struct cache_rep - what became of it
 * @rc:        0 or a negative errno
 * @preempted: a thread lost its CPU meanwhile
 * @ns:        for an operation, a thread's mean
 * @regs:      registrations for an operation
 * @info:      in the first message, which says that the cache is filled
 * @why:       what failed
 */
struct cache_rep {
	int32_t rc;
	uint32_t preempted;
	double ns;
	double regs;
	struct side_info info;
	char why[WHY_LEN];
};

/* The child's main; @arg is its struct cache_cfg. */
void cache_child(int fd, void *arg);

/** struct cache_row - a line of the result
 * @kind:     enum bench_kind
 * @offset:   OFFSET_LAYOUT or 0
 * @entries:  registered
 * @threads:  at work
 * @own:      on entries of their own; else all on the same
 * @hidden:   measured for @single of others alone
 * @ops:      of a batch
 * @ns, @best_ns, @regs: [0] kedge's, [1] the peer's
 * @single_ns: one thread's, measured in turns with this row
 * @call_ns: of a hit: kedge's KIND_CALL, measured in turns with this row; or 0
 * @pairs:    batches that the medians are of
 * @dropped:  batches a thread of which lost its CPU
 */
struct cache_row {
	enum bench_kind kind;
	uint64_t offset;
	uint64_t entries;
	uint64_t threads;
	bool own;
	bool hidden;
	uint64_t ops;
	double ns[2];
	double best_ns[2];
	double regs[2];
	double single_ns;
	double call_ns;
	uint64_t pairs;
	uint64_t dropped;
};

struct cache_result {
	const char *peer;
	struct side_info info[2];
	struct cache_row *rows;
	size_t n;
	size_t max;
};

/*
 * Measure. 0, or an exit status with a message printed; @res->rows is the
 * caller's to free in every case.
 */
int cache_run(const struct cache_opts *opt, struct cache_result *res);
/* Text, JSON or CSV on standard output; an exit status. */
int cache_report(const struct cache_result *res, bool csv);
/* The rows of hits as a picture. */
int cache_plot(const struct cache_result *res, const char *file);

#endif /* TOOLS_BENCH_CACHE_H */
