// SPDX-License-Identifier: BSD-2-Clause
/* A cache's counters, as KEDGE_STATS publishes them. */
#include <stddef.h>

#include "cache/internal.h"

#define AT(name) offsetof(struct kedge_cache_stats, name)
#define TOTAL(name, field, help) { "cache_" name, NULL, help, STATS_COUNT, AT(field) }
#define NOW(name, field, help)	 { "cache_" name, NULL, help, STATS_GAUGE, AT(field) }
#define KIND(name, kind, help)                                                               \
	{ "cache_invalidations", "kind=\"" name "\"", help, STATS_COUNT,                     \
	  AT(invalidated) + (kind) * sizeof(uint64_t) }
#define WHY(name, why, help)                                                                 \
	{ "cache_uncached", "reason=\"" name "\"", help, STATS_COUNT,                        \
	  AT(uncached_why) + (why) * sizeof(uint64_t) }

static const struct stats_metric metrics[] = {
	TOTAL("gets", gets, "Registrations that were asked for and given"),
	TOTAL("hits", hits, "Gets that found a registration"),
	TOTAL("misses", misses, "Gets that registered"),
	TOTAL("failures", failures, "Gets that failed"),
	WHY("limit", KEDGE_UNCACHED_LIMIT, "Misses whose registration could not be kept"),
	WHY("busy", KEDGE_UNCACHED_BUSY, NULL),
	WHY("kind", KEDGE_UNCACHED_KIND, NULL),
	WHY("mappings", KEDGE_UNCACHED_MAPPINGS, NULL),
	WHY("leaving", KEDGE_UNCACHED_LEAVING, NULL),
	WHY("changed", KEDGE_UNCACHED_CHANGED, NULL),
	WHY("unsure", KEDGE_UNCACHED_UNSURE, NULL),
	WHY("other", KEDGE_UNCACHED_OTHER, NULL),
	KIND("unmap", KEDGE_EVENT_UNMAP, "Registrations that lost pages to a change of memory"),
	KIND("remove", KEDGE_EVENT_REMOVE, NULL),
	KIND("remap", KEDGE_EVENT_REMAP, NULL),
	KIND("other", KEDGE_EVENT_OTHER, NULL),
	TOTAL("merges", merges, "Registrations that replaced their neighbours"),
	TOTAL("evictions", evictions, "Registrations dropped for a limit"),
	TOTAL("mem_regs", registrations, "Registrations that the device made"),
	TOTAL("mem_deregs", deregistrations, "Registrations that the device ended"),
	{ "cache_mem_reg_seconds", NULL, "Time in the device's registrations", STATS_SECONDS,
	  AT(register_ns) },
	TOTAL("catch_ups", resyncs, "Times a get found that the generation had moved"),
	TOTAL("resynced", resynced, "Registrations made good ahead of use"),
	TOTAL("replaced", replaced, "Those of them that kept their handle"),
	TOTAL("remote_ended", lent, "Registrations and windows with remote access that ended "
				    "with their put"),
	TOTAL("vouched", vouched, "Registrations that were kept on the program's word alone"),
	TOTAL("overputs", overputs, "Puts of registrations that their callers did not hold"),
	TOTAL("mem_dereg_failures", dereg_failures, "Registrations that the device failed to end"),
	NOW("stuck", stuck, "Registrations now that the device has failed to end"),
	NOW("freed_bytes", freed_bytes, "Bytes registered now of memory that was freed"),
	NOW("regions", regions, "Registrations now"),
	NOW("bytes", bytes, "Bytes registered now"),
	NOW("bytes_peak", bytes_peak, "The most bytes that were registered"),
};

static void read_counters(const void *of, uint64_t *values, char *labels)
{
	/* It takes the lock, so it changes that alone. */
	struct kedge_cache *c = (struct kedge_cache *)(uintptr_t)of;
	struct kedge_cache_stats st = { .size = sizeof(st) };

	if (kedge_cache_stats(c, &st))
		return;
	stats_label(labels, "device", kedge_device_name(c->dev));
	stats_values(metrics, ARRAY_SIZE(metrics), &st, values);
}

const struct stats_kind cache_counters = { "cache", metrics, ARRAY_SIZE(metrics),
					   read_counters };
