// SPDX-License-Identifier: BSD-2-Clause
/*
 * The order of rows. Time goes in passes; in each, every row alone has a
 * slice, in an order drawn anew, and then all rows of the crowd share one.
 * In one pass of four the process's timer fires SIGPROF a thousand times a
 * second, without SA_RESTART.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "base/base.h"
#include "tools/torture/case.h"

#define SLICE_MIN_NS 1000000u
#define SLICE_MAX_NS 20000000u
#define CROWD_ROUNDS 16
/* The crowd's part of the time, in parts of what the other rows get. */
#define CROWD_PART 3

int lanes_init(struct torture *t)
{
	int i, rc;

	for (i = 0; i < t->threads; i++) {
		struct lane *l = &t->lane[i];

		l->t = t;
		l->id = (unsigned int)i;
		util_rng_init(&l->rng, t->seed + (uint64_t)i);
		rc = t->rig.dio->open(&t->rig, &l->port);
		if (rc)
			goto close_ports;
		rc = i ? worker_start(&t->crew[i]) : 0;
		if (rc) {
			t->rig.dio->close(&l->port);
			goto close_ports;
		}
	}
	return 0;

close_ports:
	while (i-- > 0) {
		worker_stop(&t->crew[i]);
		t->rig.dio->close(&t->lane[i].port);
	}
	return rc;
}

void lanes_fini(struct torture *t)
{
	int i;

	for (i = 0; i < t->threads; i++) {
		worker_stop(&t->crew[i]);
		route_fini(&t->lane[i]);
		t->rig.dio->close(&t->lane[i].port);
	}
}

struct crew_job {
	struct lane *lane;
	void (*fn)(struct lane *l, void *arg);
	void *arg;
};

static void crew_main(void *p)
{
	struct crew_job *j = p;

	j->fn(j->lane, j->arg);
}

/* Run @fn(lane, arg) on lanes [0, cnt), the caller being lane 0. */
static void crew_run(struct torture *t, int cnt,
		     void (*fn)(struct lane *, void *), void *arg)
{
	struct crew_job job[MAX_LANES];
	int i;

	for (i = 1; i < cnt; i++) {
		job[i] = (struct crew_job){ &t->lane[i], fn, arg };
		worker_post(&t->crew[i], crew_main, &job[i]);
	}
	fn(&t->lane[0], arg);
	for (i = 1; i < cnt; i++)
		worker_wait(&t->crew[i]);
}

/* The row that lane 0 runs and the others look up, in a storm. */
struct storm {
	struct run x;
	struct row *row;
	uint64_t end_ns;
};

static void look_once(struct run *x, struct lane *l)
{
	uint8_t *addr = atomic_load(&x->addr);
	size_t len = atomic_load(&x->len);
	size_t off;

	if (!addr || !len)
		return;
	off = util_rng_below(&l->rng, 2) ? util_rng_below(&l->rng, len) : 0;
	check_touch(l, addr + off, len - off);
}

#define BURST 16

/*
 * Looks come in bursts: more threads than processors that never sleep would
 * let lane 0 and the monitor run once in a scheduler's slice.
 */
static void storm_look(struct run *x, struct lane *l)
{
	const struct timespec pause = { .tv_nsec = 10000 };
	unsigned int n;

	for (n = 1; !atomic_load_explicit(&x->stop, memory_order_acquire);
	     n++) {
		if (l->id == 1 &&
		    atomic_load_explicit(&x->hand, memory_order_acquire) ==
			    HAND_ASKED) {
			x->hand_rc = run_judge(x, l, x->hand_span);
			atomic_store_explicit(&x->hand, HAND_DONE,
					      memory_order_release);
		}
		look_once(x, l);
		if (n % BURST == 0)
			nanosleep(&pause, NULL);
	}
}

static void storm_main(struct lane *l, void *arg)
{
	struct storm *s = arg;

	if (l->id) {
		storm_look(&s->x, l);
		return;
	}
	run_slice(l, s->row, s->end_ns, 1u << 30, &s->x);
	atomic_store_explicit(&s->x.stop, true, memory_order_release);
}

static void race_main(struct lane *l, void *arg)
{
	struct race *r = arg;

	r->x.ev->race(r, l);
}

static void run_race(struct torture *t, struct row *row, uint64_t end_ns)
{
	struct race r = { .x = { .addr = NULL } };

	if (!run_setup(&r.x, &t->lane[0], row)) {
		r.end_ns = end_ns;
		r.lanes = (unsigned int)t->threads;
		crew_run(t, t->threads, race_main, &r);
	}
	run_fini(&r.x);
}

struct crowd {
	struct row **row;
	size_t cnt;
	uint64_t end_ns;
};

static bool any_wanted(const struct torture *t, struct row **row, size_t cnt)
{
	size_t i;

	for (i = 0; i < cnt; i++)
		if (row_wanted(t, row[i]))
			return true;
	return false;
}

static void crowd_main(struct lane *l, void *arg)
{
	struct crowd *c = arg;
	struct row *row;

	while (clock_ns() < c->end_ns && any_wanted(l->t, c->row, c->cnt)) {
		row = c->row[util_rng_below(&l->rng, c->cnt)];
		if (row_wanted(l->t, row))
			run_slice(l, row, c->end_ns, CROWD_ROUNDS, NULL);
	}
}

