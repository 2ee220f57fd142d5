// SPDX-License-Identifier: BSD-2-Clause
/* A channel's options, with what is not said filled in, and errors of callers. */
#include "channel/internal.h"

#define PEER_TIMEOUT_MS	  60000u
#define ENVELOPE_BYTES	  ((uint64_t)128 << 20)
#define ENVELOPE_BYTES_MIN ((uint64_t)64 << 10)
#define UNEXPECTED_BYTES  ((uint64_t)4 << 20)
#define BYTES_MAX	  ((uint64_t)1 << 30)
#define HEAP_DEFAULT	  ((uint64_t)128 << 20)
#define HOST_TIMEOUT_MS	  20000u
#define HEAP_MAX	  ((uint64_t)1 << 36)
#define POOL_DEFAULT	  ((uint64_t)160 << 20)
#define FLAGS_ALL	  (KEDGE_CHANNEL_ANY_USER | KEDGE_CHANNEL_NO_CMA | \
			   KEDGE_CHANNEL_NO_WAIT)

#define OPTS_V1	    STRUCT_END(struct kedge_channel_opts, pool_bytes)

static uint64_t or_default(uint64_t v, uint64_t def)
{
	return v ? v : def;
}

/* By their bytes, and by their number where the caller names one. */
static int limit_envelopes(struct kedge_channel_opts *o)
{
	uint64_t cnt = o->envelope_bytes / ENVELOPE_LEN;

	if (o->envelope_bytes < ENVELOPE_BYTES_MIN || cnt > UNEXPECTED_CNT_MAX)
		return kedge_reason(-EINVAL, "envelope_bytes is at least 64 KiB, "
				    "at most 2 GiB");
	if (o->unexpected_cnt > UNEXPECTED_CNT_MAX)
		return kedge_reason(-EINVAL, "unexpected_cnt is at most %u",
				    UNEXPECTED_CNT_MAX);
	if (!o->unexpected_cnt || o->unexpected_cnt > cnt)
		o->unexpected_cnt = (uint32_t)cnt;
	return 0;
}

int kedge__channel_opts(struct kedge_channel_opts *o,
			const struct kedge_channel_opts *user)
{
	int rc = kedge__opts_copy(o, sizeof(*o), OPTS_V1, user);

	if (rc)
		return rc;
	o->peer_timeout_ms =
		(uint32_t)or_default(o->peer_timeout_ms, PEER_TIMEOUT_MS);
	o->host_timeout_ms =
		(uint32_t)or_default(o->host_timeout_ms, HOST_TIMEOUT_MS);
	if (o->host_timeout_ms < 1000 || o->host_timeout_ms > INT32_MAX)
		return kedge_reason(-EINVAL, "host_timeout_ms is at least a "
				    "second");
	if (!o->secret && o->secret_len)
		return kedge_reason(-EINVAL, "secret_len without a secret");
	o->envelope_bytes = or_default(o->envelope_bytes, ENVELOPE_BYTES);
	o->unexpected_bytes = or_default(o->unexpected_bytes,
					 UNEXPECTED_BYTES);
	o->heap_bytes = or_default(o->heap_bytes, HEAP_DEFAULT);
	o->pool_bytes = or_default(o->pool_bytes, POOL_DEFAULT);
	if (o->flags & ~FLAGS_ALL)
		return kedge_reason(-EINVAL, "a flag of the channel is unknown");
	if (o->way >= KEDGE_WAY_COUNT || o->way == KEDGE_WAY_EAGER)
		return kedge_reason(-EINVAL, "no way to receive by rendezvous "
				    "has the number %u", o->way);
	if (o->eager_max > EAGER_LIMIT)
		return kedge_reason(-EINVAL, "eager_max is at most 512 KiB");
	rc = limit_envelopes(o);
	if (rc)
		return rc;
	if (o->unexpected_bytes > BYTES_MAX ||
	    o->unexpected_bytes < 2 * (uint64_t)o->eager_max ||
	    o->unexpected_bytes < 2)
		return kedge_reason(-EINVAL, "unexpected_bytes is at least "
				    "twice eager_max, at most 1 GiB");
	if (o->heap_bytes > HEAP_MAX || o->pool_bytes > HEAP_MAX)
		return kedge_reason(-EINVAL, "heap_bytes and pool_bytes are at "
				    "most 64 GiB");
	return 0;
}

int channel_invalid(const char *what)
{
	return kedge_reason(-EINVAL, "%s", what);
}

int channel_no_fd(int rc)
{
	return rc == -EMFILE || rc == -ENFILE
		       ? kedge_reason(rc, "no descriptor is left for a channel: "
				      "raise ulimit -n")
		       : rc;
}
