// SPDX-License-Identifier: BSD-2-Clause
/*
 * A program's initialised data, and the page that it has in common with the bss, are
 * private pages of a file. userfaultfd does not hold stores to those back, so they can
 * become anonymous memory only while no other thread of the program could store there.
 */
#include <sys/mman.h>

#include "base/process/own.h"
#include "base/process/service.h"
#include "notify/internal.h"
#include "segment/internal.h"

#define PROT_RW	 3u
#define MAPPINGS 64

struct found {
	uintptr_t start;
	uintptr_t end;
	int cnt;
	struct vma_span at[MAPPINGS];
};

static void note(void *arg, const struct vma_info *v)
{
	struct found *f = arg;
	uint64_t start = v->start > f->start ? v->start : f->start;
	uint64_t end = v->end < f->end ? v->end : f->end;

	if (start < end && !v->plain && !v->shared && v->prot == PROT_RW &&
	    f->cnt < MAPPINGS)
		f->at[f->cnt++] = (struct vma_span){ start, end };
}

/* Whole pages, whatever a sanitizer has between the variables there. */
__attribute__((no_sanitize("address", "thread"))) static void
copy(volatile uint64_t *to, const volatile uint64_t *from, size_t len)
{
	for (len /= sizeof(*to); len; len--)
		*to++ = *from++;
}

/* With signals blocked: no handler stores there between the copy and the exchange. */
static int replace(const struct vma_span *v)
{
	size_t len = v->end - v->start;
	void *p = own_map(len);

	if (!p)
		return -ENOMEM;
	copy(p, (void *)(uintptr_t)v->start, len);
	if (own_remap(p, (void *)(uintptr_t)v->start, len, MREMAP_MAYMOVE | MREMAP_FIXED) !=
	    MAP_FAILED)
		return 0;
	own_unmap(p, len);
	return -ENOMEM;
}

int data_make_anonymous(uintptr_t at, size_t len)
{
	struct found f = { .start = at, .end = at + len };
	int i, rc = vma_walk(note, &f);

	if (rc || !f.cnt || own_data_in(at, at + len))
		return rc;
	if (!service_alone())
		return kedge_reason(-EOPNOTSUPP, "a program's initialised data can be shared "
				    "only before it starts a thread: make the segment "
				    "earlier, or allocate the memory");
	signals_block();
	for (i = 0; i < f.cnt && !rc; i++)
		rc = replace(&f.at[i]);
	signals_restore();
	return rc ? rc : f.cnt;
}
