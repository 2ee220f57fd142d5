// SPDX-License-Identifier: BSD-2-Clause
/*
 * Both calls go chunk by chunk, each with a context that hears what other threads do to
 * the chunk: lift.c makes one shared, private.c private. What the calling thread needs
 * itself, its stack and variables, another thread works on.
 */
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/process/cancel.h"
#include "base/process/own.h"
#include "base/process/stop.h"
#include "base/process/thread.h"
#include "notify/announce/announce.h"
#include "notify/inflight.h"
#include "pages/move.h"
#include "pages/share/priv.h"
#include "pages/share/share.h"

/* An access may wait as long as it takes to copy so much. */
#define CHUNK_LEN ((size_t)4 << 20)
#define STACK_USED ((size_t)64 << 10)
#define DESCRIPTORS_TRIES 3

/* ---- a chunk ---- */

struct step {
	struct swap_context *ctx;
	const struct share_change *c;
	uintptr_t at;
	size_t len;
	bool called;
};

static bool is_part(uintptr_t at, size_t len, const void *of, size_t of_len)
{
	return (uintptr_t)of < at + len && at < (uintptr_t)of + of_len;
}

/* Tools of this work. They may have got addresses that another thread has just given up. */
static bool is_tool(const struct step *s)
{
	return is_part(s->at, s->len, s->ctx, s->ctx->own_len) ||
	       is_part(s->at, s->len, s->ctx->area, s->ctx->area_len) ||
	       (s->c->area && is_part(s->at, s->len, (void *)s->c->area, s->c->area_len)) ||
	       others_stopped_uses(s->at, s->len);
}

static bool has(int fd, const struct fd_id *id)
{
	return fd < 0 || fd_same(fd, id);
}

/*
 * The program may have closed what it does not know, and have a file of its own under the
 * number. Once its threads are stopped it closes nothing.
 */
static bool has_descriptors(const struct step *s)
{
	const struct share_change *c = s->c;
	struct swap_context *ctx = s->ctx;

	if (!fd_same(ctx->uffd, &ctx->uffd_id) || !has(ctx->maps, &ctx->maps_id) ||
	    !has(ctx->pagemap, &ctx->pagemap_id)) {
		ctx->broken = true;
		return false;
	}
	return fd_same(c->fd, &c->file_id) && has(c->mark, &c->mark_id) &&
	       has(c->watch, &c->watch_id);
}

static int work(void *arg)
{
	struct step *s = arg;

	s->called = true;
	if (!has_descriptors(s))
		return -EBADF;
	if (is_tool(s))
		return -ESTALE;
	return s->c->fn(s->ctx, s->c, s->at, s->len);
}

static int work_stopped(void *arg)
{
	struct step *s = arg;
	int rc;

	s->ctx->alone = true;
	rc = work(s);
	s->ctx->alone = false;
	return rc;
}

static int work_alone(struct step *s)
{
	int rc;

	if (!s->c->stops)
		return work(s);
	rc = others_stopped(work_stopped, s);
	return s->called || s->c->only_stopped ? rc : work(s);
}

/* Announced, as what is registered there names pages that go. */
static int announced(struct swap_context *ctx, const struct share_change *c,
		     uintptr_t at, size_t len)
{
	struct step s = { .ctx = ctx, .c = c, .at = at, .len = len };
	struct kedge_hook hook;
	int rc;

	announce_to_all(&hook, KEDGE_EVENT_REMOVE, (void *)at, len);
	inflight_begin(&kedge__swaps);
	rc = work_alone(&s);
	inflight_end(&kedge__swaps);
	kedge_hook_end(&hook);
	return rc;
}

static int try_chunk(const struct share_change *c, uintptr_t at, size_t len)
{
	struct swap_context *ctx;
	unsigned int tries = 0;
	uint32_t ended;
	int rc = context_get_hearing(CHUNK_LEN, &ctx);

	if (rc)
		return rc;
	move_guard_ready();
	do {
		ended = inflight_ended(&kedge__watches);
		rc = announced(ctx, c, at, len);
	} while (rc == SWAP_TAKEN && swap_try_again(ended, ++tries));
	move_guard_done();
	context_put(ctx);
	return rc;
}

static int one_chunk(const struct share_change *c, uintptr_t at, size_t len)
{
	int try, rc = -EBADF;

	/* A context's are opened anew. */
	for (try = 0; try < DESCRIPTORS_TRIES && rc == -EBADF; try++)
		rc = try_chunk(c, at, len);
	return rc;
}

