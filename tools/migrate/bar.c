// SPDX-License-Identifier: BSD-2-Clause
/* The progress bar of a move, on standard error if that is a terminal. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/migrate/run.h"

#define BAR_WIDTH 24

void bar_begin(struct bar *b, unsigned int nth, unsigned int of, const char *what)
{
	b->on = !util_flags.json && !util_flags.quiet && isatty(STDERR_FILENO);
	snprintf(b->label, sizeof(b->label), "%s %u of %u", what, nth, of);
}

/* The bytes left may become more: then the bar goes back, as the migration does. */
void bar_draw(struct bar *b, const struct kedge_migrate_info *info)
{
	const double all = (double)(info->sent + info->left);
	const int full = all > 0 ? (int)((double)info->sent / all * BAR_WIDTH) : BAR_WIDTH;
	char sent[UTIL_HUMAN], left[UTIL_HUMAN], rate[UTIL_HUMAN], bar[BAR_WIDTH + 1];

	if (!b->on)
		return;
	memset(bar, '.', BAR_WIDTH);
	memset(bar, '#', (size_t)full);
	bar[BAR_WIDTH] = 0;
	util_human_bytes(sent, info->sent);
	util_human_bytes(left, info->left);
	util_human_bytes(rate, info->total_ns ? (uint64_t)((double)info->sent * 1e9 /
							   (double)info->total_ns) : 0);
	fprintf(stderr, "\r%s [%s] round %u, %s sent, %s left, %s/s\033[K", b->label, bar,
		info->rounds, sent, left, rate);
	fflush(stderr);
	b->shown = true;
}

void bar_wipe(struct bar *b)
{
	if (b->shown)
		fputs("\r\033[K", stderr);
	b->shown = false;
}
