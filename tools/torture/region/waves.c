// SPDX-License-Identifier: BSD-2-Clause
/*
 * kedge torture --region: starts the processes, kills a peer now and then, and now and then
 * the owner with all that it has, starts others in their places, and says what came of it.
 * It calls nothing of kedge's, so what it forks is as new.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/torture/region/waves.h"

#define PROCESSES (WAVES_OWNERS + WAVES_PEERS) /* owners are the first */
#define TICK_NS	  5000000
#define KILL_PART 20 /* of a peer: a tick in so many */
#define OWNER_PART 20 /* of kills, one is of all */
#define HANG_NS	  60000000000u

struct run {
	struct waves *w;
	pid_t pid[PROCESSES];
	struct util_rng rng;
	uint64_t kills, owner_kills, crashes, begun;
	int rc; /* the owner cannot begin */
};

static int start(struct run *r, unsigned int i)
{
	const pid_t parent = getpid();
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
			_exit(1);
		_exit(i < WAVES_OWNERS ? waves_own(r->w, i)
				       : waves_visit(r->w, i - WAVES_OWNERS));
	}
	r->pid[i] = pid;
	return 0;
}

/* Its end by itself is a crash. */
static void look_at(struct run *r, unsigned int i)
{
	int status;

	if (!r->pid[i] || waitpid(r->pid[i], &status, WNOHANG) != r->pid[i])
		return;
	r->pid[i] = 0;
	if (!i && WIFEXITED(status) && WEXITSTATUS(status) == CMD_CANNOT) {
		r->rc = -ENOMEM;
	} else if (status) {
		r->crashes++;
		if (!*r->w->found)
			snprintf(r->w->found, sizeof(r->w->found), "%s ends with status %#x",
				 i < WAVES_OWNERS ? "an owner" : "a peer", (unsigned int)status);
	}
}

static void end(struct run *r, unsigned int i)
{
	if (!r->pid[i])
		return;
	kill(r->pid[i], SIGKILL);
	waitpid(r->pid[i], NULL, 0);
	r->pid[i] = 0;
}

/* The sum that it was about to add may be there, and the block that it put half. */
static int kill_peer(struct run *r)
{
	const unsigned int i = (unsigned int)(util_rng_next(&r->rng) % WAVES_PEERS);

	atomic_fetch_add(&r->w->peer[i].life, 1);
	atomic_fetch_add(&r->w->killed, 1);
	end(r, WAVES_OWNERS + i);
	r->kills++;
	return start(r, WAVES_OWNERS + i);
}

/* With its memory all that was added is gone: the peers begin anew, too. */
static int kill_all(struct run *r)
{
	unsigned int i;
	int rc = 0;

	for (i = 0; i < PROCESSES; i++)
		end(r, i);
	for (i = 0; i < WAVES_PEERS; i++) {
		atomic_store(&r->w->peer[i].added, 0);
		atomic_store(&r->w->peer[i].sure, atomic_load(&r->w->peer[i].life));
	}
	for (i = 0; i < WAVES_OWNERS; i++)
		atomic_store(&r->w->invite[i].open, false);
	atomic_store(&r->w->killed, 0);
	atomic_fetch_add(&r->w->owners, 1);
	/* An owner that is killed as it publishes leaves an odd one. */
	atomic_store(&r->w->turn, (atomic_load(&r->w->turn) + 1) & ~1ull);
	r->owner_kills++;
	for (i = 0; i < PROCESSES && !rc; i++)
		rc = start(r, i);
	return rc;
}

static uint64_t progress_of(const struct waves *w)
{
	uint64_t n = 0;
	unsigned int i;

	for (i = 0; i < WAVES_PEERS; i++)
		n += atomic_load(&w->peer[i].ops);
	return n;
}

static int tick(struct run *r)
{
	unsigned int i;

	for (i = 0; i < PROCESSES; i++)
		look_at(r, i);
	if (r->rc || r->crashes || util_rng_next(&r->rng) % KILL_PART)
		return 0;
	return util_rng_next(&r->rng) % OWNER_PART ? kill_peer(r) : kill_all(r);
}

static int run(struct run *r, double seconds, struct util_progress *progress)
{
	const struct timespec nap = { 0, TICK_NS };
	uint64_t now = clock_ns(), moved = now, was = 0, is;
	const uint64_t until = now + (uint64_t)(seconds * 1e9);
	unsigned int i;
	int rc = 0;

	r->begun = now;
	for (i = 0; i < PROCESSES && !rc; i++)
		rc = start(r, i);
	while (!rc && !r->rc && !r->crashes && (now = clock_ns()) < until) {
		nanosleep(&nap, NULL);
		rc = tick(r);
		is = progress_of(r->w);
		moved = is != was ? now : moved;
		was = is;
		if (now - moved > HANG_NS) {
			waves_found(r->w, &r->w->errors, "no access was done in a minute");
			break;
		}
		util_progress_at(progress, (now - r->begun) / 1000000000u);
	}
	return rc;
}

