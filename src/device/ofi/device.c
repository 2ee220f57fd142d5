// SPDX-License-Identifier: BSD-2-Clause
/*
 * Memory regions of libfabric's as a device. All calls go by the domain's own tables of functions,
 * so libfabric is not linked.
 *
 * A provider that is given keys (no FI_MR_PROV_KEY) refuses one that is used, also by the program:
 * then the next one is tried.
 *
 * The open asks whether registrations are kept below: it registers a page, changes it by a system
 * call that no code of a library sees, and registers it again. A cache that has not noticed gives
 * the same object again, with the same key. A driver may use a key again at once as well, so that
 * counts only if it happens each time, and the page stays pinned behind the end (VmPin), where the
 * kernel counts that.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

/* First: libfabric defines container_of() itself unless it is defined. */
#include "base/base.h"
#include "base/process/cancel.h"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <kedge/ofi_device.h>

#define CHUNK_LEN ((uint64_t)2 << 20) /* as of the device "verbs" */
#define OPTS_V1	  STRUCT_END(struct kedge_ofi_device_opts, first_key)
#define KEY_TRIES 64
#define SAME	   3
#define FRESH	   16
#define PROBES_MAX 64

struct ofi {
	struct fid_domain *domain;
	struct fid_ep *ep;
	uint64_t mode; /* FI_MR_* */
	uint64_t key_mask;
	_Atomic uint64_t next_key;
	uint64_t chunk_len;
	uint64_t max_regions;
	pid_t pid;
};

/* ---- errors ---- */

/* Above 255 they are libfabric's own. */
static int refused(ssize_t rc, const void *addr, size_t len)
{
	const int err = (int)-rc;

	switch (err) {
	case FI_ENOMEM:
		return kedge_reason(-ENOMEM, "no memory for a registration of %zu bytes, or "
				    "ulimit -l lets this process pin no more", len);
	case FI_ENOSPC:
	case FI_EAGAIN:
	case FI_E2BIG:
	case FI_EFAULT:
	case FI_EACCES:
	case FI_EOPNOTSUPP:
	case FI_EINVAL:
		return kedge_reason(-err, "libfabric does not register %zu bytes at %p: %s", len,
				    addr, strerrordesc_np(err));
	case FI_ENOKEY:
		return kedge_reason(-ENOSPC, "the keys from first_key on are used by others");
	}
	return kedge_reason(-EIO, "libfabric does not register %zu bytes at %p: its error %d",
			    len, addr, err);
}

/* ---- registrations ---- */

static uint64_t access_flags(uint32_t access)
{
	uint64_t flags = FI_SEND | FI_WRITE;

	if (access & KEDGE_ACCESS_LOCAL_WRITE)
		flags |= FI_RECV | FI_READ;
	if (access & (KEDGE_ACCESS_REMOTE_READ | KEDGE_ACCESS_REMOTE_ATOMIC))
		flags |= FI_REMOTE_READ;
	if (access & (KEDGE_ACCESS_REMOTE_WRITE | KEDGE_ACCESS_REMOTE_ATOMIC))
		flags |= FI_REMOTE_WRITE;
	return flags;
}

static int try_key(struct ofi *o, void *addr, size_t len, uint64_t flags, struct fid_mr **mr)
{
	const uint64_t key = atomic_fetch_add(&o->next_key, 1) & o->key_mask;

	return fi_mr_reg(o->domain, addr, len, flags, 0, key, 0, mr, NULL);
}

static bool gives_keys(const struct ofi *o)
{
	return !(o->mode & FI_MR_PROV_KEY);
}

/* Its events are the endpoint's. */
static int enable(const struct ofi *o, struct fid_mr *mr)
{
	int rc;

	if (!(o->mode & FI_MR_ENDPOINT))
		return 0;
	rc = fi_mr_bind(mr, &o->ep->fid, 0);
	return rc ? rc : fi_mr_enable(mr);
}

