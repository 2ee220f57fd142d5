// SPDX-License-Identifier: BSD-2-Clause
/*
 * Segments of the kernel module, <linux/kedge_segment.h>: the owner's memory stays what it
 * is, and no thread of kedge's is needed on either side. A descriptor of the owner's is a
 * segment, one of the peer's is a grant; the kernel ends both with their process.
 *
 * Why valid() is right. The generation is odd before the kernel takes a touched page from
 * attachers, and greater afterwards. An attachment is of the even generation that was there
 * before it was mapped; as long as a load of it, after those of the data, finds the same, no
 * page that was touched has been taken, so the data were the owner's. It never becomes
 * valid again: generations do not come back.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "segment/peer/attached.h"
#include "uapi/linux/kedge_segment.h"

#define NODE	 "/dev/kedge-segment"
#define SETTLE_NS 10000000000u
#define LOOK_NS	  1000000u
#define LIST_MAX  65536u /* of the module's */

_Static_assert(KEDGE_SEGMENT_READ == 1 && KEDGE_SEGMENT_WRITE == 2, "as the library's");

/* ---- the device ---- */

static int missing(int err)
{
	switch (err) {
	case ENOENT:
	case ENODEV:
	case ENXIO:
		return kedge_reason(-EOPNOTSUPP, "no " NODE ": the module kedge_segment is not "
				    "loaded");
	case EACCES:
	case EPERM:
		return kedge_reason(-EOPNOTSUPP, NODE " may not be opened (%s)",
				    strerrordesc_np(err));
	case EMFILE:
	case ENFILE:
		return error_no_fd(err);
	}
	return kedge_reason(-err, NODE ": %s", strerrordesc_np(err));
}

static int open_device(struct clofork *dev, int flags)
{
	int rc = clofork_begin();

	if (rc)
		return rc;
	rc = clofork_end(dev, open(NODE, flags | O_CLOEXEC));
	return rc ? missing(-rc) : 0;
}

/* 0, or a negative errno. */
static int request(const struct clofork *dev, unsigned long what, void *arg)
{
	if (!clofork_ours(dev))
		return kedge_reason(-EBADF, "the program has closed a descriptor of kedge's");
	/* libkedge-hooks takes ioctl() for another's. */
	return syscall(SYS_ioctl, dev->fd, what, arg) ? -errno : 0;
}

static int query(const struct clofork *dev, const struct kedge_segment_id *id,
		 struct kedge_segment_query *q)
{
	*q = (struct kedge_segment_query){ .size = sizeof(*q),
					   .id = { id->word[0], id->word[1] } };
	return request(dev, KEDGE_SEGMENT_QUERY, q);
}

/* ---- the owner ---- */

static int not_made(int rc)
{
	switch (rc) {
	case -ENOSPC:
		return kedge_reason(rc, "this user has as many segments as it may: see the "
				    "module's max_segments_per_user");
	case -EDQUOT:
		return kedge_reason(-ENOMEM, "this user has as much of the kernel's memory in "
				    "segments as it may: see the module's max_kib_per_user");
	case -EINVAL:
		return kedge_reason(-EFAULT, "the range reaches beyond the memory of programs");
	case -ENOTTY:
		return kedge_reason(-EOPNOTSUPP, NODE " is not for 32-bit programs");
	}
	return rc;
}

int module_make(struct kedge_segment *s, bool whole)
{
	struct kedge_segment_make m = {
		.size = sizeof(m), .addr = s->addr, .len = s->len, .mode = s->mode & 0666u,
		.flags = whole ? KEDGE_SEGMENT_WHOLE : 0 };
	int rc = open_device(&s->dev, O_RDWR);

	if (rc)
		return rc;
	if (whole)
		m.addr = m.len = 0;
	rc = request(&s->dev, KEDGE_SEGMENT_MAKE, &m);
	if (rc) {
		clofork_close(&s->dev);
		return not_made(rc);
	}
	s->len = m.len;
	memcpy(s->id.word, m.id, sizeof(m.id));
	s->backend = KEDGE_SEGMENT_MODULE;
	s->by_module = true;
	s->extent = -1;
	return 0;
}

