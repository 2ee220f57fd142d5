// SPDX-License-Identifier: BSD-2-Clause
/*
 * A drop under way while another mapping takes its address. userfaultfd tells
 * of MADV_DONTNEED before the pages go; the thread that called it may be held
 * up in between, and then the pages it drops are the new mapping's.
 *
 * The dropper is pinned to a processor that another thread keeps busy, and is
 * SCHED_IDLE, so it stays between event and drop for as long as the test likes.
 * A round in which it was through too early is tried again.
 */
#include <sys/prctl.h>

#include "proc.h"

#define ROUNDS	(getenv("TESTS_WHOLE") ? 10 : 3)
#define TRIES	400
/* Beside others an idle thread's rounds take seconds each. */
#define ENOUGH_S (getenv("TESTS_WHOLE") ? 30 : 10)

struct drop {
	struct rig rig;
	char *at;
	size_t len;
	atomic_bool busy; /* the spinner's */
	atomic_bool quit;
	atomic_int go, done; /* numbers of rounds */
};

static void *spinner(void *arg)
{
	const struct timespec pause = { .tv_nsec = 20000 };
	struct drop *d = arg;

	prctl(PR_SET_TIMERSLACK, 1);
	while (!atomic_load(&d->quit))
		if (!atomic_load_explicit(&d->busy, memory_order_relaxed))
			nanosleep(&pause, NULL);
	return NULL;
}

static void *dropper(void *arg)
{
	struct sched_param none = { 0 };
	struct drop *d = arg;
	int round = 0;

	sched_setscheduler(0, SCHED_IDLE, &none);
	while (!atomic_load(&d->quit)) {
		if (atomic_load(&d->go) == round) {
			sched_yield();
			continue;
		}
		atomic_store(&d->busy, true);
		raw_madvise(d->at, d->len, MADV_DONTNEED);
		atomic_store(&d->done, ++round);
	}
	return NULL;
}

/* ---- what is put at the address ---- */

static bool put_fixed(char *at, size_t len)
{
	return map_anon(at, len);
}

static bool put_after_unmap(char *at, size_t len)
{
	return !munmap(at, len) &&
	       mmap(at, len, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
		    0) == at;
}

static bool put_moved(char *at, size_t len)
{
	char *p = map_anon(NULL, len);

	if (!p)
		return false;
	memset(p, 1, len);
	return mremap(p, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at;
}

static bool reserve(char *at, size_t len)
{
	return mmap(at, len, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at;
}

/* The mapping goes elsewhere and comes back. */
static bool put_back(char *at, size_t len)
{
	char *p = mremap(at, len, len, MREMAP_MAYMOVE | MREMAP_FIXED,
			 at + 2 * len);

	return p == at + 2 * len &&
	       mremap(p, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at &&
	       reserve(p, len);
}

/*
 * One drop, and the new mapping before it is over. 1: stale; 0: right; -EAGAIN:
 * it was over too early; else a negative errno.
 */
static int round_of(struct drop *d, bool (*put)(char *, size_t))
{
	int round = atomic_load(&d->go), rc;
	bool late;
	uint64_t g;

	if (!map_anon(d->at, d->len))
		return -errno;
	memset(d->at, 2, d->len);
	rc = rig_check(&d->rig, d->at, d->len);
	if (rc)
		return rc;
	g = kedge_notifier_generation(d->rig.nf);
	atomic_store(&d->go, round + 1);
	/* The event has been read; the pages are there still. */
	while (kedge_notifier_generation(d->rig.nf) == g &&
	       atomic_load(&d->done) == round)
		sched_yield();
	if (!put(d->at, d->len))
		return -errno;
	/* Registered, and kept or not. The data may go with the drop. */
	rc = rig_check(&d->rig, d->at, d->len);
	late = atomic_load(&d->done) != round;
	while (atomic_load(&d->done) == round)
		atomic_store(&d->busy, false);
	if (rc < 0)
		return rc;
	/* The drop is over now, and with it whatever it took. */
	rc = rig_check(&d->rig, d->at, d->len);
	return rc ? rc : late ? -EAGAIN : 0;
}

static int rounds(struct drop *d, bool (*put)(char *, size_t))
{
	const time_t end = time(NULL) + ENOUGH_S;
	int tries, good = 0, stale = 0, rc;

	for (tries = 0; tries < TRIES && good + stale < ROUNDS && time(NULL) < end; tries++) {
		rc = round_of(d, put);
		if (rc < 0 && rc != -EAGAIN)
			return proc_fail("round %d: %s", tries, strerror(-rc));
		stale += rc == 1;
		good += !rc;
	}
	if (stale)
		return proc_fail("%d of %d rounds stale: the drop took the new "
				 "mapping's pages", stale, stale + good);
	printf("# %d of %d rounds in time\n", good, tries);
	if (!good)
		return proc_skip("the drop was never overtaken");
	return 0;
}

static int overtaken(bool (*put)(char *, size_t))
{
	struct drop d = { .len = RIG_LEN };
	pthread_t spin, drop;
	int cpu[2], rc;

	if (usable_cpus(cpu, 2) < 2)
		return proc_skip("one processor alone");
	rc = rig_open(&d.rig);
	if (rc)
		return rc;
	d.at = map_anon(NULL, 4 * d.len);
	if (!d.at || !reserve(d.at + d.len, 3 * d.len))
		return proc_fail("mmap: %s", strerror(errno));
	/* Threads start where their creator is. */
	pin_to(cpu[0]);
	if (pthread_create(&spin, NULL, spinner, &d) ||
	    pthread_create(&drop, NULL, dropper, &d))
		return proc_fail("pthread_create");
	pin_to(cpu[1]);
	rc = rounds(&d, put);
	atomic_store(&d.quit, true);
	pthread_join(drop, NULL);
	pthread_join(spin, NULL);
	rig_close(&d.rig);
	return rc;
}

static int by_map_fixed(void)
{
	return overtaken(put_fixed);
}

static int by_unmap_and_map(void)
{
	return overtaken(put_after_unmap);
}

static int by_mremap_onto_it(void)
{
	return overtaken(put_moved);
}

static int by_mremap_away_and_back(void)
{
	return overtaken(put_back);
}

int main(int argc, char **argv)
{
	static const struct proc_case cases[] = {
		{ "a drop overtaken by mmap(MAP_FIXED)", by_map_fixed, 300 },
		{ "a drop overtaken by munmap and mmap", by_unmap_and_map, 300 },
		{ "a drop overtaken by mremap onto it", by_mremap_onto_it, 300 },
		{ "a drop overtaken by mremap away and back",
		  by_mremap_away_and_back, 300 },
	};

	return proc_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
