// SPDX-License-Identifier: BSD-2-Clause
/* A hash table of chains, which doubles when there are as many handles as chains. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "handles.h"

#define FIRST 64u

static struct handle *first[FIRST];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards: */
static struct handle **chains = first;
static size_t chain_cnt = FIRST, handle_cnt;

static size_t place(md_t md, memh_t memh, size_t cnt)
{
	uint64_t x = (uintptr_t)md * 31 + (uintptr_t)memh;

	/* The product's upper bits depend on all of x. */
	return (x * UINT64_C(0x9e3779b97f4a7c15)) >> 32 & (cnt - 1);
}

/* Without memory the chains get longer, and that is all. */
static void grow(void)
{
	const size_t cnt = chain_cnt * 2;
	struct handle **to = calloc(cnt, sizeof(struct handle *)), *h, *next;
	size_t i, at;

	if (!to)
		return;
	for (i = 0; i < chain_cnt; i++) {
		for (h = chains[i]; h; h = next) {
			next = h->next;
			at = place(h->md, h->memh, cnt);
			h->next = to[at];
			to[at] = h;
		}
	}
	if (chains != first)
		free(chains);
	chains = to;
	chain_cnt = cnt;
}

struct handle *handle_new(void)
{
	return calloc(1, sizeof(struct handle));
}

void handles_add(struct handle *h, md_t md, memh_t memh)
{
	struct handle **at;

	h->md = md;
	h->memh = memh;
	pthread_mutex_lock(&lock);
	if (handle_cnt >= chain_cnt)
		grow();
	at = &chains[place(md, memh, chain_cnt)];
	h->next = *at;
	*at = h;
	handle_cnt++;
	pthread_mutex_unlock(&lock);
}

/* All of that name, out of their chain. */
static struct handle *take_all(struct handle **at, md_t md, memh_t memh)
{
	struct handle *h, *out = NULL;

	while ((h = *at)) {
		if (h->md != md || h->memh != memh) {
			at = &h->next;
			continue;
		}
		*at = h->next;
		h->next = out;
		out = h;
		handle_cnt--;
	}
	return out;
}

struct handle *handles_remove(md_t md, memh_t memh, bool *known)
{
	struct handle **at, *h, *last = NULL, *out = NULL;
	size_t alive = 0;

	pthread_mutex_lock(&lock);
	at = &chains[place(md, memh, chain_cnt)];
	for (h = *at; h; h = h->next) {
		if (h->md == md && h->memh == memh && !h->ended) {
			alive++;
			last = h;
		}
	}
	if (alive == 1)
		out = take_all(at, md, memh);
	else if (last)
		last->ended = true;
	pthread_mutex_unlock(&lock);
	*known = alive;
	return out;
}

void handles_anew(void)
{
	size_t i;

	/* The parent's are left where they are: a thread of it may have been at them. */
	pthread_mutex_init(&lock, NULL);
	for (i = 0; i < FIRST; i++)
		first[i] = NULL;
	chains = first;
	chain_cnt = FIRST;
	handle_cnt = 0;
}

unsigned int handles_cnt(void)
{
	unsigned int cnt;

	pthread_mutex_lock(&lock);
	cnt = (unsigned int)handle_cnt;
	pthread_mutex_unlock(&lock);
	return cnt;
}
