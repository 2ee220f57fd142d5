// SPDX-License-Identifier: BSD-2-Clause
/*
 * The ledger, and the judgement: what the sender says of each message and what
 * the receiver says must go together.
 *
 *   sender says   receiver may say
 *   nothing       nothing: it was never sent
 *   tried         anything, if one of them died
 *   eager         whole or short; it cannot be given up any more
 *   done          the same: the receiver has said so
 *   failed        short, failed or nothing, never whole
 *
 * Of a receiver that died nothing is asked, and its sender cannot know. Where the
 * sender died, what it had completed must have come: it was on its way in memory of
 * both.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "tools/torture/channel/chan.h"

int chan_ledger_make(struct chan_ledger **ledger)
{
	void *p = mmap(NULL, sizeof(**ledger), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	*ledger = p;
	return 0;
}

void chan_ledger_free(struct chan_ledger *ledger)
{
	if (ledger)
		munmap(ledger, sizeof(*ledger));
}

/* No rank is in a session: nobody looks. */
void chan_ledger_clear(struct chan_ledger *ledger)
{
	unsigned int i;

	ledger->killed_ns = 0;
	for (i = 0; i < 2; i++) {
		ledger->left[i] = 0;
		ledger->dir[i].closed = 0;
		ledger->dir[i].sent = 0;
		memset((void *)ledger->dir[i].out, 0, CHAN_MESSAGES);
		memset((void *)ledger->dir[i].in, 0, CHAN_MESSAGES);
	}
}

/* The supervisor reads it after this process has ended, or has told it
 * something. */
static void note(struct chan_tally *t, const char *fmt, va_list ap)
{
	if (t->why_cnt == CHAN_WHYS)
		return;
	vsnprintf(t->why[t->why_cnt], CHAN_WHY_LEN, fmt, ap);
	t->why_cnt++;
}

void chan_note(struct chan_tally *t, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	note(t, fmt, ap);
	va_end(ap);
}

void chan_wrong(struct chan_tally *t, const char *fmt, ...)
{
	va_list ap;

	t->wrong++;
	va_start(ap, fmt);
	note(t, fmt, ap);
	va_end(ap);
}

uint32_t chan_dir_missing(struct chan_dir *d, uint32_t from)
{
	uint32_t n, sent = d->sent;
	uint8_t out;

	for (n = from; n < sent; n++) {
		out = d->out[n];
		if ((out == OUT_EAGER || out == OUT_DONE) &&
		    d->in[n] == IN_NONE)
			break;
	}
	return n;
}

static bool is_lost(uint8_t out, uint8_t in)
{
	return (out == OUT_EAGER || out == OUT_DONE) && in == IN_NONE;
}

static bool is_wrong(uint8_t out, uint8_t in, bool died, bool receiver_died)
{
	switch (out) {
	case OUT_NONE:
		return in != IN_NONE;
	case OUT_TRIED:
		return !died;
	case OUT_EAGER:
	case OUT_DONE:
		return in == IN_FAILED;
	case OUT_FAILED:
		return in == IN_WHOLE && !receiver_died;
	}
	return false;
}

static void audit_one(const struct chan_ledger *ledger, unsigned int from,
		      uint32_t n, const bool died[2], struct chan_audit *audit)
{
	static const char *const outs[] = { "nothing", "tried", "eager", "done",
					    "failed" };
	static const char *const ins[] = { "nothing", "whole", "short",
					   "failed" };
	uint8_t out = ledger->dir[from].out[n], in = ledger->dir[from].in[n];
	bool lost = !died[!from] && !(died[from] && ledger->forgets) &&
		    is_lost(out, in);

	if (!lost && !is_wrong(out, in, died[0] || died[1], died[!from]))
		return;
	audit->lost += lost;
	audit->wrong += !lost;
	if (!*audit->why)
		snprintf(audit->why, sizeof(audit->why),
			 "message %u of rank %u%s: its sender says %s, its "
			 "receiver %s", n, from,
			 died[from] ? ", who died" : "", outs[out], ins[in]);
}

void chan_ledger_audit(struct chan_ledger *ledger, const bool died[2],
		       struct chan_audit *audit)
{
	unsigned int from;
	uint32_t n;

	memset(audit, 0, sizeof(*audit));
	for (from = 0; from < 2; from++) {
		audit->messages += ledger->dir[from].sent;
		for (n = 0; n < CHAN_MESSAGES; n++)
			if (ledger->dir[from].out[n] | ledger->dir[from].in[n])
				audit_one(ledger, from, n, died, audit);
	}
}

uint64_t chan_killed_at(const struct chan_rank *r)
{
	return atomic_load_explicit(&r->ledger->killed_ns,
				    memory_order_acquire);
}

void chan_failed(struct chan_rank *r, const char *what, int status)
{
	struct chan_tally *t = r->tally;

	switch (status) {
	case -ECANCELED:
		t->cancelled++;
		return;
	case -ETIMEDOUT:
		t->timed_out++;
		/* Of either side. */
		if (r->go.timeout_ms[0] || r->go.timeout_ms[1])
			return;
		break;
	case -EMSGSIZE:
		t->truncated++;
		return;
	case -EFAULT:
		t->faults++; /* who knows of the message says whether it may */
		return;
	case -ECONNRESET:
		t->reset++;
		if (chan_killed_at(r) || r->ledger->left[!r->me])
			return;
		break;
	default:
		t->other++;
	}
	chan_wrong(t, "%s: %s", what, kedge_strerror(status));
}
