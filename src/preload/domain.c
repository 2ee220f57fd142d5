// SPDX-License-Identifier: BSD-2-Clause
/*
 * A cache for each protection domain and ordering, made when the first region
 * is registered there and ended with the domain, which could not be deallocated
 * while it has regions. Where a program ends a domain or its device with regions
 * in use, no other domain that comes to the same address finds the cache.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "cache/priv.h"
#include "device/verbs/internal.h"
#include "preload/preload.h"

struct domain {
	struct domain *next;
	struct ibv_pd *pd; /* NULL: gone, but for regions in use */
	struct ibv_context *context;
	bool relaxed;
	bool closed; /* with its device, which may not be touched again */
	struct kedge_device *dev;
	struct kedge_cache *cache; /* NULL: it cannot be had */
	uint64_t shadows;
};

__thread bool inside;

/* Guards what follows. The caches are used without it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct domain *domains;
static pid_t any; /* of this process was ever made: one that has no use for us is quiet */
/* All domains': the kernel lets one watch a mapping. Never closed. */
static struct kedge_notifier *nf;

static bool env_is(const char *name, const char *value)
{
	const char *v = secure_getenv(name);

	return v && !strcmp(v, value);
}

/*
 * ibv_fork_init() keeps registered pages from forked children. A program knows
 * which those are; it does not know what a cache keeps.
 */
static bool forks_see_registrations(void)
{
	return ibv_is_fork_initialized() == IBV_FORK_ENABLED;
}

/* In a forked child there is the parent's, which its domains go on naming. */
static int need_notifier(void)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };

	if (nf && kedge_notifier_info(nf, &info) != -ECHILD)
		return 0;
	return kedge_notifier_open(NULL, &nf);
}

void domains_used(void)
{
	pthread_mutex_lock(&lock);
	any = getpid();
	pthread_mutex_unlock(&lock);
}

struct kedge_notifier *domains_notifier(void)
{
	static pid_t without;
	struct kedge_notifier *it = NULL;
	const pid_t me = getpid();

	pthread_mutex_lock(&lock);
	if (without != me) {
		any = me;
		if (need_notifier())
			without = me;
		else
			it = nf;
	}
	pthread_mutex_unlock(&lock);
	return it;
}

static int open_cache(struct domain *d)
{
	struct kedge_verbs_opts vo = { .size = sizeof(vo) };
	struct kedge_cache_opts co = { .size = sizeof(co) };
	int rc;

	if (forks_see_registrations())
		return kedge_reason(-EOPNOTSUPP,
				    "the program has called ibv_fork_init(), "
				    "which on this kernel ties registrations "
				    "to what a child inherits");
	if (d->relaxed)
		vo.flags = KEDGE_VERBS_RELAXED_ORDERING;
	if (env_is("KEDGE_PEERS", "trusted"))
		co.flags = KEDGE_CACHE_TRUSTED_PEERS;
	rc = need_notifier();
	if (!rc)
		rc = kedge_device_open_verbs(d->pd, &vo, &d->dev);
	if (rc)
		return rc;
	rc = kedge_cache_open(d->dev, nf, &co, &d->cache);
	if (rc) {
		kedge_device_close(d->dev);
		d->dev = NULL;
	}
	return rc;
}

static struct domain *new_domain(struct ibv_pd *pd, bool relaxed)
{
	struct domain *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return NULL;
	any = getpid();
	d->pd = pd;
	d->context = pd->context;
	d->relaxed = relaxed;
	rc = open_cache(d);
	if (rc)
		kedge__log(KEDGE_LOG_WARN,
			   "no registration cache on %s: %s. Regions are "
			   "registered as without kedge",
			   ibv_get_device_name(pd->context->device),
			   kedge_strerror(rc));
	d->next = domains;
	domains = d;
	return d;
}

/* The domain of a registration, which keeps it from ending. */
static struct domain *domain_use(struct ibv_pd *pd, bool relaxed)
{
	struct domain *d;

	pthread_mutex_lock(&lock);
	for (d = domains; d; d = d->next)
		if (d->pd == pd && d->relaxed == relaxed)
			break;
	if (!d)
		d = new_domain(pd, relaxed);
	if (d)
		d->shadows++;
	pthread_mutex_unlock(&lock);
	return d;
}

/* The counters of all caches that ended. */
static struct kedge_cache_stats total;

static void add_stats(struct kedge_cache *cache)
{
	struct kedge_cache_stats st = { .size = sizeof(st) };

	if (kedge_cache_stats(cache, &st))
		return;
	total.hits += st.hits;
	total.misses += st.misses;
	total.uncached += st.uncached;
	total.lent += st.lent;
	total.registrations += st.registrations;
	total.invalidations += st.invalidations;
	total.failures += st.failures;
}

