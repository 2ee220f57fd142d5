// SPDX-License-Identifier: BSD-2-Clause
/* A channel's counters, as KEDGE_STATS publishes them. */
#include <stddef.h>
#include <stdio.h>

#include "channel/internal.h"

#define AT(field) offsetof(struct kedge_channel_stats, field)
#define TOTAL(name, field, help) { "channel_" name, NULL, help, STATS_COUNT, AT(field) }
#define WAY(name, way, help)                                                                 \
	{ "channel_received_by_way", "way=\"" name "\"", help, STATS_COUNT,                  \
	  AT(ways) + (way) * sizeof(uint64_t) }

static const struct stats_metric metrics[] = {
	TOTAL("sent_messages", sent, "Messages sent, complete or not"),
	TOTAL("received_messages", received, "Messages received whole"),
	TOTAL("sent_bytes", bytes_sent, "Bytes of messages sent"),
	TOTAL("received_bytes", bytes_received, "Bytes of messages received"),
	TOTAL("failed", failed, "Operations that completed with an error"),
	TOTAL("unexpected", unexpected, "Messages that came before their receive"),
	WAY("eager", KEDGE_WAY_EAGER, "Messages received by each way"),
	WAY("direct", KEDGE_WAY_DIRECT, NULL),
	WAY("swap", KEDGE_WAY_SWAP, NULL),
	WAY("copy", KEDGE_WAY_COPY, NULL),
	WAY("register", KEDGE_WAY_REGISTER, NULL),
	TOTAL("swapped_bytes", swapped, "Bytes whose pages were swapped"),
	TOTAL("copied_bytes", copied, "Bytes copied out of landing pages"),
	TOTAL("pool_empty", pool_empty, "Times the landing pool had no pages"),
	TOTAL("cts", cts_cnt, "Clear-to-send packets sent"),
	{ "channel_cts_wait_seconds", NULL,
	  "Time from a request to send, or from its receive if that came later, to its answer",
	  STATS_SECONDS, AT(cts_ns) },
};

static void read_counters(const void *of, uint64_t *values, char *labels)
{
	const struct kedge_channel *ch = of;
	char peer[16];

	stats_label(labels, "transport", ch->t->name);
	if (ch->peer.pid) {
		snprintf(peer, sizeof(peer), "%u", ch->peer.pid);
		stats_label(labels, "peer_pid", peer);
	}
	stats_values(metrics, ARRAY_SIZE(metrics), &ch->st, values);
}

const struct stats_kind channel_counters = { "channel", metrics, ARRAY_SIZE(metrics),
					     read_counters };
