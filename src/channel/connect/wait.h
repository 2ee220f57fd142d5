/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waiting for a peer while a connection is made: until a deadline, or until the
 * connector for which the calling thread connects is closed.
 */
#ifndef CHANNEL_CONNECT_WAIT_H
#define CHANNEL_CONNECT_WAIT_H

#include "base/base.h"
#include "base/process/clofork.h"

/*
 * Until @fd is ready for @what (as in poll()), or @most_ms have passed, where that
 * is not negative; it is less than a second. @fd may be -1. 0; -ETIMEDOUT, at
 * @deadline; -ECANCELED, as below. The reason is set.
 */
KEDGE_PRIVATE int kedge__wait_for(int fd, short what, uint64_t deadline,
				  int most_ms);

/*
 * Waits of the calling thread end with -ECANCELED from when @wakeup is
 * readable. It stays where it is until the thread ends, or calls this with
 * NULL.
 */
void wait_unless(const struct clofork *wakeup);

#endif /* CHANNEL_CONNECT_WAIT_H */
