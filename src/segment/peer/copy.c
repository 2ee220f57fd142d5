// SPDX-License-Identifier: BSD-2-Clause
/* Copies out of segments and into them, by the kernel. */
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/process/page.h"
#include "segment/internal.h"

/* True: it is gone, and its number may be another's; or the segment is. */
static bool has_ended(const struct kedge_grant *g)
{
	return (g->info.backend == KEDGE_SEGMENT_MODULE
			? module_ended(g)
			: __atomic_load_n(&g->ended, __ATOMIC_RELAXED)) ||
	       !clofork_ours(&g->pidfd) ||
	       /* Another user's process is none to be sent signals, and lives. */
	       (syscall(SYS_pidfd_send_signal, g->pidfd.fd, 0, NULL, 0) && errno != EPERM);
}

static int owner_ended(void)
{
	return kedge_reason(-ESTALE, "the segment's owner has ended, or removed it");
}

static int not_copied(int err)
{
	switch (err) {
	case ESRCH:
		/* Its memory has ended; it may be waited for still, and its socket be there. */
		return owner_ended();
	case EFAULT:
		return kedge_reason(-EFAULT, "the owner has nothing mapped there, or may not "
				    "write it itself");
	case EPERM:
		return kedge_reason(-EPERM, "this process may not trace the segment's owner: "
				    "it is another user's, or kernel.yama.ptrace_scope "
				    "forbids it (prctl(PR_SET_PTRACER) there allows it)");
	}
	return kedge_reason(-err, "%s", strerrordesc_np(err));
}

static bool is_within(const struct kedge_grant *g, uint64_t offset, size_t len)
{
	return len && offset < g->info.len && len <= g->info.len - offset;
}

static int check_copy(const struct kedge_grant *g, uint64_t offset, const void *buf,
		      size_t len, uint32_t access)
{
	if (!g || !buf)
		return kedge_reason(-EINVAL, "a pointer is NULL");
	if (g->pid != process_pid())
		return kedge_reason(-ECHILD, "the grant is the parent process's");
	if (!is_within(g, offset, len) ||
	    (access != KEDGE_SEGMENT_READ && access != KEDGE_SEGMENT_WRITE))
		return kedge_reason(-EINVAL, "the range is not within the segment, or the "
				    "access is not KEDGE_SEGMENT_READ or KEDGE_SEGMENT_WRITE");
	if (access == KEDGE_SEGMENT_WRITE && !(g->info.access & KEDGE_SEGMENT_WRITE))
		return kedge_reason(-EACCES, "the grant is for reading");
	return 0;
}

ssize_t kedge_segment_copy(struct kedge_grant *g, uint64_t offset, void *buf, size_t len,
			   uint32_t access)
{
	int rc = check_copy(g, offset, buf, len, access), err;
	struct iovec here = { buf, len }, there;
	ssize_t n;

	if (rc)
		return rc;
	there = (struct iovec){ (void *)(uintptr_t)(g->info.addr + offset), len };
	n = access == KEDGE_SEGMENT_READ
		    ? process_vm_readv(g->info.pid, &here, 1, &there, 1, 0)
		    : process_vm_writev(g->info.pid, &here, 1, &there, 1, 0);
	err = errno;
	if (has_ended(g))
		return owner_ended();
	return n < 0 ? not_copied(err) : n;
}
