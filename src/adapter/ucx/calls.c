// SPDX-License-Identifier: BSD-2-Clause
/*
 * The names that UCX's libraries bind. This library is loaded before UCX: LD_PRELOAD, or linked to
 * the program. Arguments are passed on as they come, also those that a version has more than
 * others, so that any version than those that are served may be called with them.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "begun.h"
#include "found.h"
#include "hidden.h"
#include "later.h"

#define EXPORT __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

/* UCX's own function, which is sought at its first call. All threads find the same. */
struct own {
	const char *library, *name;
	void *_Atomic at;
};

static void *own_at(struct own *own)
{
	void *p = atomic_load_explicit(&own->at, memory_order_relaxed);

	if (!p) {
		p = found_in(own->library, own->name);
		atomic_store_explicit(&own->at, p, memory_order_relaxed);
	}
	return p;
}

static ucx_fn own_fn(struct own *own)
{
	void *p = own_at(own);
	ucx_fn fn = found_absent;

	if (p)
		memcpy(&fn, &p, sizeof(fn));
	return fn;
}

/* ---- caches ---- */

/* NULL: UCX is left as it is. */
static const struct way *way(void)
{
	const unsigned int minor = found()->minor;

#ifdef KEDGE_UCX_1_13
	if (minor && FOUND_BY_HEADERS(minor))
		return &way_1_13;
#endif
	return minor ? &way_later : NULL;
}

EXPORT int kedge_ucx_create(uintptr_t params, uintptr_t name, uintptr_t stats, uintptr_t cache,
			    uintptr_t e, uintptr_t f, uintptr_t g, uintptr_t h)
	__asm__("ucs_rcache_create");
EXPORT int kedge_ucx_get(uintptr_t cache, uintptr_t start, uintptr_t len, uintptr_t d, uintptr_t e,
			 uintptr_t f, uintptr_t g, uintptr_t h) __asm__("ucs_rcache_get");
EXPORT void kedge_ucx_destroy(uintptr_t cache) __asm__("ucs_rcache_destroy");

int kedge_ucx_create(uintptr_t params, uintptr_t name, uintptr_t stats, uintptr_t cache,
		     uintptr_t e, uintptr_t f, uintptr_t g, uintptr_t h)
{
	if (way())
		return way()->create(params, name, stats, cache, CALLER);
	return found()->create(params, name, stats, cache, e, f, g, h);
}

int kedge_ucx_get(uintptr_t cache, uintptr_t start, uintptr_t len, uintptr_t d, uintptr_t e,
		  uintptr_t f, uintptr_t g, uintptr_t h)
{
	const uintptr_t words[8] = { cache, start, len, d, e, f, g, h };

	if (way())
		return way()->get(words);
	return found()->get(cache, start, len, d, e, f, g, h);
}

void kedge_ucx_destroy(uintptr_t cache)
{
	if (way())
		way()->destroy(cache);
	else
		found()->destroy(cache, 0, 0, 0, 0, 0, 0, 0);
}

/* ---- beside them, for the later way ---- */

EXPORT void *kedge_ucx_lookup(const void *table, uintptr_t at) __asm__("ucs_pgtable_lookup");

void *kedge_ucx_lookup(const void *table, uintptr_t at)
{
	static struct own own = { IN_UCS, "ucs_pgtable_lookup", NULL };
	void *(*lookup)(const void *, uintptr_t) = NULL;
	void *p;

	if (hidden_from(table, CALLER))
		return NULL;
	p = own_at(&own);
	memcpy(&lookup, &p, sizeof(p));
	return lookup ? lookup(table, at) : NULL;
}

EXPORT int kedge_ucx_reg(md_t md, uintptr_t at, size_t len, unsigned int flags, memh_t *memh)
	__asm__("uct_md_mem_reg");
EXPORT int kedge_ucx_reg_v2(md_t md, uintptr_t at, size_t len, uintptr_t params, memh_t *memh)
	__asm__("uct_md_mem_reg_v2");
EXPORT int kedge_ucx_dereg(md_t md, memh_t memh) __asm__("uct_md_mem_dereg");
/* The first fields of the public uct_md_mem_dereg_params_t. */
struct dereg {
	uint64_t field_mask;
	unsigned int flags;
	memh_t memh;
};
#define HAS_MEMH 1u
EXPORT int kedge_ucx_dereg_v2(md_t md, const struct dereg *params) __asm__("uct_md_mem_dereg_v2");

int kedge_ucx_reg(md_t md, uintptr_t at, size_t len, unsigned int flags, memh_t *memh)
{
	static struct own own = { IN_UCT, "uct_md_mem_reg", NULL };

	return later_reg(own_fn(&own), md, at, len, flags, memh);
}