/* 0, or an error of libfabric's. */
static int make(struct ofi *o, void *addr, size_t len, uint32_t access, struct fid_mr **mr)
{
	const uint64_t flags = access_flags(access);
	unsigned int i;
	int rc = -FI_ENOKEY;

	for (i = 0; i < KEY_TRIES && (rc == -FI_ENOKEY || rc == -FI_EKEYREJECTED); i++) {
		rc = try_key(o, addr, len, flags, mr);
		if (!gives_keys(o))
			break;
	}
	if (rc)
		return rc;
	rc = enable(o, *mr);
	if (rc)
		fi_close(&(*mr)->fid);
	return rc;
}

static int ofi_reg(void *ctx, void *addr, size_t len, uint32_t access,
		   struct kedge_device_mr *mr)
{
	struct ofi *o = ctx;
	struct fid_mr *m;
	uint64_t end;
	int rc;

	if (o->pid != getpid())
		return kedge_reason(-ECHILD, "the domain belongs to the parent process");
	if (!len || __builtin_add_overflow((uintptr_t)addr, len, &end))
		return kedge_reason(-EINVAL, "%s", len ? "the range wraps" : "the length is 0");
	if (access & ~KEDGE_ACCESS_ALL)
		return kedge_reason(-EINVAL, "access %#x is unknown", access);
	rc = make(o, addr, len, access, &m);
	if (rc)
		return refused(rc, addr, len);
	mr->handle = (uintptr_t)m;
	mr->offset = o->mode & FI_MR_VIRT_ADDR ? (uintptr_t)addr : 0;
	mr->priv = (uintptr_t)m;
	return 0;
}

static int ofi_dereg(void *ctx, const struct kedge_device_mr *mr)
{
	const struct ofi *o = ctx;
	struct fid_mr *m = (struct fid_mr *)(uintptr_t)mr->priv;

	return o->pid == getpid() ? fi_close(&m->fid) : 0;
}

static int ofi_query(void *ctx, struct kedge_device_attr *attr)
{
	const struct ofi *o = ctx;

	attr->flags = KEDGE_DEVICE_EXACT | KEDGE_DEVICE_PINS;
	attr->max_regions = o->max_regions;
	attr->chunk_len = o->chunk_len;
	attr->access = KEDGE_ACCESS_ALL;
	return 0;
}

static void ofi_close(void *ctx)
{
	free(ctx);
}

static const struct kedge_device_ops ops = {
	.size = sizeof(ops),
	.name = "ofi",
	.reg = ofi_reg,
	.try_dereg = ofi_dereg,
	.query = ofi_query,
	.close = ofi_close,
};

/* ---- is there a cache below? ---- */

/* The page at @at is another one then, and no library knows. */
static bool change(void *at, size_t len)
{
	return syscall(SYS_mmap, at, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_POPULATE, -1, 0L) ==
	       (long)(uintptr_t)at;
}

/* KiB that are pinned of this process; 0 if that is not told. */
static unsigned long pinned(void)
{
	FILE *f = fopen("/proc/thread-self/status", "re");
	unsigned long kib = 0;
	char line[128];

	while (f && fgets(line, sizeof(line), f) && sscanf(line, "VmPin: %lu", &kib) != 1)
		;
	if (f)
		fclose(f);
	return kib;
}

/* 0, or an error of libfabric's. @kept: it may be that it was not ended. */
static int try_once(struct ofi *o, void *at, size_t len, uint64_t *key, bool *kept)
{
	const unsigned long before = pinned();
	unsigned long with;
	struct fid_mr *mr;
	int rc = make(o, at, len, KEDGE_ACCESS_LOCAL_WRITE, &mr);

	if (rc)
		return rc;
	with = pinned();
	*key = fi_mr_key(mr);
	fi_close(&mr->fid);
	*kept = with <= before || pinned() > before;
	return change(at, len) ? 0 : -FI_ENOMEM;
}

/*
 * A cache below gives what was there before: 1; 0; or libfabric's error. Other threads that use the
 * domain push the page out of a cache, and pin memory meanwhile: so one without a cache is believed
 * once it was so in many turns without a break.
 */
static int keeps(struct ofi *o, void *at, size_t len)
{
	int i, rc, same = 0, fresh = 0;
	uint64_t key, last = 0;
	bool kept;

	for (i = 0; i < PROBES_MAX && same < SAME && fresh < FRESH; i++) {
		rc = try_once(o, at, len, &key, &kept);
		if (rc)
			return rc;
		kept = i && kept && key == last;
		same = kept ? same + 1 : 0;
		fresh = kept ? 0 : fresh + 1;
		last = key;
	}
	return fresh < FRESH;
}