void module_remove(struct kedge_segment *s)
{
	struct kedge_segment_remove r = { .size = sizeof(r),
					  .id = { s->id.word[0], s->id.word[1] } };

	request(&s->dev, KEDGE_SEGMENT_REMOVE, &r);
	clofork_close(&s->dev);
}

uint32_t module_grants(const struct kedge_segment *s)
{
	struct kedge_segment_query q;

	return query(&s->dev, &s->id, &q) ? 0 : q.grants;
}

/* ---- all of them ---- */

/* As many as there are: 0, with *@ids for the caller to free; or a negative errno. */
static int list_ids(const struct clofork *dev, uint64_t **ids, uint32_t *cnt)
{
	struct kedge_segment_list r;
	uint32_t room = 0;
	int rc;

	for (;;) {
		*ids = calloc(room + 1, 2 * sizeof(**ids));
		if (!*ids)
			return -ENOMEM;
		r = (struct kedge_segment_list){ .size = sizeof(r), .room = room,
						 .ids = (uintptr_t)*ids };
		rc = request(dev, KEDGE_SEGMENT_LIST, &r);
		*cnt = r.cnt < LIST_MAX ? r.cnt : LIST_MAX;
		if (!rc && *cnt <= room)
			return 0;
		free(*ids);
		if (rc)
			return rc;
		room = *cnt + *cnt / 8;
		room = room < LIST_MAX ? room : LIST_MAX;
	}
}

/* One that has ended meanwhile is left out. */
static int list_one(const struct clofork *dev, const uint64_t id[2],
		    const struct kedge_segments_opts *o, found_fn *add, void *to)
{
	const struct kedge_segment_id i = { { id[0], id[1] } };
	struct kedge_segment_entry e;
	struct kedge_segment_query q;

	if (query(dev, &i, &q) || (o->pid && (int32_t)q.pid != o->pid))
		return 0;
	e = (struct kedge_segment_entry){
		.pid = (int32_t)q.pid, .uid = q.uid, .gid = q.gid, .mode = q.mode,
		.backend = KEDGE_SEGMENT_MODULE, .flags = q.addr ? 0 : KEDGE_SEGMENT_WHOLE,
		.grants = q.grants, .attachments = q.attachments, .addr = q.addr,
		.len = q.len, .changes = q.invalidations };
	/* The kernel forgets what was detached at the next change. */
	if (q.attachments)
		e.reached = q.pages * kedge__page_size();
	return add(to, &e);
}

static int list_from(const struct clofork *dev, const struct kedge_segments_opts *o,
		     found_fn *add, void *to)
{
	uint64_t *ids;
	uint32_t cnt, i;
	int rc = list_ids(dev, &ids, &cnt);

	if (rc)
		return rc == -ENOTTY ? 0 : rc; /* no program of 32 bits has any */
	for (i = 0; i < cnt && !rc; i++)
		rc = list_one(dev, ids + 2 * i, o, add, to);
	free(ids);
	return rc;
}

int module_list(const struct kedge_segments_opts *o, found_fn *add, void *to)
{
	struct clofork dev;
	int rc;

	clofork_init(&dev);
	rc = open_device(&dev, O_RDONLY);
	if (rc)
		return rc == -EOPNOTSUPP ? 0 : rc;
	rc = list_from(&dev, o, add, to);
	clofork_close(&dev);
	return rc;
}

/* ---- the peer ---- */

static int not_got(int rc)
{
	switch (rc) {
	case -EACCES:
		return kedge_reason(rc, "the segment's mode does not let this user do that");
	case -EDQUOT:
		return kedge_reason(-ENOMEM, "this user has as much of the kernel's memory in "
				    "segments as it may: see the module's max_kib_per_user");
	case -ENOTTY:
		return -ENOENT; /* it is not for programs of 32 bits */
	}
	return rc;
}

