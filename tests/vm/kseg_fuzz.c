// SPDX-License-Identifier: BSD-2-Clause
/*
 * Random sequences of calls on /dev/kedge-segment, right and wrong ones, by some
 * processes that have each other's ids.
 *
 *	kseg_fuzz SECONDS [SEED]
 *
 * Runs of some hundred calls by two threads in each of three processes: vm_fuzz.h.
 */
#include "kseg_lib.h"
#include "vm_fuzz.h"

#define CALLS	250
#define FILES	6
#define IDS	16
#define PROCESSES 3

static int files[FILES];
static char *area;	/* some of it comes and goes */
static char *window;	/* where grants are mapped: as long */
static struct ks_id *ids;	/* of all processes */

static const int ioctl_errnos[] = { EINVAL, E2BIG, EFAULT, ENOTTY, EBUSY, ESRCH,
				    ENOSPC, EDQUOT, ENOENT, EACCES, EPERM, EBADF,
				    EINTR, ENOMEM, 0 };

static uint64_t any_address(struct fuzzer *f)
{
	static const uint64_t odd[] = { 0, 1, PAGE, 0x7ffffffff000ull, 1ull << 47,
					UINT64_MAX - 4095, UINT64_MAX, 1ull << 63 };

	switch (below(f, 10)) {
	case 0:
		return odd[below(f, sizeof(odd) / sizeof(odd[0]))];
	case 1:
		return next_random(f);
	case 2:
		return (uintptr_t)window + below(f, AREA_PAGES) * PAGE;
	default:
		return (uintptr_t)area + below(f, AREA_PAGES) * PAGE;
	}
}

static void any_make(struct fuzzer *f, int fd)
{
	struct kedge_segment_make r = {
		.size = sizeof(r),
		.flags = !below(f, 6),
		.addr = any_address(f),
		.len = (1 + below(f, AREA_PAGES)) * PAGE,
		.mode = below(f, 8) ? 0600 : (uint32_t)next_random(f) & 0777,
	};
	long rc;

	if (r.flags && below(f, 8))
		r.addr = r.len = 0;
	rc = ioctl(fd, KEDGE_SEGMENT_MAKE, &r);
	allow(f, "make", rc, ioctl_errnos);
	if (!rc)
		memcpy(&ids[below(f, IDS)], r.id, sizeof(r.id));
}

static void any_get(struct fuzzer *f, int fd)
{
	struct ks_id id = ids[below(f, IDS)];
	struct kedge_segment_get r = {
		.size = sizeof(r), .id = { id.word[0], id.word[1] },
		.access = below(f, 3) ? KS_RW : below(f, 5),
	};

	allow(f, "get", ioctl(fd, KEDGE_SEGMENT_GET, &r), ioctl_errnos);
}

static void any_other(struct fuzzer *f, int fd)
{
	struct kedge_segment_query q;
	struct ks_id some[8];
	struct kedge_segment_list l = { .size = sizeof(l), .room = below(f, 9),
					.ids = (uintptr_t)some };

	switch (below(f, 5)) {
	case 0:
		errno = -ks_remove(fd, ids[below(f, IDS)]);
		allow(f, "remove", errno ? -1 : 0, ioctl_errnos);
		break;
	case 1:
	case 2:
		errno = -ks_query(fd, ids[below(f, IDS)], &q);
		allow(f, "query", errno ? -1 : 0, ioctl_errnos);
		break;
	case 3:
		allow(f, "list", ioctl(fd, KEDGE_SEGMENT_LIST, &l), ioctl_errnos);
		break;
	default:
		allow(f, "ioctl", ioctl(fd, _IO(KEDGE_SEGMENT_MAGIC, below(f, 7)),
					below(f, 2) ? area : window),
		      ioctl_errnos);
	}
}

static void any_map(struct fuzzer *f, int fd)
{
	static const int errnos[] = { ESRCH, EINVAL, EACCES, EPERM, ENOSPC, EIDRM,
				      EBADF, ENOMEM, EOVERFLOW, 0 };
	const size_t from = below(f, AREA_PAGES);
	const size_t len = (1 + below(f, AREA_PAGES - (unsigned int)from)) * PAGE;
	off_t offset = below(f, 4) * (off_t)PAGE;
	char *p;

	if (!below(f, 3))
		offset = (off_t)((uintptr_t)area + below(f, AREA_PAGES) * PAGE);
	if (!below(f, 10))
		offset = (off_t)KEDGE_SEGMENT_GENERATION_OFFSET;
	p = mmap(window + from * PAGE, len, (int)below(f, below(f, 9) ? 4 : 8),
		 (below(f, 9) ? MAP_SHARED : MAP_PRIVATE) | MAP_FIXED |
		 (below(f, 9) ? 0 : MAP_POPULATE | MAP_LOCKED), fd, offset);
	allow(f, "mmap", p == MAP_FAILED ? -1 : 0, errnos);
}

