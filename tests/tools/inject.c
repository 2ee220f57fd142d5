// SPDX-License-Identifier: BSD-2-Clause
/*
 * Preloaded into kedge torture --channel, to see that it sees: INJECT names what
 * this library does wrong with what the channel has done right.
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kedge/channel.h>

#define EVERY 50
#define TIMES 8
#define KEPT  64

typedef int (*recv_fn)(struct kedge_channel *, void *, size_t, uint64_t,
		       uint64_t, uint64_t, uint64_t *);
typedef ssize_t (*poll_fn)(struct kedge_channel *, struct kedge_completion *,
			   size_t);

/* Receives under way, by what the caller calls them. */
static struct kept {
	unsigned char *buf;
	size_t len;
	uint64_t mask;
} kept[KEPT];

static bool is(const char *what)
{
	const char *fault = getenv("INJECT");

	return fault && !strcmp(fault, what);
}

static bool now_and_then(unsigned int *cnt)
{
	return ++*cnt % EVERY == 0 && *cnt <= EVERY * TIMES;
}

static void *next(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

KEDGE_API int kedge_channel_recv(struct kedge_channel *channel, void *buf,
				 size_t len, uint64_t tag, uint64_t mask,
				 uint64_t user, uint64_t *op)
{
	void *p = next("kedge_channel_recv");
	recv_fn real;

	memcpy(&real, &p, sizeof(p));
	if (user < KEPT)
		kept[user] = (struct kept){ buf, len, mask };
	return real(channel, buf, len, tag, mask, user, op);
}

static bool is_whole(const struct kedge_completion *c)
{
	return c->flags & KEDGE_COMPLETION_RECV && !c->status &&
	       c->user < KEPT && c->len;
}

static void inject_bytes(struct kedge_completion *c)
{
	struct kept *k = &kept[c->user];

	if (is("flip"))
		k->buf[c->len / 2] ^= 1;
	else if (is("short"))
		c->len--;
	else if (is("before"))
		k->buf[-1] ^= 1;
	else if (is("tag"))
		c->tag ^= (uint64_t)1 << 56;
	/* A store behind the end of the mapping is seen without us. */
	else if (is("behind") && k->len <= 4096)
		k->buf[k->len] ^= 1;
}

/* Two messages that any receive takes change places. */
static void overtake(struct kedge_completion *x, struct kedge_completion *y)
{
	struct kept *a = &kept[x->user], *b = &kept[y->user];
	unsigned char tmp[4096];
	uint64_t tag = x->tag, len = x->len;

	if (a->mask || b->mask || x->len > b->len || y->len > a->len ||
	    x->len > sizeof(tmp))
		return;
	memcpy(tmp, a->buf, x->len);
	memcpy(a->buf, b->buf, y->len);
	memcpy(b->buf, tmp, x->len);
	x->tag = y->tag;
	x->len = y->len;
	y->tag = tag;
	y->len = len;
}

static ssize_t inject(struct kedge_completion *c, ssize_t n)
{
	static unsigned int bytes, losses, ends;
	ssize_t i;

	for (i = 0; i < n; i++) {
		if (is_whole(&c[i]) && now_and_then(&bytes))
			inject_bytes(&c[i]);
		if (is("overtake") && i && is_whole(&c[i]) &&
		    is_whole(&c[i - 1]))
			overtake(&c[i - 1], &c[i]);
		if (is("fail") && !(c[i].flags & KEDGE_COMPLETION_RECV) &&
		    !c[i].status)
			c[i].status = -ECANCELED;
	}
	if (n > 0 && is_whole(&c[n - 1]) && is("lose") &&
	    now_and_then(&losses))
		return n - 1;
	if (n > 0 && is("end") && now_and_then(&ends))
		return -ECONNRESET;
	return n;
}

KEDGE_API ssize_t kedge_channel_poll(struct kedge_channel *channel,
				     struct kedge_completion *out, size_t n)
{
	static unsigned int leaks, crashes, repeats;
	void *p = next("kedge_channel_poll");
	poll_fn real;
	ssize_t got;

	memcpy(&real, &p, sizeof(p));
	got = real(channel, out, n);
	if (is("child") && got == -ECHILD)
		return 0;
	if (is("leak") && got > 0 && now_and_then(&leaks) && dup(0) < 0)
		abort();
	if (is("crash") && got > 0 && now_and_then(&crashes))
		raise(SIGKILL); /* others are caught by some libraries */
	got = inject(out, got);
	if (is("twice") && got > 0 && (size_t)got < n &&
	    is_whole(&out[got - 1]) && now_and_then(&repeats)) {
		out[got] = out[got - 1];
		got++;
	}
	return got;
}