static void free_domain(struct domain *d)
{
	if (d->cache)
		add_stats(d->cache);
	kedge_cache_close(d->cache);
	kedge_device_close(d->dev);
	free(d);
}

static void unlink_domain(const struct domain *gone)
{
	struct domain **link = &domains;

	while (*link != gone)
		link = &(*link)->next;
	*link = gone->next;
}

static void domain_unuse(struct domain *d)
{
	pthread_mutex_lock(&lock);
	d->shadows--;
	if (!d->shadows && !d->pd && !d->closed) {
		unlink_domain(d);
		free_domain(d);
	}
	pthread_mutex_unlock(&lock);
}

static uint32_t kedge_access(unsigned int access)
{
	uint32_t a = 0;

	if (access & IBV_ACCESS_LOCAL_WRITE)
		a |= KEDGE_ACCESS_LOCAL_WRITE;
	if (access & IBV_ACCESS_REMOTE_READ)
		a |= KEDGE_ACCESS_REMOTE_READ;
	if (access & IBV_ACCESS_REMOTE_WRITE)
		a |= KEDGE_ACCESS_REMOTE_WRITE;
	if (access & IBV_ACCESS_REMOTE_ATOMIC)
		a |= KEDGE_ACCESS_REMOTE_ATOMIC;
	return a;
}

static void show(struct shadow *s, void *addr, size_t len)
{
	const struct ibv_mr *mr = kedge__verbs_mr(
		kedge__cache_priv(s->domain->cache, s->held));

	s->mr.context = mr->context;
	s->mr.pd = mr->pd;
	s->mr.addr = addr;
	s->mr.length = len;
	s->mr.handle = mr->handle;
	s->mr.lkey = kedge_verbs_lkey(s->held);
	s->mr.rkey = kedge_verbs_rkey(s->held);
}

bool shadow_register(struct shadow *s, struct ibv_pd *pd, void *addr,
		     size_t len, unsigned int access)
{
	bool was = inside;
	int rc = -ENOMEM;

	inside = true;
	s->domain = domain_use(pd, access & IBV_ACCESS_RELAXED_ORDERING);
	if (s->domain && s->domain->cache)
		rc = kedge_cache_get(s->domain->cache, addr, len,
				     kedge_access(access), &s->held);
	if (!rc) {
		s->access = access;
		show(s, addr, len);
	} else if (s->domain) {
		domain_unuse(s->domain);
	}
	inside = was;
	return !rc;
}

void shadow_release(struct shadow *s)
{
	bool was = inside;

	inside = true;
	if (!s->domain->closed)
		kedge_cache_put(s->domain->cache, s->held);
	domain_unuse(s->domain);
	inside = was;
}

void domains_flush(void)
{
	bool was = inside;
	struct domain *d;

	inside = true;
	pthread_mutex_lock(&lock);
	for (d = domains; d; d = d->next)
		if (d->cache)
			kedge_cache_flush(d->cache);
	pthread_mutex_unlock(&lock);
	inside = was;
}

/* ---- the ends of domains and devices ---- */

/* Its last region ends it. What is merely kept would hold up another process. */
static void lose_pd(struct domain *d)
{
	if (d->cache)
		kedge_cache_flush(d->cache);
	d->pd = NULL;
}

void pd_end(const struct ibv_pd *pd, bool surely)
{
	struct domain **link = &domains, *d;
	bool was = inside;

	inside = true;
	pthread_mutex_lock(&lock);
	while ((d = *link)) {
		if (d->pd == pd && !d->shadows) {
			*link = d->next;
			free_domain(d);
			continue;
		}
		if (d->pd == pd && surely)
			lose_pd(d);
		link = &d->next;
	}
	pthread_mutex_unlock(&lock);
	inside = was;
}

/*
 * Regions that the cache merely keeps end in time. A region that the program
 * still uses ends with the device, whoever made it; should it be deregistered
 * nevertheless, the device must not be asked, so the cache can never be closed,
 * and its memory is lost as that of libibverbs' own regions is.
 */
static void leave_domain(struct domain *d)
{
	if (d->cache) {
		kedge_cache_flush(d->cache);
		add_stats(d->cache);
	}
	d->closed = true;
}

void device_end(const struct ibv_context *context)
{
	struct domain **link = &domains, *d;
	bool was = inside;

	inside = true;
	pthread_mutex_lock(&lock);
	while ((d = *link)) {
		if (d->context != context) {
			link = &d->next;
			continue;
		}
		*link = d->next;
		if (d->shadows)
			leave_domain(d);
		else
			free_domain(d);
	}
	pthread_mutex_unlock(&lock);
	inside = was;
}

bool domains_total(struct kedge_cache_stats *out)
{
	struct domain *d;

	for (d = domains; d; d = d->next)
		if (d->cache)
			add_stats(d->cache);
	*out = total;
	return any == getpid();
}
