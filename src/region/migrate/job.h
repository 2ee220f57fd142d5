/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A region that this process gives to another one. A thread with the keeper's table of descriptors
 * does it, where no program closes what it does not know; the thread that called
 * kedge_region_migrate() waits for it, and runs the program's callbacks.
 */
#ifndef REGION_MIGRATE_JOB_H
#define REGION_MIGRATE_JOB_H

#include <pthread.h>

#include <kedge/migrate.h>

#include "region/fabric/fabric.h"
#include "region/migrate/track.h"
#include "region/migrate/wire.h"

enum job_asks { JOB_RUNS, JOB_FREEZES, JOB_PROGRESSES, JOB_IS_OVER };

/*
 * @to:     the invitation
 * @id:     random
 * @line:   bytes go by it to @range, which the other process has lent; or NULL
 * @track:  finds this process's own stores, or NULL
 * @view:   the region, mapped for this alone
 * @bits:   of pages of the system's size that the next round sends; @cnt of them are set
 * @rate:   bytes a millisecond
 * @told:   when the program was told how it goes, of clock_ns()
 * @asked:  the connection is another than that of the copy
 * @settles: it is asked what became of migration @id; nothing is copied
 * @shut:   the program's own mapping can only be read
 * @rc:     the outcome, with @reason
 * @asks:   guarded by @lock, as is @answer; @changed tells of it
 */
struct job {
	struct kedge_region *r;
	struct handle_words to;
	struct kedge_migrate_opts o;
	struct kedge_migrate_info info;
	uint64_t id;
	uint64_t begun;
	uint64_t paused;
	struct wire wire;
	struct fabric_line *line;
	struct fabric_range range;
	struct track *track;
	char *view;
	uint64_t *bits;
	uint64_t cnt;
	uint64_t rate;
	uint64_t told;
	bool shut;
	bool settles;
	bool asked;
	int rc;
	char reason[256];
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum job_asks asks;
	int answer;
};

/* ---- handoff.c ---- */

/* By the thread that waits: call the program's functions when asked to, until it is over. */
void job_serve(struct job *j);
/* By the thread that does it: it is. */
void job_over(struct job *j);
/* Likewise; each waits for the program: 0 or -ECANCELED with its reason. */
int job_freeze(struct job *j);
int job_progress(struct job *j);
/* From now on: as long as the other process, or a peer, may be waited for. */
uint64_t job_until(const struct job *j);
/* A moment; false: it is past @until. */
bool job_naps(uint64_t until);
/* A connection's error, with a reason. */
int job_lost(int rc);

/* ---- source.c ---- */

/* All of it; @j->rc is the outcome. */
void job_migrate(struct job *j);
/* The other process is asked again whether it owns the region. */
void job_settle(struct job *j);

/* ---- lent.c ---- */

/* The other process is asked for a loan; there is none where either has no adapter: 0, or a
 * negative errno with its reason. */
int lent_begin(struct job *j);
/* It is over: the same. */
int lent_end(struct job *j);
/* False: it is to be ended, and all of this to be sent otherwise. */
bool lent_put(struct job *j, const struct msg_run *run, uint32_t cnt);
/* Of this side alone. */
void lent_close(struct job *j);

/* ---- rounds.c: 0 or a negative errno with its reason ---- */

int rounds_begin(struct job *j);
void rounds_end(struct job *j);
/* While peers go on. */
int rounds_run(struct job *j);
/* While they wait, and the program's own mapping can only be read. */
int rounds_last(struct job *j);
/* The program may store in its mapping, or may not. */
int rounds_shut(struct job *j);
void rounds_reopen(struct job *j);

#endif /* REGION_MIGRATE_JOB_H */
