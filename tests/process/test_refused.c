// SPDX-License-Identifier: BSD-2-Clause
/*
 * The device and the notifier lose something that they had when they were opened:
 * the device's descriptor of the ring, by a second ring, and system calls, by a
 * seccomp filter. Nothing may be stale or hang for it.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include "proc.h"

#define ROUNDS 8
#define RINGS  16

/* New pages at the same address, again and again. */
static int recycle(struct rig *r)
{
	char *at = map_anon(NULL, RIG_LEN);
	int i, rc = 0, stale = 0;

	for (i = 0; i < ROUNDS && rc >= 0; i++) {
		rc = rig_check(r, at, RIG_LEN);
		stale += rc > 0;
		if (munmap(at, RIG_LEN) || !map_anon(at, RIG_LEN))
			return proc_fail("mmap: %s", strerror(errno));
	}
	munmap(at, RIG_LEN);
	if (rc < 0)
		return proc_fail("%s", kedge_strerror(rc));
	return stale ? proc_fail("%d of %d stale", stale, ROUNDS) : 0;
}

/* The application keeps its ring and the pipe, and closes the rest. */
static void close_the_rest(const struct rig *r)
{
	int fd;

	for (fd = 3; fd < 1100; fd++)
		if (fd != r->ring.ring_fd && fd != r->pipe[0] &&
		    fd != r->pipe[1])
			close(fd);
}

static int second_ring(void)
{
	static struct io_uring other[RINGS];
	struct rig r;
	int i, rc = rig_open(&r);

	rc = rc ? rc : recycle(&r);
	if (rc)
		return rc;
	close_the_rest(&r);
	/* One of them has the number of the device's descriptor. */
	for (i = 0; i < RINGS; i++)
		if (io_uring_queue_init(4, &other[i], 0) ||
		    io_uring_register_buffers_sparse(&other[i], 64))
			return proc_skip("no second ring");
	rc = recycle(&r);
	rig_close_cache(&r);
	return rc;
}

/* Refuse the system call @nr to this thread, or to all. */
static int refuse(unsigned int nr, unsigned long flags)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(code[0]), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog))
		return proc_skip("seccomp: %s", strerror(errno));
	return 0;
}

static int end_refused(unsigned int nr, unsigned long flags)
{
	struct rig r;
	int rc = rig_open(&r);

	rc = rc ? rc : recycle(&r);
	rc = rc ? rc : refuse(nr, flags);
	if (rc)
		return rc;
	proc_fail("the end of the cache and its notifier");
	rig_close_cache(&r);
	return 0;
}

static int end_without_madvise(void)
{
	return end_refused(SYS_madvise, 0);
}

static int end_without_ioctl(void)
{
	return end_refused(SYS_ioctl, SECCOMP_FILTER_FLAG_TSYNC);
}

int main(int argc, char **argv)
{
	static const struct proc_case cases[] = {
		{ "a second ring under the device's descriptor", second_ring,
		  30 },
		{ "the end without madvise()", end_without_madvise, 30 },
		{ "the end without ioctl()", end_without_ioctl, 30 },
	};

	return proc_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
