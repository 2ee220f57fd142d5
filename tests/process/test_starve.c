// SPDX-License-Identifier: BSD-2-Clause
/*
 * A thread of the application's computes with real-time priority on the
 * processor to which the thread was pinned that opened the notifier. munmap()
 * on another processor must not wait until it pauses. A process's only thread, though,
 * has the monitor where it is pinned itself, until there is another thread.
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

static int one_round(struct rig *r)
{
	char *at = map_anon(NULL, RIG_LEN);
	int rc = at ? rig_check(r, at, RIG_LEN) : -errno;

	if (rc)
		return proc_fail("%s", rc > 0 ? "stale" : strerror(-rc));
	munmap(at, RIG_LEN);
	return 0;
}

static int rounds(struct rig *r, int cpu)
{
	int i, rc = 0;

	for (i = 0; i < ROUNDS && !rc; i++)
		rc = one_round(r);
	if (rc)
		return rc;
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

#define TURNS 3000
#define TURN_MS 10

/* The monitor looks around after an event, and then not for a while. */
static int until_monitor_may(struct rig *r, int cpu, int may)
{
	int i, rc = 0;

	for (i = 0; i < TURNS && !rc && monitor_may_use(cpu) != may; i++) {
		rc = one_round(r);
		sleep_ms(TURN_MS);
	}
	if (!rc && monitor_may_use(cpu) != may)
		return proc_fail(may ? "the monitor stays where one of two threads is"
				     : "the monitor does not go where the only thread is");
	return rc;
}

static void *sleep_till_quit(void *unused)
{
	while (!atomic_load(&quit))
		sleep_ms(TURN_MS);
	return NULL;
}

/* Why it stays away; or NULL. */
static const char *stays_away(void)
{
#ifdef __SANITIZE_THREAD__
	return "ThreadSanitizer has a thread of its own";
#else
	FILE *f = fopen("/proc/sys/kernel/sched_rt_runtime_us", "re");
	long us = -1;

	if (f && fscanf(f, "%ld", &us) != 1)
		us = -1;
	if (f)
		fclose(f);
	return us < 0 ? "real-time threads are not limited" : NULL;
#endif
}

static int it_goes_where_the_only_thread_is(void)
{
	const char *why = stays_away();
	pthread_t thread;
	struct rig r;
	int cpu[2], rc;

	if (why)
		return proc_skip("%s", why);
	if (usable_cpus(cpu, 2) < 2)
		return proc_skip("one processor alone");
	pin_to(cpu[0]);
	rc = rig_open(&r);
	if (!rc)
		rc = until_monitor_may(&r, cpu[1], 0);
	if (rc)
		return rc;
	if (pthread_create(&thread, NULL, sleep_till_quit, NULL))
		return proc_fail("pthread_create");
	rc = until_monitor_may(&r, cpu[1], 1);
	atomic_store(&quit, true);
	pthread_join(thread, NULL);
	return rc;
}

int main(int argc, char **argv)
{
	static const struct proc_case cases[] = {
		{ "munmap while the opener's processor is taken",
		  opener_is_pinned, 0 },
		{ "the monitor is where the only thread is pinned",
		  it_goes_where_the_only_thread_is, 0 },
	};

	return proc_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
