// SPDX-License-Identifier: BSD-2-Clause
/*
 * Registrations. A provider that does not pin (tcp) moves data by the
 * process's own addresses: what is registered is a name for a range, made for
 * one flow and ended with it.
 *
 * Where it pins, memory of the application goes through a cache: sources are
 * kept, and what a peer may write is lent, so it ends with its put. The caches
 * of all channels share one notifier, as the kernel lets one watch a mapping.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "channel/ofi/internal.h"

/* ---- the notifier of all channels ---- */

static struct {
	pthread_mutex_t lock; /* guards the rest */
	struct kedge_notifier *nf;
	unsigned int refs;
	pid_t pid;
} shared = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int notifier_get(struct kedge_notifier **nf)
{
	int rc = 0;

	pthread_mutex_lock(&shared.lock);
	/* A parent's notifier is of no use here, and not ours to close. */
	if (shared.pid != getpid()) {
		shared.nf = NULL;
		shared.refs = 0;
		shared.pid = getpid();
	}
	if (!shared.nf)
		rc = kedge_notifier_open(NULL, &shared.nf);
	if (!rc) {
		shared.refs++;
		*nf = shared.nf;
	}
	pthread_mutex_unlock(&shared.lock);
	return rc;
}

static void notifier_put(void)
{
	pthread_mutex_lock(&shared.lock);
	if (!--shared.refs) {
		kedge_notifier_close(shared.nf);
		shared.nf = NULL;
	}
	pthread_mutex_unlock(&shared.lock);
}

/* ---- keys and registrations ---- */

/* A key that a stranger cannot guess. 0 if there is no randomness. */
static uint64_t new_key(struct ofi *o)
{
	ssize_t n;

	if (!o->key_cnt) {
		n = getrandom(o->keys, sizeof(o->keys), 0);
		o->key_cnt = n > 0 ? (uint32_t)n / 8 : 0;
	}
	return o->key_cnt ? o->keys[--o->key_cnt] & o->key_mask : 0;
}

static int bind_mr(struct ofi *o, struct fid_mr *mr)
{
	int rc = fi_mr_bind(mr, &o->ep->fid, 0);

	if (!rc)
		rc = fi_mr_enable(mr);
	if (rc)
		fi_close(&mr->fid);
	return rc;
}

int kedge__ofi_reg(struct ofi *o, void *at, size_t len, uint64_t access,
		   struct fid_mr **mr)
{
	uint64_t key = 0;
	int rc, tries = 8;

	do {
		if (o->own_key)
			key = new_key(o);
		if (o->own_key && !key)
			return kedge_reason(-EAGAIN, "no random key");
		rc = fi_mr_reg(o->domain, at, len, access, 0, key, 0, mr, NULL);
		if (!rc && o->bind_mr)
			rc = bind_mr(o, *mr);
	} while (rc == -FI_ENOKEY && --tries);
	if (rc == -FI_ENOMEM && o->pins)
		return kedge_reason(-ENOMEM, "no memory, or RLIMIT_MEMLOCK is "
				    "used up: raise it with ulimit -l or "
				    "LimitMEMLOCK=");
	return rc ? kedge_reason(kedge__ofi_errno(rc), "fi_mr_reg: %s",
				 fi_strerror(-rc))
		  : 0;
}

/* ---- the device of a provider that pins, and its cache ---- */

static int dev_reg(void *ctx, void *addr, size_t len, uint32_t access,
		   struct kedge_device_mr *mr)
{
	uint64_t flags = FI_SEND | FI_WRITE;
	struct fid_mr *fid;
	int rc;

	if (access & KEDGE_ACCESS_LOCAL_WRITE)
		flags |= FI_RECV | FI_READ;
	if (access & KEDGE_ACCESS_REMOTE_WRITE)
		flags |= FI_REMOTE_WRITE;
	rc = kedge__ofi_reg(ctx, addr, len, flags, &fid);
	if (rc)
		return rc;
	mr->handle = (uintptr_t)fid;
	return 0;
}

static void dev_dereg(void *ctx, const struct kedge_device_mr *mr)
{
	struct fid_mr *fid = (struct fid_mr *)(uintptr_t)mr->handle;
	int rc = fi_close(&fid->fid);

	if (rc)
		kedge__log(KEDGE_LOG_ERROR,
			   "a registration does not end (%s): its pages stay "
			   "pinned until the channel is closed",
			   fi_strerror(-rc));
}

static int dev_query(void *ctx, struct kedge_device_attr *attr)
{
	attr->flags = KEDGE_DEVICE_PINS | KEDGE_DEVICE_EXACT;
	attr->access = KEDGE_ACCESS_LOCAL_WRITE | KEDGE_ACCESS_REMOTE_WRITE;
	return 0;
}

static int open_cache(struct ofi *o)
{
	static const struct kedge_device_ops ops = {
		.size = sizeof(ops),
		.name = "ofi",
		.reg = dev_reg,
		.dereg = dev_dereg,
		.query = dev_query,
	};
	struct kedge_notifier *nf;
	int rc;

	if (o->cache)
		return 0;
	rc = kedge_device_open(&ops, o, &o->dev);
	if (rc)
		return rc;
	rc = notifier_get(&nf);
	if (rc)
		goto close_device;
	rc = kedge_cache_open(o->dev, nf, NULL, &o->cache);
	if (rc)
		goto put_notifier;
	return 0;

put_notifier:
	notifier_put();
close_device:
	kedge_device_close(o->dev);
	o->dev = NULL;
	return rc;
}

static struct fid_mr *fid_of(const struct kedge_mr *mr)
{
	return (struct fid_mr *)(uintptr_t)mr->device_handle;
}

/* ---- what a flow may touch ---- */

