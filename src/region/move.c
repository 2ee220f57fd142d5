// SPDX-License-Identifier: BSD-2-Clause
/*
 * A region on other pages. They are had, entered and locked first, at addresses of their own,
 * as a region that is not the program's; peers are kept out only while the bytes are copied
 * and the new mapping takes the place of the former one, which is one call.
 *
 * A peer has the former pages mapped. The gate says by a number which pages are right, so one
 * that comes after the suspension finds that it has others, and asks for the memfd again
 * (peer/renew.c). Those it had are free when the last of them has done so, or are punched
 * out of their file here: at once.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"
#include "base/process/cancel.h"
#include "base/process/own.h"
#include "region/keeper.h"
#include "region/share/share.h"
#include "region/watch/watch.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define OPTS_V1 STRUCT_END(struct kedge_move_opts, pad)
#define FLAGS	(KEDGE_MOVE_HUGE | KEDGE_MOVE_NODE)

static int check_opts(const struct kedge_move_opts *o)
{
	if (o->flags & ~FLAGS)
		return kedge_reason(-EINVAL, "a flag is unknown");
	if (o->flags & KEDGE_MOVE_NODE ? o->node >= REGION_NODES : o->node)
		return kedge_reason(-EINVAL, "there is no NUMA node %u", o->node);
	return 0;
}

/* A first store that is seen by a hypervisor takes microseconds: not while peers wait. */
static void touch(struct kedge_region *r)
{
	uint64_t off;

	for (off = 0; off < r->len; off += r->page_size)
		*(volatile char *)(r->at + off) = 0;
}

/* Huge pages as many as the kernel finds: the call is about the region, not about them. */
static void place(struct kedge_region *next, const struct kedge_move_opts *o)
{
	if (o->flags & KEDGE_MOVE_HUGE && next->page_size == kedge__page_size())
		madvise(next->at, next->len, MADV_COLLAPSE);
	touch(next);
}

static int make_next(const struct kedge_region *r, const struct kedge_move_opts *o,
		     struct kedge_region *next)
{
	const bool other = o->flags & KEDGE_MOVE_NODE;
	int rc;

	*next = (struct kedge_region){ .pid = r->pid, .fd = -1, .uffd = -1, .max_len = r->len,
				       .page_size = r->page_size, .given = r->given,
				       .on_node = other || r->on_node,
				       .node = other ? o->node : r->node };
	list_init(&next->slots);
	list_init(&next->conns);
	rc = region_reserve(next, r->len);
	if (!rc)
		rc = region_grow_to(next, r->len);
	if (!rc)
		place(next, o);
	return rc;
}

static void end_next(struct kedge_region *next)
{
	if (!next->at && next->fd < 0)
		return;
	region_end(next);
	budget_give(next->len);
}

/* ---- the former pages ---- */

/*
 * To take the former pages out of the page tables takes as long as to copy them. So that is done
 * before peers are kept out, and they are copied by a mapping of their own. Without memory for that
 * the pause is longer.
 */
struct former {
	struct kedge_region *r;
	void *at;
};

static int map_former(void *arg)
{
	struct former *f = arg;
	long at = own_mmap(NULL, f->r->len, PROT_READ, MAP_SHARED | MAP_POPULATE, f->r->fd, 0);

	if (at == -1)
		return -errno;
	f->at = (void *)at;
	madvise(f->at, f->r->len, MADV_DONTFORK);
	return 0;
}

/* Directly behind a look: what is emptied of other memory is lost. */
static int begin_former(struct former *f)
{
	const bool mapped = !keeper_call(map_former, f);
	int rc = watch_is_whole(f->r, 0, f->r->len);

	if (!rc && mapped)
		watch_empty_tables(f->r);
	return rc;
}

static int enter_again(void *arg)
{
	struct kedge_region *r = arg;

	return region_lock_in(r, 0, r->len);
}

/* A region that has not been moved has its pages in the tables, as before. */
static void end_former(struct former *f, bool moved)
{
	if (!f->at)
		return;
	own_unmap(f->at, f->r->len);
	if (!moved && !watch_is_whole(f->r, 0, f->r->len))
		keeper_call(enter_again, f->r);
}

/* ---- the new ones take their place ---- */

/* With all peers out. What @next is left with is the former pages. */
static int exchange(struct kedge_region *r, struct kedge_region *next)
{
	uint64_t len = r->file_len;
	int fd = r->fd;

	if (mremap(next->at, r->len, r->len, MREMAP_MAYMOVE | MREMAP_FIXED, r->at) == MAP_FAILED)
		return kedge_reason(-errno, "mremap: error %d; with ENOMEM the process has too "
				    "many mappings: raise vm.max_map_count", errno);
	next->at = NULL;
	sig_lock(&shares_lock);
	r->fd = next->fd;
	gates_moved(r);
	sig_unlock(&shares_lock);
	r->file_len = next->file_len;
	next->fd = fd;
	next->file_len = len;
	return 0;
}

static int exchange_suspended(struct kedge_region *r, struct kedge_region *next,
			      const void *former, int timeout_ms, uint64_t *pause_ns)
{
	const uint64_t begun = clock_ns();
	char name[PEER_NAME];
	pid_t pid = 0;
	int rc;

	if (gates_close(r, timeout_ms, &pid))
		return kedge_reason(-ETIMEDOUT, "an access of %s was not over in %d ms: is it "
				    "stopped?", peer_name(pid, name), timeout_ms);
	memcpy(next->at, former ? former : r->at, r->len);
	rc = watch_leave_out(r, 0, r->len);
	if (!rc) {
		/* Directly before what would replace other memory. */
		rc = watch_is_whole(r, 0, r->len);
		if (!rc)
			rc = exchange(r, next);
	}
	if (rc)
		watch_as_before(r);
	gates_open(r);
	if (pause_ns)
		*pause_ns = clock_ns() - begun;
	return rc;
}

KEDGE_API int kedge_region_move(struct kedge_region *r, const struct kedge_move_opts *user,
				int timeout_ms, uint64_t *pause_ns)
{
	struct kedge_move_opts o;
	struct kedge_region next;
	struct former former = { r, NULL };
	int rc = region_check(r);

	NO_CANCEL();
	if (!rc)
		rc = kedge__opts_copy(&o, sizeof(o), OPTS_V1, user);
	if (!rc)
		rc = check_opts(&o);
	if (!rc)
		rc = region_lock(r);
	if (rc)
		return rc;
	rc = watch_is_whole(r, 0, r->len);
	if (rc) {
		sig_unlock(&r->lock);
		return rc;
	}
	atomic_store(&r->moving, true);
	rc = make_next(r, &o, &next);
	/* The new pages are watched before they are the region's, and with their mapping. */
	if (!rc)
		rc = watch_move_in(r, next.at, r->len);
	if (!rc)
		rc = begin_former(&former);
	if (!rc)
		rc = exchange_suspended(r, &next, former.at, timeout_ms, pause_ns);
	end_former(&former, !rc);
	if (!rc) {
		r->on_node = next.on_node;
		r->node = next.node;
	}
	end_next(&next);
	atomic_store(&r->moving, false);
	sig_unlock(&r->lock);
	return rc;
}