static void run_row(struct torture *t, struct row *row, uint64_t slice_ns)
{
	uint64_t end_ns = clock_ns() + slice_ns;
	struct kedge_cache_stats from, to;
	struct storm s = { .row = row, .end_ns = end_ns };

	rig_stats(&t->rig, &from);
	switch (row->mode) {
	case MODE_STORM:
		crew_run(t, t->threads, storm_main, &s);
		break;
	case MODE_RACE:
		run_race(t, row, end_ns);
		break;
	default:
		run_slice(&t->lane[0], row, end_ns, 1u << 30, NULL);
	}
	rig_stats(&t->rig, &to);
	row->gets += to.gets - from.gets;
	row->hits += to.hits - from.hits;
	row->uncached += to.uncached - from.uncached;
}

static struct torture *_Atomic signalled;

static void on_signal(int sig)
{
	struct torture *t = atomic_load(&signalled);

	atomic_fetch_add_explicit(&t->signals, 1, memory_order_relaxed);
}

static void signals(struct torture *t, bool on)
{
	struct itimerval it = { .it_interval.tv_usec = on ? 1000 : 0,
				.it_value.tv_usec = on ? 1000 : 0 };
	struct sigaction sa = { .sa_handler = on_signal };

	/* The handler stays: a last signal may be on its way. */
	atomic_store(&signalled, t);
	sigaction(SIGPROF, &sa, NULL);
	setitimer(ITIMER_PROF, &it, NULL);
}

static void shuffle(struct util_rng *rng, struct row **row, size_t cnt)
{
	struct row *tmp;
	size_t i, j;

	for (i = cnt; i > 1; i--) {
		j = util_rng_below(rng, i);
		tmp = row[i - 1];
		row[i - 1] = row[j];
		row[j] = tmp;
	}
}

/*
 * In parts of a slice. Small pages on one thread do many rounds in little
 * time; a storm's rounds are slow; the races are few.
 */
static uint64_t part_of(const struct row *row)
{
	if (row->mode == MODE_STORM)
		return 1;
	return row->mode == MODE_RACE || row->pages == PAGES_4K ? 4 : 2;
}

static bool over(const struct torture *t, uint64_t now)
{
	return now >= t->end_ns;
}

static void pass(struct torture *t, struct row **alone, size_t cnt,
		 struct crowd *crowd, uint64_t slice_ns)
{
	uint64_t start = clock_ns(), now = start;
	size_t i;

	shuffle(&t->lane[0].rng, alone, cnt);
	for (i = 0; i < cnt && !over(t, now); i++) {
		if (row_wanted(t, alone[i]))
			run_row(t, alone[i], slice_ns * part_of(alone[i]));
		now = clock_ns();
		util_progress_at(&t->progress,
				 (now - t->start_ns) / 1000000000u);
	}
	if (!any_wanted(t, crowd->row, crowd->cnt) || over(t, now))
		return;
	crowd->end_ns = cnt ? now + (now - start) / CROWD_PART : t->end_ns;
	if (crowd->end_ns > t->end_ns)
		crowd->end_ns = t->end_ns;
	crew_run(t, t->threads, crowd_main, crowd);
}

/* Three passes at least where there is time for them. */
static uint64_t slice_of(const struct torture *t, uint64_t parts)
{
	double ns = t->seconds * 1e9 / (double)(parts + 1) /
		    (3 * (1 + 1.0 / CROWD_PART));

	if (ns > SLICE_MAX_NS)
		return SLICE_MAX_NS;
	return ns < SLICE_MIN_NS ? SLICE_MIN_NS : (uint64_t)ns;
}

int sched_run(struct torture *t)
{
	struct row **alone = calloc(t->row_cnt * 2 + 1, sizeof(*alone));
	struct crowd crowd = { 0 };
	uint64_t slice_ns, parts = 0, n;
	size_t cnt = 0, i;

	if (!alone)
		return -ENOMEM;
	crowd.row = alone + t->row_cnt;
	for (i = 0; i < t->row_cnt; i++) {
		if (atomic_load(&t->rows[i].off))
			continue;
		if (t->rows[i].mode == MODE_CROWD) {
			crowd.row[crowd.cnt++] = &t->rows[i];
			continue;
		}
		alone[cnt++] = &t->rows[i];
		parts += part_of(&t->rows[i]);
	}
	slice_ns = slice_of(t, parts);
	t->start_ns = clock_ns();
	t->end_ns = t->start_ns + (uint64_t)(t->seconds * 1e9);
	util_progress_start(&t->progress, "seconds", (uint64_t)t->seconds,
			    false);
	for (n = 0; !over(t, clock_ns()); n++) {
		if (!any_wanted(t, alone, cnt) && !any_wanted(t, crowd.row, crowd.cnt))
			break;
		signals(t, n % 4 == 1);
		pass(t, alone, cnt, &crowd, slice_ns);
	}
	signals(t, false);
	util_progress_stop(&t->progress);
	t->elapsed_ns = clock_ns() - t->start_ns;
	free(alone);
	return 0;
}
