// SPDX-License-Identifier: BSD-2-Clause
/*
 * libfabric is opened at run time, when a provider is asked for: it loads a dozen
 * libraries, and of Debian's libinfinipath catches every signal that ends a
 * process, turns crashes into exit status 1 and writes files into the working
 * directory. A program that is linked with libkedge-ofi and uses no provider is
 * spared all that. One that does has its signal handlers put back: whatever a
 * library set while it was loaded, or a provider while it was looked for.
 *
 * All else of libfabric's is reached through tables of functions. These five
 * calls are defined here, by their names, for this library alone.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "channel/ofi/internal.h"
#include "channel/ofi/lib.h"

#define SONAME  "libfabric.so.1"
#define SIGNALS 65 /* of the kernel, and an unused number 0 */
/* This is compiled with the structs of these versions of the calls; later libraries
 * have them, too. */
#if FI_MAJOR_VERSION == 1 && FI_MINOR_VERSION <= 17
#define VERSIONED 1
#else
#define VERSIONED 0
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *lib;
static struct {
	int (*getinfo)(uint32_t version, const char *node, const char *service,
		       uint64_t flags, const struct fi_info *hints,
		       struct fi_info **info);
	void (*freeinfo)(struct fi_info *info);
	struct fi_info *(*dupinfo)(const struct fi_info *info);
	int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric,
		      void *context);
	const char *(*strerror)(int errnum);
} calls;

/* ---- signal handlers ---- */

struct handlers {
	struct sigaction of[SIGNALS];
};

static void handlers_note(struct handlers *h)
{
	int i;

	for (i = 1; i < SIGNALS; i++)
		if (sigaction(i, NULL, &h->of[i]))
			h->of[i].sa_handler = SIG_DFL;
}

static void handlers_restore(const struct handlers *h)
{
	struct sigaction now;
	int i;

	for (i = 1; i < SIGNALS; i++)
		if (!sigaction(i, NULL, &now) &&
		    (now.sa_flags & SA_SIGINFO
			     ? (void *)now.sa_sigaction !=
				       (void *)h->of[i].sa_sigaction
			     : now.sa_handler != h->of[i].sa_handler))
			sigaction(i, &h->of[i], NULL);
}

/* ---- the library ---- */

static void *symbol(void *in, const char *name, const char *version)
{
	return VERSIONED ? dlvsym(in, name, version) : dlsym(in, name);
}

static int resolve(void *in)
{
	const struct {
		const char *name, *version;
		void *to;
	} syms[] = {
		{ "fi_getinfo", "FABRIC_1.3", &calls.getinfo },
		{ "fi_freeinfo", "FABRIC_1.3", &calls.freeinfo },
		{ "fi_dupinfo", "FABRIC_1.3", &calls.dupinfo },
		{ "fi_fabric", "FABRIC_1.1", &calls.fabric },
		{ "fi_strerror", "FABRIC_1.0", &calls.strerror },
	};
	size_t i;
	void *p;

	for (i = 0; i < ARRAY_SIZE(syms); i++) {
		p = symbol(in, syms[i].name, syms[i].version);
		if (!p)
			return kedge_reason(-ENODEV, "the " SONAME " installed "
					    "has no %s of %s", syms[i].name,
					    syms[i].version);
		memcpy(syms[i].to, &p, sizeof(p));
	}
	return 0;
}

static int open_lib(void)
{
	struct handlers h;
	void *in;
	int rc;

	handlers_note(&h);
	in = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL);
	handlers_restore(&h);
	if (!in)
		return kedge_reason(-ENODEV, "libfabric is not installed "
				    "(Debian's libfabric1): %s", dlerror());
	rc = resolve(in);
	if (!rc)
		lib = in;
	return rc;
}

int kedge__ofi_load(void)
{
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (!lib)
		rc = open_lib();
	pthread_mutex_unlock(&lock);
	return rc;
}

/* ---- the calls ---- */

int fi_getinfo(uint32_t version, const char *node, const char *service,
	       uint64_t flags, const struct fi_info *hints,
	       struct fi_info **info)
{
	struct handlers h;
	int rc;

	if (kedge__ofi_load())
		return -FI_ENODATA;
	/* The first one starts the providers. */
	handlers_note(&h);
	rc = calls.getinfo(version, node, service, flags, hints, info);
	handlers_restore(&h);
	return rc;
}

int kedge__ofi_getinfo_again(uint32_t version, const char *node, uint64_t flags,
			     const struct fi_info *hints, struct fi_info **info)
{
	return calls.getinfo(version, node, NULL, flags, hints, info);
}

void fi_freeinfo(struct fi_info *info)
{
	if (info)
		calls.freeinfo(info);
}

struct fi_info *fi_dupinfo(const struct fi_info *info)
{
	return kedge__ofi_load() ? NULL : calls.dupinfo(info);
}

int fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric,
	      void *context)
{
	return calls.fabric(attr, fabric, context);
}

const char *fi_strerror(int errnum)
{
	return calls.strerror ? calls.strerror(errnum) : "libfabric is missing";
}
