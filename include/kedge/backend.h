/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The backends that a notifier may have: what they promise, and why one cannot run here.
 */
#ifndef KEDGE_BACKEND_H
#define KEDGE_BACKEND_H

#include <kedge/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * enum kedge_level - what a notifier promises about an invalidation
 * @KEDGE_LEVEL_DEFAULT:  in options: KEDGE_LEVEL_ORDERED where it can be had,
 *                        else KEDGE_LEVEL_NONE
 * @KEDGE_LEVEL_NONE:     nothing is watched; a cache registers at every get
 * @KEDGE_LEVEL_ADVISORY: seen when made through an interposed libc function
 * @KEDGE_LEVEL_ORDERED:  visible before the call that changed the mapping
 *                        returns to its caller, however it was made; and a
 *                        thread that the kernel hands the range before that
 *                        return is not served by a cache, nor told "unchanged"
 *                        by kedge_notifier_unchanged()
 * @KEDGE_LEVEL_EXACT:    visible before any thread can get the range back from
 *                        the kernel
 */
enum kedge_level {
	KEDGE_LEVEL_DEFAULT = 0,
	KEDGE_LEVEL_NONE = 1,
	KEDGE_LEVEL_ADVISORY = 2,
	KEDGE_LEVEL_ORDERED = 3,
	KEDGE_LEVEL_EXACT = 4,
};

/** enum kedge_blind_spot - events that a backend cannot see on this kernel
 * @KEDGE_BLIND_SHM_REMAP: shmat(SHM_REMAP) over watched memory, made by a
 *                         system call instruction outside libc
 * @KEDGE_BLIND_GUARD:     madvise(MADV_GUARD_INSTALL), made likewise
 * @KEDGE_BLIND_SHARING:   changes of a process that shares the address space
 *                         (CLONE_VM), killed within them, or dropping pages
 *                         while the mapping is renewed, where it was made
 *                         by a system call instruction outside libc
 * @KEDGE_BLIND_RAW:       every change not made through libc
 * @KEDGE_BLIND_AROUND:    the first change of memory that libc handed out, made
 *                         outside libc: a second thread that the kernel hands
 *                         the range before that call returns may be served from
 *                         a cache. Where lookups ask (KEDGE_CHECK_CALL) they
 *                         are not blind to it: KEDGE_NOTIFIER_ASK has them ask
 */
enum kedge_blind_spot {
	KEDGE_BLIND_SHM_REMAP = 1 << 0,
	KEDGE_BLIND_GUARD = 1 << 1,
	KEDGE_BLIND_RAW = 1 << 2,
	KEDGE_BLIND_SHARING = 1 << 3,
	KEDGE_BLIND_AROUND = 1 << 4,
};

/**
 * struct kedge_backend_info - whether a backend would work here
 * @size:   sizeof(struct kedge_backend_info), set by the caller
 * @level:  the level it would have; KEDGE_LEVEL_DEFAULT (0) if it can't run
 * @name:   static
 * @blind:  enum kedge_blind_spot
 * @rc:     0, or the negative errno that opening it gives
 * @reason: why it can't run and what to do, or what limits it; may be empty
 */
struct kedge_backend_info {
	uint32_t size;
	uint32_t level;
	const char *name;
	uint32_t blind;
	int32_t rc;
	char reason[256];
};

/**
 * kedge_backend_probe() - try a backend
 * @index: 0 for the first of them, in the order in which "auto" prefers them
 * @info:  filled; @info->size is set by the caller
 *
 * Tries it for real: opens it and closes it again.
 *
 * Threads: any. Fork: works in the child.
 *
 * Return: 0, -ENOENT if there is no backend @index, -EINVAL for a NULL pointer
 * or a size too small.
 */
KEDGE_API int kedge_backend_probe(unsigned int index,
				  struct kedge_backend_info *info);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_BACKEND_H */
