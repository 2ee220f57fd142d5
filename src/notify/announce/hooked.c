// SPDX-License-Identifier: BSD-2-Clause
/*
 * Finds out if libc's calls are announced in this process.
 *
 * An announcer says so by kedge_hook_attach(). That is enough for the backend
 * "hooks", which has no other source. Whether a lookup may do without asking the
 * kernel is another matter: that is proven, by calls of our own. libkedge is a
 * library like others, so the dynamic linker binds its munmap() and free() as it
 * binds theirs. Both are called in a form without an effect, which
 * libkedge-hooks hands on as an announcement of length 0; if that arrives here,
 * on the same thread, before the call returns, the others' calls arrive too.
 *
 * Cases that this finds out: libkedge-hooks was opened late or locally, behind libc;
 * an allocator before it in the search order has free() (jemalloc, mimalloc,
 * tcmalloc, a sanitizer), and its calls to the kernel may go by any way; another
 * library before it has munmap(); a static program, where free() is libc.a's own.
 * In all of these the answer is no, though much may be announced there, too. It
 * is no as well with a sanitizer: its allocator hands out memory that it gives back
 * by system calls of its own. It is there from the start or not at all, so a weak
 * reference finds it.
 *
 * Cases that it cannot: another object with a munmap() of its own that others don't see
 * (-Bsymbolic, RTLD_DEEPBIND), or with system calls of its own, as a language's
 * runtime has. Their memory does not come through libc either, so lookups there
 * ask: origin.c.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "notify/announce/announce.h"
#include "notify/announce/origin.h"
#include "notify/internal.h"

enum { UNKNOWN, PROVEN, REFUTED };

static _Atomic uint32_t attached; /* 1 + the announcer's blind spots, or 0 */
static _Atomic uint32_t proof;
static _Atomic bool passed_by;

#define WEAK __attribute__((weak, visibility("default")))

extern void __asan_init(void) WEAK;
extern void __hwasan_init(void) WEAK;
extern void __msan_init(void) WEAK;
extern void __tsan_init(void) WEAK;

static bool sanitized(void)
{
	return __asan_init || __hwasan_init || __msan_init || __tsan_init;
}

/* Announcements of length 0 by this thread. */
static __thread unsigned int empty;

void announce_empty(void)
{
	empty++;
}

/*
 * Tests that announce by themselves have their own.
 * volatile: the compiler knows what free(NULL) does.
 */
__attribute__((weak, noinline)) bool announce_try_calls(void)
{
	void (*volatile call_free)(void *) = free;
	int (*volatile call_munmap)(void *, size_t) = munmap;
	unsigned int before = empty;
	int saved = errno;

	if (sanitized())
		return false;
	call_munmap(&attached, 0); /* fails: EINVAL */
	errno = saved;
	if (empty == before)
		return false;
	before = empty;
	call_free(NULL);
	return empty != before;
}

void announce_passed_by(void)
{
	atomic_store_explicit(&passed_by, true, memory_order_relaxed);
}

/* Relaxed: a notifier opened later than it is known somewhere is told. */
bool announce_was_passed_by(void)
{
	return atomic_load_explicit(&passed_by, memory_order_relaxed);
}

bool announce_attached(uint32_t *blind)
{
	uint32_t a = atomic_load_explicit(&attached, memory_order_relaxed);

	*blind = a ? a - 1 : 0;
	return a;
}

bool announce_hooked(uint32_t *blind)
{
	uint32_t known = atomic_load_explicit(&proof, memory_order_relaxed), b;

	if (!announce_attached(blind ? blind : &b))
		return false;
	/* Relaxed: whoever tries finds the same. */
	if (known == UNKNOWN) {
		known = announce_try_calls() ? PROVEN : REFUTED;
		atomic_store_explicit(&proof, known, memory_order_relaxed);
	}
	return known == PROVEN;
}

void kedge_hook_attach(uint32_t blind)
{
	origin_start();
	atomic_store_explicit(&passed_by, false, memory_order_relaxed);
	atomic_store_explicit(&attached, blind + 1, memory_order_relaxed);
	atomic_store_explicit(&proof, UNKNOWN, memory_order_relaxed);
}
