// SPDX-License-Identifier: BSD-2-Clause
/*
 * A thread of the application's computes with real-time priority on the
 * processor to which the thread was pinned that opened the notifier. munmap()
 * on another processor must not wait until it pauses.
 *
 * Real-time threads leave a twentieth of each second to others. A munmap() that
 * waits for the spinner returns after the kernel has taken the processor from
 * it, so that is what is looked at, not how long it took. Other things may take
 * it too: most of the rounds count.
 */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "proc.h"

#define ROUNDS 7

static atomic_bool quit;
static atomic_int spinner; /* its thread ID */

static void *spin(void *arg)
{
	const struct sched_param top = { .sched_priority = 1 };
	int *rc = arg;

	*rc = sched_setscheduler(0, SCHED_FIFO, &top) ? errno : 0;
	atomic_store(&spinner, my_tid());
	while (!*rc && !atomic_load_explicit(&quit, memory_order_relaxed))
		;
	return NULL;
}

/* How often the processor was taken from the spinner. */
static long taken(void)
{
	char path[64], line[128];
	long n = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/status",
		 atomic_load(&spinner));
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "nonvoluntary_ctxt_switches: %ld", &n) == 1)
			break;
	if (f)
		fclose(f);
	return n;
}

static int rounds(struct rig *r)
{
	int i, rc, waited = 0;
	char *at[ROUNDS];
	long before;

	for (i = 0; i < ROUNDS; i++) {
		at[i] = map_anon(NULL, RIG_LEN);
		rc = at[i] ? rig_check(r, at[i], RIG_LEN) : -errno;
		if (rc)
			return proc_fail("round %d: %s", i,
					 rc > 0 ? "stale" : strerror(-rc));
	}
	for (i = 0; i < ROUNDS; i++) {
		before = taken();
		munmap(at[i], RIG_LEN);
		waited += taken() != before;
		/* Not at the end of the spinner's part of a second. */
		sleep_ms(100);
	}
	return waited > ROUNDS / 2
		       ? proc_fail("%d of %d calls of munmap() waited until the "
				   "spinner lost the processor", waited, ROUNDS)
		       : 0;
}

static int opener_is_pinned(void)
{
	pthread_t thread;
	struct rig r;
	int cpu[2], rc, err;

	if (usable_cpus(cpu, 2) < 2)
		return proc_skip("one processor alone");
	pin_to(cpu[0]);
	rc = rig_open(&r);
	if (rc)
		return rc;
	if (pthread_create(&thread, NULL, spin, &err))
		return proc_fail("pthread_create");
	pin_to(cpu[1]);
	while (!atomic_load(&spinner))
		sched_yield();
	rc = err ? proc_skip("SCHED_FIFO: %s", strerror(err)) : rounds(&r);
	atomic_store(&quit, true);
	pthread_join(thread, NULL);
	return rc;
}

int main(int argc, char **argv)
{
	static const struct proc_case cases[] = {
		{ "munmap while the opener's processor is taken",
		  opener_is_pinned, 0 },
	};

	return proc_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