/* One that is given keys cannot keep what has another one. */
static int look_below(struct ofi *o)
{
	const size_t len = (size_t)sysconf(_SC_PAGESIZE);
	void *at;
	int rc;

	/* An endpoint that is not enabled takes no registrations yet. */
	if (gives_keys(o) || o->mode & FI_MR_ENDPOINT)
		return 0;
	at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
		  -1, 0);
	if (at == MAP_FAILED)
		return kedge_reason(-ENOMEM, "no memory for a page");
	rc = keeps(o, at, len);
	munmap(at, len);
	if (rc == 1)
		return kedge_reason(-EOPNOTSUPP, "libfabric keeps registrations of this domain "
				    "itself, and of pages that have gone, or other threads "
				    "register so much that it cannot be told: set "
				    "FI_MR_CACHE_MONITOR=disabled, or install libkedge-fi");
	return rc < 0 ? refused(rc, at, len) : 0;
}

/* ---- open ---- */

static int check(const struct fi_info *info, const struct kedge_ofi_device_opts *user,
		 struct kedge_ofi_device_opts *opts)
{
	int rc = kedge__opts_copy(opts, sizeof(*opts), OPTS_V1, user);

	if (rc)
		return rc;
	if (opts->flags)
		return kedge_reason(-EINVAL, "flags %#x are unknown", opts->flags);
	if (!info->domain_attr)
		return kedge_reason(-EINVAL, "info has no attributes of the domain");
	if (info->domain_attr->mr_mode & FI_MR_RAW ||
	    info->domain_attr->mr_key_size > sizeof(uint64_t))
		return kedge_reason(-EOPNOTSUPP, "its keys are longer than 64 bits (FI_MR_RAW)");
	if (info->domain_attr->mr_mode & FI_MR_ENDPOINT && !opts->endpoint)
		return kedge_reason(-EINVAL, "registrations of this domain are bound to an "
				    "endpoint (FI_MR_ENDPOINT): give it in opts->endpoint");
	return 0;
}

/* Of programs that have the same domain no two begin alike. */
static int choose_keys(struct ofi *o, const struct fi_info *info, uint64_t first)
{
	const size_t bits = info->domain_attr->mr_key_size * 8;

	o->key_mask = bits && bits < 64 ? (UINT64_C(1) << bits) - 1 : UINT64_MAX;
	if (!first && getrandom(&first, sizeof(first), 0) != sizeof(first))
		return kedge_reason(-EIO, "no random numbers: error %d", errno);
	atomic_init(&o->next_key, first);
	return 0;
}

/* The old constants stand for sets of bits. */
static uint64_t mode_of(const struct fi_info *info)
{
	const uint64_t mode = (uint64_t)info->domain_attr->mr_mode;

	return mode == FI_MR_BASIC ? FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY
	       : mode == FI_MR_SCALABLE ? 0 : mode;
}

KEDGE_API int kedge_device_open_ofi(struct fid_domain *domain, const struct fi_info *info,
				    const struct kedge_ofi_device_opts *user,
				    struct kedge_device **dev)
{
	NO_CANCEL();
	struct kedge_ofi_device_opts opts;
	struct ofi *o;
	int rc;

	if (!domain || !info || !dev)
		return kedge_reason(-EINVAL, "the %s is NULL", !domain ? "domain"
				    : !info ? "info" : "result pointer");
	rc = check(info, user, &opts);
	if (rc)
		return rc;
	o = calloc(1, sizeof(*o));
	if (!o)
		return kedge_reason(-ENOMEM, "no memory for the device");
	o->domain = domain;
	o->ep = opts.endpoint;
	o->mode = mode_of(info);
	o->chunk_len = opts.chunk_len ? opts.chunk_len : CHUNK_LEN;
	o->max_regions = info->domain_attr->mr_cnt;
	o->pid = getpid();
	rc = choose_keys(o, info, opts.first_key);
	if (!rc)
		rc = look_below(o);
	if (!rc)
		rc = kedge_device_open(&ops, o, dev);
	if (rc)
		free(o);
	return rc;
}
