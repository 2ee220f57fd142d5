// SPDX-License-Identifier: BSD-2-Clause
/*
 * dup2() and dup3(): another file takes the number of a descriptor. If that is kedge's userfaultfd,
 * and the other file one too, the kernel would answer a lookup's question for the other one.
 */
#include <fcntl.h>
#include <unistd.h>

#include "hooks/hooks.h"

/* Before it is so. The first three numbers, dup2()'s usual ones, are never kedge's. */
static void announce(int from, int to)
{
	int saved = errno;

	if (to > 2 && from != to && fcntl(from, F_GETFD) >= 0)
		kedge_hook_number(to);
	errno = saved;
}

KEDGE_API int dup2(int from, int to)
{
	announce(from, to);
	return kedge__real.dup2(from, to);
}

KEDGE_API int dup3(int from, int to, int flags)
{
	announce(from, to);
	return kedge__real.dup3(from, to, flags);
}
