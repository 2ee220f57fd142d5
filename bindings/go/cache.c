// SPDX-License-Identifier: BSD-2-Clause
/* The registration cache. A registration is a use of it, from its get to its put. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "shim.h"

struct go_cache_opened go_cache_open(struct kedge_device *dev, struct kedge_notifier *nf,
				     struct kedge_cache_opts opts)
{
	struct go_cache_opened o = { .c = aligned_alloc(64, (sizeof(*o.c) + 63) & ~63ul) };

	if (!o.c) {
		o.rc = -ENOMEM;
		return o;
	}
	memset(o.c, 0, sizeof(*o.c));
	opts.size = sizeof(opts);
	o.rc = kedge_cache_open(dev, nf, &opts, &o.c->c);
	if (o.rc) {
		o.why = strdup(kedge_strerror(o.rc));
		free(o.c);
		o.c = NULL;
	}
	return o;
}

int go_cache_close(struct go_cache *c)
{
	int rc = go_use_close(GO_USES(c));

	if (!rc)
		kedge_cache_close(c->c);
	return rc;
}

void go_cache_free(struct go_cache *c)
{
	free(c);
}

struct go_got go_cache_get(uintptr_t cache, const unsigned char *addr, size_t len,
			   uint32_t access)
{
	struct go_cache *c = (struct go_cache *)cache;
	struct go_got g = { .rc = go_use_begin(GO_USES(c)) };

	if (g.rc)
		return g;
	g.rc = kedge_cache_get(c->c, addr, len, access, &g.mr);
	if (g.rc) {
		g.why = strdup(kedge_strerror(g.rc));
		go_use_end(&c->uses);
	}
	return g;
}

int go_cache_hit(struct go_hit *hit)
{
	struct go_cache *c = (struct go_cache *)hit->cache;
	int rc = go_use_begin(GO_USES(c));

	if (rc)
		return rc;
	rc = kedge_cache_tryget(c->c, (void *)hit->addr, hit->len, hit->access, &hit->mr);
	if (rc)
		go_use_end(&c->uses);
	return rc;
}

int go_cache_tryput(struct go_hit *hit)
{
	struct go_cache *c = (struct go_cache *)hit->cache;
	int rc = kedge_cache_tryput(c->c, hit->mr);

	if (!rc)
		go_use_end(&c->uses);
	return rc;
}

void go_cache_put(uintptr_t cache, const struct kedge_mr *mr)
{
	struct go_cache *c = (struct go_cache *)cache;

	kedge_cache_put(c->c, mr);
	go_use_end(&c->uses);
}

/* Each piece is a use of its own, as each is put by itself. */
struct go_rc go_cache_getv(struct go_cache *c, const unsigned char *addr, size_t len,
			   uint32_t access, struct kedge_piece *pieces, size_t max)
{
	struct go_rc a;

	if (go_use_begin(GO_USES(c)))
		return (struct go_rc){ .rc = GO_CLOSED };
	a = go_answer(kedge_cache_getv(c->c, addr, len, access, pieces, max));
	/* This call was one; its piece goes on with that. */
	if (a.rc > 0)
		go_use_more(&c->uses, a.rc - 1);
	else
		go_use_end(&c->uses);
	return a;
}

struct go_rc go_cache_hint(struct go_cache *c, const unsigned char *addr, size_t len,
			   uint32_t access)
{
	struct go_rc a;

	if (go_use_begin(GO_USES(c)))
		return (struct go_rc){ .rc = GO_CLOSED };
	a = go_answer(kedge_cache_hint(c->c, addr, len, access));
	go_use_end(&c->uses);
	return a;
}

static struct go_rc promise(struct go_cache *c, const unsigned char *addr, size_t len,
			    int (*call)(struct kedge_cache *, const void *, size_t))
{
	struct go_rc a;

	if (go_use_begin(GO_USES(c)))
		return (struct go_rc){ .rc = GO_CLOSED };
	a = go_answer(call(c->c, addr, len));
	go_use_end(&c->uses);
	return a;
}

struct go_rc go_cache_vouch(struct go_cache *c, const unsigned char *addr, size_t len)
{
	return promise(c, addr, len, kedge_cache_vouch);
}

struct go_rc go_cache_unvouch(struct go_cache *c, const unsigned char *addr, size_t len)
{
	return promise(c, addr, len, kedge_cache_unvouch);
}

struct go_rc go_cache_resync(struct go_cache *c)
{
	struct go_rc a;

	if (go_use_begin(GO_USES(c)))
		return (struct go_rc){ .rc = GO_CLOSED };
	a = go_answer(kedge_cache_resync(c->c, NULL, 0));
	go_use_end(&c->uses);
	return a;
}

struct go_rc go_cache_flush(struct go_cache *c)
{
	struct go_rc a;

	if (go_use_begin(GO_USES(c)))
		return (struct go_rc){ .rc = GO_CLOSED };
	a = go_answer(kedge_cache_flush(c->c));
	go_use_end(&c->uses);
	return a;
}

struct go_rc go_cache_stats(struct go_cache *c, struct kedge_cache_stats *stats)
{
	struct go_rc a;

	if (go_use_begin(GO_USES(c)))
		return (struct go_rc){ .rc = GO_CLOSED };
	stats->size = sizeof(*stats);
	a = go_answer(kedge_cache_stats(c->c, stats));
	go_use_end(&c->uses);
	return a;
}

struct go_mapped go_buffer_map(size_t len)
{
	struct go_mapped m = { 0 };

	m.at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m.at == MAP_FAILED)
		m.rc = -errno;
	return m;
}

void go_buffer_unmap(void *at, size_t len)
{
	munmap(at, len);
}
