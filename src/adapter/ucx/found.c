// SPDX-License-Identifier: BSD-2-Clause
/* See found.h. */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "found.h"

#define MAJOR 1u /* of the only version that was tried: other ones lay out and look up otherwise */
#define MINOR 13u

#define ELSE "UCX's cache of registrations is left as it is; \"kedge run --ucx\" serves any version"

static struct found all;
static pthread_once_t once = PTHREAD_ONCE_INIT;

void found_say(const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "kedge: libkedge-ucx: %s\n", text);
}

/* UCX's code for "not supported"; a caller does without a cache then. */
static int absent(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f,
		  uintptr_t g, uintptr_t h)
{
	(void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
	return -22;
}

/* The loaded library of that name; it stays from now on. */
static void *loaded(const char *name)
{
	return dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
}

/* The call in libucs; if UCX goes by another name, or is linked in, the next in the order of
 * symbols. */
static ucx_fn rcache_call(void *ucs, const char *name)
{
	void *p = ucs ? dlsym(ucs, name) : NULL;
	ucx_fn fn = absent;

	if (!p)
		p = dlsym(RTLD_NEXT, name);
	if (p)
		memcpy(&fn, &p, sizeof(fn));
	return fn;
}

/* libucp alone knows its version. A program may use UCX's lower layers without it: then the one
 * beside libucs is asked. */
static void *load_ucp(const void *in_ucs)
{
	void *ucp = loaded("libucp.so.0");
	char path[PATH_MAX];
	const char *slash;
	Dl_info where;

	if (ucp || !dladdr(in_ucs, &where) || !where.dli_fname)
		return ucp;
	slash = strrchr(where.dli_fname, '/');
	if (!slash || snprintf(path, sizeof(path), "%.*s/libucp.so.0",
			       (int)(slash - where.dli_fname), where.dli_fname) >= PATH_MAX)
		return NULL;
	return dlopen(path, RTLD_LAZY | RTLD_LOCAL);
}

/* Zeros: it does not say. */
static void ask_version(void *ucp, unsigned int v[3])
{
	void (*version)(unsigned int *major, unsigned int *minor, unsigned int *release) = NULL;
	void *p = ucp ? dlsym(ucp, "ucp_get_version") : NULL;

	memcpy(&version, &p, sizeof(version));
	v[0] = v[1] = v[2] = 0;
	if (version)
		version(&v[0], &v[1], &v[2]);
}

static bool is_known(const unsigned int v[3])
{
	return v[0] == MAJOR && v[1] == MINOR;
}

static bool is_known_version(void *ucp)
{
	unsigned int v[3];

	ask_version(ucp, v);
	if (is_known(v))
		return true;
	if (v[0])
		found_say("it knows UCX %u.%u, and this is %u.%u.%u. " ELSE, MAJOR, MINOR, v[0],
			  v[1], v[2]);
	else
		found_say("it does not find out which version of UCX this is (libucp.so.0). "
			  ELSE);
	return false;
}

void *found_in_ucm(const char *name)
{
	void *ucm = loaded("libucm.so.0"), *p = ucm ? dlsym(ucm, name) : NULL;

	return p ? p : dlsym(RTLD_NEXT, name);
}

bool found_early(void)
{
	unsigned int v[3];

	ask_version(loaded("libucp.so.0"), v);
	return is_known(v);
}

static void find(void)
{
	void *ucs = loaded("libucs.so.0"), *ucm = loaded("libucm.so.0"), *p;

	all.create = rcache_call(ucs, "ucs_rcache_create");
	all.get = rcache_call(ucs, "ucs_rcache_get");
	all.destroy = rcache_call(ucs, "ucs_rcache_destroy");
	all.put = rcache_call(ucs, "ucs_rcache_region_put");
	p = ucm ? dlsym(ucm, "ucm_vm_munmap") : NULL;
	memcpy(&all.vm_munmap, &p, sizeof(p));
	p = ucm ? dlsym(ucm, "ucm_set_external_event") : NULL;
	memcpy(&all.set_external_event, &p, sizeof(p));
	if (!ucs || !all.vm_munmap || !all.set_external_event)
		found_say("it does not find libucs.so.0 and libucm.so.0, and what they have in "
			  "UCX %u.%u. " ELSE, MAJOR, MINOR);
	else
		all.serves = is_known_version(load_ucp(dlsym(ucs, "ucs_rcache_create")));
}

const struct found *found(void)
{
	pthread_once(&once, find);
	return &all;
}
