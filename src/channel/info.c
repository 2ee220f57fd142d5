// SPDX-License-Identifier: BSD-2-Clause
/*
 * A channel's properties, and statistics of its work.
 */
#include "channel/internal.h"

#define INFO_V1	 STRUCT_END(struct kedge_channel_info, eager_max)
#define STATS_V1 STRUCT_END(struct kedge_channel_stats, cts_cnt)

KEDGE_API const char *kedge_way_name(uint32_t way)
{
	static const char *const names[KEDGE_WAY_COUNT] = {
		"auto", "eager", "direct", "swap", "copy", "register",
	};

	return way < KEDGE_WAY_COUNT ? names[way] : NULL;
}

KEDGE_API int kedge_channel_info(struct kedge_channel *ch,
				 struct kedge_channel_info *info)
{
	struct kedge_channel_info i;

	NO_CANCEL();
	if (!ch || !info)
		return channel_invalid("the channel or the result is NULL");
	if (!is_ours(ch))
		return channel_gone(ch);
	i = (struct kedge_channel_info){
		.size = info->size,
		.ways = ch->t->ways | 1u << KEDGE_WAY_EAGER,
		.transport = ch->t->name,
		.why = ch->t->explain(ch->ctx),
		.peer_pid = ch->peer.pid,
		.eager_max = ch->peer.eager_max,
	};
	return kedge__info_copy(info, INFO_V1, &i, sizeof(i));
}

KEDGE_API int kedge_channel_stats(struct kedge_channel *ch,
				  struct kedge_channel_stats *stats)
{
	struct kedge_channel_stats st;

	if (!ch || !stats)
		return channel_invalid("the channel or the result is NULL");
	if (!is_ours(ch))
		return channel_gone(ch);
	st = ch->st;
	if (ch->t->attached)
		st.attached = ch->t->attached(ch->ctx);
	st.size = stats->size;
	return kedge__info_copy(stats, STATS_V1, &st, sizeof(st));
}
