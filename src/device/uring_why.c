// SPDX-License-Identifier: BSD-2-Clause
/*
 * Why io_uring refused to register, in words. The kernel has few errnos for
 * many causes: what else it takes to tell them apart is read from /proc, with
 * nothing allocated, because the caller may hold the allocator's locks.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "device/uring.h"

struct lines {
	int fd;
	size_t pos, len;
	char buf[2048];
};

/* The next line, cut to @size. False at the end. */
static bool next_line(struct lines *l, char *line, size_t size)
{
	size_t n = 0;
	ssize_t got;
	char c;

	for (;;) {
		if (l->pos == l->len) {
			do
				got = read(l->fd, l->buf, sizeof(l->buf));
			while (got < 0 && errno == EINTR);
			if (got <= 0)
				return false;
			l->pos = 0;
			l->len = (size_t)got;
		}
		c = l->buf[l->pos++];
		if (c == '\n')
			break;
		if (n < size - 1)
			line[n++] = c;
	}
	line[n] = '\0';
	return true;
}

/* Bytes that this process has pinned; 0 where /proc does not tell. */
static uint64_t pinned_bytes(void)
{
	struct lines l = { .fd = open("/proc/self/status",
				      O_RDONLY | O_CLOEXEC) };
	uint64_t kib = 0;
	char line[128];

	if (l.fd < 0)
		return 0;
	while (next_line(&l, line, sizeof(line)))
		if (sscanf(line, "VmPin: %" SCNu64, &kib) == 1)
			break;
	close(l.fd);
	return kib * 1024;
}

struct vma {
	uint64_t start, end;
	char perm[5];
	char name[112];
};

/* Shared memory is pinned as any other; what else is shared is a file. */
static bool is_shared_file(const struct vma *v)
{
	static const char *const memory[] = { "/memfd:", "/dev/zero", "/SYSV",
					      "/dev/shm/", "anon_inode:" };
	size_t i;

	if (v->perm[3] != 's')
		return false;
	for (i = 0; i < ARRAY_SIZE(memory); i++)
		if (!strncmp(v->name, memory[i], strlen(memory[i])))
			return false;
	return true;
}

/*
 * The first mapping that touches [start, end) and that the kernel does not pin
 * for writing: not writable, or shared with a file.
 */
static bool find_culprit(uint64_t start, uint64_t end, struct vma *v)
{
	struct lines l = { .fd = open("/proc/self/maps",
				      O_RDONLY | O_CLOEXEC) };
	bool found = false;
	char line[256];

	if (l.fd < 0)
		return false;
	while (!found && next_line(&l, line, sizeof(line))) {
		v->name[0] = '\0';
		if (sscanf(line,
			   "%" SCNx64 "-%" SCNx64 " %4s %*s %*s %*s %111[^\n]",
			   &v->start, &v->end, v->perm, v->name) < 3 ||
		    v->end <= start)
			continue;
		if (v->start >= end)
			break;
		found = v->perm[1] != 'w' || is_shared_file(v);
	}
	close(l.fd);
	return found;
}

bool kedge__uring_unbound(void)
{
	struct __user_cap_header_struct h = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3];

	memset(d, 0, sizeof(d));
	if (syscall(SYS_capget, &h, d))
		return false;
	return d[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &
	       CAP_TO_MASK(CAP_IPC_LOCK);
}

static const char *in_words(char *buf, size_t size, uint64_t bytes)
{
	if (bytes >= MIB && !(bytes % MIB))
		snprintf(buf, size, "%" PRIu64 " MiB", bytes / MIB);
	else
		snprintf(buf, size, "%" PRIu64 " KiB", bytes / 1024);
	return buf;
}

/*
 * -ENOMEM is both: the limit and a kernel without memory. A ring that was made
 * with CAP_IPC_LOCK is not bound by the limit; but a capability that only
 * counts in a user namespace binds it all the same, which shows in having
 * pinned just about the limit.
 */
static int no_memory(const struct uring *u, uint64_t len)
{
	uint64_t pinned = pinned_bytes();
	char limit[32], used[32], more[32];
	struct rlimit rl;
	bool over;

	in_words(more, sizeof(more), len);
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
			    in_words(limit, sizeof(limit), rl.rlim_cur),
			    in_words(used, sizeof(used), pinned), more,
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
	struct vma v;

	/* MS_ASYNC does nothing but look for holes. */
	if (msync((void *)(uintptr_t)start, end - start, MS_ASYNC) &&
	    errno == ENOMEM)
		return kedge_reason(-EFAULT,
				    "part of %#" PRIx64 "-%#" PRIx64
				    " is not mapped",
				    addr, addr + len);
	if (!find_culprit(start, end, &v))
		return kedge_reason(-EFAULT,
				    "%#" PRIx64 "-%#" PRIx64
				    " cannot be pinned: a hole or guard in it, "
				    "or it is past the end of its file",
				    addr, addr + len);
	if (v.perm[1] != 'w')
		return kedge_reason(-EFAULT,
				    "%#" PRIx64 "-%#" PRIx64
				    " is not writable (%s): io_uring pins "
				    "every buffer for writing",
				    v.start, v.end, v.perm);
	return kedge_reason(-EOPNOTSUPP,
			    "the kernel does not pin shared file mappings for "
			    "long: %#" PRIx64 "-%#" PRIx64 " is one of %s",
			    v.start, v.end, v.name);
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

/* What every register call may come back with; 0 if @rc is none of it. */
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
		return kedge_reason(rc, "the ring is closed");
	}
	return 0;
}

int kedge__uring_full(const struct uring *u)
{
	return kedge_reason(-ENOSPC,
			    "all %u slots of the ring's buffer table are in "
			    "use: hold fewer registrations at once, or make "
			    "the table larger (16384 is the most of Linux 6)",
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
