// SPDX-License-Identifier: BSD-2-Clause
/*
 * KEDGE_VERIFY=1: each get gives a copy of the registration of its own, a ticket. So a second put
 * of one get is known when it is called, and its caller, and it ends no reference. A ticket
 * that was put is given again only after TICKETS_KEPT others have been put.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "cache/internal.h"

#define TICKETS_KEPT 4096u
#define SITE_MAX     160

struct ticket {
	struct kedge_mr mr; /* the caller has this */
	struct region *region;
	const void *got; /* return addresses */
	const void *put; /* NULL while it is held */
	struct ticket *next_put;
	struct ticket *next;
};

struct tickets {
	pthread_mutex_t lock;
	struct ticket *all;
	struct ticket *put_first; /* the longest ago */
	struct ticket *put_last;
	uint32_t put_cnt;
	bool told;
};

int tickets_open(struct kedge_cache *c)
{
	struct tickets *t = calloc(1, sizeof(*t));
	int rc = t ? -pthread_mutex_init(&t->lock, NULL) : -ENOMEM;

	if (rc) {
		free(t);
		return rc;
	}
	c->tickets = t;
	add_mode(c, MODE_TICKETS);
	return 0;
}

void tickets_close(struct kedge_cache *c)
{
	struct tickets *t = c->tickets;
	struct ticket *k, *next;

	if (!t)
		return;
	for (k = t->all; k; k = next) {
		next = k->next;
		free(k);
	}
	pthread_mutex_destroy(&t->lock);
	free(t);
}

/* With the tickets' lock held. */
static struct ticket *ticket_new(struct tickets *t)
{
	struct ticket *k = t->put_first;

	if (t->put_cnt > TICKETS_KEPT) {
		t->put_first = k->next_put;
		t->put_cnt--;
		return k;
	}
	k = calloc(1, sizeof(*k));
	if (k) {
		k->next = t->all;
		t->all = k;
	}
	return k;
}

int ticket_give(struct kedge_cache *c, struct region *r, const void *site,
		const struct kedge_mr **mr)
{
	struct ticket *k;

	pthread_mutex_lock(&c->tickets->lock);
	k = ticket_new(c->tickets);
	if (k) {
		k->mr = r->mr;
		k->region = r;
		k->got = site;
		k->put = NULL;
	}
	pthread_mutex_unlock(&c->tickets->lock);
	if (!k)
		return -ENOMEM;
	*mr = &k->mr;
	return 0;
}

/* "FILE(FUNCTION+0x10) [0x1234]", as backtrace_symbols(3) has it. */
static void site_text(const void *site, char *buf, size_t size)
{
	uintptr_t at = (uintptr_t)site;
	Dl_info in;

	if (!dladdr(site, &in) || !in.dli_fname)
		snprintf(buf, size, "0x%llx", (unsigned long long)at);
	else if (in.dli_sname)
		snprintf(buf, size, "%s(%s+0x%llx) [0x%llx]", in.dli_fname, in.dli_sname,
			 (unsigned long long)(at - (uintptr_t)in.dli_saddr),
			 (unsigned long long)(at - (uintptr_t)in.dli_fbase));
	else
		snprintf(buf, size, "%s(+0x%llx)", in.dli_fname,
			 (unsigned long long)(at - (uintptr_t)in.dli_fbase));
}

static void tell(const struct ticket *k, const void *site)
{
	char got[SITE_MAX], put[SITE_MAX], again[SITE_MAX];

	site_text(k->got, got, sizeof(got));
	site_text(k->put, put, sizeof(put));
	site_text(site, again, sizeof(again));
	kedge__log(KEDGE_LOG_ERROR,
		   "KEDGE_VERIFY: the registration of 0x%llx + %llu was got at %s, put at %s and "
		   "put again at %s. The second put counts for nothing here; without KEDGE_VERIFY "
		   "it ends what another holder relies on",
		   (unsigned long long)k->mr.addr, (unsigned long long)k->mr.len, got, put,
		   again);
}

static void put_behind(struct tickets *t, struct ticket *k)
{
	k->next_put = NULL;
	if (t->put_cnt++)
		t->put_last->next_put = k;
	else
		t->put_first = k;
	t->put_last = k;
}

struct region *ticket_take(struct kedge_cache *c, const struct kedge_mr *mr,
			   const void *site)
{
	struct tickets *t = c->tickets;
	struct ticket *k = container_of(mr, struct ticket, mr), was;
	bool first = false;

	if (!nf_owned(c->nf))
		return NULL; /* a forked child: the device is the parent's */
	pthread_mutex_lock(&t->lock);
	was = *k;
	if (!was.put) {
		k->put = site;
		put_behind(t, k);
	} else {
		first = !t->told;
		t->told = true;
	}
	pthread_mutex_unlock(&t->lock);
	if (!was.put)
		return was.region;
	overput_count(c);
	if (first)
		tell(&was, site);
	return NULL;
}

void ticket_holder(struct kedge_cache *c, uint32_t id, char *buf, size_t size)
{
	const struct ticket *k = c->tickets ? c->tickets->all : NULL;
	char site[SITE_MAX];

	buf[0] = '\0';
	while (k && (k->put || k->mr.reserved != id))
		k = k->next;
	if (!k)
		return;
	site_text(k->got, site, sizeof(site));
	snprintf(buf, size, ", which was got at %s", site);
}
