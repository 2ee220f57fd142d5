// SPDX-License-Identifier: BSD-2-Clause
/*
 * Rounds of copying. What a peer stores is noted by the thread that does it, with shares_lock
 * (share/served.c); this process's own stores are found by write-protection (track.h). Both are
 * taken before the bytes are read: a store that a round has not read is in the next one.
 *
 * The last round begins once what is left takes no longer than the program allows to wait, or does
 * not become less: a program that stores faster than the wire carries ends there, too.
 *
 * The other side's memory is zeroed when it begins, so pages of zeros are not sent the first time.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"
#include "base/process/own.h"
#include "region/migrate/job.h"
#include "region/watch/watch.h"

#define PROGRESS_NS UINT64_C(100000000)
#define GROWS	    2 /* rounds with no less to send than the one before */

/* ---- what is left ---- */

static uint64_t pages_of(const struct job *j)
{
	return j->info.len / kedge__page_size();
}

static void set_bits(struct job *j, uint64_t page, uint64_t cnt)
{
	uint64_t bit;

	for (; cnt; page++, cnt--) {
		bit = UINT64_C(1) << page % 64;
		j->cnt += !(j->bits[page / 64] & bit);
		j->bits[page / 64] |= bit;
	}
}

static int add_own(void *arg, uint64_t off, uint64_t len)
{
	const uint64_t page = kedge__page_size();

	set_bits(arg, off / page, len / page);
	return 0;
}

static void add_peers(struct job *j)
{
	const uint64_t words = pages_of(j) / 64 + 1;
	uint64_t i, was;

	sig_lock_blocked(&shares_lock);
	for (i = 0; i < words; i++) {
		was = j->bits[i];
		j->bits[i] |= j->r->dirty[i];
		j->cnt += (uint64_t)__builtin_popcountll(j->bits[i] ^ was);
		j->r->dirty[i] = 0;
	}
	sig_unlock_blocked(&shares_lock);
}

static int add_dirty(struct job *j)
{
	add_peers(j);
	return j->track ? track_take(j->track, add_own, j) : 0;
}

/* ---- one round ---- */

static bool is_zero(const char *at)
{
	const uint64_t *w = (const uint64_t *)(const void *)at;
	size_t i;

	for (i = 0; i < kedge__page_size() / sizeof(*w); i++)
		if (w[i])
			return false;
	return true;
}

static bool is_set(const struct job *j, uint64_t page)
{
	return j->bits[page / 64] >> page % 64 & 1;
}

/* Pages in a row from @page on, @most at most: with @fresh, up to one of zeros. */
static uint64_t run_at(struct job *j, uint64_t page, uint64_t most, bool fresh)
{
	const uint64_t size = kedge__page_size();
	uint64_t n = 0;

	while (n < most && page + n < pages_of(j) && is_set(j, page + n) &&
	       !(fresh && is_zero(j->view + (page + n) * size))) {
		j->bits[(page + n) / 64] &= ~(UINT64_C(1) << (page + n) % 64);
		n++;
	}
	return n;
}

/* Scattered pages go together. */
struct batch {
	struct msg_run run[MSG_RUNS_MAX];
	uint32_t cnt;
	uint64_t len;
};

static int send_batch(struct job *j, const struct batch *b)
{
	int rc = 0;

	if (j->line && lent_put(j, b->run, b->cnt))
		return 0;
	if (j->line)
		rc = lent_end(j);
	if (rc)
		return rc;
	rc = wire_send_runs(&j->wire, j->id, j->view, b->run, b->cnt, job_until(j));
	return rc ? job_lost(rc) : 0;
}

static int flush(struct job *j, struct batch *b)
{
	int rc = b->cnt ? send_batch(j, b) : 0;

	j->info.sent += b->len;
	j->info.left = j->cnt * kedge__page_size();
	b->cnt = 0;
	b->len = 0;
	return rc;
}

static void add_run(struct job *j, struct batch *b, uint64_t page, uint64_t cnt)
{
	const uint64_t size = kedge__page_size();

	b->run[b->cnt++] = (struct msg_run){ page * size, cnt * size };
	b->len += cnt * size;
	j->cnt -= cnt;
}

static int tell(struct job *j)
{
	const uint64_t now = clock_ns();

	if (now - j->told < PROGRESS_NS)
		return 0;
	j->told = now;
	return job_progress(j);
}

/* From @page on: pages that were dealt with. */
static uint64_t step(struct job *j, struct batch *b, uint64_t page, bool fresh)
{
	const uint64_t most = (MSG_DATA_MAX - b->len) / kedge__page_size();
	uint64_t n;

	if (!(page % 64) && !j->bits[page / 64])
		return 64;
	n = run_at(j, page, most, fresh);
	if (n) {
		add_run(j, b, page, n);
		return n;
	}
	/* Of zeros, or clean. */
	if (is_set(j, page)) {
		j->bits[page / 64] &= ~(UINT64_C(1) << page % 64);
		j->cnt--;
	}
	return 1;
}

