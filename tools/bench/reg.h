/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kedge bench reg: what it costs to register memory with a device, and what a
 * cache makes of it. reg_dev.c has the devices, reg_run.c the measurements, all
 * of which take turns round by round in one process, reg_report.c the result.
 */
#ifndef TOOLS_BENCH_REG_H
#define TOOLS_BENCH_REG_H

#include <stdbool.h>

#include <kedge/kedge.h>

#include "tools/bench/bench.h"

/**
 * struct reg_dev - a device, by kedge and by its own calls
 * @name:  "verbs"
 * @model: "rxe0", or "" where there is only one
 * @dev:   as kedge has it
 * @reg:   the device's own registration call. 0 or a negative errno
 * @dereg: the end of it
 * @close: of everything
 *
 * reg and dereg may be called by several threads.
 */
struct reg_dev {
	const char *name;
	char model[64];
	struct kedge_device *dev;
	int (*reg)(struct reg_dev *d, void *addr, size_t len, uint64_t *handle);
	void (*dereg)(struct reg_dev *d, uint64_t handle);
	void (*close)(struct reg_dev *d);
	void *own;
};

enum reg_device { REG_NOOP, REG_URING, REG_VERBS, REG_OFI, REG_DEVICES };
extern const char *const reg_device_names[REG_DEVICES + 1];

/* CMD_OK, or a message and CMD_CANNOT. @model: "rxe0", or NULL for any. Of ofi, a provider. */
int reg_dev_open(enum reg_device which, const char *model, struct reg_dev *d);
/* reg_verbs.c, or tools/absent/verbs.c where kedge was built without libibverbs */
int reg_verbs_open(const char *model, struct reg_dev *d);
/* reg_ofi.c, or tools/absent/ofi.c where kedge was built without libfabric */
int reg_ofi_open(const char *provider, struct reg_dev *d);

/**
 * enum reg_step - what is timed, for a working set of count buffers
 * @REG_REGISTER:   the device's own call, one buffer after the other
 * @REG_DEREGISTER: its end
 * @REG_UNCACHED:   register and deregister at each use, by turns
 * @REG_MISS:       kedge_cache_get() and put of what is not there yet
 * @REG_CACHED:     kedge_cache_get() and put of what is there
 * @REG_HINT:       kedge_cache_hint() of the area that holds all of them
 * @REG_HINTED:     kedge_cache_get() and put after it
 * @REG_ANEW:       kedge_cache_flush() and kedge_cache_hint()
 * @REG_RESYNC:     kedge_cache_resync() after a page in so many has changed
 */
enum reg_step {
	REG_REGISTER,
	REG_DEREGISTER,
	REG_UNCACHED,
	REG_MISS,
	REG_CACHED,
	REG_HINT,
	REG_HINTED,
	REG_ANEW,
	REG_RESYNC,
	REG_STEPS,
};
extern const char *const reg_step_names[REG_STEPS + 1];

#define REG_THREADS_MAX 64

struct reg_opts {
	char *devices_text;
	char *sizes_text;
	char *counts_text;
	char *threads_text;
	char *every_text;
	char *steps_text;
	char *notifier;
	char *model;
	int rounds;
	int csv;
	uint32_t devices;
	uint32_t steps;
	struct number_list sizes;
	struct number_list counts;
	struct number_list threads;
	struct number_list every;
};

/**
 * struct reg_row - a line of the result
 * @every:   of REG_RESYNC: one page in so many has changed; else 0
 * @ns:      median of the time for all, in nanoseconds
 * @best_ns: the least
 * @calls:   of the device's registration calls, median
 * @hits:    of REG_CACHED and REG_HINTED: gets that found a registration
 * @ratio:   to what it stands in for: register and deregister for cached,
 *           hinted, miss and uncached; register for hint; anew for resync.
 *           Medians of the ratios within a round; 0 where there is none
 */
struct reg_row {
	enum reg_device device;
	char model[64];
	enum reg_step step;
	uint64_t size;
	uint64_t count;
	uint64_t threads;
	uint64_t every;
	double ns;
	double best_ns;
	double calls;
	double hits;
	double ratio;
};

struct reg_result {
	struct reg_row *row;
	size_t n;
	size_t max;
	char backend[16];
	char level[16];
};

/* 0, or a message and an exit status. */
int reg_run(const struct reg_opts *opt, struct reg_result *res);
int reg_report(const struct reg_opts *opt, const struct reg_result *res);

#endif /* TOOLS_BENCH_REG_H */
