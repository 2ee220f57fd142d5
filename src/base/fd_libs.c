// SPDX-License-Identifier: BSD-2-Clause
/* Of libkedge alone: fd.c is in other libraries, too, which may be linked with it
 * statically. */
#include "base/fd.h"

void kedge__fd_note(int fd, struct fd_id *id)
{
	fd_note(fd, id);
}

bool kedge__fd_same(int fd, const struct fd_id *id)
{
	return fd_same(fd, id);
}