static int send_set(struct job *j, bool tells)
{
	const bool fresh = !j->info.rounds++;
	struct batch b = { .cnt = 0 };
	uint64_t page = 0;
	int rc = 0;

	while (!rc && page < pages_of(j)) {
		page += step(j, &b, page, fresh);
		if (b.cnt < MSG_RUNS_MAX && b.len + kedge__page_size() <= MSG_DATA_MAX)
			continue;
		rc = flush(j, &b);
		if (!rc && tells)
			rc = tell(j);
	}
	return rc ? rc : flush(j, &b);
}

/* ---- all ---- */

static int open_view(struct job *j)
{
	long at = own_mmap(NULL, j->info.len, PROT_READ, MAP_SHARED | MAP_NORESERVE, j->r->fd, 0);

	if (at == -1)
		return error_no_addresses(j->info.len, "to read the region by");
	j->view = (char *)at;
	if (madvise(j->view, j->info.len, MADV_DONTFORK))
		return kedge_reason(-errno, "madvise: error %d", errno);
	return 0;
}

/* A kernel that finds no stores is no error: all of it is copied while peers wait. */
static int watch_own(struct job *j)
{
	int rc;

	if (j->o.flags & KEDGE_MIGRATE_QUIET) {
		j->info.track = KEDGE_TRACK_QUIET;
		return rounds_shut(j);
	}
	watch_let_others(j->r);
	rc = track_begin(j->r->at, j->info.len, j->r->page_size, NULL, &j->track);
	if (rc) {
		j->track = NULL;
		j->info.track = KEDGE_TRACK_ALL;
		return 0;
	}
	j->info.track = track_forgets(j->track) ? KEDGE_TRACK_USERFAULTFD : KEDGE_TRACK_SOFT_DIRTY;
	/* The first time all of it counts as stored into, and is to be sent in any case. */
	return track_take(j->track, add_own, j);
}

int rounds_begin(struct job *j)
{
	int rc;

	j->bits = calloc(pages_of(j) / 64 + 1, sizeof(*j->bits));
	if (!j->bits)
		return kedge_reason(-ENOMEM, "no memory for a bit for each page");
	rc = open_view(j);
	if (!rc)
		rc = watch_own(j);
	if (!rc)
		set_bits(j, 0, pages_of(j));
	j->info.left = j->info.len;
	return rc;
}

void rounds_end(struct job *j)
{
	track_end(j->track);
	j->track = NULL;
	if (j->view)
		own_unmap(j->view, j->info.len);
	j->view = NULL;
	free(j->bits);
	j->bits = NULL;
}

/* Milliseconds that what is left takes. */
static uint64_t expected_ms(const struct job *j)
{
	return j->rate ? j->cnt * kedge__page_size() / j->rate : 0;
}

static int one_round(struct job *j)
{
	const uint64_t begun = clock_ns(), was = j->info.sent;
	uint64_t ms;
	int rc = send_set(j, true);

	ms = (clock_ns() - begun) / 1000000u;
	if (j->info.sent - was >= MSG_DATA_MAX)
		j->rate = (j->info.sent - was) / (ms ? ms : 1);
	if (!rc)
		rc = job_progress(j);
	return rc;
}

int rounds_run(struct job *j)
{
	const bool tracked = !j->track || track_forgets(j->track);
	uint64_t before;
	int grows = 0, rc = 0;

	if (j->info.track == KEDGE_TRACK_ALL)
		return 0;
	while (!rc) {
		before = j->cnt;
		rc = one_round(j);
		if (!rc && tracked)
			rc = add_dirty(j);
		else if (!rc)
			add_peers(j);
		grows += j->cnt >= before;
		if (rc || expected_ms(j) <= j->o.pause_ms || grows >= GROWS ||
		    j->info.rounds + 1 >= j->o.max_rounds)
			return rc;
	}
	return rc;
}

int rounds_last(struct job *j)
{
	int rc = add_dirty(j);

	if (j->info.track == KEDGE_TRACK_ALL)
		set_bits(j, 0, pages_of(j));
	j->info.last = j->cnt * kedge__page_size();
	return rc ? rc : send_set(j, false);
}

int rounds_shut(struct job *j)
{
	if (mprotect(j->r->at, j->info.len, PROT_READ))
		return kedge_reason(-errno, "mprotect: error %d; with ENOMEM the process has too "
				    "many mappings: raise vm.max_map_count", errno);
	j->shut = true;
	return 0;
}

void rounds_reopen(struct job *j)
{
	if (j->shut)
		mprotect(j->r->at, j->info.len, PROT_READ | PROT_WRITE);
	j->shut = false;
}
