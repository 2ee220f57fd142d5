/* SPDX-License-Identifier: BSD-2-Clause */
/* A process that regions migrate to: a child, told what to do by a page that it shares. */
#ifndef TESTS_REGION_TARGET_H
#define TESTS_REGION_TARGET_H

#include "remote.h"

enum target_state { TARGET_STARTS, TARGET_WAITS, TARGET_OWNS, TARGET_FAILED };

enum target_order {
	TARGET_READ = 1,  /* the byte at @off into @byte */
	TARGET_ACCEPT,	  /* once more */
	TARGET_MIGRATE,	  /* its region, by @next */
	TARGET_EXIT,
	TARGET_ADVERTISE, /* another handle, into @next */
};

/* @said: the last order that was done, with @rc */
struct target {
	struct kedge_handle invitation;
	struct kedge_handle next;
	struct kedge_invitation_opts opts;
	_Atomic int state;
	_Atomic int rc;
	_Atomic int say;
	_Atomic int said;
	uint64_t off;
	unsigned char byte;
	uint64_t budget;
	int accept_ms;
	pid_t pid;
};

/* A target listens where the way says, and waits for a region as long as it takes. */
struct target *target_new(void);
void target_start(struct target *t);
int target_say(struct target *t, int what);
/* Orders it to accept once more, as it has failed. */
void target_accept_again(struct target *t);
void target_wait(struct target *t, int state);
void target_end(struct target *t);

/* Before another process is started. A region has threads, and a departure keeps them. */
void start_processes(void);

/* The limit of a program ends what is stuck; a machine that is late is no failure of a test. */
int migrate_patiently(struct kedge_region *r, const struct kedge_handle *to,
		      const struct kedge_migrate_opts *o, struct kedge_migrate_info *info);
void migrate_to(struct target *t, const struct kedge_migrate_opts *o,
		struct kedge_migrate_info *info);

#endif /* TESTS_REGION_TARGET_H */
