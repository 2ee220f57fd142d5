// SPDX-License-Identifier: BSD-2-Clause
/* See hidden.h. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "begun.h"
#include "found.h"
#include "hidden.h"

#define IMPORT "ucp_import_rcache" /* and a number behind that */

struct cache {
	struct cache *next;
	uintptr_t at;
	bool hides;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards: */
static struct cache *caches;
/* Of those that are not hidden. Stored with the lock, before a lookup in that cache. */
static _Atomic unsigned int open_cnt;

/* Of a fork the lock may be in any state, until hidden_anew(), which this leads to. */
static void hold(void)
{
	struct regions *t = begun();

	if (t)
		regions_process(t);
	pthread_mutex_lock(&lock);
}

bool hidden_is_import(const char *name)
{
	return !strncmp(name, IMPORT, strlen(IMPORT));
}

static int note(uintptr_t cache, bool hides)
{
	struct cache *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->at = cache;
	c->hides = hides;
	hold();
	c->next = caches;
	caches = c;
	if (!hides)
		atomic_fetch_add(&open_cnt, 1);
	pthread_mutex_unlock(&lock);
	return 0;
}

int hidden_create(uintptr_t params, uintptr_t name, uintptr_t stats, uintptr_t cache, bool hides)
{
	int status = found()->create(params, name, stats, cache, 0, 0, 0, 0);

	if (status != UCX_OK || !note(*(uintptr_t *)cache, hides))
		return status;
	found()->destroy(*(uintptr_t *)cache, 0, 0, 0, 0, 0, 0, 0);
	return UCX_NO_MEMORY;
}

void hidden_remove(uintptr_t cache)
{
	struct cache **at = &caches, *c;

	hold();
	while (*at && (*at)->at != cache)
		at = &(*at)->next;
	c = *at;
	if (c) {
		*at = c->next;
		if (!c->hides)
			atomic_fetch_sub(&open_cnt, 1);
	}
	pthread_mutex_unlock(&lock);
	free(c);
}

/* A table lies within its cache: in the one that begins last before it. */
static bool is_hidden(uintptr_t table)
{
	const struct cache *c, *in = NULL;
	bool hides;

	hold();
	for (c = caches; c; c = c->next)
		if (c->at <= table && (!in || c->at > in->at))
			in = c;
	hides = !in || in->hides;
	pthread_mutex_unlock(&lock);
	return hides;
}

bool hidden_is_asked(uintptr_t cache)
{
	const struct cache *c;

	if (found()->ucp_asks)
		return true;
	hold();
	for (c = caches; c && (c->at != cache || !c->hides); c = c->next)
		;
	pthread_mutex_unlock(&lock);
	return !c;
}

bool hidden_from(const void *table, const void *caller)
{
	const struct found *f;

	if (!begun())
		return false;
	f = found();
	if ((uintptr_t)caller < f->ucp_start || (uintptr_t)caller >= f->ucp_end)
		return false;
	if (atomic_load_explicit(&open_cnt, memory_order_relaxed) && !is_hidden((uintptr_t)table))
		return false;
	return true;
}

void hidden_anew(void)
{
	pthread_mutex_init(&lock, NULL);
}
