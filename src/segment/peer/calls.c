// SPDX-License-Identifier: BSD-2-Clause
/* The calls about a grant: of a segment as a whole, or of one in parts. */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/process/cancel.h"
#include "base/process/page.h"
#include "segment/peer/attached.h"

static int check_attach(const struct kedge_grant *g, uint64_t offset, size_t len,
			uint32_t flags, struct kedge_attachment **out)
{
	if (!g || !out || flags & ~KEDGE_ATTACH_KEEP)
		return kedge_reason(-EINVAL, "a pointer is NULL, or a flag is unknown");
	if (g->pid != process_pid())
		return kedge_reason(-ECHILD, "the grant is the parent process's");
	if (!len || offset >= g->info.len || len > g->info.len - offset)
		return kedge_reason(-EINVAL, "the range is not within the segment");
	if (g->info.backend == KEDGE_SEGMENT_COPY)
		return kedge_reason(-EOPNOTSUPP, "the segment can only be copied%s%s: use "
				    "kedge_segment_copy()", g->info.reason[0] ? ": " : "",
				    g->info.reason);
	return 0;
}

int kedge_segment_attach(struct kedge_grant *g, uint64_t offset, size_t len, uint32_t flags,
			 struct kedge_attachment **out)
{
	const size_t page = kedge__page_size();
	struct kedge_attachment *a;
	uint64_t first, at;
	size_t pages;
	int rc = check_attach(g, offset, len, flags, out);
	NO_CANCEL();

	if (rc)
		return rc;
	at = (g->in_parts ? g->info.addr : g->file_off) + offset;
	first = round_down(at, page);
	pages = round_up(at + len, page) - first;
	rc = g->in_parts ? parts_attach(g, first, pages, flags, &a)
			 : attach_pages(g, first, pages, flags, NULL, &a);
	if (rc)
		return rc;
	a->head.len = len;
	a->head.addr = a->at + (at - first);
	*out = a;
	return 0;
}

void kedge_segment_detach(struct kedge_attachment *a)
{
	struct kedge_grant *g;
	NO_CANCEL();

	if (!a)
		return;
	if (a->part) {
		parts_detach(a);
		return;
	}
	g = a->grant;
	detach_pages(a);
	if (g->whole)
		parts_unuse(g);
}

/* At the same addresses, where nothing else is mapped meanwhile. */
static int attach_anew(struct kedge_attachment *old, struct kedge_attachment **out)
{
	struct kedge_grant *p = old->grant, *g = p->whole ? p->whole : p;
	const uint64_t start = p->whole ? p->info.addr + old->file_off : old->file_off;
	const size_t len = old->len;
	const uint32_t flags = old->flags;
	char *at = old->at;
	int rc;

	old->within = true;
	kedge_segment_detach(old);
	rc = g->in_parts ? parts_attach_at(g, start, len, flags, at, out)
			 : attach_pages(g, start, len, flags, at, out);
	if (rc)
		munmap(at, len);
	else
		(*out)->within = false;
	return rc;
}

int kedge_segment_reattach(struct kedge_attachment **attachment)
{
	struct kedge_attachment *a = attachment ? *attachment : NULL;
	void *addr;
	size_t len;
	int rc;
	NO_CANCEL();

	if (!a)
		return kedge_reason(-EINVAL, "a pointer is NULL");
	if (a->grant->pid != process_pid())
		return kedge_reason(-ECHILD, "the attachment is the parent process's");
	addr = a->head.addr;
	len = a->head.len;
	*attachment = NULL;
	rc = attach_anew(a, &a);
	if (rc)
		return rc;
	a->head.addr = addr;
	a->head.len = len;
	*attachment = a;
	return 0;
}

int kedge_segment_valid_slow(struct kedge_attachment *a)
{
	if (!a || a->grant->pid != process_pid())
		return false;
	return a->part ? parts_valid(a) : attached_valid(a);
}

void kedge_segment_release(struct kedge_grant *g)
{
	NO_CANCEL();

	if (!g)
		return;
	/* In a child another thread of the parent's may have been amid their list. */
	if (g->pid == process_pid())
		parts_free(g);
	grant_free(g);
}
