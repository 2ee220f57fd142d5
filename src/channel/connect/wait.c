// SPDX-License-Identifier: BSD-2-Clause
/* See wait.h. */
#include "channel/connect/wait.h"

#include <poll.h>

static __thread const struct clofork *wakeup;

void wait_unless(const struct clofork *b)
{
	wakeup = b;
}

/*
 * A look at the wakeup is not the wait for it: between them, or as poll() wakes
 * and looks at the numbers once more, the application may put its own
 * descriptors in the place of both ends, and poll() sleeps on with what never
 * wakes it.
 */
#define WAKEUP_NS 1000000000u

static int given_up(void)
{
	return kedge_reason(-ECANCELED, "the connector was closed");
}

int kedge__wait_for(int fd, short what, uint64_t deadline, int most_ms)
{
	const uint64_t until = most_ms < 0 ? deadline
					   : clock_sooner(deadline, (uint64_t)most_ms * 1000000u);
	struct pollfd p[] = { { .fd = fd, .events = what },
			      { .fd = -1, .events = POLLIN } };
	int rc;

	for (;;) {
		if (!clock_left_ns(deadline))
			return kedge_reason(-ETIMEDOUT, "the peer does not answer");
		if (!clock_left_ns(until))
			return 0;
		/* The application has closed it, and with it what is connected:
		 * it could not end the attempt any more. */
		if (wakeup && !clofork_ours(wakeup))
			return given_up();
		p[1].fd = wakeup ? wakeup->fd : -1;
		rc = clock_poll(p, ARRAY_SIZE(p), wakeup ? clock_sooner(until, WAKEUP_NS) : until);
		if (rc < 0 && errno != EINTR)
			return -errno;
		if (rc > 0 && p[1].revents)
			return given_up();
		if (rc > 0 && p[0].revents)
			return 0;
	}
}
