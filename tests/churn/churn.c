// SPDX-License-Identifier: BSD-2-Clause
/*
 * tools/torture/churn.c as a program of its own, built three times: linked as
 * "pkg-config --libs kedge-uring" says, the same with libkedge-hooks, and with
 * CHURN_DLOPEN as a program that brings kedge in by dlopen(). Exit status: 0,
 * 1 if data was stale, 2 for a wrong command line, 77 where it cannot run.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/process/alone.h"
#include "tools/torture/churn.h"

#define SKIP 77

static const char usage[] =
	"churn [-t THREADS] [-a malloc|mmap|mixed] [-z SIZE] [-l LEN]\n"
	"      [-r libc|syscall|raw] [-p] [-d | -A] [-n NOTIFIER] [-s SECONDS]\n"
	"      [-g GETS] [-S SEED] [-R TIMES] [-H PERCENT] [libkedge-uring.so]\n"
	"  -p  a cache and notifier for each thread\n"
	"  -d  what NULL everywhere gives, and no KEDGE_* variables\n"
	"  -A  with KEDGE_NOTIFIER_ASK, and without -d\n"
	"  -R  open it all anew so many times\n"
	"  -H  fail where fewer gets hit\n"
	"The library is for the program that calls dlopen().\n";

#ifdef CHURN_DLOPEN
static int load(const char *path, struct churn_api *api)
{
	const struct {
		const char *name;
		void *fn;
	} sym[] = {
		{ "kedge_device_open_uring", &api->device_open_uring },
		{ "kedge_device_close", &api->device_close },
		{ "kedge_notifier_open", &api->notifier_open },
		{ "kedge_notifier_info", &api->notifier_info },
		{ "kedge_notifier_close", &api->notifier_close },
		{ "kedge_cache_open", &api->cache_open },
		{ "kedge_cache_close", &api->cache_close },
		{ "kedge_cache_get", &api->cache_get },
		{ "kedge_cache_put", &api->cache_put },
		{ "kedge_cache_stats", &api->cache_stats },
		{ "kedge_strerror", &api->error_text },
	};
	void *lib = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
	void *fn;
	size_t i;

	if (!lib) {
		fprintf(stderr, "churn: %s\n", path ? dlerror() : usage);
		return -1;
	}
	for (i = 0; i < sizeof(sym) / sizeof(sym[0]); i++) {
		fn = dlsym(lib, sym[i].name);
		if (!fn) {
			fprintf(stderr, "churn: %s\n", dlerror());
			return -1;
		}
		memcpy(sym[i].fn, &fn, sizeof(fn));
	}
	return 0;
}
#else
static int load(const char *path, struct churn_api *api)
{
	*api = (struct churn_api)CHURN_API_LINKED;
	return path ? -1 : 0;
}
#endif

/* The place of @text in @names, or -1. */
static int named(const char *const *names, const char *text)
{
	int i;

	for (i = 0; names[i]; i++)
		if (!strcmp(names[i], text))
			return i;
	return -1;
}

static double least_hits; /* percent */

static int options(int argc, char **argv, struct churn_opts *o, int *times)
{
	int c, alloc = CHURN_MALLOC, route = CHURN_LIBC;

	while ((c = getopt(argc, argv, "t:a:z:l:r:pdAn:s:g:S:R:H:")) != -1) {
		switch (c) {
		case 't': o->threads = (unsigned int)atoi(optarg); break;
		case 'a': alloc = named(churn_alloc_names, optarg); break;
		case 'z': o->size = strtoull(optarg, NULL, 0); break;
		case 'l': o->transfer = strtoull(optarg, NULL, 0); break;
		case 'r': route = named(churn_route_names, optarg); break;
		case 'p': o->apart = true; break;
		case 'd': o->defaults = true; break;
		case 'A': o->flags = KEDGE_NOTIFIER_ASK; break;
		case 'n': o->notifier = optarg; break;
		case 's': o->seconds = atof(optarg); break;
		case 'g': o->gets = strtoull(optarg, NULL, 0); break;
		case 'S': o->seed = strtoull(optarg, NULL, 0); break;
		case 'H': least_hits = atof(optarg); break;
		case 'R': *times = atoi(optarg); break;
		default: return -1;
		}
	}
	if (o->threads < 1 || o->threads > CHURN_MAX_THREADS || alloc < 0 ||
	    route < 0 || !o->transfer || o->transfer % 8 ||
	    (o->defaults && o->notifier))
		return -1;
	o->alloc = (enum churn_alloc)alloc;
	o->route = (enum churn_route)route;
	if (!o->seconds && !o->gets)
		o->seconds = 5;
	return 0;
}

static int report(const struct churn_opts *o, const struct churn_result *r)
{
	const char *name = churn_alloc_names[o->alloc];

	printf("%s: %u threads, %s, %s by %s: %llu gets, %llu stale (%.2f %%), "
	       "%llu hits, %llu uncached, %llu refused, %.1f s\n",
	       r->backend, o->threads, r->hooked ? "hooks" : "no hooks", name,
	       churn_route_names[o->route], (unsigned long long)r->gets,
	       (unsigned long long)r->stale,
	       r->gets ? 100.0 * (double)r->stale / (double)r->gets : 0,
	       (unsigned long long)r->hits, (unsigned long long)r->uncached,
	       (unsigned long long)r->refused, (double)r->ns / 1e9);
	if (r->error)
		printf("FAIL: %s\n", r->text);
	else if (r->stale)
		printf("FAIL: stale: %s\n", r->text);
	else if (!r->gets)
		printf("FAIL: not one round\n");
	if (r->error || r->stale || !r->gets)
		return 1;
	if (100.0 * (double)r->hits / (double)r->gets >= least_hits)
		return 0;
	printf("FAIL: fewer than %.0f %% hit\n", least_hits);
	return 1;
}

static int churn_once(const struct churn_opts *o)
{
	struct churn_result res;
	int rc = churn_run(o, &res);

	if (!rc)
		return report(o, &res);
	if (rc == -ENOSYS || rc == -EPERM || rc == -EOPNOTSUPP) {
		printf("skipped: %s\n", res.text);
		return SKIP;
	}
	printf("FAIL: %s\n", *res.text ? res.text : strerror(-rc));
	return 1;
}

int main(int argc, char **argv)
{
	struct churn_api api;
	struct churn_opts o = { .api = &api, .threads = 4,
				.transfer = 64 << 10, .seed = 1 };
	int times = 1, rc = 0;

	if (options(argc, argv, &o, &times)) {
		fputs(usage, stderr);
		return 2;
	}
	pin_alone();
	if (load(optind < argc ? argv[optind] : NULL, &api))
		return 2;
	for (; times > 0 && !rc; times--, o.seed++)
		rc = churn_once(&o);
	return rc;
}
