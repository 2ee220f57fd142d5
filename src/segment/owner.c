// SPDX-License-Identifier: BSD-2-Clause
/* The owner's side: a segment names a range of memory, and the users that may have it. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/process/cancel.h"
#include "pages/internal.h"
#include "segment/thread/thread.h"

#define MODE_DEFAULT 0600u
#define WHOLE_LEN    ((size_t)1 << 63) /* more than any has */
#define OPTS_V1	     STRUCT_END(struct kedge_segment_opts, flags)

static int check_whole(const void *addr, size_t len)
{
	if (addr || len)
		return kedge_reason(-EINVAL, "KEDGE_SEGMENT_WHOLE has no address or length");
	return 0;
}

static int check_make_args(const void *addr, size_t len,
			   const struct kedge_segment_opts *opts,
			   struct kedge_segment **out, struct kedge_segment_opts *o)
{
	const size_t page = kedge__page_size();
	int rc = kedge__opts_copy(o, sizeof(*o), OPTS_V1,
				  opts);

	if (rc)
		return rc;
	if (o->flags & ~(KEDGE_SEGMENT_WHOLE | KEDGE_SEGMENT_ON_ATTACH) || o->mode & ~0777u ||
	    o->backend > KEDGE_SEGMENT_MODULE)
		return kedge_reason(-EINVAL, "a flag, mode or backend is unknown");
	o->mode = o->mode ? o->mode : MODE_DEFAULT;
	if (!out || (!addr && !(o->flags & KEDGE_SEGMENT_WHOLE)))
		return kedge_reason(-EINVAL, "a pointer is NULL");
	if (o->flags & KEDGE_SEGMENT_WHOLE)
		return check_whole(addr, len);
	if (!len || (uintptr_t)addr > UINTPTR_MAX - page ||
	    len > UINTPTR_MAX - page - (uintptr_t)addr)
		return kedge_reason(-EINVAL, "the range is empty, or wraps");
	return 0;
}

/* All of it, now. */
static int convert_now(struct kedge_segment *s)
{
	const size_t page = kedge__page_size();
	uintptr_t at = round_down(s->addr, page), end = round_up(s->addr + s->len, page);
	int rc;

	/* Memory that could not be made private before is tried again: it may be this. */
	demand_drop_idle();
	rc = swap_is_kept(at, end - at);
	if (!rc)
		rc = extent_get(at, end - at);
	if (rc < 0)
		return rc;
	s->extent = rc;
	return 0;
}

/* Each part when it is attached. */
static int convert_later(struct kedge_segment *s)
{
	int rc = demand_use();

	s->on_attach = !rc;
	return rc;
}

static bool is_later(const struct kedge_segment_opts *o)
{
	return o->flags & (KEDGE_SEGMENT_WHOLE | KEDGE_SEGMENT_ON_ATTACH);
}

static bool has_holes(uintptr_t addr, size_t len)
{
	const size_t page = kedge__page_size();
	uintptr_t at = round_down(addr, page);

	return msync((void *)at, round_up(addr + len, page) - at, MS_ASYNC) && errno == ENOMEM;
}

/* Before anything of kedge's is mapped, which might be in a hole: it cannot be converted by
 * itself. */
static int look_for_holes(const struct kedge_segment *s, struct kedge_segment_opts *o)
{
	if (is_later(o) || !has_holes(s->addr, s->len))
		return 0;
	if (o->backend == KEDGE_SEGMENT_CONVERT)
		return kedge_reason(-EFAULT, "a part of the range is not mapped");
	o->flags |= KEDGE_SEGMENT_ON_ATTACH;
	return 0;
}

/* Or neither, and why, if it can be copied at least. */
static int convert(struct kedge_segment *s, const struct kedge_segment_opts *o)
{
	int rc;

	s->extent = -1;
	s->backend = KEDGE_SEGMENT_COPY;
	if (o->backend == KEDGE_SEGMENT_COPY)
		return 0;
	rc = is_later(o) ? convert_later(s) : convert_now(s);
	if (rc == -ESTALE)
		rc = kedge_reason(-EFAULT, "another thread has unmapped a part of the range "
				  "meanwhile");
	if (!rc)
		s->backend = KEDGE_SEGMENT_CONVERT;
	if (!rc || o->backend == KEDGE_SEGMENT_CONVERT || (rc != -EOPNOTSUPP && rc != -EBUSY))
		return rc;
	strncpy(s->reason, kedge_strerror(rc), sizeof(s->reason) - 1);
	return 0;
}

