/* SPDX-License-Identifier: BSD-2-Clause */
/* The common ground of tests of memory that is converted as it is attached. */
#ifndef TESTS_SEGMENT_DEMAND_H
#define TESTS_SEGMENT_DEMAND_H

#include "peer.h"

#define RW  (KEDGE_SEGMENT_READ | KEDGE_SEGMENT_WRITE)
#define R   KEDGE_SEGMENT_READ
#define LEN ((size_t)1 << 20)

static const struct kedge_segment_opts later = { .size = sizeof(later),
						 .backend = KEDGE_SEGMENT_CONVERT,
						 .flags = KEDGE_SEGMENT_ON_ATTACH };
static const struct kedge_segment_opts whole = { .size = sizeof(whole),
						 .backend = KEDGE_SEGMENT_CONVERT,
						 .flags = KEDGE_SEGMENT_WHOLE };

static struct peer peer;
static struct kedge_segment *segment;
static struct kedge_segment_id id;

static inline void make(void *at, size_t len, const struct kedge_segment_opts *o)
{
	assert_int_equal(kedge_segment_make(at, len, o, &segment), 0);
	assert_int_equal(kedge_segment_id(segment, &id), 0);
}

static inline void begin(void *at, size_t len, const struct kedge_segment_opts *o)
{
	need_convert();
	skip_if(UNDER_TSAN, "no thread is stopped under ThreadSanitizer");
	peer_start(&peer, 0);
	make(at, len, o);
	assert_int_equal(peer_get(&peer, &id, RW), 0);
}

static inline void end(void)
{
	peer_end(&peer);
	kedge_segment_remove(segment);
}

/* Threads of a busy machine's may be stopped too late, or change the memory around. */
static inline void attach_in_time(uint64_t at, size_t len)
{
	int rc, try;

	for (try = 0; try < 100; try++) {
		rc = peer_attach(&peer, at, len);
		if (rc != -EBUSY && rc != -ESTALE)
			break;
	}
	assert_int_equal(rc, 0);
}

static inline uint64_t loaded(size_t at)
{
	uint64_t v = 0;

	assert_int_equal(peer_load(&peer, at, &v), 0);
	return v;
}

#endif /* TESTS_SEGMENT_DEMAND_H */
