// SPDX-License-Identifier: BSD-2-Clause
/*
 * Random sequences of calls on /dev/ummunot, right and wrong ones.
 *
 *	ummunot_fuzz SECONDS [SEED]
 *
 * Runs of some hundred calls in a child each, by two threads: vm_fuzz.h.
 */
#include "ummunot_lib.h"
#include "vm_fuzz.h"

#define CALLS	300
#define FILES	4

static int files[FILES];
static char *area;	/* some of it comes and goes */
static char *buffers;	/* 2 pages to write to, then one that faults */

static uint64_t any_address(struct fuzzer *f)
{
	static const uint64_t odd[] = { 0, 1, 0xfff, 0x7ffffffff000ull,
					0x800000000000ull, UINT64_MAX - 4095,
					UINT64_MAX, 1ull << 63, 1ull << 56 };

	switch (below(f, 8)) {
	case 0:
		return odd[below(f, sizeof(odd) / sizeof(odd[0]))];
	case 1:
		return next_random(f);
	default:
		return (uintptr_t)area + next_random(f) % (AREA_PAGES * PAGE);
	}
}

static void *any_buffer(struct fuzzer *f)
{
	switch (below(f, 8)) {
	case 0:
		return buffers + 2 * PAGE - below(f, 200);
	case 1:
		return (void *)next_random(f);
	default:
		return buffers;
	}
}

static const int ioctl_errnos[] = { EINVAL, EFAULT, EEXIST, ENOENT, ENOSPC,
				    EDQUOT, EBUSY, ENOTTY, EBADF, ENOMEM, EINTR,
				    0 };

static void any_register(struct fuzzer *f, int fd)
{
	struct ummunot_register_ioctl r = {
		.start = any_address(f),
		.user_cookie = below(f, 40),
		.flags = below(f, 10) ? below(f, 4) : (uint32_t)next_random(f),
		.reserved = below(f, 30) ? 0 : 1,
	};

	r.end = below(f, 4) ? r.start + below(f, 20 * PAGE) : any_address(f);
	allow(f, "register", ioctl(fd, um_request(fd, UMMUNOT_REGISTER_REGION), &r),
	      ioctl_errnos);
}

static void any_ioctl(struct fuzzer *f, int fd)
{
	static const unsigned long cmds[] = { UMMUNOT_EXCHANGE_FEATURES,
					      UMMUNOT_REGISTER_REGION,
					      UMMUNOT_UNREGISTER_REGION,
					      UMMUNOT_END_QUIET };
	unsigned long cmd = cmds[below(f, 4)];
	uint64_t cookie = below(f, 40);

	if (below(f, 2)) {
		cmd = cmds[2 + below(f, 2)];
		allow(f, "unregister", ioctl(fd, um_request(fd, cmd), &cookie),
		      ioctl_errnos);
		return;
	}
	if (!below(f, 10))
		cmd = _IOC(below(f, 4), UMMUNOT_MAGIC, below(f, 6), below(f, 64));
	allow(f, "ioctl", ioctl(fd, um_request(fd, cmd), any_buffer(f)),
	      ioctl_errnos);
}

static void any_read(struct fuzzer *f, int fd)
{
	static const int errnos[] = { EINVAL, EFAULT, EAGAIN, EBADF, EINTR, 0 };
	struct iovec v[3];
	size_t len = below(f, 3) ? below(f, 256) : next_random(f) >> below(f, 64);
	int i;

	if (below(f, 3)) {
		allow(f, "read", read(fd, any_buffer(f), len), errnos);
		return;
	}
	for (i = 0; i < 3; i++) {
		v[i].iov_base = any_buffer(f);
		v[i].iov_len = below(f, 80);
	}
	allow(f, "readv", readv(fd, v, 3), errnos);
}

