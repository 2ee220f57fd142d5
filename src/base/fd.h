/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The identity of a descriptor that we opened. The application may close what is
 * not its own, as daemons do, and have another under the number: that one is
 * not to be read, written or closed.
 */
#ifndef BASE_FD_H
#define BASE_FD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

struct fd_id {
	uint64_t dev;
	uint64_t ino;
};

void fd_note(int fd, struct fd_id *id);
bool fd_same(int fd, const struct fd_id *id);
/* The same two for kedge's own libraries. */
KEDGE_PRIVATE void kedge__fd_note(int fd, struct fd_id *id);
KEDGE_PRIVATE bool kedge__fd_same(int fd, const struct fd_id *id);
/* Close it if it still is what was noted. Keeps errno. */
void fd_close(int fd, const struct fd_id *id);
/*
 * The same descriptor under a high number, out of the way of programs that count
 * on the lowest free ones; or @fd itself. Each call takes another number, so that
 * one which the application closes is not soon taken again.
 */
int fd_move_up(int fd);

#endif /* BASE_FD_H */
