// SPDX-License-Identifier: BSD-2-Clause
#include "shared.h"

struct peer peer;
struct kedge_segment *segment;
struct kedge_segment_id id;

void make(void *at, size_t len, const struct kedge_segment_opts *o)
{
	assert_int_equal(kedge_segment_make(at, len, o, &segment), 0);
	assert_int_equal(kedge_segment_id(segment, &id), 0);
}

void share(void *at, size_t len)
{
	need_convert();
	peer_start(&peer, 0);
	make(at, len, NULL);
	peer_has(&peer, segment, RW);
}

void remove_segment(void)
{
	kedge_segment_remove(segment);
	segment = NULL;
}

void end(void)
{
	peer_end(&peer);
	remove_segment();
}

uint64_t loaded(size_t at)
{
	uint64_t v = 0;

	assert_int_equal(peer_load(&peer, at, &v), 0);
	return v;
}

bool faults(size_t at)
{
	uint64_t v;

	return peer_load(&peer, at, &v) == -EFAULT;
}

void need_stopping(void)
{
	need_convert();
	skip_if(UNDER_TSAN, "no thread is stopped under ThreadSanitizer");
}
