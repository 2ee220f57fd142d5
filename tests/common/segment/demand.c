// SPDX-License-Identifier: BSD-2-Clause
#include "demand.h"

const struct kedge_segment_opts later = { .size = sizeof(later),
					  .backend = KEDGE_SEGMENT_CONVERT,
					  .flags = KEDGE_SEGMENT_ON_ATTACH };
const struct kedge_segment_opts whole = { .size = sizeof(whole),
					  .backend = KEDGE_SEGMENT_CONVERT,
					  .flags = KEDGE_SEGMENT_WHOLE };

void begin(void *at, size_t len, const struct kedge_segment_opts *o)
{
	need_stopping();
	peer_start(&peer, 0);
	make(at, len, o);
	assert_int_equal(peer_get(&peer, &id, RW), 0);
}

void attach_in_time(uint64_t at, size_t len)
{
	int rc, try;

	for (try = 0; try < 100; try++) {
		rc = peer_attach(&peer, at, len);
		if (rc != -EBUSY && rc != -ESTALE)
			break;
	}
	assert_int_equal(rc, 0);
}
