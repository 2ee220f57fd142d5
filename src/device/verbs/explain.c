// SPDX-License-Identifier: BSD-2-Clause
/*
 * Why a registration was refused, in words. The kernel has few errnos for many
 * causes, and providers add their own: what it takes to tell them apart is read
 * from /proc or tried on a page of ours.
 */
#include <inttypes.h>
#include <sys/resource.h>

#include "base/base.h"
#include "device/proc.h"
#include "device/verbs/internal.h"

/* True if the device takes not even one more page: its table is full. */
static bool takes_nothing(struct verbs *v)
{
	uint64_t regions = __atomic_load_n(&v->regions, __ATOMIC_RELAXED);

	return (v->max_regions && regions >= v->max_regions) ||
	       kedge__verbs_try(v, 0);
}

static int table_full(const struct verbs *v)
{
	return kedge_reason(-ENOSPC,
			    "%s has no room for another registration: this "
			    "process has %" PRIu64 " on it, the device takes "
			    "%" PRIu64 " of all processes",
			    v->name,
			    __atomic_load_n(&v->regions, __ATOMIC_RELAXED),
			    v->max_regions);
}

/*
 * The limit, the device's table and a kernel without memory are one errno. The
 * limit is the process's and counts whole pages.
 */
static int no_memory(struct verbs *v, uint64_t len)
{
	uint64_t pinned = kedge__proc_pinned();
	char limit[32], used[32], more[32];
	struct rlimit rl;

	kedge__proc_bytes(more, sizeof(more), len);
	if (getrlimit(RLIMIT_MEMLOCK, &rl))
		rl.rlim_cur = RLIM_INFINITY;
	if (rl.rlim_cur != RLIM_INFINITY && pinned + len > rl.rlim_cur &&
	    !kedge__proc_may_pin())
		return kedge_reason(
			-ENOMEM,
			"RLIMIT_MEMLOCK is %s, this process has pinned %s and "
			"asks for %s more: raise it with ulimit -l or "
			"LimitMEMLOCK=",
			kedge__proc_bytes(limit, sizeof(limit), rl.rlim_cur),
			kedge__proc_bytes(used, sizeof(used), pinned), more);
	if (takes_nothing(v))
		return table_full(v);
	return kedge_reason(-ENOMEM,
			    "the kernel or %s has no memory to register %s",
			    v->name, more);
}

static int bad_memory(uint64_t start, uint64_t end, unsigned int flags)
{
	struct proc_vma m;

	switch (kedge__proc_fault(start, end, flags & ACCESS_WRITES, &m)) {
	case PROC_HOLE:
		return kedge_reason(-EFAULT,
				    "part of %#" PRIx64 "-%#" PRIx64
				    " is not mapped: %#" PRIx64,
				    start, end, m.start);
	case PROC_NO_READ:
	case PROC_NO_WRITE:
		return kedge_reason(-EFAULT,
				    "%#" PRIx64 "-%#" PRIx64 " is not %s (%s)",
				    m.start, m.end,
				    m.perm[0] == 'r' ? "writable, and the "
						       "access writes"
						     : "readable",
				    m.perm);
	case PROC_SHARED_FILE:
		return kedge_reason(-EOPNOTSUPP,
				    "the kernel does not pin shared file "
				    "mappings for long: %#" PRIx64 "-%#" PRIx64
				    " is one of %s",
				    m.start, m.end, m.name);
	case PROC_NO_FAULT:
		break;
	}
	return kedge_reason(-EFAULT,
			    "%#" PRIx64 "-%#" PRIx64 " cannot be pinned: a "
			    "hole or guard in it, device memory, or it is past "
			    "the end of its file",
			    start, end);
}

static int no_support(struct verbs *v, int err, uint64_t start, uint64_t end,
		      unsigned int flags)
{
	/* Some drivers have this errno for a full table. */
	if (err == EINVAL && takes_nothing(v))
		return table_full(v);
	return kedge_reason(-EOPNOTSUPP,
			    "%s or the kernel takes no registration of "
			    "%#" PRIx64 "-%#" PRIx64
			    " with access %#x (error %d): memory that is not "
			    "pinned for long (DAX), or access the device lacks",
			    v->name, start, end, flags, err);
}

int kedge__verbs_reg_refused(struct verbs *v, int err, uint64_t addr,
			     uint64_t len, unsigned int flags)
{
	uint64_t start = round_down(addr, v->page_len);
	uint64_t end = round_up(addr + len, v->page_len);

	if (kedge__verbs_gone(v, err))
		return kedge_reason(-ENODEV, "the RDMA device %s is gone",
				    v->name);
	switch (err) {
	/* -EPERM: RLIMIT_MEMLOCK is 0. */
	case EPERM:
	case ENOMEM:
	case EAGAIN:
		return no_memory(v, end - start);
	case ENOSPC:
		return table_full(v);
	case EFAULT:
		return bad_memory(start, end, flags);
	case EINVAL:
	case EOPNOTSUPP:
	case ENOSYS:
		return no_support(v, err, start, end, flags);
	}
	return kedge_reason(-err,
			    "%s refused to register %#" PRIx64 "-%#" PRIx64
			    ": error %d",
			    v->name, start, end, err);
}