/* They end by themselves, or are ended. */
static void finish(struct run *r)
{
	const struct timespec nap = { 0, TICK_NS };
	const uint64_t until = clock_ns() + HANG_NS;
	unsigned int i, left = PROCESSES;

	atomic_store(&r->w->stop, true);
	while (left && clock_ns() < until && !r->crashes) {
		nanosleep(&nap, NULL);
		for (left = 0, i = 0; i < PROCESSES; i++) {
			look_at(r, i);
			left += r->pid[i] != 0;
		}
	}
	if (left && !r->crashes)
		waves_found(r->w, &r->w->errors, "a process does not end");
	for (i = 0; i < PROCESSES; i++)
		end(r, i);
}

/* ---- the report ---- */

static bool is_right(const struct run *r)
{
	return !atomic_load(&r->w->lost) && !atomic_load(&r->w->torn) &&
	       !atomic_load(&r->w->errors) && !r->crashes;
}

static uint64_t beyond(const struct waves *w)
{
	uint64_t n = 0;
	unsigned int i;

	for (i = 0; i < WAVES_PEERS; i++)
		n += atomic_load(&w->peer[i].beyond);
	return n;
}

static json_t *report_json(const struct run *r, const struct waves_opts *o, double s)
{
	const struct waves *w = r->w;

	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
			 "s:f, s:f, s:I, s:f, s:o}",
			 "accesses", (json_int_t)progress_of(w), "beyond",
			 (json_int_t)beyond(w), "suspensions", (json_int_t)w->suspensions, "moves",
			 (json_int_t)w->moves, "migrations", (json_int_t)w->migrations, "stayed",
			 (json_int_t)w->stayed, "lengths", (json_int_t)w->lengths, "handles",
			 (json_int_t)w->handles, "kills", (json_int_t)r->kills, "owner_kills",
			 (json_int_t)r->owner_kills, "lost", (json_int_t)w->lost, "torn",
			 (json_int_t)w->torn, "errors", (json_int_t)w->errors, "crashes",
			 (json_int_t)r->crashes, "longest_pause", (double)w->pause_ns / 1e9,
			 "longest_migration", (double)w->migrate_ns / 1e9, "seed",
			 (json_int_t)o->seed, "elapsed", s, "found",
			 *w->found ? util_json_text(w->found) : json_null());
}

static void print(const struct run *r, const struct waves_opts *o, double s)
{
	char a[UTIL_HUMAN], b[UTIL_HUMAN], c[UTIL_HUMAN], d[UTIL_HUMAN];
	const struct waves *w = r->w;

	printf("a region of 64 MiB, %u processes read and write it; seed %" PRIu64 "\n",
	       WAVES_PEERS, o->seed);
	printf("%s suspensions, %" PRIu64 " moves (peers out for %s at most), %s changes of its "
	       "length, %" PRIu64 " handles\n", util_human_count(a, w->suspensions), w->moves,
	       util_human_ns(b, (double)w->pause_ns), util_human_count(c, w->lengths), w->handles);
	printf("%" PRIu64 " migrations between two processes (peers out for %s at most), %" PRIu64
	       " that stayed\n", w->migrations, util_human_ns(b, (double)w->migrate_ns), w->stayed);
	printf("%s accesses, %s beyond the end, %" PRIu64 " peers and %" PRIu64
	       " owners killed, in %.1f s\n", util_human_count(a, progress_of(w)),
	       util_human_count(d, beyond(w)), r->kills, r->owner_kills, s);
	printf("%s%" PRIu64 " lost, %" PRIu64 " torn, %" PRIu64 " errors, %" PRIu64
	       " crashes%s\n", util_colour(is_right(r) ? UTIL_GREEN : UTIL_RED), w->lost,
	       w->torn, w->errors, r->crashes, util_colour(UTIL_PLAIN));
	if (*w->found)
		printf("the first: %s\n", w->found);
}

static int report(const struct run *r, const struct waves_opts *o)
{
	const double s = (double)(clock_ns() - r->begun) / 1e9;

	if (!util_flags.json)
		print(r, o, s);
	else if (util_json_print(report_json(r, o, s)))
		return CMD_CANNOT;
	return is_right(r) ? CMD_OK : CMD_FINDING;
}

int waves_torture(const struct waves_opts *o)
{
	struct util_progress progress;
	struct run r = { .rc = 0 };
	int rc;

	r.w = mmap(NULL, sizeof(*r.w), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (r.w == MAP_FAILED)
		return util_fail(-errno, "cannot share memory");
	r.w->seed = o->seed;
	util_rng_init(&r.rng, o->seed);
	util_progress_start(&progress, "seconds", (uint64_t)o->seconds, false);
	rc = run(&r, o->seconds, &progress);
	finish(&r);
	util_progress_stop(&progress);
	if (r.rc) {
		util_error("no region: %s", r.w->found);
		rc = CMD_CANNOT;
	} else {
		rc = rc ? util_fail(rc, "cannot start a process") : report(&r, o);
	}
	munmap(r.w, sizeof(*r.w));
	return rc;
}
