// SPDX-License-Identifier: BSD-2-Clause
/*
 * Preloaded into kedge perf, to see that --check sees: of the messages that a
 * channel has received, some have a wrong byte, and some are a byte short.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <kedge/channel.h>

#define EVERY 7
/* Of the messages that are measured. */
#define TAG 1

/* Where the receives under way land, by what the caller calls them. */
#define SLOTS 4096
static struct {
	uint64_t user;
	unsigned char *buf;
} under_way[SLOTS];
static unsigned int cnt;

static void *next(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

KEDGE_API int kedge_channel_recv(struct kedge_channel *channel, void *buf,
				 size_t len, uint64_t tag, uint64_t mask,
				 uint64_t user, uint64_t *op)
{
	int (*real)(struct kedge_channel *, void *, size_t, uint64_t, uint64_t,
		    uint64_t, uint64_t *);
	void *p = next("kedge_channel_recv");
	int i;

	memcpy(&real, &p, sizeof(p));
	for (i = 0; i < SLOTS; i++)
		if (!under_way[i].buf)
			break;
	if (i < SLOTS) {
		under_way[i].user = user;
		under_way[i].buf = buf;
	}
	return real(channel, buf, len, tag, mask, user, op);
}

static void spoil(struct kedge_completion *c)
{
	int i;

	for (i = 0; i < SLOTS; i++)
		if (under_way[i].buf && under_way[i].user == c->user)
			break;
	if (i == SLOTS)
		return;
	/* Not what the two ends tell each other, nor the end of a stream. */
	if (c->tag == TAG && c->len > 1 && ++cnt % EVERY == 0) {
		if (cnt / EVERY % 2)
			under_way[i].buf[c->len / 2] ^= 1;
		else
			c->len--;
	}
	under_way[i].buf = NULL;
}

KEDGE_API ssize_t kedge_channel_poll(struct kedge_channel *channel,
				     struct kedge_completion *out, size_t n)
{
	ssize_t (*real)(struct kedge_channel *, struct kedge_completion *,
			size_t);
	void *p = next("kedge_channel_poll");
	ssize_t got, i;

	memcpy(&real, &p, sizeof(p));
	got = real(channel, out, n);
	for (i = 0; i < got; i++)
		if (out[i].flags & KEDGE_COMPLETION_RECV)
			spoil(&out[i]);
	return got;
}
