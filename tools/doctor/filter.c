// SPDX-License-Identifier: BSD-2-Clause
/*
 * The system calls that take pages away from a process that makes them. Those whose addresses only
 * the kernel knows are not among them: of a file that is truncated or punched, of another process
 * (process_madvise()), and of io_uring; nor is MADV_FREE: what an adapter has pinned stays.
 */
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/audit.h>
#include <linux/seccomp.h>

#include "base/base.h"
#include "tools/doctor/trace.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

#if defined(__x86_64__)
#define NATIVE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE AUDIT_ARCH_AARCH64
#else
#error "the architecture's name for seccomp is missing here"
#endif

static const uint32_t dropping[] = {
	MADV_DONTNEED, MADV_REMOVE, MADV_DONTNEED_LOCKED, MADV_GUARD_INSTALL,
};

static const uint32_t always[] = { SYS_munmap, SYS_mremap, SYS_shmdt, SYS_brk };

/* ---- the filter ---- */

/* The lower half is where the value is; both architectures are little-endian. */
#define LOAD(member)                                              \
	(struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,    \
				     offsetof(struct seccomp_data, member))
#define IF(how, value, yes, no) \
	(struct sock_filter)BPF_JUMP(BPF_JMP | (how) | BPF_K, value, yes, no)
#define RETURN(what) (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what)

unsigned short filter_make(struct sock_filter to[FILTER_MAX])
{
	const uint8_t advices = ARRAY_SIZE(dropping);
	unsigned short n = 0;
	size_t i;

	to[n++] = LOAD(arch);
	to[n++] = IF(BPF_JEQ, NATIVE, 1, 0);
	to[n++] = RETURN(SECCOMP_RET_ALLOW);
	to[n++] = LOAD(nr);
	for (i = 0; i < ARRAY_SIZE(always); i++) {
		to[n++] = IF(BPF_JEQ, always[i], 0, 1);
		to[n++] = RETURN(SECCOMP_RET_TRACE);
	}
	to[n++] = IF(BPF_JEQ, SYS_mmap, 0, 3);
	to[n++] = LOAD(args[3]);
	to[n++] = IF(BPF_JSET, MAP_FIXED, (uint8_t)(advices + 4), 0);
	to[n++] = RETURN(SECCOMP_RET_ALLOW);
	to[n++] = IF(BPF_JEQ, SYS_madvise, 0, (uint8_t)(advices + 1));
	to[n++] = LOAD(args[2]);
	for (i = 0; i < advices; i++)
		to[n++] = IF(BPF_JEQ, dropping[i], (uint8_t)(advices - i), 0);
	to[n++] = RETURN(SECCOMP_RET_ALLOW);
	to[n++] = RETURN(SECCOMP_RET_TRACE);
	return n;
}

/* ---- what a call changes ---- */

static uint64_t page_up(uint64_t at)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	return (at + page - 1) & ~(page - 1);
}

/* Whole pages, as the kernel has it. */
static int put(struct change *to, enum table_kind kind, uint64_t start, uint64_t end)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	start &= ~(page - 1);
	end = (end + page - 1) & ~(page - 1);
	if (end <= start)
		return 0;
	*to = (struct change){ .kind = kind, .start = start, .end = end };
	return 1;
}

/* mremap(old, old length, new length, flags, new). */
static int moves(const uint64_t *a, struct change *to)
{
	int n = 0;

	if (a[3] & MREMAP_FIXED)
		n += put(&to[n], TABLE_UNMAP, a[4], a[4] + a[2]);
	if (a[3] & MREMAP_FIXED || (a[3] & MREMAP_MAYMOVE && a[2] > a[1]))
		n += put(&to[n], TABLE_MOVE, a[0], a[0] + a[1]);
	else
		n += put(&to[n], TABLE_UNMAP, page_up(a[0] + a[2]), a[0] + a[1]);
	return n;
}

/* Pages of a shared mapping are its object's, and come back unless they are removed from it. */
static int drops(const struct call *call, struct change *to)
{
	uint64_t at = call->args[0];
	const uint64_t end = at + call->args[1];
	struct mapping m;
	int n = 0;

	if (call->args[2] == MADV_REMOVE)
		return put(to, TABLE_DROP, at, end);
	while (at < end && n < CHANGES_MAX && maps_find(call->tid, at, NULL, &m)) {
		if (m.end > end)
			m.end = end;
		if (!m.shared)
			n += put(&to[n], TABLE_DROP, at, m.end);
		at = m.end;
	}
	return n;
}

/* brk() has the heap's new end. */
static int shrinks(const struct call *call, struct change *to)
{
	struct mapping m;

	if (!call->args[0] || !maps_find(call->tid, 0, "[heap]", &m))
		return 0;
	return put(to, TABLE_UNMAP, page_up(call->args[0]), m.end);
}

static int detaches(const struct call *call, struct change *to)
{
	struct mapping m;

	if (!maps_find(call->tid, call->args[0], NULL, &m))
		return 0;
	return put(to, TABLE_UNMAP, m.start, m.end);
}

int filter_changes(const struct call *call, struct change to[CHANGES_MAX])
{
	switch (call->nr) {
	case SYS_munmap:
	case SYS_mmap:
		return put(to, TABLE_UNMAP, call->args[0], call->args[0] + call->args[1]);
	case SYS_madvise:
		return drops(call, to);
	case SYS_mremap:
		return moves(call->args, to);
	case SYS_shmdt:
		return detaches(call, to);
	case SYS_brk:
		return shrinks(call, to);
	}
	return 0;
}

/* mremap() that grows in its place moves nothing, and brk() says where the heap ends now. */
bool filter_did(const struct call *call, int64_t result)
{
	if (result < 0 && result >= -4095)
		return false;
	switch (call->nr) {
	case SYS_mremap:
		return call->args[3] & MREMAP_FIXED || call->args[2] < call->args[1] ||
		       (uint64_t)result != call->args[0];
	case SYS_brk:
		return (uint64_t)result == call->args[0];
	}
	return true;
}
