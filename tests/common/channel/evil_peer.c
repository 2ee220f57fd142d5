// SPDX-License-Identifier: BSD-2-Clause
/* See evil_peer.h. */
#include "core.h"

#include "channel/connect/wait.h"
#include "channel/internal.h"
#include "evil_peer.h"

struct shm evil;

void evil_shakes_hands(int sock, uint32_t flags)
{
	struct kedge_channel_opts o;
	struct transport_peer peer;

	CHILD_CHECK(!kedge__channel_opts(&o, NULL));
	o.flags = flags;
	CHILD_CHECK(!shm_hello(&evil, sock, &o, clock_deadline(10000), &peer));
}

void evil_sends(uint8_t type, const void *body, size_t len)
{
	struct packet_head h = { .type = type, .len = (uint32_t)len };
	char *p = ring_reserve(&evil, sizeof(h) + len);

	CHILD_CHECK(p);
	memcpy(p, &h, sizeof(h));
	memcpy(p + sizeof(h), body, len);
	ring_commit(&evil, p, sizeof(h) + len);
}

void evil_announces(const void *at, size_t len)
{
	struct rts_desc d = { .addr = (uintptr_t)at, .heap_off = NO_PAGES };
	struct packet_rts p = { .len = len, .sender = { 1, 1 }, .desc_len = RTS_PLAIN };

	memcpy(p.desc, &d, RTS_PLAIN);
	evil_sends(PACKET_RTS, &p, offsetof(struct packet_rts, desc) + RTS_PLAIN);
}

void evil_asks_for_it(void *at, size_t len)
{
	const size_t desc_len = offsetof(struct cts_desc, piece[1]);
	struct cts_desc d = { .mode = MODE_MEMORY, .push = PUSH_MEMORY, .piece_cnt = 1,
			      .chunk = CHUNK_MEMORY, .piece = { { (uintptr_t)at, len } } };
	struct packet_cts p = { .way = KEDGE_WAY_SWAP, .desc_len = (uint32_t)desc_len,
				.receiver = { 1, 1 } };
	struct packet_rts rts;
	const void *raw;
	size_t raw_len;

	while (!(raw = ring_next(&evil, &raw_len)))
		usleep(1000);
	memcpy(&rts, (const struct packet_head *)raw + 1, offsetof(struct packet_rts, desc));
	ring_release(&evil, raw);
	p.sender = rts.sender;
	memcpy(p.desc, &d, desc_len);
	evil_sends(PACKET_CTS, &p, offsetof(struct packet_cts, desc) + desc_len);
}
