// SPDX-License-Identifier: BSD-2-Clause
/* See found.h. */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "found.h"
#include "imports.h"

#define ELSE "UCX's cache of registrations is left as it is; \"kedge run --ucx\" switches it off"

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

int8_t found_absent(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f,
		    uintptr_t g, uintptr_t h)
{
	(void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
	return UCX_UNSUPPORTED;
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
	ucx_fn fn = found_absent;

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
	return v[0] == 1 && v[1] >= FOUND_FIRST && v[1] <= FOUND_LAST;
}

/* 0: of no version that is known, which is said. */
static unsigned int known_minor(void *ucp)
{
	unsigned int v[3];

	ask_version(ucp, v);
	if (is_known(v))
		return v[1];
	if (v[0])
		found_say("it knows UCX 1.%u to 1.%u, and this is %u.%u.%u. " ELSE, FOUND_FIRST,
			  FOUND_LAST, v[0], v[1], v[2]);
	else
		found_say("it does not find out which version of UCX this is (libucp.so.0). "
			  ELSE);
	return 0;
}

void *found_in(const char *library, const char *name)
{
	void *in = loaded(library), *p = in ? dlsym(in, name) : NULL;

	return p ? p : dlsym(RTLD_NEXT, name);
}

bool found_is_of(const void *code, const char *begins)
{
	const char *name;
	Dl_info in;

	if (!dladdr(code, &in) || !in.dli_fname)
		return false;
	name = strrchr(in.dli_fname, '/');
	return !strncmp(name ? name + 1 : in.dli_fname, begins, strlen(begins));
}

bool found_early(void)
{
	unsigned int v[3];

	ask_version(loaded("libucp.so.0"), v);
	return is_known(v);
}

/* ---- where libucp is ---- */

static int is_within(struct dl_phdr_info *info, size_t size, void *data)
{
	uintptr_t start = UINTPTR_MAX, end = 0, at = all.ucp_start;
	const ElfW(Phdr) *p = info->dlpi_phdr, *stop = p + info->dlpi_phnum;

	(void)size, (void)data;
	for (; p < stop; p++) {
		if (p->p_type != PT_LOAD)
			continue;
		if (info->dlpi_addr + p->p_vaddr < start)
			start = info->dlpi_addr + p->p_vaddr;
		if (info->dlpi_addr + p->p_vaddr + p->p_memsz > end)
			end = info->dlpi_addr + p->p_vaddr + p->p_memsz;
	}
	if (at < start || at >= end)
		return 0;
	all.ucp_start = start;
	all.ucp_end = end;
	all.ucp_asks = imports(info, "ucs_pgtable_lookup");
	return 1;
}

static bool find_ucp(void *ucp)
{
	all.ucp_start = (uintptr_t)dlsym(ucp, "ucp_get_version");
	return dl_iterate_phdr(is_within, NULL) == 1;
}

/* ---- all ---- */

/* The calls that the later way stands before: without one of them no cache would be watched. */
static bool has_all_later(void)
{
	return found_in(IN_UCS, "ucs_pgtable_lookup") && found_in(IN_UCT, "uct_md_mem_reg_v2") &&
	       found_in(IN_UCT, "uct_md_mem_reg") && found_in(IN_UCT, "uct_md_mem_dereg") &&
	       found_in(IN_UCT, "uct_md_mem_dereg_v2");
}

static void find(void)
{
	void *ucs = loaded(IN_UCS), *ucm = loaded(IN_UCM), *p, *ucp;

	all.create = rcache_call(ucs, "ucs_rcache_create");
	all.get = rcache_call(ucs, "ucs_rcache_get");
	all.destroy = rcache_call(ucs, "ucs_rcache_destroy");
	all.put = rcache_call(ucs, "ucs_rcache_region_put");
	p = ucm ? dlsym(ucm, "ucm_vm_munmap") : NULL;
	memcpy(&all.vm_munmap, &p, sizeof(p));
	p = ucm ? dlsym(ucm, "ucm_set_external_event") : NULL;
	memcpy(&all.set_external_event, &p, sizeof(p));
	if (!ucs || !all.vm_munmap || !all.set_external_event) {
		found_say("it does not find " IN_UCS " and " IN_UCM ", and what they have in "
			  "UCX 1.%u. " ELSE, FOUND_FIRST);
		return;
	}
	ucp = load_ucp(dlsym(ucs, "ucs_rcache_create"));
	all.minor = known_minor(ucp);
	if (all.minor && !FOUND_BY_HEADERS(all.minor) && !has_all_later()) {
		found_say("it does not find in " IN_UCS " and " IN_UCT " what they have in UCX "
			  "1.14. " ELSE);
		all.minor = 0;
	}
	if (all.minor && !find_ucp(ucp)) {
		found_say("it does not find where libucp.so.0 is in memory. " ELSE);
		all.minor = 0;
	}
}

const struct found *found(void)
{
	pthread_once(&once, find);
	return &all;
}
