// SPDX-License-Identifier: BSD-2-Clause
/* In the place of open_ofi.c in a build without libfabric. */
#include <errno.h>

#include <kedge/kedge.h>

#include "tools/perf/perf.h"

static int none(const struct perf_place *at)
{
	return kedge_reason(-EOPNOTSUPP,
			    "there is no transport '%s' in this build, only "
			    "shm: others take libfabric (Debian's "
			    "libfabric-dev)",
			    at->transport);
}

int perf_listen_ofi(const struct perf_place *at,
		    const struct kedge_channel_opts *opts,
		    struct kedge_listener **listener)
{
	return none(at);
}

int perf_connect_ofi(const struct perf_place *at,
		     const struct kedge_channel_opts *opts, int timeout_ms,
		     struct kedge_channel **ch)
{
	return none(at);
}

int perf_pair_ofi(const struct perf_place *at, unsigned int rank, int fd,
		  const struct kedge_channel_opts *opts,
		  struct kedge_channel **ch)
{
	return none(at);
}
