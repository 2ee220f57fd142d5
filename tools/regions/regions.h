/* SPDX-License-Identifier: BSD-2-Clause */
/* kedge regions: what is listed, and how it is printed. */
#ifndef TOOLS_REGIONS_REGIONS_H
#define TOOLS_REGIONS_REGIONS_H

#include <kedge/region_list.h>

#include "tools/common/util.h"
#include "tools/common/who.h"

/**
 * struct unasked - a region that was found in /proc, of a process that has told nothing
 * @pid:  the process; @uid, @gid: of /proc
 * @elsewhere: it is in another network namespace
 * @addr: 0 if it cannot be told
 * @len:  bytes that are mapped
 */
struct unasked {
	int32_t pid;
	uint32_t uid;
	uint32_t gid;
	uint32_t elsewhere;
	uint64_t addr;
	uint64_t len;
};

/**
 * struct process - all that is known of one
 * @told:   @regions are what it says itself, with its budget; else @found is what /proc says
 * @silent: it was asked, and tells nothing: @status is why
 */
struct process {
	int pid;
	uint32_t uid;
	uint32_t gid;
	char command[WHO_LEN];
	char user[WHO_LEN];
	bool told;
	bool silent;
	int status;
	const struct kedge_region_entry *regions;
	const struct unasked *found;
	size_t cnt;
};

/**
 * struct listing - all of them
 * @process:  by pid; those of other users, which are not asked, have status -EACCES
 * @entry:    what processes say; @found: what /proc says of others
 * @regions:  how many there are, of @owners processes
 * @bytes, @handles, @peers: of them, as far as is known
 * @silent:   processes that were asked, and tell nothing
 * @others:   those of other users
 * @unsearched: /proc was not gone through to its end in time
 */
struct listing {
	struct process *process;
	size_t cnt;
	struct kedge_region_entry *entry;
	size_t entry_cnt;
	struct unasked *found;
	size_t found_cnt;
	size_t regions;
	size_t owners;
	uint64_t bytes;
	uint64_t handles;
	uint64_t peers;
	size_t silent;
	size_t others;
	bool unsearched;
};

/* ---- search.c ---- */

/* Regions in /proc, of process @pid or, if that is 0, all, within @wait_s: 0 or a negative errno.
 * The caller frees @l->found in either case. */
int search(struct listing *l, int pid, int wait_s);

/* ---- collect.c ---- */

/* 0, or an exit status: the reason is printed. */
int collect(struct listing *l, int pid, int wait_s);
void collect_end(struct listing *l);

/* ---- print.c, json.c ---- */

const char *regions_state(const struct kedge_region_entry *e);
const char *regions_silent(int status);
/* Why a process of @found has not told. */
const char *regions_unasked(const struct process *p);
void print_listing(const struct listing *l, int pid);
/* 0, or an exit status. */
int print_json(const struct listing *l);

#endif /* TOOLS_REGIONS_REGIONS_H */
