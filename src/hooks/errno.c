// SPDX-License-Identifier: BSD-2-Clause
/* The way out of kedge__raw_syscall() where the kernel refuses. */
#include <errno.h>

#include "hooks/hooks.h"

#ifdef HOOKS_SYSCALL
long kedge__syscall_errno(long rc) HIDDEN;

long kedge__syscall_errno(long rc)
{
	errno = (int)-rc;
	return -1;
}
#endif /* HOOKS_SYSCALL */
