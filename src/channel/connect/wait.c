// SPDX-License-Identifier: BSD-2-Clause
/* See wait.h. */
#include "channel/connect/wait.h"

#include <poll.h>

static __thread const struct clofork *wakeup;

void wait_unless(const struct clofork *b)
{
	wakeup = b;
}

uint64_t kedge__deadline_of(int timeout_ms)
{
	return timeout_ms < 0 ? UINT64_MAX
			      : clock_ns() + (uint64_t)timeout_ms * 1000000u;
}

int deadline_left(uint64_t deadline)
{
	uint64_t now = clock_ns(), ms;

	if (deadline == UINT64_MAX)
		return -1;
	ms = now >= deadline ? 0 : (deadline - now + 999999) / 1000000;
	return ms < INT32_MAX ? (int)ms : INT32_MAX;
}

/*
 * A look at the wakeup is not the wait for it: between them, or as poll() wakes
 * and looks at the numbers once more, the application may put its own
 * descriptors in the place of both ends, and poll() sleeps on with what never
 * wakes it.
 */
#define WAKEUP_MS 1000

static int sooner(int ms, int most_ms)
{
	return most_ms >= 0 && (ms < 0 || ms > most_ms) ? most_ms : ms;
}

static int given_up(void)
{
	return kedge_reason(-ECANCELED, "the connector was closed");
}

int kedge__wait_for(int fd, short what, uint64_t deadline, int most_ms)
{
	struct pollfd p[] = { { .fd = fd, .events = what },
			      { .fd = -1, .events = POLLIN } };
	int ms, rc;

	for (;;) {
		ms = deadline_left(deadline);
		if (!ms)
			return kedge_reason(-ETIMEDOUT, "the peer does not answer");
		ms = sooner(sooner(ms, most_ms), wakeup ? WAKEUP_MS : -1);
		/* The application has closed it, and with it what is connected:
		 * it could not end the attempt any more. */
		if (wakeup && !clofork_ours(wakeup))
			return given_up();
		p[1].fd = wakeup ? wakeup->fd : -1;
		rc = poll(p, ARRAY_SIZE(p), ms);
		if (rc < 0 && errno != EINTR)
			return -errno;
		if (rc > 0 && p[1].revents)
			return given_up();
		if (rc > 0 && p[0].revents)
			return 0;
		if (!rc && ms == most_ms)
			return 0;
	}
}
