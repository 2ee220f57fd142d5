// SPDX-License-Identifier: BSD-2-Clause
/*
 * Why io_uring refused to register, in words. The kernel has few errnos for
 * many causes: what else it takes to tell them apart is read from /proc.
 */
#include <inttypes.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/base.h"
#include "device/proc.h"
#include "device/uring/internal.h"

/*
 * -ENOMEM is both: the limit and a kernel without memory. A ring that was made
 * with CAP_IPC_LOCK is not bound by the limit; but a capability that only
 * counts in a user namespace binds it all the same, which shows in having
 * pinned just about the limit.
 */
static int no_memory(const struct uring *u, uint64_t len)
{
	uint64_t pinned = kedge__proc_pinned();
	char limit[32], used[32], more[32];
	struct rlimit rl;
	bool over;

	kedge__proc_bytes(more, sizeof(more), len);
	if (getrlimit(RLIMIT_MEMLOCK, &rl))
		rl.rlim_cur = RLIM_INFINITY;
	over = pinned + len > rl.rlim_cur;
	if (rl.rlim_cur == RLIM_INFINITY ||
	    (u->unbound && (!over || pinned > rl.rlim_cur)))
		return kedge_reason(-ENOMEM,
				    "the kernel has no memory to pin %s more",
				    more);
	return kedge_reason(-ENOMEM,
			    "RLIMIT_MEMLOCK is %s, this process has pinned %s "
			    "and asks for %s more%s: raise it with ulimit -l "
			    "or LimitMEMLOCK=",
			    kedge__proc_bytes(limit, sizeof(limit),
					      rl.rlim_cur),
			    kedge__proc_bytes(used, sizeof(used), pinned), more,
			    over ? ""
				 : " (all rings of a user share the limit, and "
				   "huge pages count whole)");
}

/*
 * The kernel has one word, -EFAULT, for memory that is not there, that may not
 * be written and that it does not pin; another thread may have changed it
 * meanwhile, so what cannot be told is left at that.
 */
static int bad_memory(uint64_t addr, uint64_t len)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t start = round_down(addr, page);
	uint64_t end = round_up(addr + len, page);
	struct proc_vma v;

	switch (kedge__proc_fault(start, end, true, &v)) {
	case PROC_HOLE:
		return kedge_reason(-EFAULT,
				    "part of %#" PRIx64 "-%#" PRIx64
				    " is not mapped: %#" PRIx64,
				    addr, addr + len, v.start);
	case PROC_NO_WRITE:
		return kedge_reason(-EFAULT,
				    "%#" PRIx64 "-%#" PRIx64
				    " is not writable (%s): io_uring pins "
				    "every buffer for writing",
				    v.start, v.end, v.perm);
	case PROC_SHARED_FILE:
		return kedge_reason(-EOPNOTSUPP,
				    "the kernel does not pin shared file "
				    "mappings for long: %#" PRIx64 "-%#" PRIx64
				    " is one of %s",
				    v.start, v.end, v.name);
	case PROC_NO_READ:
	case PROC_NO_FAULT:
		break;
	}
	return kedge_reason(-EFAULT,
			    "%#" PRIx64 "-%#" PRIx64
			    " cannot be pinned: a hole or guard in it, or it "
			    "is past the end of its file",
			    addr, addr + len);
}

static int wrong_thread(const struct uring *u)
{
	if (u->fd < 0)
		return kedge_reason(-EEXIST,
				    "the ring has no file descriptor: only the "
				    "thread that opened the device can "
				    "register");
	return kedge_reason(-EEXIST,
			    "the ring was made with "
			    "IORING_SETUP_SINGLE_ISSUER and this thread is not "
			    "its submitter: register there, or make the ring "
			    "without it");
}

/* Explain an error that any register call may return; 0 if @rc is another. */
static int ring_refused(const struct uring *u, int rc)
{
	switch (-rc) {
	case EEXIST:
		return wrong_thread(u);
	case EACCES:
		return kedge_reason(rc, "the ring's restrictions forbid "
					"registering buffers");
	case EPERM:
	case ENOSYS:
		return kedge_reason(rc, "a seccomp filter forbids "
					"io_uring_register here");
	case EBADF:
		return kedge_reason(rc, "the ring is closed, or the "
				    "application closed the descriptor that "
				    "the device has of it: open the device "
				    "anew");
	}
	return 0;
}

int kedge__uring_full(const struct uring *u)
{
	return kedge_reason(-ENOSPC,
			    "all %u slots of the ring's buffer table are in "
			    "use: hold fewer registrations at once, or ask for "
			    "more slots at the open (16384 is the most of Linux 6)",
			    u->slots);
}

int kedge__uring_reg_refused(const struct uring *u, int rc, uint64_t addr,
			     uint64_t len)
{
	int known = ring_refused(u, rc);

	if (known)
		return known;
	switch (-rc) {
	case ENOMEM:
		return no_memory(u, len);
	case EFAULT:
	case EOVERFLOW:
		return bad_memory(addr, len);
	case EOPNOTSUPP:
		return kedge_reason(rc,
				    "the kernel does not pin the kind of "
				    "memory at %#" PRIx64,
				    addr);
	case EXDEV:
		return kedge_reason(-EOPNOTSUPP,
				    "this kernel does not pin one buffer over "
				    "mappings of different files (Linux 6.5 "
				    "does): %#" PRIx64 "-%#" PRIx64,
				    addr, addr + len);
	case ENXIO:
	case EINVAL:
		return kedge_reason(-EBADF, "the ring's buffer table was "
					    "unregistered or replaced");
	}
	if (rc >= 0)
		return kedge_reason(-EIO, "the kernel updated %d slots", rc);
	return kedge_reason(rc,
			    "the kernel refused to register %#" PRIx64
			    ": error %d",
			    addr, -rc);
}

int kedge__uring_table_refused(const struct uring *u, int rc, uint32_t nr)
{
	int known = ring_refused(u, rc);

	if (known)
		return known;
	switch (-rc) {
	case EBUSY:
		return kedge_reason(rc, "the ring has a buffer table already: "
					"set KEDGE_URING_TABLE_EXISTS to use "
					"some of its slots");
	case EINVAL:
		return kedge_reason(rc,
				    "the kernel refuses a table of %u "
				    "slots; 16384 is the most of Linux 6",
				    nr);
	case ENOMEM:
		return kedge_reason(rc,
				    "the kernel has no memory for a table "
				    "of %u slots",
				    nr);
	case EOPNOTSUPP:
		return kedge_reason(rc, "this kernel cannot update single "
					"slots (Linux 5.13 can)");
	}
	return kedge_reason(rc, "the kernel refused the table: error %d", -rc);
}
