// SPDX-License-Identifier: BSD-2-Clause
/* kedge's side of the cache benchmark. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <kedge/kedge.h>

#include "tools/bench/cache.h"

struct kedge_side {
	struct kedge_notifier *nf;
	struct kedge_device *dev;
	struct kedge_cache *cache;
	uint64_t regs;
};

static int null_reg(void *ctx, void *addr, size_t len, uint32_t access,
		    struct kedge_device_mr *mr)
{
	struct kedge_side *s = ctx;

	/* Relaxed: a count, read when the threads have stopped. */
	__atomic_fetch_add(&s->regs, 1, __ATOMIC_RELAXED);
	*mr = (struct kedge_device_mr){ .offset = (uintptr_t)addr };
	return 0;
}

static void null_dereg(void *ctx, const struct kedge_device_mr *mr)
{
}

static const struct kedge_device_ops null_ops = {
	.size = sizeof(null_ops),
	.name = "null",
	.reg = null_reg,
	.dereg = null_dereg,
};

static int say_why(int rc, const char *what, char why[WHY_LEN])
{
	/* Before snprintf, as the text may not outlive other calls. */
	const char *reason = kedge_strerror(rc);

	snprintf(why, WHY_LEN, "%s: %s", what, reason);
	return rc;
}

static const char *how(const struct kedge_notifier_info *ni)
{
	if (ni->check == KEDGE_CHECK_CALL)
		return "+ask";
	return ni->hooked ? "+hooks" : "";
}

static int fill_info(struct kedge_notifier *nf, struct side_info *info)
{
	struct kedge_notifier_info ni = { .size = sizeof(ni) };
	int rc;

	rc = kedge_notifier_info(nf, &ni);
	if (rc)
		return rc;
	snprintf(info->notifier, sizeof(info->notifier), "%s%s", ni.backend,
		 how(&ni));
	snprintf(info->level, sizeof(info->level), "%s",
		 util_level_name(ni.level));
	snprintf(info->version, sizeof(info->version), "%s", kedge_version());
	return 0;
}

static int side_open(const struct cache_cfg *cfg, void **ctx,
		     struct side_info *info, char why[WHY_LEN])
{
	struct kedge_notifier_opts no = { .size = sizeof(no),
					  .backend = cfg->notifier };
	/* Twice the entries: limits are not what is measured. */
	struct kedge_cache_opts co = { .size = sizeof(co),
				       .max_regions = 2 * cfg->entries + 4096 };
	struct kedge_side *s;
	int rc;

	if (cfg->ask)
		no.flags |= KEDGE_NOTIFIER_ASK;
	if (cfg->single)
		co.flags |= KEDGE_CACHE_SINGLE_THREAD;
	s = calloc(1, sizeof(*s));
	if (!s)
		return say_why(-ENOMEM, "cannot start", why);
	rc = kedge_notifier_open(&no, &s->nf);
	if (rc) {
		say_why(rc, "cannot open the notifier", why);
		goto free_side;
	}
	rc = fill_info(s->nf, info);
	if (rc) {
		say_why(rc, "cannot ask the notifier", why);
		goto close_notifier;
	}
	rc = kedge_device_open(&null_ops, s, &s->dev);
	if (rc) {
		say_why(rc, "cannot open the device", why);
		goto close_notifier;
	}
	rc = kedge_cache_open(s->dev, s->nf, &co, &s->cache);
	if (rc) {
		say_why(rc, "cannot open the cache", why);
		goto close_device;
	}
	*ctx = s;
	return 0;

close_device:
	kedge_device_close(s->dev);
close_notifier:
	kedge_notifier_close(s->nf);
free_side:
	free(s);
	return rc;
}

static void side_close(void *ctx)
{
	struct kedge_side *s = ctx;

	kedge_cache_close(s->cache);
	kedge_device_close(s->dev);
	kedge_notifier_close(s->nf);
	free(s);
}

static inline int get_put(struct kedge_cache *cache, void *addr, size_t len)
{
	const struct kedge_mr *mr;
	int rc;

	rc = kedge_cache_get(cache, addr, len, KEDGE_ACCESS_LOCAL_WRITE, &mr);
	if (rc)
		return rc;
	kedge_cache_put(cache, mr);
	return 0;
}

static int side_get_put(void *ctx, void *addr, size_t len)
{
	return get_put(((struct kedge_side *)ctx)->cache, addr, len);
}

static int run_get(void *ctx, struct walk *w, uint64_t n)
{
	struct kedge_cache *cache = ((struct kedge_side *)ctx)->cache;
	int rc = 0;

	while (n-- && !rc)
		rc = get_put(cache, walk_next(w), w->len);
	return rc;
}

static int run_hint(void *ctx, struct walk *w, uint64_t n)
{
	struct kedge_cache *cache = ((struct kedge_side *)ctx)->cache;
	ssize_t rc = 0;

	while (n-- && rc >= 0)
		rc = kedge_cache_hint(cache, walk_next(w), w->len,
				      KEDGE_ACCESS_LOCAL_WRITE);
	return rc < 0 ? (int)rc : 0;
}

static uint64_t registrations(void *ctx)
{
	return __atomic_load_n(&((struct kedge_side *)ctx)->regs,
			       __ATOMIC_RELAXED);
}

const struct side side_kedge = {
	.name = "kedge",
	.open = side_open,
	.close = side_close,
	.get_put = side_get_put,
	.get_puts = run_get,
	.hints = run_hint,
	.registrations = registrations,
};
