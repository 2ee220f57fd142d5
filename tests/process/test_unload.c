// SPDX-License-Identifier: BSD-2-Clause
/*
 * kedge in a library that is unloaded, by a program that is not linked with it:
 * threads that used it end later, and the process forks.
 */
#include <dlfcn.h>

#include "proc.h"

#define LOADS 8

struct lib {
	void *handle;
	int (*use)(void);
	void (*done)(void);
};

static atomic_int stage;
static struct lib lib;

static void *use_and_end_later(void *arg)
{
	int *rc = arg;

	*rc = lib.use();
	atomic_store(&stage, 1);
	while (atomic_load(&stage) != 2)
		sched_yield();
	return NULL; /* what the library keeps for the thread ends here */
}

static int load(const char *path)
{
	lib.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib.handle)
		return proc_fail("%s", dlerror());
	*(void **)&lib.use = dlsym(lib.handle, "plugin_use");
	*(void **)&lib.done = dlsym(lib.handle, "plugin_done");
	return lib.use && lib.done ? 0 : proc_fail("no such plugin");
}

static const char *plugin;

static int unloaded(void)
{
	int round, rc = 0, status;
	pthread_t t;
	pid_t pid;

	for (round = 0; round < LOADS && !rc; round++) {
		rc = load(plugin);
		if (rc)
			return rc;
		proc_fail("round %d: a thread ends after dlclose()", round);
		atomic_store(&stage, 0);
		if (pthread_create(&t, NULL, use_and_end_later, &rc))
			return proc_fail("pthread_create");
		while (!atomic_load(&stage))
			sched_yield();
		lib.done();
		dlclose(lib.handle);
		atomic_store(&stage, 2);
		pthread_join(t, NULL);
		/* Handlers of fork() are to have gone with it, or be there. */
		proc_fail("round %d: fork() after dlclose()", round);
		pid = fork();
		if (!pid)
			_exit(0);
		status = proc_wait(pid, 20);
		if (status)
			return proc_fail("round %d: a child after dlclose() "
					 "ends with %#x", round,
					 (unsigned int)status);
	}
	return rc == 1 ? proc_fail("stale") :
	       rc == PROC_SKIP ? proc_skip("the plugin cannot run here") :
	       rc ? proc_fail("the plugin: %s", strerror(-rc)) : 0;
}

int main(int argc, char **argv)
{
	static const struct proc_case cases[] = {
		{ "threads end, and forks, after dlclose()", unloaded, 0 },
	};

	if (argc < 2) {
		fprintf(stderr, "usage: %s PLUGIN [CASE...]\n", argv[0]);
		return 2;
	}
	plugin = argv[1];
	return proc_main(argc - 1, argv + 1, cases,
			 sizeof(cases) / sizeof(cases[0]));
}