static void any_touch(struct fuzzer *f)
{
	const unsigned int cnt = 1 + below(f, 8), from = below(f, AREA_PAGES);
	unsigned int i;
	char v;

	for (i = from; i < from + cnt && i < AREA_PAGES; i++)
		if (below(f, 2))
			ks_load(window + i * PAGE + below(f, PAGE), &v);
		else
			ks_store(window + i * PAGE + below(f, PAGE), (char)i);
}

static void any_change(struct fuzzer *f)
{
	const size_t from = below(f, AREA_PAGES);
	size_t cnt = 1 + below(f, AREA_PAGES - (unsigned int)from);
	char *base = below(f, 3) ? area : window, *p = base + from * PAGE;

	switch (below(f, 8)) {
	case 0:
		munmap(p, cnt * PAGE);
		break;
	case 1:
		mprotect(p, cnt * PAGE, (int)below(f, 4));
		break;
	case 2:
		mremap(p, cnt * PAGE, below(f, 4) ? cnt * PAGE : PAGE,
		       MREMAP_MAYMOVE | MREMAP_FIXED |
		       (below(f, 5) ? 0 : 4 /* DONTUNMAP */),
		       (below(f, 2) ? area : window) +
		       below(f, AREA_PAGES - (unsigned int)cnt + 1) * PAGE);
		break;
	case 3:
	case 4:
		/* Not what would break or freeze the guest. */
		madvise(p, cnt * PAGE, (int)below(f, 26));
		break;
	case 5:
		mlock(p, cnt * PAGE);
		munlock(p, cnt * PAGE);
		break;
	default:
		mmap(area + from * PAGE, cnt * PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED |
		     (below(f, 2) ? MAP_POPULATE : 0), -1, 0);
	}
}

static void any_fork(struct fuzzer *f, int fd)
{
	pid_t pid = fork();

	if (pid) {
		if (pid > 0 && below(f, 2))
			waitpid(pid, NULL, 0);
		return;
	}
	any_change(f);
	any_touch(f);
	any_map(f, fd);
	any_get(f, fd);
	_exit(0);
}

static void any_call(struct fuzzer *f)
{
	int *fd = &files[below(f, FILES)];

	switch (below(f, 16)) {
	case 0:
	case 1:
		any_make(f, *fd);
		break;
	case 2:
	case 3:
		any_get(f, *fd);
		break;
	case 4:
		any_other(f, *fd);
		break;
	case 5:
	case 6:
	case 7:
		any_map(f, *fd);
		break;
	case 8:
	case 9:
	case 10:
		any_touch(f);
		break;
	case 11:
	case 12:
	case 13:
		any_change(f);
		break;
	case 14:
		close(*fd);
		*fd = ks_open(below(f, 4) ? O_RDWR : O_RDONLY);
		break;
	default:
		if (!below(f, 4))
			any_fork(f, *fd);
	}
}

/* In a child. */
static int one_process(uint64_t seed)
{
	int i;

	area = vm_memory(AREA_PAGES);
	window = vm_memory(AREA_PAGES);
	for (i = 0; i < FILES; i++)
		files[i] = ks_open(O_RDWR);
	if (files[0] < 0)
		errx(1, "open: %d", files[0]);
	/* A debugging kernel, emulated, beside other work, takes more than half a minute. */
	return fuzz_calls(seed, 300, CALLS, any_call);
}

static int one_run(uint64_t seed)
{
	int i, status, bad = 0;

	memset(ids, 0, IDS * sizeof(*ids));
	for (i = 0; i < PROCESSES; i++)
		if (!fork())
			_exit(one_process(seed * PROCESSES + (uint64_t)i));
	for (i = 0; i < PROCESSES; i++)
		if (wait(&status) > 0 && status)
			bad = status;
	return bad;
}

int main(int argc, char **argv)
{
	ids = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		   -1, 0);
	return fuzz_main(argc, argv, one_run);
}