/* With the gate, and the thread. */
static int enter(struct kedge_segment *s, const struct kedge_segment_opts *o)
{
	int rc = seg->segment_cnt < SEGMENTS ? id_make(seg->name, &s->id)
		 : kedge_reason(-ENOSPC, "this process has %u segments, which are all that "
				"it may have", SEGMENTS);

	if (!rc)
		rc = convert(s, o);
	if (rc)
		return rc;
	sig_lock(&seg_lock);
	s->serial = ++seg->serial;
	if (s->extent >= 0)
		s->changes = atomic_load(&seg->check->changes[s->extent]);
	s->next = seg->segments;
	place_forget();
	atomic_fetch_add(&seg_cnt, s->extent >= 0 || s->on_attach);
	seg->segments = s;
	seg->segment_cnt++;
	sig_unlock(&seg_lock);
	return 0;
}

static int make_here(struct kedge_segment *s, const struct kedge_segment_opts *o)
{
	int rc = fork_ready();

	if (rc)
		return rc;
	gate_lock();
	rc = service_use();
	if (!rc) {
		rc = enter(s, o);
		if (rc)
			service_unuse();
	}
	gate_unlock();
	return rc;
}

/* Takes the kind that is to be had: the module's memory stays what it is. */
static int make_any(struct kedge_segment *s, struct kedge_segment_opts *o)
{
	const bool whole = o->flags & KEDGE_SEGMENT_WHOLE;
	int rc = -EOPNOTSUPP;

	if (o->backend == KEDGE_SEGMENT_ANY || o->backend == KEDGE_SEGMENT_MODULE)
		rc = module_make(s, whole);
	if (!rc || o->backend == KEDGE_SEGMENT_MODULE)
		return rc;
	if (whole)
		s->len = WHOLE_LEN;
	rc = look_for_holes(s, o);
	return rc ? rc : make_here(s, o);
}

int kedge_segment_make(void *addr, size_t len, const struct kedge_segment_opts *opts,
		       struct kedge_segment **segment)
{
	struct kedge_segment_opts o;
	struct kedge_segment *s;
	int rc = check_make_args(addr, len, opts, segment, &o);
	NO_CANCEL();

	if (!rc)
		rc = clofork_ready();
	if (rc)
		return rc;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	*s = (struct kedge_segment){ .addr = (uintptr_t)addr, .len = len, .mode = o.mode,
				     .pid = getpid(), .uid = geteuid(), .gid = getegid() };
	clofork_init(&s->dev);
	rc = make_any(s, &o);
	if (rc)
		free(s);
	else
		*segment = s;
	return rc;
}

static void leave(struct kedge_segment *s)
{
	const struct seg_call call = { .op = SEG_OP_HANG_UP, .start = (uintptr_t)s };
	struct kedge_segment **link;

	sig_lock(&seg_lock);
	for (link = &seg->segments; *link != s; link = &(*link)->next)
		;
	place_forget();
	atomic_fetch_sub(&seg_cnt, s->extent >= 0 || s->on_attach);
	*link = s->next;
	seg->segment_cnt--;
	sig_unlock(&seg_lock);
	/* First peers let go: what they have stored is the owner's. */
	if (s->extent >= 0)
		extent_put(s->extent);
	if (s->on_attach)
		demand_leave(s);
	call_thread(&call, -1);
	if (s->on_attach)
		demand_unuse();
}

void kedge_segment_remove(struct kedge_segment *s)
{
	NO_CANCEL();

	if (!s)
		return;
	if (s->pid == getpid() && s->by_module) {
		module_remove(s);
	} else if (s->pid == getpid()) {
		gate_lock();
		leave(s);
		service_unuse();
		gate_unlock();
	}
	free(s);
}

int kedge_segment_id(const struct kedge_segment *s, struct kedge_segment_id *id)
{
	if (!s || !id)
		return kedge_reason(-EINVAL, "a pointer is NULL");
	*id = s->id;
	return 0;
}

int kedge_segment_info(const struct kedge_segment *s, struct kedge_segment_info *info)
{
	struct kedge_segment_info i;
	uint32_t grants;

	if (!s)
		return kedge_reason(-EINVAL, "a pointer is NULL");
	if (s->pid != getpid())
		return kedge_reason(-ECHILD, "the segment is the parent process's");
	grants = s->by_module ? module_grants(s) : 0;
	sig_lock(&seg_lock);
	i = (struct kedge_segment_info){
		.backend = s->backend, .mode = s->mode, .len = s->len, .addr = s->addr,
		.access = KEDGE_SEGMENT_READ | KEDGE_SEGMENT_WRITE, .pid = s->pid,
		.grants = grants + s->grants };
	memcpy(i.reason, s->reason, sizeof(i.reason));
	sig_unlock(&seg_lock);
	return kedge__info_copy(info, INFO_V1, &i,
				sizeof(i));
}