int kedge__ofi_mapped(uint64_t addr, uint64_t len)
{
	const uint64_t start = round_down(addr,
					  (uint64_t)sysconf(_SC_PAGESIZE));
	uint64_t end;

	if (__builtin_add_overflow(addr, len, &end))
		return kedge_reason(-EFAULT, "the buffer wraps");
	/* It only looks at mappings, not at pages: Linux writes back
	 * without being asked. */
	if (msync((void *)(uintptr_t)start, end - start, MS_ASYNC))
		return kedge_reason(-EFAULT, "a part of the buffer is not "
					     "mapped");
	return 0;
}

int kedge__ofi_lend(struct ofi *o, uint64_t addr, uint64_t len,
		    struct ofi_mr *mr)
{
	void *at = (void *)(uintptr_t)addr;
	const struct ofi_block *b;
	int rc;

	*mr = (struct ofi_mr){ .addr = ofi_addr(o, at) };
	if (!o->pins) {
		rc = kedge__ofi_reg(o, at, len, FI_REMOTE_WRITE, &mr->fid);
		if (!rc)
			mr->key = fi_mr_key(mr->fid);
		return rc;
	}
	b = kedge__ofi_block_of(o, addr, len);
	if (b) {
		mr->addr = b->mr.addr + (addr - (uintptr_t)b->at);
		mr->key = b->mr.key;
		return 0;
	}
	rc = open_cache(o);
	if (!rc)
		rc = kedge_cache_get(o->cache, at, len,
				     KEDGE_ACCESS_REMOTE_WRITE, &mr->cached);
	if (rc)
		return rc;
	if (!o->virt)
		mr->addr = addr - mr->cached->addr;
	mr->key = fi_mr_key(fid_of(mr->cached));
	return 0;
}

void kedge__ofi_lend_end(struct ofi *o, struct ofi_mr *mr)
{
	if (mr->fid)
		fi_close(&mr->fid->fid);
	if (mr->cached)
		kedge_cache_put(o->cache, mr->cached);
	*mr = (struct ofi_mr){ 0 };
}

int kedge__ofi_source(struct ofi *o, uint64_t addr, uint64_t len, void **desc,
		      const struct kedge_mr **cached)
{
	const struct ofi_block *b;
	int rc;

	*desc = NULL;
	*cached = NULL;
	if (!o->local_desc)
		return 0;
	b = kedge__ofi_block_of(o, addr, len);
	if (b) {
		*desc = fi_mr_desc(b->mr.fid);
		return 0;
	}
	rc = open_cache(o);
	if (!rc)
		rc = kedge_cache_get(o->cache, (void *)(uintptr_t)addr, len,
				     KEDGE_ACCESS_LOCAL_READ, cached);
	if (!rc)
		*desc = fi_mr_desc(fid_of(*cached));
	return rc;
}

/* ---- memory of ours ---- */

struct ofi_block *kedge__ofi_block_open(struct ofi *o, size_t len, bool reg)
{
	struct ofi_block *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	list_init(&b->node);
	b->len = len;
	b->at = mmap(NULL, len, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b->at == MAP_FAILED)
		goto free_block;
	/* A child would take pages from under the device. */
	if (madvise(b->at, len, MADV_DONTFORK))
		goto unmap;
	if (!reg && !o->pins)
		return b;
	if (kedge__ofi_reg(o, b->at, len,
			   FI_SEND | FI_WRITE | FI_READ | FI_REMOTE_WRITE,
			   &b->mr.fid))
		goto unmap;
	b->mr.addr = ofi_addr(o, b->at);
	b->mr.key = fi_mr_key(b->mr.fid);
	return b;

unmap:
	munmap(b->at, len);
free_block:
	free(b);
	return NULL;
}

void kedge__ofi_block_close(struct ofi *o, struct ofi_block *b)
{
	list_remove(&b->node);
	if (b->mr.fid)
		fi_close(&b->mr.fid->fid);
	munmap(b->at, b->len);
	free(b);
}

struct ofi_block *kedge__ofi_block_of(const struct ofi *o, uint64_t addr,
				      uint64_t len)
{
	struct ofi_block *b;
	struct list *l;

	for (l = o->heap.next; l != &o->heap; l = l->next) {
		b = list_entry(l, struct ofi_block, node);
		if (addr >= (uintptr_t)b->at && len <= b->len &&
		    addr - (uintptr_t)b->at <= b->len - len)
			return b;
	}
	return NULL;
}

void *kedge__ofi_heap_alloc(void *ctx, size_t len)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct ofi *o = ctx;
	struct ofi_block *b;

	if (!len || len > o->heap_max - o->heap_used)
		return NULL;
	len = round_up(len, page);
	if (len > o->heap_max - o->heap_used || o->err)
		return NULL;
	b = kedge__ofi_block_open(o, len, false);
	if (!b)
		return NULL;
	o->heap_used += len;
	list_add_tail(&o->heap, &b->node);
	return b->at;
}

void kedge__ofi_heap_free(void *ctx, void *p)
{
	struct ofi *o = ctx;
	struct ofi_block *b = kedge__ofi_block_of(o, (uintptr_t)p, 1);

	if (!b)
		return;
	o->heap_used -= b->len;
	kedge__ofi_block_close(o, b);
}

void kedge__ofi_mem_fini(struct ofi *o)
{
	struct list *heads[] = { &o->heap, &o->spare_windows };
	struct list *l, *tmp;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(heads); i++)
		list_for_each_safe(l, tmp, heads[i])
			kedge__ofi_block_close(
				o, list_entry(l, struct ofi_block, node));
	if (!o->cache)
		return;
	kedge_cache_close(o->cache);
	notifier_put();
	kedge_device_close(o->dev);
}
