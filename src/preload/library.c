// SPDX-License-Identifier: BSD-2-Clause
/* See library.h. */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/fd.h"
#include "preload/library.h"

/* Callers are remembered, as dladdr() goes through all symbols of a library for each. Another
 * library at the place of one that was unloaded gets its name. */
#define CALLERS 32u
static struct {
	const void *at;
	struct library *by;
} callers[CALLERS];

static struct library *libraries;

/* ---- names ---- */

static const char *name_of(const void *caller)
{
	const char *path = "the program", *slash;
	Dl_info where;

	if (dladdr(caller, &where) && where.dli_fname)
		path = where.dli_fname;
	slash = strrchr(path, '/');
	if (slash)
		path = slash + 1;
	/* It may have been started without a name. */
	return *path ? path : "the program";
}

static int is_plug_in(struct dl_phdr_info *lib, size_t size, void *path)
{
	static const char name[] = "/libkedge-fi.so";
	const size_t len = strlen(lib->dlpi_name), end = sizeof(name) - 1;

	(void)size;
	if (len < end || strcmp(lib->dlpi_name + len - end, name) != 0)
		return 0;
	*(const char **)path = lib->dlpi_name;
	return 1;
}

/* libkedge-ucx stands before UCX, so that it is among the first symbols of the process. */
static bool ucx_is_coherent(void)
{
	bool (*watches)(void);

	*(void **)&watches = dlsym(RTLD_DEFAULT, "kedge_ucx_watches");
	return watches && watches();
}

/* A cache above asks a library of ours, and holds for a moment what it will not use. */
static bool is_coherent(const char *name)
{
	const char *path = NULL;
	bool (*watches)(void);
	void *lib;

	if (!strncmp(name, "libuc", 5))
		return ucx_is_coherent();
	if (strncmp(name, "libfabric", 9) != 0 || !dl_iterate_phdr(is_plug_in, &path))
		return false;
	lib = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
	if (!lib)
		return false;
	*(void **)&watches = dlsym(lib, "kedge_fi_watches");
	dlclose(lib);
	/* It is never unloaded. */
	return watches && watches();
}

void library_clean(char *name)
{
	for (; *name; name++)
		if ((unsigned char)*name < ' ' || *name == 127)
			*name = '?';
}

static struct library *library_named(const char *name, bool coherent)
{
	struct library *l;

	for (l = libraries; l; l = l->next)
		if (!strcmp(l->name, name))
			return l;
	l = calloc(1, sizeof(*l) + strlen(name) + 1);
	if (!l)
		return NULL;
	strcpy(l->name, name);
	library_clean(l->name);
	l->coherent = coherent;
	l->next = libraries;
	libraries = l;
	return l;
}

struct library *library_of(const void *caller, pthread_mutex_t *lock)
{
	const size_t at = ((uintptr_t)caller >> 2) % CALLERS;
	const char *name;
	bool coherent;

	if (callers[at].at == caller)
		return callers[at].by;
	pthread_mutex_unlock(lock);
	name = name_of(caller);
	coherent = is_coherent(name);
	pthread_mutex_lock(lock);
	callers[at].by = library_named(name, coherent);
	callers[at].at = callers[at].by ? caller : NULL;
	return callers[at].by;
}

void library_forget(void)
{
	libraries = NULL;
	memset(callers, 0, sizeof(callers));
}

/* ---- what they lost ---- */

bool library_lost(struct loss *l, uint64_t start, uint64_t end, const char *kind,
		  uint32_t change)
{
	if (l->cnt++)
		return false;
	l->start = start;
	l->end = end;
	l->kind = kind;
	l->change = change;
	return true;
}

void library_report(FILE *f)
{
	const struct library *l;

	for (l = libraries; l; l = l->next)
		if (l->stale.cnt)
			fprintf(f, "stale %llu %llx %llx %s %u %s\n",
				(unsigned long long)l->stale.cnt,
				(unsigned long long)l->stale.start,
				(unsigned long long)l->stale.end, l->stale.kind, l->stale.change,
				l->name);
}

/* ---- what is said ---- */

static const char *remedy(const char *name)
{
	static const struct {
		const char *prefix, *text;
	} known[] = {
		{ "libuc", "UCX keeps them: set UCX_RCACHE_ENABLE=n UCX_IB_REG_METHODS=direct, as "
			   "kedge run does unless --keep-caches is given, or preload "
			   "libkedge-ucx.so" },
		{ "libfabric", "libfabric keeps them: have libkedge-fi watch (kedge info, line "
			       "\"mr-cache\"), or set FI_MR_CACHE_MAX_COUNT=0" },
		{ "mca_", "Open MPI keeps them: set OMPI_MCA_mpi_leave_pinned=0" },
		{ "libopen-", "Open MPI keeps them: set OMPI_MCA_mpi_leave_pinned=0" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(known); i++)
		if (!strncmp(name, known[i].prefix, strlen(known[i].prefix)))
			return known[i].text;
	return "deregister before memory is unmapped or dropped, or ask kedge_cache_get() for each "
	       "transfer (libkedge-verbs)";
}

char *library_text(char *text, const struct library *l)
{
	char *all;

	if (asprintf(&all, "%skedge: %s holds a registration whose pages have gone (%#llx to "
		     "%#llx, %s), so an adapter reads and writes pages that the program has no "
		     "more: %s\n",
		     text ? text : "", l->name, (unsigned long long)l->stale.start,
		     (unsigned long long)l->stale.end, l->stale.kind, remedy(l->name)) < 0)
		return text;
	free(text);
	return all;
}

/* Standard error as it was at the beginning: a daemon that closes it may have a file of its data
 * under the number later. */
static struct fd_id err_id;

__attribute__((constructor)) static void note_stderr(void)
{
	kedge__fd_note(STDERR_FILENO, &err_id);
}

/* A reader that has gone must not end the program, and no signal of its own is taken. */
static void write_quietly(const char *text, size_t len)
{
	const struct timespec now = { 0, 0 };
	sigset_t pipe, before, pending;
	bool was;

	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	sigpending(&pending);
	was = sigismember(&pending, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &pipe, &before);
	if (write(STDERR_FILENO, text, len) < 0 && errno == EPIPE && !was)
		sigtimedwait(&pipe, NULL, &now);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void library_say(char *text)
{
	int err = errno;

	if (text && kedge__fd_same(STDERR_FILENO, &err_id))
		write_quietly(text, strlen(text));
	free(text);
	errno = err;
}