static void any_mmap(struct fuzzer *f, int fd)
{
	static const int errnos[] = { EINVAL, EPERM, EACCES, ENOMEM, EBADF,
				      EOVERFLOW, 0 };
	static const int flags[] = { MAP_SHARED, MAP_PRIVATE,
				     MAP_SHARED | MAP_POPULATE,
				     MAP_SHARED | MAP_LOCKED };
	size_t len = (below(f, 3) + (below(f, 8) != 0)) * PAGE;
	char *p = mmap(NULL, len, (int)below(f, 8), flags[below(f, 4)], fd,
		       below(f, 4) ? 0 : (off_t)below(f, 9) * PAGE);

	allow(f, "mmap", p == MAP_FAILED ? -1 : 0, errnos);
	if (p == MAP_FAILED)
		return;
	madvise(p, len, (int)below(f, 26));
	mprotect(p, len, (int)below(f, 8));
	if (below(f, 2))
		fork() ? (void)wait(NULL) : _exit(0);
	munmap(p, len);
}

static void any_change(struct fuzzer *f)
{
	size_t from = below(f, AREA_PAGES), cnt = 1 + below(f, AREA_PAGES - 1);
	char *p = area + from * PAGE;

	if (cnt > AREA_PAGES - from)
		cnt = AREA_PAGES - from;
	switch (below(f, 6)) {
	case 0:
		munmap(p, cnt * PAGE);
		break;
	case 1:
		mprotect(p, cnt * PAGE, (int)below(f, 4));
		break;
	case 2:
		mremap(p, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
		       area + below(f, AREA_PAGES) * PAGE);
		break;
	case 3:
		madvise(p, cnt * PAGE, (int)below(f, 26));
		break;
	default:
		mmap(p, cnt * PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_POPULATE,
		     -1, 0);
	}
}

static void any_reopen(struct fuzzer *f, int *fd)
{
	close(*fd);
	*fd = open("/dev/ummunot", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (below(f, 4) == 0)
		fcntl(*fd, F_SETFL, O_NONBLOCK | O_ASYNC);
}

static void any_fork(struct fuzzer *f, int fd)
{
	struct um u = { .fd = fd };
	struct ummunot_event ev;
	pid_t pid = fork();
	ssize_t rc;

	if (pid) {
		if (pid > 0 && below(f, 2))
			waitpid(pid, NULL, 0);
		return;
	}
	rc = um_read(&u, &ev, 1);
	if (rc != -ESRCH && rc != -EBADF)
		abort();
	any_change(f);
	if (below(f, 2))
		close(fd);
	_exit(0);
}

static void any_call(struct fuzzer *f)
{
	int *fd = &files[below(f, FILES)];
	struct pollfd p = { *fd, (short)next_random(f), 0 };

	switch (below(f, 12)) {
	case 0:
	case 1:
	case 2:
		any_register(f, *fd);
		break;
	case 3:
	case 4:
		any_ioctl(f, *fd);
		break;
	case 5:
	case 6:
		any_read(f, *fd);
		break;
	case 7:
		poll(&p, 1, 0);
		break;
	case 8:
	case 9:
		any_change(f);
		break;
	case 10:
		any_mmap(f, *fd);
		break;
	default:
		if (below(f, 2))
			any_reopen(f, fd);
		else if (!below(f, 3))
			any_fork(f, *fd);
	}
}

/* In the child. */
static int one_run(uint64_t seed)
{
	int i;

	signal(SIGIO, SIG_IGN);
	area = mmap(NULL, AREA_PAGES * PAGE, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	buffers = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(buffers + 2 * PAGE, PAGE, PROT_NONE);
	for (i = 0; i < FILES; i++)
		files[i] = open("/dev/ummunot", O_RDONLY | O_NONBLOCK);
	if (files[0] < 0)
		err(1, "/dev/ummunot");
	return fuzz_calls(seed, 30, CALLS, any_call);
}

static int run_in_child(uint64_t seed)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(one_run(seed));
	return waitpid(pid, &status, 0) == pid ? status : 1;
}

int main(int argc, char **argv)
{
	return fuzz_main(argc, argv, run_in_child);
}
