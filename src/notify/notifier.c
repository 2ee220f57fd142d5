// SPDX-License-Identifier: BSD-2-Clause
/*
 * Opening and closing notifiers, and choosing a backend.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/process/cancel.h"
#include "base/process/page.h"
#include "notify/announce/announce.h"
#include "notify/internal.h"
#include "stats/trace.h"

#define OPTS_V1 STRUCT_END(struct kedge_notifier_opts, spin_us)

/* In the order in which auto prefers them. */
static const struct notify_ops *const backends[] = {
	&notify_ummunot,
	&notify_uffd,
	&notify_hooks,
	&notify_none,
};

const struct notify_ops *nf_backend(unsigned int index)
{
	return index < ARRAY_SIZE(backends) ? backends[index] : NULL;
}

static const struct notify_ops *find_backend(const char *name)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(backends); i++)
		if (!strcmp(backends[i]->name, name))
			return backends[i];
	return NULL;
}

static struct gen_page *page_new(void)
{
	struct gen_page *page = page_of_process();

	if (!page)
		return NULL;
	atomic_init(&page->generation, GENERATION_FIRST);
	atomic_init(&page->owned, 1);
	return page;
}

static void page_free(struct gen_page *page)
{
	munmap(page, kedge__page_size());
}

static int proc_open(const char *path, struct fd_id *id)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return kedge_reason(-errno, "%s can't be opened (%s): %s", path,
				    strerrordesc_np(errno),
				    errno == EMFILE || errno == ENFILE
					    ? "raise ulimit -n"
					    : "mount /proc");
	fd_note(fd, id);
	return fd;
}

static void init_sets(struct kedge_notifier *nf)
{
	slab_init(&nf->range_slab, sizeof(struct tree_node));
	slab_init(&nf->public_slab, sizeof(struct public_watch));
}

int nf_open_backend(const struct notify_ops *ops,
		    const struct kedge_notifier_opts *opts,
		    struct kedge_notifier **out)
{
	struct kedge_notifier *nf = calloc(1, sizeof(*nf));
	int rc = -ENOMEM;

	if (!nf)
		return rc;
	nf->ops = ops;
	nf->exact = opts->flags & KEDGE_NOTIFIER_EXACT_RANGES;
	push_init(&nf->push, opts);
	nf->page = page_new();
	if (!nf->page)
		goto free_nf;
	nf->head.generation = (const uint64_t *)&nf->page->generation;
	nf->head.trips = (const uint64_t *)&nf->page->no_trips;
	rc = sig_lock_init(&nf->lock);
	if (rc)
		goto free_page;
	init_sets(nf);
	incoming_init(&nf->incoming);
	if (pipe2(nf->pipe, O_CLOEXEC | O_NONBLOCK)) {
		rc = -errno;
		goto fini_lock;
	}
	fd_note(nf->pipe[0], &nf->pipe_id);
	rc = proc_open("/proc/self/maps", &nf->maps_id);
	if (rc < 0)
		goto close_pipe;
	nf->maps_fd = rc;
	rc = threads_init(&nf->threads);
	if (rc)
		goto close_maps;
	rc = ops->open(nf, opts);
	if (rc)
		goto fini_threads;
	/* Last: from here on announcements arrive. */
	rc = ops->add ? 0 : announce_attach(nf);
	if (rc)
		goto close_backend;
	*out = nf;
	return 0;

close_backend:
	ops->close(nf);
fini_threads:
	threads_fini(&nf->threads);
close_maps:
	close(nf->maps_fd);
close_pipe:
	close(nf->pipe[0]);
	close(nf->pipe[1]);
fini_lock:
	slab_fini(&nf->range_slab);
	slab_fini(&nf->public_slab);
	sig_lock_fini(&nf->lock);
free_page:
	page_free(nf->page);
free_nf:
	free(nf);
	return rc;
}

/* Watches that were never removed are counted no longer. */
static void unwatch_all(struct kedge_notifier *nf)
{
	struct tree_node *n;

	if (nf->ops->remove)
		return;
	incoming_settle(nf);
	for (n = tree_first_overlap(&nf->watches, 0, UINT64_MAX); n;
	     n = tree_next_overlap(n, 0, UINT64_MAX))
		announce_unwatch(n->start, n->end);
}

void kedge_notifier_close(struct kedge_notifier *nf)
{
	if (!nf)
		return;
	stats_remove(&nf->published);
	if (nf_owned(nf)) {
		announce_detach(nf);
		unwatch_all(nf);
		announce_by_generation(-nf->public_cnt);
		nf->ops->close(nf);
		threads_fini(&nf->threads);
		sig_lock_fini(&nf->lock);
	} else {
		nf->ops->abandon(nf);
		threads_abandon(&nf->threads);
	}
	fd_close(nf->maps_fd, &nf->maps_id);
	fd_close(nf->pipe[0], &nf->pipe_id);
	fd_close(nf->pipe[1], &nf->pipe_id);
	slab_fini(&nf->range_slab);
	slab_fini(&nf->public_slab);
	page_free(nf->page);
	free(nf);
}

