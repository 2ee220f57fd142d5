/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kedge demo: what a stale registration does to data. A small application
 * copies a file through registered buffers; how it gets its registrations is
 * the mode.
 */
#ifndef TOOLS_DEMO_DEMO_H
#define TOOLS_DEMO_DEMO_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include <kedge/kedge.h>

#include "tools/common/util.h"

#define DEMO_CHUNK (1u << 20)
/* The fixed-buffer table is as large in every mode. */
#define DEMO_SLOTS 1024u
#define DEMO_MODES 3

/* The filling of a fresh buffer. A page of it in the copy gives a stale one away
 * even where the file is all zeros. */
#define DEMO_POISON 0xdb

/* --- file.c: the file, its copy, and whether they are the same --- */

/**
 * struct demo_file - the source, and the destination in memory
 * @path:       owned
 * @src:        the source
 * @dst:        a memfd with room for one round's chunks
 * @map:        the memfd, mapped to check the copy
 * @map_len:    its length
 * @bytes:      how much of the source is copied
 * @st:         the source as it was when it was opened
 * @windows:    parts in which a large file is copied, one a round
 * @win_start:  the part that is copied now: its first byte
 * @win_chunks: and its chunks
 * @passes:     times a round copies them, so that a small file makes a round
 *              worth measuring
 * @want:       the checksum of each
 */
struct demo_file {
	char *path;
	int src;
	int dst;
	uint8_t *map;
	size_t map_len;
	uint64_t bytes;
	struct stat st;
	uint32_t windows;
	uint64_t win_start;
	uint32_t win_chunks;
	uint32_t passes;
	uint64_t *want;
};

/* One transfer of a round. */
struct demo_chunk {
	uint64_t src_off;
	uint64_t dst_off;
	uint32_t len;
};

/*
 * @path NULL: the largest file up to @size bytes, or else @max_bytes, under
 * /usr/lib. @size 0 is no limit for a named file. A small file is copied as
 * often in a round as it fits in @chunks. 0 or an exit status with a message
 * printed.
 */
int demo_file_open(struct demo_file *f, const char *path, uint64_t size,
		   uint64_t max_bytes, uint32_t chunks);
void demo_file_close(struct demo_file *f);
/* Go to window @index and learn its checksums. */
int demo_file_window(struct demo_file *f, uint32_t index);
uint32_t demo_file_round_chunks(const struct demo_file *f);
uint64_t demo_file_round_bytes(const struct demo_file *f);
void demo_file_chunk(const struct demo_file *f, uint32_t k,
		     struct demo_chunk *c);
/* Chunks of the copy that are not the source's. */
uint32_t demo_file_wrong(const struct demo_file *f);
/* The source is not what it was when it was opened. */
bool demo_file_changed(const struct demo_file *f);

/* --- the device: uring.c, verbs.c, ofi.c --- */

/* A registration in use: the device's slot, or kedge's. */
struct demo_reg {
	int slot;
	const struct kedge_mr *mr;
};

/* A transfer that is to be made, between a buffer and the file. */
struct demo_io {
	struct demo_chunk chunk;
	uint8_t *buf;
	const struct demo_reg *reg;
	bool writing; /* from the buffer into the copy */
	void *tag;
};

struct demo_device;

/**
 * struct demo_device_ops - what the application's transfers go through
 * @name:        as --device takes it
 * @access:      what its transfers need of a registration; 0: what each asks
 *               for
 * @chunks:      chunks in a round of a small file
 * @max_bytes:   of the file that is taken where none is named
 * @open:        ready for transfers of @file; @name of the device or NULL.
 *               Each returns 0 or a negative errno after kedge_reason()
 * @table_open:  room for DEMO_SLOTS raw registrations
 * @table_close: deregister all
 * @reg:         register a chunk buffer in a slot; a bare negative errno
 * @dereg:       the slot is free; transfers under way go on
 * @kedge_open:  the same registrations, as kedge's device
 * @queue:       start a transfer, or wait for submit; there is room for
 *               DEMO_MAX_DEPTH
 * @submit:      start what is queued
 * @wait:        until a transfer came back, more or less
 * @next:        take one that did; @res is its bytes or a negative errno
 */
struct demo_device_ops {
	const char *name;
	uint32_t access;
	uint32_t chunks;
	uint64_t max_bytes;
	int (*open)(struct demo_device *d, const struct demo_file *file,
		    const char *name);
	void (*close)(struct demo_device *d);
	int (*table_open)(struct demo_device *d);
	void (*table_close)(struct demo_device *d);
	int (*reg)(struct demo_device *d, int slot, void *buf);
	void (*dereg)(struct demo_device *d, int slot);
	int (*kedge_open)(struct demo_device *d, struct kedge_device **dev);
	int (*queue)(struct demo_device *d, const struct demo_io *io);
	void (*submit)(struct demo_device *d);
	int (*wait)(struct demo_device *d);
	bool (*next)(struct demo_device *d, void **tag, int *res);
};

