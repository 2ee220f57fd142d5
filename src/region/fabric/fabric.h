/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A table of functions carries accesses of peers past the owner's processor; the library of an
 * adapter gives it (region/verbs/, region/ofi/). A line is an end of one connection of two
 * adapters. An owner's lines are of a loan, a range of its memory, which the other ends put into
 * and get from.
 */
#ifndef REGION_FABRIC_H
#define REGION_FABRIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

/* The library that an end is of. */
enum fabric_kind { FABRIC_NONE, FABRIC_VERBS, FABRIC_OFI };

#define FABRIC_NAME_LEN 64u

struct fabric_verbs_end {
	unsigned char gid[16];
	uint32_t qp;
	uint32_t psn;
	uint32_t mtu;
	uint32_t zero;
};

/*
 * @provider: a number made of its name
 * @name:     of the endpoint, @name_len bytes
 * @at, @key: of an owner's end, its memory
 */
struct fabric_ofi_end {
	uint64_t at;
	uint64_t key;
	uint32_t provider;
	uint32_t name_len;
	unsigned char name[FABRIC_NAME_LEN];
};

/* One end, as the other one is told of it; little-endian. */
struct fabric_end {
	uint32_t kind;
	uint32_t zero;
	union {
		struct fabric_verbs_end verbs;
		struct fabric_ofi_end ofi;
	};
};

/* Memory of the other end, which it has lent. */
struct fabric_range {
	uint64_t at;
	uint64_t len;
	uint32_t key;
};

/* Of both sides' memory. */
struct fabric_run {
	uint64_t offset;
	uint64_t len;
};

/* Bytes of the runs of one call. */
#define FABRIC_RUNS_LEN ((uint64_t)1 << 20)
#define FABRIC_RUNS	256u

struct fabric_line;
struct fabric_loan;

/*
 * Functions return 0 or a negative errno, with its reason but for @put and @get.
 *
 * @open:  an end at @place, an address of this host as in a handle; @end is what it is. The other
 *         end reaches @loan by it; NULL: it is the one that puts and gets. -ENODEV: no adapter has
 *         that address
 * @join:  with the other end, as that has told of it. Both are to call it
 * @lend:  the other ends of lines that are opened of it at @place may read, and write if @writes,
 *         @len bytes at @at; *@key is their key, or 0: each line has its own. No other line's end
 *         may: not one of another loan, nor one that is closed
 * @unlend: its lines are closed
 * @put, @get: wait until that is done; but once *@over is true, or at @until, they return
 *         -ECANCELED, and the line carries no more. -EIO: it has failed, and the same. Bytes may
 *         have been put then. One thread at a time
 * @put_runs: as @put, of several ranges of what is at @base, each at its offset in @to
 * @close: no access of the other end is under way when it returns
 */
struct fabric {
	int (*open)(const unsigned char place[16], struct fabric_loan *loan,
		    struct fabric_line **line, struct fabric_end *end);
	int (*join)(struct fabric_line *line, const struct fabric_end *other);
	int (*lend)(const unsigned char place[16], void *at, uint64_t len, bool writes,
		    struct fabric_loan **loan, uint32_t *key);
	void (*unlend)(struct fabric_loan *loan);
	int (*put)(struct fabric_line *line, const struct fabric_range *to, uint64_t offset,
		   const void *data, uint64_t len, const _Atomic bool *over, uint64_t until);
	int (*get)(struct fabric_line *line, const struct fabric_range *from, uint64_t offset,
		   void *data, uint64_t len, const _Atomic bool *over, uint64_t until);
	int (*put_runs)(struct fabric_line *line, const struct fabric_range *to, const char *base,
			const struct fabric_run *run, uint32_t cnt, const _Atomic bool *over,
			uint64_t until);
	void (*close)(struct fabric_line *line);
};

/* The one that this process uses, or NULL. */
const struct fabric *fabric(void);
/* By a library that has one. It lives on. -EBUSY, with its reason: lines may be another's, which is
 * to close them. NULL, by tests: there are none. */
KEDGE_PRIVATE int kedge__region_fabric(const struct fabric *f);

#endif /* REGION_FABRIC_H */