/* A queue of the kernel's tells of a change when it is asked: too late for a call. */
static bool can_push(const struct notify_ops *ops, const struct kedge_notifier_opts *opts)
{
	return !ops->add || !opts->on_event;
}

/*
 * The best backend of at least @min. If all fail, KEDGE_LEVEL_DEFAULT falls back
 * to notify_none. The reason, returned or logged, is that of the last one tried,
 * which asks the least of the machine.
 */
static int open_auto(const struct kedge_notifier_opts *opts, uint32_t min,
		     struct kedge_notifier **out)
{
	bool fall_back = min == KEDGE_LEVEL_DEFAULT, tried = false;
	unsigned int i;
	int rc = -EOPNOTSUPP;

	if (fall_back)
		min = KEDGE_LEVEL_ORDERED;
	for (i = 0; i < ARRAY_SIZE(backends); i++) {
		if (backends[i]->level < min || !can_push(backends[i], opts))
			continue;
		rc = nf_open_backend(backends[i], opts, out);
		if (!rc)
			return 0;
		tried = true;
	}
	if (!fall_back)
		return tried ? rc
			     : kedge_reason(rc, "no notifier here reaches level "
					    "%u: see kedge info", min);
	kedge__log(KEDGE_LOG_WARN, "no cache: every get registers, because %s",
		   kedge_strerror(rc));
	return nf_open_backend(&notify_none, opts, out);
}

static int open_named(const struct kedge_notifier_opts *opts, uint32_t min,
		      const char *name, struct kedge_notifier **out)
{
	const struct notify_ops *ops = find_backend(name);

	if (!ops)
		return kedge_reason(-EINVAL, "there is no notifier \"%s\": "
				    "take auto, ummunot, uffd, hooks or "
				    "none", name);
	if (ops->level < min)
		return kedge_reason(-EOPNOTSUPP,
				    "notifier %s reaches level %u, %u was "
				    "asked for", name, ops->level, min);
	if (!can_push(ops, opts))
		return kedge_reason(-EOPNOTSUPP, "notifier %s cannot call on_event before a change "
				    "returns: take \"auto\" or \"uffd\", or compare generations",
				    name);
	return nf_open_backend(ops, opts, out);
}

int kedge_notifier_open(const struct kedge_notifier_opts *user,
			struct kedge_notifier **out)
{
	NO_CANCEL();
	struct kedge_notifier_opts opts;
	struct kedge_notifier *nf;
	const char *name;
	int rc;

	if (!out)
		return kedge_reason(-EINVAL, "the result pointer is NULL");
	rc = kedge__opts_copy(&opts, sizeof(opts), OPTS_V1, user);
	if (rc)
		return rc;
	if (opts.flags & ~(KEDGE_NOTIFIER_NO_BLIND_SPOT |
			   KEDGE_NOTIFIER_EXACT_RANGES |
			   KEDGE_NOTIFIER_ASK) ||
	    opts.min_level > KEDGE_LEVEL_EXACT)
		return kedge_reason(-EINVAL, "unknown flag or level");
	kedge__env_check();
	trace_begin();
	name = opts.backend ? opts.backend : kedge__env("KEDGE_NOTIFIER");
	rc = !name || !strcmp(name, "auto")
		? open_auto(&opts, opts.min_level, &nf)
		: open_named(&opts, opts.min_level, name, &nf);
	if (rc)
		return rc;
	if (nf->blind && opts.flags & KEDGE_NOTIFIER_NO_BLIND_SPOT) {
		rc = kedge_reason(-EOPNOTSUPP, "notifier %s has blind spots "
				  "here (0x%x): see kedge info",
				  nf->ops->name, nf->blind);
		kedge_notifier_close(nf);
		return rc;
	}
	stats_add(&nf->published, &notifier_counters, nf);
	*out = nf;
	return 0;
}

int kedge_notifier_fd(struct kedge_notifier *nf)
{
	if (!nf)
		return kedge_reason(-EINVAL, "the notifier is NULL");
	if (!nf_owned(nf))
		return nf_not_owned();
	if (nf->ops->fd)
		return nf->ops->fd(nf);
	sig_lock(&nf->lock);
	nf->fd_wanted = true;
	queue_signal(nf);
	sig_unlock(&nf->lock);
	return nf->pipe[0];
}
