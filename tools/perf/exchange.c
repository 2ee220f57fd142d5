// SPDX-License-Identifier: BSD-2-Clause
/* The exchange of addresses between the two ranks of a peer's pair. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "tools/perf/rank.h"

static int transfer(int fd, void *buf, size_t len, bool out)
{
	size_t done = 0;
	ssize_t n;

	while (done < len) {
		n = out ? send(fd, (char *)buf + done, len - done, MSG_NOSIGNAL)
			: recv(fd, (char *)buf + done, len - done, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -ECONNRESET;
		done += (size_t)n;
	}
	return 0;
}

int perf_swap_addresses(int fd, const void *mine, size_t len, size_t max,
			void **theirs)
{
	void *p;
	int rc;

	rc = transfer(fd, &len, sizeof(len), true);
	if (!rc)
		rc = transfer(fd, (void *)(uintptr_t)mine, len, true);
	if (!rc)
		rc = transfer(fd, &len, sizeof(len), false);
	if (!rc && len > max)
		rc = -EPROTO;
	if (rc)
		return rc;
	p = malloc(len ? len : 1);
	if (!p)
		return -ENOMEM;
	rc = transfer(fd, p, len, false);
	if (rc)
		free(p);
	else
		*theirs = p;
	return rc;
}
