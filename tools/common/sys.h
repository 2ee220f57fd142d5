/* SPDX-License-Identifier: BSD-2-Clause */
/* The permissions of this process on this machine, as the kernel tells them. */
#ifndef TOOLS_COMMON_SYS_H
#define TOOLS_COMMON_SYS_H

#include <stdbool.h>
#include <stdint.h>

/**
 * struct sys_memlock - how much memory may be pinned
 * @bound:  RLIMIT_MEMLOCK holds for this process (it has no CAP_IPC_LOCK)
 * @soft:   the limit in bytes, UINT64_MAX for none
 * @hard:   how far this process may raise it itself
 * @locked: bytes locked now (VmLck)
 * @pinned: bytes pinned now on this process's account (VmPin)
 */
struct sys_memlock {
	bool bound;
	uint64_t soft;
	uint64_t hard;
	uint64_t locked;
	uint64_t pinned;
};

void sys_memlock(struct sys_memlock *m);

/* A number in a file under /proc or /sys. 0 or a negative errno. */
int sys_number(const char *path, int64_t *out);

/* The word in brackets of "always [madvise] never"; "" if there is none. */
void sys_choice(const char *path, char *buf, unsigned int len);

/* Mappings of this process, 0 if they cannot be counted. */
uint64_t sys_map_count(void);

/* CPUs this process may run on. */
unsigned int sys_cpus(void);

/* A seccomp filter is in force. */
bool sys_seccomp(void);

/* Physical page numbers can be read from /proc/self/pagemap. */
bool sys_pfn_visible(void);

#endif /* TOOLS_COMMON_SYS_H */
