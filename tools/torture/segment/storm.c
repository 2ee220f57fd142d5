// SPDX-License-Identifier: BSD-2-Clause
/*
 * Starts the processes, kills one now and then and starts another in its place,
 * and sees to their ends. It calls nothing of kedge itself: so it has no threads,
 * and what it forks is as new.
 *
 * Times of kills are counted in rounds, not in seconds: what happens is the same on
 * a slow machine. A seed gives the same draws, not the same schedule.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/torture/segment/storm.h"

#define PROCESSES (1 + STORM_ATTACHERS) /* the owner is the first */
#define OWNER	  0u
#define TICK_US	  2000
/* Rounds from a kill to the next, of all ranges. */
#define KILL_MIN  20u
#define KILL_SPAN 60u
/* One kill in so many is of the owner. */
#define OWNER_PART 4u
/* For no round and no look; the run has failed, and its processes are killed. */
#define HANG_S 240u

struct supervisor {
	struct storm *s;
	const struct storm_opts *opts;
	struct storm_result *res;
	pid_t pid[PROCESSES];
	bool done; /* the owner has ended well */
	uint64_t rng, next_kill;
	uint64_t start, moved_ns, moved_at;
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- processes ---- */

static int start(struct supervisor *v, unsigned int i)
{
	const pid_t parent = getpid();
	int status;
	pid_t pid;

	if (i == OWNER)
		atomic_fetch_add(&v->s->epoch, 1);
	fflush(NULL);
	pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid) {
		/* The parent may be gone before prctl() asks to be told. */
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
			_exit(1);
		status = i == OWNER ? storm_own(v->s) : storm_attach(v->s, i);
		fflush(NULL);
		_exit(status);
	}
	v->pid[i] = pid;
	return 0;
}

static void crashed(struct supervisor *v, unsigned int i, int status)
{
	const char *what = i == OWNER ? "the owner" : "an attacher";
	_Atomic uint64_t one = 0;

	if (WIFSIGNALED(status))
		storm_wrong(v->s, &one, "%s was killed: %s", what,
			    strsignal(WTERMSIG(status)));
	else
		storm_wrong(v->s, &one, "%s ended: exit status %d", what,
			    WEXITSTATUS(status));
	v->res->crashes++;
	atomic_store(&v->s->over, true);
}

/* One has ended that was not killed: the owner when all is done. */
static int ended(struct supervisor *v, unsigned int i, int status)
{
	v->pid[i] = 0;
	if (i == OWNER && WIFEXITED(status) && WEXITSTATUS(status) == STORM_SKIP)
		return -EOPNOTSUPP;
	if (i == OWNER && !status) {
		v->done = true;
		atomic_store(&v->s->over, true);
	} else if (status || !atomic_load(&v->s->over)) {
		crashed(v, i, status);
	}
	return 0;
}

static int look_after(struct supervisor *v)
{
	unsigned int i;
	int status, rc = 0;

	for (i = 0; i < PROCESSES && !rc; i++)
		if (v->pid[i] > 0 && waitpid(v->pid[i], &status, WNOHANG) == v->pid[i])
			rc = ended(v, i, status);
	return rc;
}

static void kill_one(struct supervisor *v, unsigned int i)
{
	if (v->pid[i] <= 0)
		return;
	kill(v->pid[i], SIGKILL);
	while (waitpid(v->pid[i], NULL, 0) < 0 && errno == EINTR)
		;
	v->pid[i] = 0;
}

/* An attacher or the owner, where it runs still. */
static int replace_one(struct supervisor *v)
{
	unsigned int i = OWNER;
	int status;

	if (storm_draw(&v->rng) % OWNER_PART)
		i = 1 + (unsigned int)(storm_draw(&v->rng) % STORM_ATTACHERS);
	/* It may have ended by itself since it was looked after. */
	if (v->pid[i] <= 0)
		return 0;
	if (waitpid(v->pid[i], &status, WNOHANG) == v->pid[i])
		return ended(v, i, status);
	kill_one(v, i);
	if (i == OWNER)
		v->res->owner_kills++;
	else
		v->res->kills++;
	return start(v, i);
}

/* ---- the run ---- */

static uint64_t rounds(const struct storm *s)
{
	uint64_t sum = 0;
	unsigned int i;

	for (i = 0; i < STORM_RANGES; i++)
		sum += atomic_load(&s->range[i].rounds);
	return sum;
}

static bool hangs(struct supervisor *v, uint64_t now)
{
	uint64_t at = rounds(v->s) + atomic_load(&v->s->looks) +
		      atomic_load(&v->s->conversions);
	_Atomic uint64_t one = 0;

	if (at != v->moved_at || !v->moved_ns) {
		v->moved_at = at;
		v->moved_ns = now;
	}
	if (now - v->moved_ns < HANG_S * 1000000000ull)
		return false;
	storm_wrong(v->s, &one, "no process gets on, since %u seconds", HANG_S);
	v->res->crashes++;
	return true;
}

static bool any_left(const struct supervisor *v)
{
	unsigned int i;

	for (i = 0; i < PROCESSES; i++)
		if (v->pid[i] > 0)
			return true;
	return false;
}

static int supervise(struct supervisor *v)
{
	uint64_t now;
	int rc = 0;

	while (!rc && any_left(v)) {
		usleep(TICK_US);
		now = now_ns();
		rc = look_after(v);
		if (hangs(v, now))
			return rc;
		if (v->opts->seconds > 0 &&
		    (double)(now - v->start) > v->opts->seconds * 1e9)
			atomic_store(&v->s->over, true);
		if (!rc && !atomic_load(&v->s->over) && rounds(v->s) >= v->next_kill) {
			rc = replace_one(v);
			v->next_kill = rounds(v->s) + KILL_MIN +
				       storm_draw(&v->rng) % KILL_SPAN;
		}
		if (v->opts->tick)
			v->opts->tick(v->opts->tick_arg, (now - v->start) / 1000000);
	}
	return rc;
}

static void collect(const struct storm *s, struct storm_result *res)
{
	res->backend = atomic_load(&s->by_address) ? "module" : "convert";
	res->rounds = rounds(s);
	res->conversions = atomic_load(&s->conversions);
	res->copied = atomic_load(&s->copied);
	res->forks = atomic_load(&s->forks);
	res->attachments = atomic_load(&s->attachments);
	res->looks = atomic_load(&s->looks);
	res->changed = atomic_load(&s->changed);
	res->stale = atomic_load(&s->stale);
	res->torn = atomic_load(&s->torn);
	res->lost = atomic_load(&s->lost);
	memcpy(res->found, s->found, sizeof(res->found));
}

int storm_run(const struct storm_opts *opts, struct storm_result *res)
{
	struct supervisor v = { .opts = opts, .res = res, .rng = opts->seed,
				.next_kill = KILL_MIN, .start = now_ns() };
	unsigned int i;
	int rc = 0;

	memset(res, 0, sizeof(*res));
	v.s = mmap(NULL, sizeof(*v.s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		   -1, 0);
	if (v.s == MAP_FAILED)
		return -errno;
	v.s->seed = opts->seed;
	v.s->rounds = opts->rounds;
	v.s->page = (size_t)sysconf(_SC_PAGESIZE);
	for (i = 0; i < PROCESSES && !rc; i++)
		rc = start(&v, i);
	if (!rc)
		rc = supervise(&v);
	for (i = 0; i < PROCESSES; i++)
		kill_one(&v, i);
	res->ns = now_ns() - v.start;
	collect(v.s, res);
	munmap(v.s, sizeof(*v.s));
	return rc;
}
