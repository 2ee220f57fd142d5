// SPDX-License-Identifier: BSD-2-Clause
/* A notifier's properties and counters: for its user, and as KEDGE_STATS publishes them. */
#include "notify/internal.h"

#define INFO_V1 STRUCT_END(struct kedge_notifier_info, armed)

/* The backend's own, and what announcements leave out while no lookup asks. */
uint32_t nf_blind(const struct kedge_notifier *nf)
{
	return nf->blind |
	       (nf->ops->settled && nf_asks(nf) == ASKS_NOT ? KEDGE_BLIND_AROUND : 0);
}

int kedge_notifier_info(struct kedge_notifier *nf,
			struct kedge_notifier_info *info)
{
	struct kedge_notifier_info i = { .size = sizeof(i) };

	if (!nf)
		return kedge_reason(-EINVAL, "the notifier is NULL");
	if (!nf_owned(nf))
		return nf_not_owned();
	i.level = nf->ops->level;
	i.backend = nf->ops->name;
	i.blind = nf_blind(nf);
	i.hooked = announce_hooked(NULL);
	sig_lock(&nf->lock);
	i.check = i.level == KEDGE_LEVEL_NONE ? KEDGE_CHECK_NONE : nf_asks(nf);
	if (i.check == KEDGE_CHECK_NONE)
		i.level = KEDGE_LEVEL_NONE;
	incoming_settle(nf);
	i.watches = nf->watches.cnt;
	i.armed = nf->armed.cnt;
	i.events = nf->events;
	sig_unlock(&nf->lock);
	return kedge__info_copy(info, INFO_V1, &i, sizeof(i));
}

enum value { WATCHES, ARMED, EVENTS, COUNT };

static const struct stats_metric metrics[COUNT] = {
	[WATCHES] = { "notifier_watches", NULL, "Watches now", STATS_GAUGE, 0 },
	[ARMED] = { "notifier_armed_ranges", NULL, "Disjoint ranges that the kernel watches now",
		    STATS_GAUGE, 0 },
	[EVENTS] = { "notifier_events", NULL, "Invalidations that watches were told of",
		     STATS_COUNT, 0 },
};

static const char *level_name(uint32_t level)
{
	static const char *const names[] = { "default", "none", "advisory", "ordered", "exact" };

	return level < ARRAY_SIZE(names) ? names[level] : "unknown";
}

static const char *check_name(uint32_t check)
{
	static const char *const names[] = { "load", "call", "none" };

	return check < ARRAY_SIZE(names) ? names[check] : "unknown";
}

static void read_counters(const void *of, uint64_t *values, char *labels)
{
	/* It takes the lock, so it changes that alone. */
	struct kedge_notifier *nf = (struct kedge_notifier *)(uintptr_t)of;
	struct kedge_notifier_info i = { .size = sizeof(i) };

	if (kedge_notifier_info(nf, &i))
		return;
	stats_label(labels, "backend", i.backend);
	stats_label(labels, "level", level_name(i.level));
	stats_label(labels, "check", check_name(i.check));
	values[WATCHES] = i.watches;
	values[ARMED] = i.armed;
	values[EVENTS] = i.events;
}

const struct stats_kind notifier_counters = { "notifier", metrics, COUNT, read_counters };
