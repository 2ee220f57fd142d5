// SPDX-License-Identifier: BSD-2-Clause
/*
 * A whole area in one shot. Chunks lie on multiples of the chunk size, so that
 * two hints of overlapping areas make the same chunks; a chunk that one region
 * serves already is left alone. Several threads take chunk after chunk: pinning
 * is the kernel's work and goes in parallel.
 */
#include <signal.h>

#include "cache/internal.h"

/* @whole: the first chunk that is not mapped ends it, else those like it are left out. */
struct job {
	struct kedge_cache *c;
	bool whole;
	uint64_t start;
	uint64_t end;
	uint32_t access;
	uint64_t chunks;
	_Atomic uint64_t next;
	_Atomic uint64_t bytes;
	_Atomic int error; /* the first one */
};

/*
 * The chunk of [at, end) is not mapped: the next one to take is the one that the next
 * mapping starts in. An area of terabytes with nothing in it has millions.
 */
static void skip_hole(struct job *j, uint64_t at, uint64_t end)
{
	uint64_t size = j->c->chunk_bytes, to = j->chunks, next;
	struct vma_info v = { .start = j->end };
	int rc = j->whole ? -ENOENT : vma_from(j->c->nf->maps_fd, at, &v);

	/* A mapping of which /proc does not tell is found by trying chunk by chunk. */
	if ((rc && rc != -ENOENT) || (!rc && v.start < end))
		return;
	if (!rc && v.start < j->end)
		to = (round_down(v.start, size) - round_down(j->start, size)) / size;
	next = atomic_load(&j->next);
	while (next < to && !atomic_compare_exchange_weak(&j->next, &next, to))
		;
}

static void do_chunk(struct job *j, uint64_t n)
{
	uint64_t size = j->c->chunk_bytes;
	uint64_t start = round_down(j->start, size) + n * size;
	struct want w = { .start = start > j->start ? start : j->start,
			  .end = start + size < j->end ? start + size : j->end,
			  .access = j->access,
			  .trust = TRUST_ALL };
	struct region *r;
	int rc, none = 0;

	rc = cache_serves(j->c, w.start, w.end, w.access)
		? 0
		: cache_register(j->c, &w, &r);
	if (rc) {
		atomic_compare_exchange_strong(&j->error, &none, rc);
		if (rc == -EFAULT)
			skip_hole(j, w.start, w.end);
		return;
	}
	/* A region that could not be kept is gone again, and not counted. */
	if (cache_serves(j->c, w.start, w.end, w.access))
		atomic_fetch_add(&j->bytes, w.end - w.start);
	else
		atomic_compare_exchange_strong(&j->error, &none, -EOPNOTSUPP);
}

static void *work(void *arg)
{
	struct job *j = arg;
	uint64_t n;

	while ((n = atomic_fetch_add(&j->next, 1)) < j->chunks)
		do_chunk(j, n);
	return NULL;
}

/* Returns how many threads help: fewer, even 0, if the system refuses more. */
static unsigned int start_helpers(struct job *j, pthread_t *t, unsigned int max)
{
	sigset_t all, saved;
	unsigned int n = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	while (n < max && !pthread_create(&t[n], NULL, work, j))
		n++;
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	return n;
}

#define HELPERS_MAX	 64
#define CHUNKS_A_THREAD	 2 /* less is not worth a thread */

static void run(struct job *j)
{
	pthread_t t[HELPERS_MAX];
	uint64_t want = j->chunks / CHUNKS_A_THREAD;
	unsigned int n, i;

	if (want > j->c->hint_threads)
		want = j->c->hint_threads;
	if (want > HELPERS_MAX)
		want = HELPERS_MAX;
	n = want > 1 ? start_helpers(j, t, (unsigned int)want - 1) : 0;
	work(j);
	for (i = 0; i < n; i++)
		pthread_join(t[i], NULL);
}

/*
 * With a watch over all of it meanwhile: the notifier looks at the mapping once,
 * not for each chunk, which takes longer than registering it where the kernel
 * has only /proc/self/maps to look at. What it is told is told to the chunks'
 * own watches, too. Where it cannot be had, there may still be some chunks.
 */
static void run_watched(struct job *j)
{
	struct own_range own = { j->start, j->end };
	struct queue ignored = { NULL, NULL };
	struct watch area = { .queue = &ignored };
	int rc = notify_watch_add(j->c->nf, &area, own.start, own.end, own);

	run(j);
	if (rc >= 0)
		notify_watch_remove(j->c->nf, &area, true);
}

ssize_t cache_hint(struct kedge_cache *c, const void *addr, size_t len,
		   uint32_t access, bool whole)
{
	size_t page = kedge__page_size();
	uint64_t start = (uintptr_t)addr;
	struct job j = { .c = c, .whole = whole, .access = access };
	uint64_t size;
	int rc, saved;

	if (!c)
		return kedge_reason(-EINVAL, "the cache is NULL");
	rc = cache_check_args(c, start, len, access);
	if (!rc)
		rc = check_thread(c);
	if (rc)
		return rc;
	if (is_lent(c, access))
		j.access = local_part(access);
	size = c->chunk_bytes;
	j.start = round_down(start, page);
	j.end = round_up(start + len, page);
	j.chunks = (round_up(j.end, size) - round_down(j.start, size)) / size;
	saved = cancel_disable();
	if (j.chunks > 1)
		run_watched(&j);
	else
		run(&j);
	cancel_restore(saved);
	if (j.bytes)
		return (ssize_t)j.bytes;
	return j.error == -EOPNOTSUPP
		? kedge_reason(-EOPNOTSUPP, "nothing of that memory can be "
			       "kept: it can't be watched, or is being changed")
		: j.error;
}

ssize_t kedge_cache_hint(struct kedge_cache *c, const void *addr, size_t len,
			 uint32_t access)
{
	return cache_hint(c, addr, len, access, false);
}
