// SPDX-License-Identifier: BSD-2-Clause
/*
 * The tripwire: two changes of the address space that userfaultfd does not
 * report, shmat(SHM_REMAP) and madvise(MADV_GUARD_INSTALL), seen by a program of
 * a few instructions that the kernel runs (eBPF). It hangs on the exit of the
 * kernel's functions that make these changes, and adds to a counter in a page
 * that is mapped here. So, before the call returns and after the pages have
 * gone, however the call was made, the generation has moved: what a cache kept
 * before is looked at anew, and what it keeps afterwards is of the new pages.
 *
 * Only our changes count: the program compares the address space of the caller
 * (current->mm) with ours, so threads, vfork() children and the kernel's
 * workers for our io_uring count, and no other process does. Ours was noted by
 * another program, run once by us. It is a kernel address, and kept where no
 * process can read it. The kernel refuses either change in another process's
 * memory.
 *
 * Can a run be left out? The kernel skips a program of this kind while the same
 * program is interrupted, in another task, on the same CPU. That takes a kernel
 * that preempts itself, and a task stopped within some ten nanoseconds; and it
 * is met twice over:
 *
 *  - guard pages are seen also by the function that writes each marker. That
 *    runs after the old pages were dropped and under the page table's spinlock,
 *    where no task is preempted. What it does not see is a call that dropped
 *    pages and failed; the exit of the call itself does.
 *  - shmat() has two copies of the program: two tasks would have to be stopped,
 *    one within each.
 *
 * A kernel with PREEMPT_RT preempts under spinlocks too; there it is twice "two
 * tasks", not "never".
 *
 * No program is pinned: when the last descriptor is closed, by close() or by the
 * death of the process, the kernel takes the programs off.
 */
#include <linux/bpf.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <kedge/notifier.h>

#include "base/base.h"
#include "notify/tripwire/places.h"
#include "notify/tripwire/tripwire.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

#define INSNS_MAX 32

/*
 * The programs use a type of the kernel's, which the kernel allows only under a
 * licence compatible with its own. This one is; what is meant is the handful of
 * instructions below, which may be used under either.
 */
static const char licence[] = "Dual BSD/GPL";

struct link {
	int fd;
	uint32_t id;
};

struct tripwire {
	const uint64_t *counter;
	uint32_t covers;
	unsigned int link_cnt;
	struct link link[TRIPWIRE_FDS];
};

static int bpf(int cmd, union bpf_attr *attr)
{
	int rc = (int)syscall(SYS_bpf, cmd, attr, sizeof(*attr));

	return rc < 0 ? -errno : rc;
}

/* A program that is being put together. */
struct code {
	struct bpf_insn insn[INSNS_MAX];
	unsigned int cnt;
};

static void put(struct code *c, uint8_t code, uint8_t dst, uint8_t src,
		int off, int32_t imm)
{
	c->insn[c->cnt++] = (struct bpf_insn){
		.code = code,
		.dst_reg = dst & 15,
		.src_reg = src & 15,
		.off = (int16_t)off,
		.imm = imm,
	};
}

static void put_load(struct code *c, uint8_t size, uint8_t dst, uint8_t src,
		     int off)
{
	put(c, BPF_LDX | size | BPF_MEM, dst, src, off, 0);
}

/* dst = the address of the map's value. */
static void put_map(struct code *c, uint8_t dst, int map)
{
	put(c, BPF_LD | BPF_DW | BPF_IMM, dst, BPF_PSEUDO_MAP_VALUE, 0, map);
	put(c, 0, 0, 0, 0, 0);
}

/* r3 = current->mm; r0 to r5 are lost. */
static void put_mm(struct code *c, int mm)
{
	put(c, BPF_JMP | BPF_CALL, 0, 0, 0,
	    BPF_FUNC_get_current_task_btf);
	put_load(c, BPF_DW, BPF_REG_3, BPF_REG_0, mm);
}

