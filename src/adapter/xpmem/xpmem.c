// SPDX-License-Identifier: BSD-2-Clause
/*
 * XPMEM's calls are kedge's, with numbers in place of pointers: a segment's is half of its
 * id, which finds it, and grants are counted. The tables are guarded by one lock, which is
 * held over no call of kedge's (those wait, and lock against fork() themselves): an entry
 * that is in use has a reference, and it ends with the last one.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include <kedge/segment.h>

/* XPMEM's own header says nothing of visibility. */
#pragma GCC visibility push(default)
#include "xpmem.h"
#pragma GCC visibility pop

struct attached {
	struct attached *next;
	struct kedge_attachment *attachment;
	uintptr_t at;
	size_t len;
};

struct handle {
	struct handle *next;
	int64_t id;
	struct kedge_segment *segment; /* or */
	struct kedge_grant *grant;
	struct attached *attached;
	unsigned int refs; /* the table's, and those of calls under way */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards: */
static struct handle *segments, *grants;

static _Atomic int64_t last_grant;

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void begin(void)
{
	pthread_atfork(before_fork, after_fork, after_fork);
}

static int fail(int err)
{
	errno = err;
	return -1;
}

/* ---- handles ---- */

/* With the lock. */
static struct handle **find(struct handle **list, int64_t id)
{
	while (*list && (*list)->id != id)
		list = &(*list)->next;
	return *list ? list : NULL;
}

static struct handle *new_handle(void)
{
	struct handle *h = calloc(1, sizeof(*h));

	if (h)
		h->refs = 1;
	return h;
}

static void enter(struct handle **list, struct handle *h)
{
	pthread_mutex_lock(&lock);
	h->next = *list;
	*list = h;
	pthread_mutex_unlock(&lock);
}

/* The caller's then, with the table's reference; or NULL. */
static struct handle *take_out(struct handle **list, int64_t id)
{
	struct handle **link, *h = NULL;

	pthread_mutex_lock(&lock);
	link = find(list, id);
	if (link) {
		h = *link;
		*link = h->next;
	}
	pthread_mutex_unlock(&lock);
	return h;
}

static struct handle *hold(struct handle **list, int64_t id)
{
	struct handle **link, *h = NULL;

	pthread_mutex_lock(&lock);
	link = find(list, id);
	if (link) {
		h = *link;
		h->refs++;
	}
	pthread_mutex_unlock(&lock);
	return h;
}

static void drop(struct handle *h)
{
	struct attached *a;
	bool last;

	pthread_mutex_lock(&lock);
	last = !--h->refs;
	pthread_mutex_unlock(&lock);
	if (!last)
		return;
	while ((a = h->attached)) {
		h->attached = a->next;
		kedge_segment_detach(a->attachment);
		free(a);
	}
	kedge_segment_release(h->grant);
	kedge_segment_remove(h->segment);
	free(h);
}

/* ---- segments ---- */

/* Of what can only be copied nothing could be attached. */
static int make(void *vaddr, size_t size, struct kedge_segment_opts *o,
		struct kedge_segment **out)
{
	struct kedge_segment_info i = { .size = sizeof(i) };
	int rc;

