// SPDX-License-Identifier: BSD-2-Clause
/* Tags, sockets and addresses for both ends of a stream; stream.h has the messages. */
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include <sodium.h>

#include "base/base.h"
#include "region/stream.h"

#define PROBES	   4

uint32_t stream_host_ms = 10000;

_Static_assert(KEY_LEN >= crypto_generichash_KEYBYTES_MIN, "a handle's key is one of BLAKE2b");

static void begin(crypto_generichash_state *s, const unsigned char *key, const char *whose,
		  const struct stream_hello *h, const struct stream_ask *q)
{
	crypto_generichash_init(s, key, KEY_LEN, TAG_LEN);
	crypto_generichash_update(s, (const unsigned char *)whose, strlen(whose));
	crypto_generichash_update(s, (const unsigned char *)h, sizeof(*h));
	crypto_generichash_update(s, (const unsigned char *)q, offsetof(struct stream_ask, tag));
}

void stream_ask_tag(const unsigned char key[KEY_LEN], const struct stream_hello *h,
		    const struct stream_ask *q, unsigned char tag[TAG_LEN])
{
	crypto_generichash_state s;

	begin(&s, key, "kedge: a peer", h, q);
	crypto_generichash_final(&s, tag, TAG_LEN);
}

void stream_welcome_tag(const unsigned char key[KEY_LEN], const struct stream_hello *h,
			const struct stream_ask *q, const struct stream_welcome *w,
			unsigned char tag[TAG_LEN])
{
	crypto_generichash_state s;

	begin(&s, key, "kedge: an owner", h, q);
	crypto_generichash_update(&s, (const unsigned char *)w,
				  offsetof(struct stream_welcome, tag));
	crypto_generichash_final(&s, tag, TAG_LEN);
}

void stream_seal(const unsigned char key[KEY_LEN], const struct stream_hello *h,
		 const struct stream_ask *q, unsigned char seal[TAG_LEN])
{
	crypto_generichash_state s;

	begin(&s, key, "kedge: a seal", h, q);
	crypto_generichash_final(&s, seal, TAG_LEN);
}

/* A local socket refuses these. */
void stream_prepare(int fd)
{
	const int one = 1, idle = (int)stream_host_ms / 2000, every = 1, cnt = PROBES;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof(every));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &cnt, sizeof(cnt));
}

/* The kernel does not probe a connection with bytes under way, but sends them again for a quarter
 * of an hour. One that is not made yet has had no acknowledgement: the kernel ends it. */
bool stream_host_is_gone(int fd)
{
	struct tcp_info i = { 0 };
	socklen_t len = sizeof(i);

	return !getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &len) &&
	       i.tcpi_state != TCP_SYN_SENT && i.tcpi_last_ack_recv >= stream_host_ms &&
	       ((i.tcpi_unacked && i.tcpi_retransmits) || i.tcpi_probes > 1);
}

/* IPv4 as itself: a host may have no IPv6. */
socklen_t place_address(const unsigned char place[16], uint16_t port, union place *a)
{
	memset(a, 0, sizeof(*a));
	a->v6.sin6_family = AF_INET6;
	a->v6.sin6_port = htons(port);
	memcpy(&a->v6.sin6_addr, place, sizeof(a->v6.sin6_addr));
	if (!IN6_IS_ADDR_V4MAPPED(&a->v6.sin6_addr))
		return sizeof(a->v6);
	memset(a, 0, sizeof(*a));
	a->v4.sin_family = AF_INET;
	a->v4.sin_port = htons(port);
	memcpy(&a->v4.sin_addr, place + 12, sizeof(a->v4.sin_addr));
	return sizeof(a->v4);
}

void stream_place(const union place *a, unsigned char place[16])
{
	if (a->any.sa_family == AF_INET6) {
		memcpy(place, &a->v6.sin6_addr, 16);
		return;
	}
	memset(place, 0, 16);
	place[10] = place[11] = 0xff;
	memcpy(place + 12, &a->v4.sin_addr, sizeof(a->v4.sin_addr));
}
