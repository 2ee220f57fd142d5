// SPDX-License-Identifier: BSD-2-Clause
/*
 * The hooks backend: all it knows is what libkedge-hooks, or a runtime, tells
 * through kedge_hook_begin(). It arms no range. The heap below brk is
 * never watched: glibc's free() shrinks it by a call that no symbol leads to.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "notify/internal.h"

#define STAT_START_BRK 47 /* field of /proc/self/stat, counted from 1 */

/* The start of brk()'s heap; 0 if /proc does not say. */
static uint64_t heap_start(void)
{
	char text[1024], *p;
	ssize_t n;
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC), i;

	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	p = strrchr(text, ')'); /* the name, field 2, may hold spaces */
	for (i = 2; p && i < STAT_START_BRK; i++)
		p = strchr(p + 1, ' ');
	return p ? strtoull(p, NULL, 10) : 0;
}

static int hooks_open(struct kedge_notifier *nf,
		      const struct kedge_notifier_opts *opts)
{
	uint32_t blind;

	if (!announce_attached(&blind))
		return kedge_reason(-EOPNOTSUPP,
				    "libkedge-hooks is not loaded: link it, or "
				    "set LD_PRELOAD=libkedge-hooks.so");
	/* The heap's start; 0, all below brk, where /proc is silent. */
	nf->backend = (void *)(uintptr_t)heap_start();
	nf->blind = blind | KEDGE_BLIND_RAW;
	return 0;
}

static void hooks_close(struct kedge_notifier *nf)
{
}

static int hooks_arm(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	uint64_t low = (uintptr_t)nf->backend;
	uint64_t high = (uint64_t)syscall(SYS_brk, 0);

	if (end > low && start < high)
		return kedge_reason(-EOPNOTSUPP,
				    "the notifier \"hooks\" does not see how "
				    "free() shrinks the heap, so the heap is "
				    "not cached");
	return 0;
}

static void hooks_disarm(struct kedge_notifier *nf, uint64_t start,
			 uint64_t end)
{
}

const struct notify_ops notify_hooks = {
	.name = "hooks",
	.level = KEDGE_LEVEL_ADVISORY,
	.announced_only = true,
	.open = hooks_open,
	.close = hooks_close,
	.abandon = hooks_close,
	.arm = hooks_arm,
	.disarm = hooks_disarm,
};