static void put_return(struct code *c)
{
	put(c, BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0);
	put(c, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

static int load(const struct code *c, uint32_t type, uint32_t attach,
		uint32_t func)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.prog_type = type;
	attr.expected_attach_type = attach;
	attr.attach_btf_id = func;
	attr.insns = (uintptr_t)c->insn;
	attr.insn_cnt = c->cnt;
	attr.license = (uintptr_t)licence;
	memcpy(attr.prog_name, "kedge_tripwire", sizeof("kedge_tripwire"));
	return bpf(BPF_PROG_LOAD, &attr);
}

/* Note which address space is ours: *own = current->mm. */
static int note_self(const struct places *p, int own)
{
	struct code c = { .cnt = 0 };
	union bpf_attr attr;
	int fd, rc;

	put_mm(&c, p->mm);
	put_map(&c, BPF_REG_1, own);
	put(&c, BPF_STX | BPF_DW | BPF_MEM, BPF_REG_1, BPF_REG_3, 0, 0);
	put_return(&c);
	fd = load(&c, BPF_PROG_TYPE_RAW_TRACEPOINT, 0, 0);
	if (fd < 0)
		return fd;
	memset(&attr, 0, sizeof(attr));
	attr.test.prog_fd = (uint32_t)fd;
	rc = bpf(BPF_PROG_TEST_RUN, &attr);
	close(fd);
	return rc;
}

/* if (the call counts && current->mm == *own) *counter += TRIPWIRE_STEP */
static int load_wire(const struct places *p, int point, int own, int counter)
{
	const struct place *at = &p->at[point];
	struct code c = { .cnt = 0 };
	unsigned int skip_call = 0, skip_mm;

	if (at->arg >= 0) {
		put_load(&c, BPF_DW, BPF_REG_2, BPF_REG_1, 8 * at->arg);
		if (at->member >= 0)
			put_load(&c, BPF_W, BPF_REG_2, BPF_REG_2, at->member);
		put(&c, BPF_JMP32 | tripwire_points[point].test | BPF_K, BPF_REG_2, 0, 1,
		    tripwire_points[point].value);
		skip_call = c.cnt;
		put(&c, BPF_JMP | BPF_JA, 0, 0, 0, 0);
	}
	put_mm(&c, p->mm);
	put_map(&c, BPF_REG_1, own);
	put_load(&c, BPF_DW, BPF_REG_2, BPF_REG_1, 0);
	skip_mm = c.cnt;
	put(&c, BPF_JMP | BPF_JNE | BPF_X, BPF_REG_2, BPF_REG_3, 0, 0);
	put_map(&c, BPF_REG_1, counter);
	put(&c, BPF_LD | BPF_DW | BPF_IMM, BPF_REG_2, 0, 0,
	    (int32_t)(TRIPWIRE_STEP & UINT32_MAX));
	put(&c, 0, 0, 0, 0, (int32_t)(TRIPWIRE_STEP >> 32));
	put(&c, BPF_STX | BPF_DW | BPF_ATOMIC, BPF_REG_1, BPF_REG_2, 0,
	    BPF_ADD);
	if (skip_call)
		c.insn[skip_call].off = (int16_t)(c.cnt - skip_call - 1);
	c.insn[skip_mm].off = (int16_t)(c.cnt - skip_mm - 1);
	put_return(&c);
	return load(&c, BPF_PROG_TYPE_TRACING, BPF_TRACE_FEXIT, at->func);
}

static int link_id(int fd, uint32_t *id)
{
	struct bpf_link_info info;
	union bpf_attr attr;
	int rc;

	memset(&info, 0, sizeof(info));
	memset(&attr, 0, sizeof(attr));
	attr.info.bpf_fd = (uint32_t)fd;
	attr.info.info_len = sizeof(info);
	attr.info.info = (uintptr_t)&info;
	rc = bpf(BPF_OBJ_GET_INFO_BY_FD, &attr);
	*id = info.id;
	return rc;
}

static int attach(struct tripwire *t, const struct places *p, int point,
		  int own, int counter)
{
	struct link *l = &t->link[t->link_cnt];
	union bpf_attr attr;
	int fd, rc;

	if (!p->at[point].func || t->link_cnt == TRIPWIRE_FDS)
		return -EOPNOTSUPP;
	fd = load_wire(p, point, own, counter);
	if (fd < 0)
		return fd;
	memset(&attr, 0, sizeof(attr));
	attr.raw_tracepoint.prog_fd = (uint32_t)fd;
	rc = bpf(BPF_RAW_TRACEPOINT_OPEN, &attr);
	close(fd);
	if (rc < 0)
		return rc;
	l->fd = rc;
	rc = link_id(l->fd, &l->id);
	if (rc) {
		close(l->fd);
		return rc;
	}
	t->link_cnt++;
	return 0;
}

/* Its number may be another's by now: the application closes what it likes. */
static void close_link(const struct link *l)
{
	uint32_t id;

	if (!link_id(l->fd, &id) && id == l->id)
		close(l->fd);
}

/* Still opening: the numbers are ours, so close without a check that may fail. */
static void undo(struct tripwire *t, unsigned int keep)
{
	while (t->link_cnt > keep)
		close(t->link[--t->link_cnt].fd);
}

/* Attach to all points of the group, or undo it. */
static int attach_group(struct tripwire *t, const struct places *p,
			enum group group, int own, int counter)
{
	unsigned int before = t->link_cnt;
	int i, rc = 0;

	for (i = 0; i < POINTS && !rc; i++)
		if (tripwire_points[i].group == group)
			rc = attach(t, p, i, own, counter);
	if (!rc)
		return 0;
	kedge__log(KEDGE_LOG_DEBUG, "tripwire: %s can't be watched: %s",
		   tripwire_points[i - 1].func, strerrordesc_np(-rc));
	undo(t, before);
	return rc;
}

static uint64_t count(const struct tripwire *t)
{
	return __atomic_load_n(t->counter, __ATOMIC_ACQUIRE);
}

/* A call without an effect, for there is no such segment. */
static bool shm_trips(const struct tripwire *t)
{
	uint64_t before = count(t);

	syscall(SYS_shmat, -1, NULL, SHM_REMAP);
	return count(t) != before;
}

/* A guard page by process_madvise(). False: one was made, and not noticed. */
static bool vector_trips(const struct tripwire *t, const struct iovec *iov)
{
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	uint64_t before = count(t);
	bool ok;

	if (fd < 0)
		return errno == ENOSYS || errno == EPERM;
	ok = syscall(SYS_process_madvise, fd, iov, 1, MADV_GUARD_INSTALL, 0) <
		     0 ||
	     count(t) != before;
	close(fd);
	return ok;
}

/* The same by both calls, on pages that have something to lose. */
static bool guard_trips(const struct tripwire *t)
{
	size_t len = kedge__page_size();
	char *mem = mmap(NULL, 2 * len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec iov = { .iov_len = len };
	uint64_t before = count(t);
	bool ok;

	if (mem == MAP_FAILED)
		return false;
	mem[0] = 1;
	mem[len] = 1;
	iov.iov_base = mem + len;
	ok = !syscall(SYS_madvise, mem, len, MADV_GUARD_INSTALL) &&
	     count(t) != before && vector_trips(t, &iov);
	munmap(mem, 2 * len);
	return ok;
}

static uint32_t attach_all(struct tripwire *t, const struct places *p, int own,
			   int counter)
{
	uint32_t covers = 0;

	if (!attach_group(t, p, SHM, own, counter) &&
	    !attach_group(t, p, SHM_AGAIN, own, counter) && shm_trips(t))
		covers |= KEDGE_BLIND_SHM_REMAP;
	if ((!attach_group(t, p, GUARD_CALLS, own, counter) ||
	     !attach_group(t, p, GUARD_CALLS_OLD, own, counter)) &&
	    guard_trips(t) && !attach_group(t, p, GUARD_MARKS, own, counter))
		/*
		 * Only with the place where the marks are made: all ways lead
		 * there, io_uring's too, which is not tried above because it
		 * would start a thread in the application.
		 */
		covers |= KEDGE_BLIND_GUARD;
	return covers;
}

/* An array of one 64-bit number. */
static int map_create(uint32_t flags)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.map_type = BPF_MAP_TYPE_ARRAY;
	attr.key_size = sizeof(uint32_t);
	attr.value_size = sizeof(uint64_t);
	attr.max_entries = 1;
	attr.map_flags = flags;
	memcpy(attr.map_name, "kedge_tripwire", sizeof("kedge_tripwire"));
	return bpf(BPF_MAP_CREATE, &attr);
}

/* Take back what the tries counted: a forked child reads 0 then. */
static int reset(int counter)
{
	uint64_t zero = 0;
	uint32_t key = 0;
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.map_fd = (uint32_t)counter;
	attr.key = (uintptr_t)&key;
	attr.value = (uintptr_t)&zero;
	return bpf(BPF_MAP_UPDATE_ELEM, &attr);
}

static int set_up(struct tripwire *t, const struct places *p)
{
	int rc, own, counter = map_create(BPF_F_MMAPABLE);
	void *view;

	if (counter < 0)
		return counter;
	view = mmap(NULL, kedge__page_size(), PROT_READ, MAP_SHARED, counter, 0);
	rc = -errno;
	if (view == MAP_FAILED)
		goto close_counter;
	t->counter = view; /* tripwire_close() unmaps it */
	own = map_create(0);
	rc = own;
	if (own < 0)
		goto close_counter;
	rc = note_self(p, own);
	if (rc)
		goto close_own;
	t->covers = attach_all(t, p, own, counter);
	rc = t->covers ? reset(counter) : -EOPNOTSUPP;
close_own:
	/* The programs hold the maps from here on: our descriptors can go. */
	close(own);
close_counter:
	close(counter);
	return rc;
}

/*
 * A cheap probe, which finds most processes that may not load programs: the
 * kernel always refuses one on the exit of no function, but checks permissions
 * first.
 */
static int may_load(void)
{
	struct code c = { .cnt = 0 };
	int fd;

	put_return(&c);
	fd = load(&c, BPF_PROG_TYPE_TRACING, BPF_TRACE_FEXIT, 0);
	if (fd >= 0)
		close(fd);
	return fd == -EPERM || fd == -EACCES || fd == -ENOSYS ? fd : 0;
}

static int reason(int rc)
{
	if (rc == -EPERM || rc == -EACCES)
		return kedge_reason(-EPERM, "eBPF on the kernel's functions is "
					    "refused: it takes CAP_BPF and "
					    "CAP_PERFMON, and a kernel that "
					    "allows it");
	return kedge_reason(rc, "the kernel's eBPF can't watch shmat() and "
				"madvise() here (%s)", strerrordesc_np(-rc));
}

int tripwire_open(struct tripwire **out)
{
	struct places places;
	struct tripwire *t;
	int rc;

	rc = may_load();
	if (rc)
		return reason(rc);
	rc = tripwire_places(&places);
	if (rc)
		return rc;
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	rc = set_up(t, &places);
	if (rc) {
		undo(t, 0);
		tripwire_close(t);
		return reason(rc);
	}
	*out = t;
	return 0;
}

void tripwire_close(struct tripwire *t)
{
	if (!t)
		return;
	while (t->link_cnt)
		close_link(&t->link[--t->link_cnt]);
	if (t->counter)
		munmap((void *)(uintptr_t)t->counter, kedge__page_size());
	free(t);
}

const uint64_t *tripwire_counter(const struct tripwire *t)
{
	return t->counter;
}

uint32_t tripwire_covers(const struct tripwire *t)
{
	return t->covers;
}

unsigned int tripwire_fds(const struct tripwire *t, int *fds)
{
	unsigned int i;

	for (i = 0; i < t->link_cnt; i++)
		fds[i] = t->link[i].fd;
	return t->link_cnt;
}