int kedge_ucx_reg_v2(md_t md, uintptr_t at, size_t len, uintptr_t params, memh_t *memh)
{
	static struct own own = { IN_UCT, "uct_md_mem_reg_v2", NULL };

	return later_reg(own_fn(&own), md, at, len, params, memh);
}

int kedge_ucx_dereg(md_t md, memh_t memh)
{
	static struct own own = { IN_UCT, "uct_md_mem_dereg", NULL };

	return later_dereg(own_fn(&own), md, (uintptr_t)memh, memh);
}

int kedge_ucx_dereg_v2(md_t md, const struct dereg *params)
{
	static struct own own = { IN_UCT, "uct_md_mem_dereg_v2", NULL };
	ucx_fn dereg = own_fn(&own);

	/* UCX refuses that by itself. */
	if (!(params->field_mask & HAS_MEMH))
		return dereg((uintptr_t)md, (uintptr_t)params, 0, 0, 0, 0, 0, 0);
	return later_dereg(dereg, md, (uintptr_t)params, params->memh);
}

/* ---- libucm ---- */

EXPORT void *kedge_ucx_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset)
	__asm__("ucm_orig_mmap");

static struct own own_mmap = { IN_UCM, "ucm_orig_mmap", NULL };

/* malloc() may come here by way of UCX, with locks of the C library's: no symbol is sought then.
 * kedge_ucx_options() has done so, before UCX has any call of the C library's come here. */
void *kedge_ucx_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
	void *own = atomic_load_explicit(&own_mmap.at, memory_order_relaxed), *p;
	void *(*map)(void *, size_t, int, int, int, off_t) = NULL;

	memcpy(&map, &own, sizeof(own));
	p = map ? map(at, len, prot, flags, fd, offset)
		: (void *)syscall(SYS_mmap, at, len, prot, flags, fd, offset);
	if (p == MAP_FAILED)
		later_has_no_memory();
	return p;
}

/* The first words of UCX's options, in all versions that are served. */
struct options {
	int log_level, enable_events, mmap_hook_mode;
};

static _Atomic bool quiet; /* UCX has no jumps in libc: by this library, or as it was told */

#define HOOK_NONE   0
#define HOOK_BISTRO 2
#define HOOK_LAST   3

/* With @quietly UCX changes no code of libc's. The options are a variable of libucs's, longer than
 * what is known of it: they are changed where they are. */
static void set_options(void (*set)(const void *options), const void *wanted, bool quietly)
{
	struct options *o = (struct options *)(uintptr_t)wanted;
	const int mode = o->mmap_hook_mode;

	quietly = quietly && mode > HOOK_NONE && mode < HOOK_LAST;
	if (quietly)
		o->mmap_hook_mode = HOOK_NONE;
	atomic_store(&quiet, o->mmap_hook_mode != HOOK_BISTRO);
	set(wanted);
	if (quietly)
		o->mmap_hook_mode = mode;
}

/* libucs calls it when it is loaded, with what its variables say. The user's own choice stays. */
EXPORT void kedge_ucx_options(const void *wanted) __asm__("ucm_set_global_opts");

void kedge_ucx_options(const void *wanted)
{
	static struct own own = { IN_UCM, "ucm_set_global_opts", NULL };
	void (*set)(const void *options) = NULL;
	void *p = own_at(&own);

	own_at(&own_mmap);
	memcpy(&set, &p, sizeof(set));
	if (set)
		set_options(set, wanted, found_early() && !getenv("UCX_MEM_MMAP_HOOK_MODE"));
}

/* Another library's handler of UCX's events of memory: UCX would promise them, as begin() has told
 * it that they come from outside, or as the library asked for no jumps of its own. But those that
 * come are of its caches' memory, and come at lookups. So the library gets the error that UCX gives
 * where it changes no code, and takes no silence for "no change". libucp, which knows whether this
 * UCX is served, may have been loaded after the options were set. */
EXPORT int kedge_ucx_handler(int events, int priority, uintptr_t fn, uintptr_t arg)
	__asm__("ucm_set_event_handler");

int kedge_ucx_handler(int events, int priority, uintptr_t fn, uintptr_t arg)
{
	static struct own own = { IN_UCM, "ucm_set_event_handler", NULL };
	static _Atomic bool said;

	if (!(events & (VM_EVENTS | EACH_CALL)) || !atomic_load(&quiet) ||
	    found_is_of(CALLER, "libucs.") || !found_early())
		return own_fn(&own)((uintptr_t)events, (uintptr_t)priority, fn, arg, 0, 0, 0, 0);
	if (!atomic_exchange(&said, true))
		found_say("another library is refused UCX's events of memory; "
			  "UCX_MEM_MMAP_HOOK_MODE=bistro has UCX serve it");
	return UCX_UNSUPPORTED;
}

/* For libkedge-preload-verbs: UCX's caches are coherent. */
EXPORT bool kedge_ucx_watches(void);

bool kedge_ucx_watches(void)
{
	return begun();
}
