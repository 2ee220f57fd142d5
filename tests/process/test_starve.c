// SPDX-License-Identifier: BSD-2-Clause
/*
 * A thread of the application's computes with real-time priority on the
 * processor to which the thread was pinned that opened the notifier. munmap()
 * on another processor must not wait until it pauses.
 *
 * The test looks at the processors on which the monitor may run. The time of a call,
 * or a processor that the spinner lost meanwhile, tells as much of other programs on
 * this machine: with one processor taken, all of them are on the other.
 */
#include <dirent.h>

#include "proc.h"

#define ROUNDS 7

static atomic_bool quit;
static atomic_bool spinning;

static void *spin(void *arg)
{
	const struct sched_param top = { .sched_priority = 1 };
	int *rc = arg;

	*rc = sched_setscheduler(0, SCHED_FIFO, &top) ? errno : 0;
	atomic_store(&spinning, true);
	while (!*rc && !atomic_load_explicit(&quit, memory_order_relaxed))
		;
	return NULL;
}

/* Looks if the monitor's thread may run on @cpu; negative: there is none. */
static int monitor_may_use(int cpu)
{
	char path[300], name[32];
	struct dirent *d;
	cpu_set_t set;
	int may = -1;
	DIR *dir = opendir("/proc/self/task");
	FILE *f;

	while (dir && may < 0 && (d = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm",
			 d->d_name);
		f = fopen(path, "re");
		if (f && fgets(name, sizeof(name), f) &&
		    !strcmp(name, "kedge-uffd\n") &&
		    !sched_getaffinity(atoi(d->d_name), sizeof(set), &set))
			may = !!CPU_ISSET(cpu, &set);
		if (f)
			fclose(f);
	}
	if (dir)
		closedir(dir);
	return may;
}

static int rounds(struct rig *r, int cpu)
{
	int i, rc;
	char *at;

	for (i = 0; i < ROUNDS; i++) {
		at = map_anon(NULL, RIG_LEN);
		rc = at ? rig_check(r, at, RIG_LEN) : -errno;
		if (rc)
			return proc_fail("round %d: %s", i,
					 rc > 0 ? "stale" : strerror(-rc));
		munmap(at, RIG_LEN);
	}
	rc = monitor_may_use(cpu);
	if (rc < 0)
		return proc_fail("there is no monitor");
	return rc ? 0 : proc_fail("the monitor is bound to where its opener was");
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
	while (!atomic_load(&spinning))
		sched_yield();
	rc = err ? proc_skip("SCHED_FIFO: %s", strerror(err)) : rounds(&r, cpu[1]);
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