static int map_generation(struct kedge_grant *g)
{
	void *p = mmap(NULL, kedge__page_size(), PROT_READ, MAP_SHARED, g->dev.fd,
		       (off_t)KEDGE_SEGMENT_GENERATION_OFFSET);

	if (p == MAP_FAILED)
		return kedge_reason(-ENOMEM, "no room for a mapping of the segment's generation "
				    "(vm.max_map_count, RLIMIT_AS)");
	g->map.check = p;
	return 0;
}

int module_get(struct kedge_grant *g, const struct kedge_segment_id *id, uint32_t access)
{
	struct kedge_segment_get r = {
		.size = sizeof(r), .id = { id->word[0], id->word[1] },
		.access = access | KEDGE_SEGMENT_READ };
	int rc = open_device(&g->dev, access & KEDGE_SEGMENT_WRITE ? O_RDWR : O_RDONLY);

	if (rc)
		return rc == -EOPNOTSUPP ? -ENOENT : rc;
	rc = request(&g->dev, KEDGE_SEGMENT_GET, &r);
	if (!rc)
		rc = map_generation(g);
	if (rc) {
		clofork_close(&g->dev);
		return not_got(rc);
	}
	g->id = *id;
	g->info = (struct kedge_segment_info){
		.backend = KEDGE_SEGMENT_MODULE, .access = access, .len = r.len,
		.addr = r.addr, .pid = (int32_t)r.pid };
	g->file_off = r.addr % kedge__page_size();
	return 0;
}

void module_release(struct kedge_grant *g)
{
	munmap((void *)(uintptr_t)g->map.check, kedge__page_size());
	clofork_close(&g->dev);
}

bool module_ended(const struct kedge_grant *g)
{
	struct kedge_segment_query q;

	return atomic_load_explicit(&g->map.check->generation, memory_order_acquire) & 1 &&
	       query(&g->dev, &g->id, &q) == -ENOENT;
}

/* False: the segment has ended, or one change of its owner's takes too long. */
static bool settled(const struct kedge_grant *g, uint64_t *generation)
{
	uint64_t deadline = clock_ns() + SETTLE_NS, look = 0, now;

	for (;;) {
		*generation = atomic_load_explicit(&g->map.check->generation,
						   memory_order_acquire);
		if (!(*generation & 1))
			return true;
		now = clock_ns();
		if (now > look) {
			if (now > deadline || module_ended(g))
				return false;
			look = now + LOOK_NS;
		}
		sched_yield();
	}
}

static int not_mapped(int err)
{
	switch (err) {
	case EIDRM:
	case EINVAL:
		return segment_is_stale();
	case ENOSPC:
		return kedge_reason(-ENOMEM, "the segment has as many attachments as it may: see "
				    "the module's max_attachments_per_segment");
	}
	return kedge_reason(-ENOMEM, "no room for a mapping (vm.max_map_count, RLIMIT_AS)");
}

int module_attach(struct kedge_attachment *a)
{
	const struct kedge_grant *g = a->grant;
	int prot = g->info.access & KEDGE_SEGMENT_WRITE ? PROT_READ | PROT_WRITE : PROT_READ;
	uint64_t off = a->file_off;
	void *at = a->at;

	if (a->flags & KEDGE_ATTACH_KEEP)
		off |= KEDGE_SEGMENT_KEEP;
	if (!clofork_ours(&g->dev))
		return kedge_reason(-EBADF, "the program has closed a descriptor of kedge's");
	if (!settled(g, &a->head.seen))
		return segment_is_stale();
	a->at = mmap(at, a->len, prot, MAP_SHARED | (at ? MAP_FIXED : 0), g->dev.fd, (off_t)off);
	return a->at == MAP_FAILED ? not_mapped(errno) : 0;
}
