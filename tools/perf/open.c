// SPDX-License-Identifier: BSD-2-Clause
/* Where kedge perf opens its channels, whatever carries them. */
#include <errno.h>
#include <string.h>

#include <kedge/kedge.h>

#include "tools/common/net.h"
#include "tools/perf/perf.h"

#define SHM_PATH   "@kedge-perf"
#define TIMEOUT_MS 10000

static const char *service_of(const struct perf_place *at)
{
	return at->service ? at->service : NET_SERVICE;
}

static bool is_shm(const struct perf_place *at)
{
	return !strcmp(at->transport, "shm");
}

int perf_listen(const struct perf_place *at,
		const struct kedge_channel_opts *opts,
		struct kedge_listener **listener)
{
	if (!is_shm(at))
		return net_listen(at->transport, at->node, service_of(at), opts,
				  listener);
	return kedge_listener_open_shm(at->node ? at->node : SHM_PATH, opts,
				       listener);
}

int perf_connect(const struct perf_place *at,
		 const struct kedge_channel_opts *opts, int timeout_ms,
		 struct kedge_channel **ch)
{
	if (!is_shm(at))
		return net_connect(at->transport, at->node, service_of(at),
				   opts, timeout_ms, ch);
	return kedge_channel_open_shm(at->node ? at->node : SHM_PATH, opts,
				      timeout_ms, ch);
}

int perf_open_pair(const struct perf_place *at, unsigned int rank, int fd,
		   const struct kedge_channel_opts *opts,
		   struct kedge_channel **ch)
{
	if (!is_shm(at))
		return net_pair(at->transport, rank, fd, opts, ch);
	return kedge_channel_open_fd(fd, opts, TIMEOUT_MS, ch);
}
