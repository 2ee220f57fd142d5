// SPDX-License-Identifier: BSD-2-Clause
/*
 * syscall(), for the numbers that change a mapping. syscall_entry.S sends those
 * here and everything else on by a jump, without a frame: after a vfork the
 * child runs on its parent's stack, and a frame of ours would be overwritten.
 */
#include <sys/syscall.h>

#include "hooks/hooks.h"

#ifdef HOOKS_SYSCALL
long kedge__syscall_announced(long nr, long a, long b, long c, long d, long e,
			      long f) HIDDEN;

long kedge__syscall_announced(long nr, long a, long b, long c, long d, long e,
			      long f)
{
	struct change ch;
	long rc;

	change_init(&ch);
	switch (nr) {
	case SYS_munmap:
		change_add(&ch, KEDGE_EVENT_UNMAP, (void *)a, (size_t)b);
		break;
	case SYS_mmap:
		kedge__on_mmap(&ch, (void *)a, (size_t)b, (int)d, (int)e);
		break;
	case SYS_mremap:
		kedge__on_mremap(&ch, (void *)a, (size_t)b, (size_t)c, (int)d,
				 (void *)e);
		break;
	case SYS_madvise:
		kedge__on_madvise(&ch, (void *)a, (size_t)b, (int)c);
		break;
#ifdef SYS_process_madvise
	case SYS_process_madvise:
		kedge__on_process_madvise(&ch, (void *)b, (size_t)c, (int)d);
		break;
#endif
	case SYS_brk:
		kedge__on_brk(&ch, (void *)a);
		break;
	case SYS_shmat:
		kedge__on_shmat(&ch, (int)a, (void *)b, (int)c);
		break;
	case SYS_shmdt:
		kedge__on_shmdt(&ch, (void *)a);
		break;
	case SYS_remap_file_pages:
		kedge__on_remap_file_pages(&ch, (void *)a, (size_t)b);
		break;
	}
	rc = kedge__real_syscall(nr, a, b, c, d, e, f);
	change_end(&ch);
	switch (nr) {
	case SYS_mmap:
		handed_out((void *)rc, (size_t)b);
		break;
	case SYS_mremap:
		kedge__remapped((void *)rc, (void *)a, (size_t)b, (size_t)c,
				(int)d);
		break;
	case SYS_shmat:
		kedge__attached((void *)rc, (int)a);
		break;
	}
	return rc;
}
#endif /* HOOKS_SYSCALL */
