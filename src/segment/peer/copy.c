// SPDX-License-Identifier: BSD-2-Clause
/* Copies out of segments and into them, by the kernel. */
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/process/page.h"
#include "segment/internal.h"

static bool is_gone(int pidfd)
{
	/* Another user's process is none to be sent signals, and lives. */
	return syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) && errno != EPERM;
}

/* Since Linux 6.9 each process's has an inode of its own. */
static bool tells_processes_apart(const struct fd_id *id)
{
	int own = (int)syscall(SYS_pidfd_open, getpid(), 0);
	bool same = own < 0 || fd_same(own, id);

	if (own >= 0)
		close(own);
	return !same;
}

static int owner_ended(void)
{
	return kedge_reason(-ESTALE, "the segment's owner has ended, or removed it");
}

static int unknown(void)
{
	return kedge_reason(-EBADF, "the program has closed a descriptor of kedge's, or there was "
			    "none left, without which this kernel does not tell whether the owner "
			    "lives: get the segment anew");
}

/* The program has closed the grant's: another one, if it can be seen that it is the owner's. */
static int look_anew(const struct kedge_grant *g)
{
	int fd, rc = 0;

	if (g->info.pid == getpid())
		return 0;
	if (g->pidfd.fd < 0 || !tells_processes_apart(&g->pidfd.id))
		return unknown();
	fd = (int)syscall(SYS_pidfd_open, g->info.pid, 0);
	if (fd < 0)
		return errno == ESRCH ? owner_ended() : -errno;
	if (!fd_same(fd, &g->pidfd.id) || is_gone(fd))
		rc = owner_ended();
	close(fd);
	return rc;
}

/* -ESTALE: it is gone, and its number may be another's; or the segment is. */
static int look_at_owner(const struct kedge_grant *g)
{
	if (g->info.backend == KEDGE_SEGMENT_MODULE
		    ? module_ended(g) : __atomic_load_n(&g->ended, __ATOMIC_RELAXED))
		return owner_ended();
	if (!clofork_ours(&g->pidfd))
		return look_anew(g);
	return is_gone(g->pidfd.fd) ? owner_ended() : 0;
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
	rc = look_at_owner(g);
	if (rc)
		return rc;
	return n < 0 ? not_copied(err) : n;
}
