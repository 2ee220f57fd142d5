// SPDX-License-Identifier: BSD-2-Clause
/* A hash table of chains, which doubles when there are as many names as chains. A chain has the
 * first handle of each name, which has the others: a domain may give all registrations one. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "handles.h"

#define FIRST 64u

static struct handle *first[FIRST];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards: */
static struct handle **chains = first;
static size_t chain_cnt = FIRST, name_cnt, handle_cnt;

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

/* The place of the first handle of that name, or of the chain's end. */
static struct handle **find(md_t md, memh_t memh)
{
	struct handle **at = &chains[place(md, memh, chain_cnt)];

	while (*at && ((*at)->md != md || (*at)->memh != memh))
		at = &(*at)->next;
	return at;
}

void handles_add(struct handle *h, md_t md, memh_t memh)
{
	struct handle **at, *one;

	h->md = md;
	h->memh = memh;
	pthread_mutex_lock(&lock);
	if (name_cnt >= chain_cnt)
		grow();
	at = find(md, memh);
	one = *at;
	if (one) {
		h->next = one->others;
		one->others = h;
	} else {
		one = *at = h;
		name_cnt++;
	}
	one->alive++;
	handle_cnt++;
	pthread_mutex_unlock(&lock);
}

/* All of a name, out of their chain. */
static struct handle *take_all(struct handle **at)
{
	struct handle *one = *at, *h;

	*at = one->next;
	one->next = one->others;
	name_cnt--;
	for (h = one; h; h = h->next)
		handle_cnt--;
	return one;
}

struct handle *handles_remove(md_t md, memh_t memh, bool *known)
{
	struct handle **at, *out = NULL;

	pthread_mutex_lock(&lock);
	at = find(md, memh);
	*known = *at;
	if (*at && !--(*at)->alive)
		out = take_all(at);
	pthread_mutex_unlock(&lock);
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
	name_cnt = handle_cnt = 0;
}

unsigned int handles_cnt(void)
{
	unsigned int cnt;

	pthread_mutex_lock(&lock);
	cnt = (unsigned int)handle_cnt;
	pthread_mutex_unlock(&lock);
	return cnt;
}