	if (!vaddr) {
		if (size != XPMEM_MAXADDR_SIZE && size >> 46 == 0)
			return -EINVAL;
		o->flags = KEDGE_SEGMENT_WHOLE;
		size = 0;
	}
	rc = kedge_segment_make(vaddr, size, o, out);
	if (rc)
		return rc;
	rc = kedge_segment_info(*out, &i);
	if (!rc && i.backend == KEDGE_SEGMENT_COPY)
		rc = -EOPNOTSUPP;
	if (rc)
		kedge_segment_remove(*out);
	return rc;
}

xpmem_segid_t xpmem_make(void *vaddr, size_t size, int permit_type, void *permit_value)
{
	struct kedge_segment_opts o = { .size = sizeof(o) };
	struct kedge_segment_id id;
	struct handle *h;
	int rc;

	if (permit_type != XPMEM_PERMIT_MODE || (uintptr_t)permit_value & ~(uintptr_t)0777)
		return fail(EINVAL);
	o.mode = (uint32_t)(uintptr_t)permit_value;
	h = new_handle();
	if (!h)
		return fail(ENOMEM);
	rc = make(vaddr, size, &o, &h->segment);
	if (rc) {
		free(h);
		return fail(-rc);
	}
	kedge_segment_id(h->segment, &id);
	h->id = (int64_t)id.word[0];
	enter(&segments, h);
	return (int64_t)id.word[0];
}

int xpmem_remove(xpmem_segid_t segid)
{
	struct handle *h = take_out(&segments, segid);

	if (!h)
		return fail(EINVAL);
	drop(h);
	return 0;
}

/* ---- grants ---- */

xpmem_apid_t xpmem_get(xpmem_segid_t segid, int flags, int permit_type, void *permit_value)
{
	const struct kedge_segment_id id = { { (uint64_t)segid, 0 } };
	xpmem_apid_t apid;
	struct handle *h;
	int rc;

	(void)permit_value;
	if (permit_type != XPMEM_PERMIT_MODE || segid <= 0 ||
	    (flags != XPMEM_RDONLY && flags != XPMEM_RDWR))
		return fail(EINVAL);
	h = new_handle();
	if (!h)
		return fail(ENOMEM);
	rc = kedge_segment_get(&id, flags == XPMEM_RDWR
				    ? KEDGE_SEGMENT_READ | KEDGE_SEGMENT_WRITE
				    : KEDGE_SEGMENT_READ, &h->grant);
	if (rc) {
		free(h);
		return fail(-rc);
	}
	apid = atomic_fetch_add(&last_grant, 1) + 1;
	h->id = apid;
	/* Another thread may release it from now on. */
	enter(&grants, h);
	return apid;
}

int xpmem_release(xpmem_apid_t apid)
{
	struct handle *h = take_out(&grants, apid);

	if (!h)
		return fail(EINVAL);
	drop(h);
	return 0;
}

/* ---- attachments ---- */

static int attach(struct handle *h, uint64_t offset, size_t size, struct attached *a)
{
	int rc = kedge_segment_attach(h->grant, offset, size, 0, &a->attachment);

	if (rc)
		return rc;
	a->at = (uintptr_t)kedge_segment_addr(a->attachment);
	a->len = size;
	pthread_mutex_lock(&lock);
	a->next = h->attached;
	h->attached = a;
	pthread_mutex_unlock(&lock);
	return 0;
}

void *xpmem_attach(struct xpmem_addr addr, size_t size, void *vaddr)
{
	struct attached *a;
	struct handle *h;
	void *at = NULL;
	int rc;

	h = vaddr || addr.offset < 0 ? NULL : hold(&grants, addr.apid);
	if (!h)
		return (void *)(intptr_t)fail(EINVAL);
	a = malloc(sizeof(*a));
	rc = a ? attach(h, (uint64_t)addr.offset, size, a) : -ENOMEM;
	if (rc)
		free(a);
	else
		at = (void *)a->at;
	drop(h);
	return rc ? (void *)(intptr_t)fail(-rc) : at;
}

/* With the lock. What holds @at, out of its handle; or NULL. */
static struct attached *take_attached(uintptr_t at)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	struct attached **link, *a;
	struct handle *h;

	for (h = grants; h; h = h->next) {
		for (link = &h->attached; (a = *link); link = &a->next) {
			/* The first byte of its first page is one as well. */
			if (at < a->at - a->at % page || at >= a->at + a->len)
				continue;
			*link = a->next;
			return a;
		}
	}
	return NULL;
}

int xpmem_detach(void *vaddr)
{
	struct attached *a;

	pthread_mutex_lock(&lock);
	a = take_attached((uintptr_t)vaddr);
	pthread_mutex_unlock(&lock);
	if (!a)
		return fail(EINVAL);
	kedge_segment_detach(a->attachment);
	free(a);
	return 0;
}

int xpmem_version(void)
{
	return XPMEM_CURRENT_VERSION;
}