/* @ctx: the device's own; @label: as printed */
struct demo_device {
	const struct demo_device_ops *ops;
	const struct demo_file *file;
	char label[80];
	void *ctx;
};

extern const struct demo_device_ops demo_device_uring, demo_device_verbs, demo_device_ofi;
/* The descriptor of demo_device_uring's ring. */
int demo_uring_fd(const struct demo_device *d);

/* verbs.c: the first RDMA device with an active port. 0, or a negative errno after
 * kedge_reason(). */
int demo_verbs_find(char *name, size_t size, unsigned int *port);

/* --- mode.c: three ways to a registration --- */

struct demo_mode;

/**
 * struct demo_mode_ops - how a mode registers
 * @name:  as printed
 * @open:  make room for registrations; 0 or a negative errno
 * @close: deregister all
 * @get:   a registration that covers the chunk buffer @buf
 * @put:   the transfer is done
 */
struct demo_mode_ops {
	const char *name;
	int (*open)(struct demo_mode *m);
	void (*close)(struct demo_mode *m);
	int (*get)(struct demo_mode *m, void *buf, uint32_t access,
		   struct demo_reg *reg);
	void (*put)(struct demo_mode *m, const struct demo_reg *reg);
};

extern const struct demo_mode_ops demo_uncached, demo_naive, demo_kedge;

/* The naive cache's memory: what was registered at an address, once. */
struct demo_naive_entry {
	void *addr;
	size_t len;
	int slot;
};

#define DEMO_NAIVE_BUCKETS (4 * DEMO_SLOTS)

/**
 * struct demo_mode - a mode, open for one round
 * @ops:           which
 * @device:        borrowed
 * @backend:       the notifier to use, or NULL; borrowed
 * @registrations: made so far
 * @hits:          gets that made none
 * @notifier:      what the kedge mode got
 * @free_cnt:      the slots that are free, in @free_slot (raw modes)
 */
struct demo_mode {
	const struct demo_mode_ops *ops;
	struct demo_device *device;
	const char *backend;
	uint64_t registrations;
	uint64_t hits;
	struct kedge_notifier_info notifier;
	uint32_t free_cnt;
	uint16_t free_slot[DEMO_SLOTS];
	struct demo_naive_entry *seen;
	struct kedge_notifier *nf;
	struct kedge_device *dev;
	struct kedge_cache *cache;
};

int demo_mode_open(struct demo_mode *m, const struct demo_mode_ops *ops,
		   struct demo_device *device, const char *backend);
void demo_mode_close(struct demo_mode *m);

/* --- copy.c: the application --- */

#define DEMO_MAX_BUFFERS 512
#define DEMO_MAX_DEPTH	 64

/**
 * struct demo_app - how the application works
 * @buffers: chunk buffers in its working set
 * @depth:   transfers it keeps under way, below @buffers
 * @churn:   the part of the chunks before which it frees a buffer and mallocs
 *           another
 */
struct demo_app {
	uint32_t buffers;
	uint32_t depth;
	double churn;
};

/*
 * Copy the window of @f through @m's registrations, and say in *@ns how long it
 * took. The same seed frees the same buffers. 0 or a negative errno.
 */
int demo_copy(const struct demo_app *app, const struct demo_file *f,
	      struct demo_mode *m, uint64_t seed, uint64_t *ns);

/* --- print.c --- */

/**
 * struct demo_result - a mode over all rounds
 * @gbps:   one figure a round, in 1e9 bytes of the file a second
 * @median: of those
 */
struct demo_result {
	const char *name;
	double *gbps;
	double median;
	uint64_t registrations;
	uint64_t hits;
	uint64_t chunks;
	uint64_t stale;
};

/**
 * struct demo_report - what the demo has to say
 * @result:      uncached, naive, kedge
 * @vs_naive:    kedge's median speed in naive's
 * @vs_uncached: and in uncached's
 */
struct demo_report {
	const struct demo_file *file;
	const struct demo_device *device;
	const struct demo_app *app;
	struct demo_result result[DEMO_MODES];
	double vs_naive;
	double vs_uncached;
	uint32_t rounds;
	uint64_t seed;
	const char *notifier;
	uint32_t level;
};

enum { DEMO_UNCACHED, DEMO_NAIVE, DEMO_KEDGE };

void demo_print_text(const struct demo_report *r);
int demo_print_json(const struct demo_report *r);

#endif /* TOOLS_DEMO_DEMO_H */