/* Each part within one chunk, so that huge pages are not cut. */
static int in_this_thread(const struct share_change *c, size_t len, size_t *done)
{
	uintptr_t pos = c->at, end = pos + len, next;
	sigset_t saved;
	int rc = swap_begin(&saved);

	*done = 0;
	if (rc)
		return rc;
	for (; !rc && pos < end; pos = next) {
		next = round_down(pos, CHUNK_LEN) + CHUNK_LEN;
		if (next > end)
			next = end;
		rc = one_chunk(c, pos, next - pos);
		if (!rc)
			*done = next - c->at;
	}
	swap_end(&saved);
	return rc;
}

/* A whole call, in memory that is no part of any range. */
struct job {
	struct share_change c;
	size_t len;
	size_t done;
	int rc;
	char reason[256];
};

static void *run(void *arg)
{
	struct job *j = arg;

	j->rc = in_this_thread(&j->c, j->len, &j->done);
	if (j->rc < 0)
		snprintf(j->reason, sizeof(j->reason), "%s", kedge_strerror(j->rc));
	return NULL;
}

static int in_another_thread(const struct share_change *c, size_t len, size_t *done)
{
	struct job *j = own_map(sizeof(*j));
	sigset_t all, saved;
	pthread_t thread;
	int rc;

	if (!j)
		return -ENOMEM;
	j->c = *c;
	j->len = len;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	rc = thread_start(&thread, run, j);
	if (!rc) {
		pthread_join(thread, NULL);
		rc = j->rc < 0 ? kedge_reason(j->rc, "%s", j->reason) : j->rc;
		*done = j->done;
	}
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	own_unmap(j, sizeof(*j));
	return rc;
}

/* Memory that this thread uses while pages are away: its stack from here, its variables. */
static bool is_in_use(uintptr_t at, size_t len)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0), own = (uintptr_t)&errno;

	return (at < here + STACK_USED && here - STACK_USED < at + len) ||
	       (at < own + STACK_USED && own - STACK_USED < at + len);
}

static int by_chunks(struct share_change *c, size_t len, size_t *done)
{
	NO_CANCEL();

	*done = 0;
	fd_note(c->fd, &c->file_id);
	fd_note(c->mark, &c->mark_id);
	fd_note(c->watch, &c->watch_id);
	if (own_data_in(c->at, c->at + len))
		return kedge_reason(-EOPNOTSUPP, "variables of kedge's own are in those pages "
				    "(the program is linked with its archive): copy instead");
	return is_in_use(c->at, len) ? in_another_thread(c, len, done)
				     : in_this_thread(c, len, done);
}

static int taken(void)
{
	return kedge_reason(-EOPNOTSUPP, "another userfaultfd watches that "
			    "memory: copy instead");
}

int pages_share(void *at, size_t len, int fd, uint64_t off, size_t *done)
{
	struct share_change c = { .fn = share_lift, .at = (uintptr_t)at, .fd = fd, .off = off,
				  .mark = -1, .watch = -1 };
	int rc = by_chunks(&c, len, done);

	return rc == SWAP_TAKEN ? taken() : rc;
}

static int share_watched(struct share_change *c, size_t len, size_t *done)
{
	bool unwatched = false;
	int rc;

	c->fn = share_lift;
	c->stops = true;
	c->unwatched = &unwatched;
	rc = by_chunks(c, len, done);
	return !rc && unwatched ? -ENOMEM : rc;
}

int pages_share_marked(void *at, size_t len, int fd, uint64_t off, int mark, int watch,
		       size_t *done)
{
	struct share_change c = { .at = (uintptr_t)at, .fd = fd, .off = off, .mark = mark,
				  .watch = watch };

	return share_watched(&c, len, done);
}

int pages_share_stopped(void *at, size_t len, int fd, uint64_t off, int watch, size_t *done)
{
	struct share_change c = { .at = (uintptr_t)at, .fd = fd, .off = off, .mark = -1,
				  .watch = watch, .only_stopped = true };
	int rc = share_watched(&c, len, done);

	return rc == SWAP_TAKEN ? -EOPNOTSUPP : rc;
}

int pages_unshare(void *at, size_t len, int fd, uint64_t off, size_t *done)
{
	return pages_unshare_marked(at, len, fd, off, -1, -1, done);
}

int pages_unshare_marked(void *at, size_t len, int fd, uint64_t off, int mark, int watch,
			 size_t *done)
{
	size_t huge = pages_huge_len(), area_len = len + 2 * huge;
	struct share_change c = { .fn = share_end, .at = (uintptr_t)at, .fd = fd, .off = off,
				  .stops = true, .mark = mark, .watch = watch };
	/* One mapping for all chunks: then they melt where they go to, too. */
	char *area = own_map(area_len);
	int rc;

	*done = 0;
	if (!area)
		return share_not_private(-ENOMEM);
	c.area = round_up((uintptr_t)area, huge) + (c.at & (huge - 1));
	c.area_len = len;
	rc = by_chunks(&c, len, done);
	own_unmap(area, area_len);
	return rc == SWAP_TAKEN ? taken() : rc;
}
