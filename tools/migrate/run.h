/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The command's own side of kedge migrate: its processes, and the steps that it takes. Functions
 * return 0 to go on; RUN_OVER, a fault was noted in the load, and there is no sense in going on; or
 * a negative errno, for which a message was printed, but for -EINTR.
 */
#ifndef TOOLS_MIGRATE_RUN_H
#define TOOLS_MIGRATE_RUN_H

#include <signal.h>

#include "tools/migrate/migrate.h"
#include "tools/migrate/space.h"

#define RUN_OVER 1

/** struct bar - the progress bar
 * @label: "move 1 of 2"
 */
struct bar {
	bool on;
	bool shown;
	char label[32];
};

/** struct move - the figures of one move
 * @longest:   nanoseconds that a peer waited for one access
 * @copy_ns:   of as many bytes as the last round's in memory; 0: that was empty
 * @socket_ns: and over a socket
 */
struct move {
	struct kedge_migrate_info info;
	pid_t from;
	pid_t to;
	uint64_t longest;
	uint64_t accesses;
	double copy_ns;
	double socket_ns;
};

enum outcome { REGION_STAYED, REGION_MOVED, REGION_ENDED, OUTCOMES };

/** struct run - the state of the command
 * @owner:   index of the host that has the region
 * @stores:  the owner stores, too
 * @handle:  of the region, the same all the time
 * @moves:   owned, @moves_cnt of them
 * @outcome: of @kills kills
 */
struct run {
	const struct migrate_opts *opts;
	struct load *load;
	struct spaces spaces;
	struct migrate_start start;
	struct proc host[2];
	struct proc peer[LOAD_PEERS_MAX];
	struct proc checker;
	unsigned int owner;
	bool stores;
	struct kedge_handle handle;
	struct bar bar;
	struct util_rng rng;
	struct move *moves;
	unsigned int moves_cnt;
	unsigned int outcome[OUTCOMES];
	unsigned int kills;
	uint64_t accesses;
	uint64_t writes;
};

/* ---- signals.c ---- */

/* True after SIGINT and its like, once they are caught. */
bool run_interrupted(void);
void signals_catch(void);
/* Children do not take them; @old is the mask before. */
void signals_block_all(sigset_t *old);
/* The command ends by the one that came, if one did. */
void signals_raise(void);

/* ---- run.c: processes, and the load ---- */

/* All processes begin, with a region, and peers that are at work. The load's log begins anew. */
int run_begin(struct run *r);
/* All processes are killed. */
void run_end(struct run *r);
void run_kill(struct proc *p);

/* Each peer that was not killed does @more accesses, or it is a fault. */
int run_work(struct run *r, uint64_t more);
/* Peers stop, also those that have ended if they @may; no access is under way. */
int run_pause(struct run *r, bool may);
void run_resume(struct run *r);
/* All blocks are checked, while peers are paused. @alone: by @h alone. */
int run_check(struct run *r, const struct kedge_handle *h, bool alone);
int run_store(struct run *r);

/* ---- talk.c ---- */

/* The time, of clock_ns(), at which a process hangs that is silent from now on. */
uint64_t talk_hang(const struct run *r);
/* -EPIPE: the process has ended, and all that it said was read; -ETIMEDOUT: it is silent until
 * then, of clock_ns(); both without a message. */
int talk_hear_until(struct proc *p, struct said *s, uint64_t until);
/* A process that hangs is a fault. */
int talk_hear(struct run *r, struct proc *p, struct said *s);
/* Answers are read up to @kind, and the bar is drawn. */
int talk_expect(struct run *r, struct proc *p, uint32_t kind, struct said *s);
/* An order whose answer is one; the answer's rc is in @s. */
int talk_ask(struct run *r, struct proc *p, const struct order *o, uint32_t kind, struct said *s);
/* The same, and a failure is printed: "cannot @what". */
int talk_must(struct run *r, struct proc *p, const struct order *o, const char *what,
	      struct said *s);
/* The process has ended; it may have said something before. */
bool talk_has_ended(const struct proc *p);
int talk_fail(const struct said *s, const char *what);

/* ---- bar.c ---- */

void bar_begin(struct bar *b, unsigned int nth, unsigned int of, const char *what);
void bar_draw(struct bar *b, const struct kedge_migrate_info *info);
void bar_wipe(struct bar *b);

/* ---- move.c, kill.c, report.c: an exit status is only the last one's ---- */

/* The target's invitation. */
int move_invite(struct run *r, struct kedge_handle *invitation);
int move_there(struct run *r, struct move *m);
/* The former owner knows that it is no owner, and the other one that it is. */
int move_one_owner(struct run *r);
int kill_all(struct run *r);
int report_print(const struct run *r);
bool report_is_right(const struct run *r);

/* ---- command.c: an exit status ---- */

int migrate_run(const struct migrate_opts *opts);

#endif /* TOOLS_MIGRATE_RUN_H */
