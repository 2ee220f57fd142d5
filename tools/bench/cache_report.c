// SPDX-License-Identifier: BSD-2-Clause
/* The result of kedge bench cache for people, programs and gnuplot. */
#include <stdio.h>

#include "tools/bench/cache.h"

/* Registrations for an operation that say that a row is not what it claims. */
#define REGS_HIT_MAX  0.01
#define REGS_MISS_MIN 0.5

static const char *layout_name(const struct cache_row *row)
{
	return row->offset ? "offset" : "aligned";
}

static const char *share_name(const struct cache_row *row)
{
	return row->own ? "own" : "same";
}

static double ratio(double a, double b)
{
	return b > 0 ? a / b : 0;
}

/*
 * NULL, or what is wrong: a "hit" that registered, a miss that did not (the
 * side never saw the memory go: it would have handed out a stale one).
 */
static const char *odd(const struct cache_row *row, unsigned int side)
{
	if (row->kind == KIND_HIT)
		return row->regs[side] > REGS_HIT_MAX ? "registers" : NULL;
	if (row->kind == KIND_CALL || (row->kind == KIND_HINT && !side))
		return NULL;
	return row->regs[side] < REGS_MISS_MIN ? "sees nothing" : NULL;
}

static const char *number(char buf[UTIL_HUMAN], double ns)
{
	snprintf(buf, UTIL_HUMAN, ns < 1000 ? "%.1f" : "%.0f", ns);
	return buf;
}

static void print_row(const struct cache_result *res,
		      const struct cache_row *row)
{
	char a[UTIL_HUMAN], b[UTIL_HUMAN], n[UTIL_HUMAN];
	unsigned int side;

	printf("%-10s %-7s %9s %7llu %-4s %9s %9s", kind_names[row->kind],
	       layout_name(row), util_human_count(n, row->entries),
	       (unsigned long long)row->threads, share_name(row),
	       number(a, row->ns[0]), number(b, row->best_ns[0]));
	if (res->peer)
		printf(" %9s %9s %6.2f", number(a, row->ns[1]),
		       number(b, row->best_ns[1]),
		       ratio(row->ns[0], row->ns[1]));
	if (row->threads > 1)
		printf(" %6.2f", ratio(row->ns[0], row->single_ns));
	else if (row->kind == KIND_HIT && row->call_ns > 0)
		printf(" %6s", "");
	if (row->kind == KIND_HIT && row->call_ns > 0)
		printf(" %6.2f", ratio(row->ns[0], row->call_ns));
	for (side = 0; side < (res->peer ? 2 : 1); side++)
		if (odd(row, side))
			printf("  %s %s", side ? res->peer : "kedge",
			       odd(row, side));
	putchar('\n');
}

static bool has_calls(const struct cache_result *res)
{
	size_t i;

	for (i = 0; i < res->n; i++)
		if (res->rows[i].call_ns > 0)
			return true;
	return false;
}

static void print_text(const struct cache_result *res)
{
	size_t i;

	printf("kedge %s, notifier %s (%s)", res->info[0].version,
	       res->info[0].notifier, res->info[0].level);
	if (res->peer)
		printf("; %s %s", res->peer, res->info[1].version);
	printf("; %u CPUs\n\n%-10s %-7s %9s %7s %-4s %9s %9s", proc_cpus(),
	       "bench", "layout", "entries", "threads", "", "kedge ns", "best");
	if (res->peer)
		printf(" %6s ns %9s %6s", res->peer, "best", "ratio");
	printf(" %6s%s\n", "vs 1", has_calls(res) ? " x call" : "");
	for (i = 0; i < res->n; i++)
		if (!res->rows[i].hidden)
			print_row(res, &res->rows[i]);
}

static void print_csv(const struct cache_result *res)
{
	size_t i;

	puts("bench,layout,entries,threads,share,kedge_ns,kedge_best_ns,"
	     "kedge_regs,peer,peer_ns,peer_best_ns,peer_regs,ratio,vs_single,"
	     "pairs,dropped,x_call");
	for (i = 0; i < res->n; i++) {
		const struct cache_row *row = &res->rows[i];

		if (row->hidden)
			continue;
		printf("%s,%s,%llu,%llu,%s,%.2f,%.2f,%.3f,",
		       kind_names[row->kind], layout_name(row),
		       (unsigned long long)row->entries,
		       (unsigned long long)row->threads, share_name(row),
		       row->ns[0], row->best_ns[0], row->regs[0]);
		if (res->peer)
			printf("%s,%.2f,%.2f,%.3f,%.4f,", res->peer, row->ns[1],
			       row->best_ns[1], row->regs[1],
			       ratio(row->ns[0], row->ns[1]));
		else
			printf(",,,,,");
		printf("%.4f,%llu,%llu,%.4f\n",
		       ratio(row->ns[0], row->single_ns),
		       (unsigned long long)row->pairs,
		       (unsigned long long)row->dropped,
		       ratio(row->ns[0], row->call_ns));
	}
}

static json_t *row_json(const void *of, size_t i)
{
	const struct cache_result *res = of;
	const struct cache_row *row = &res->rows[i];
	json_t *o;
	int rc;

	if (row->hidden)
		return json_null();
	o = json_pack("{s:s, s:s, s:I, s:I, s:s, s:f, s:f, s:f, s:f, s:I, s:I, s:f}",
		      "bench", kind_names[row->kind], "layout",
		      layout_name(row), "entries", (json_int_t)row->entries,
		      "threads", (json_int_t)row->threads, "share",
		      share_name(row), "kedge_ns", row->ns[0], "kedge_best_ns",
		      row->best_ns[0], "kedge_regs", row->regs[0], "vs_single",
		      ratio(row->ns[0], row->single_ns), "pairs",
		      (json_int_t)row->pairs, "dropped",
		      (json_int_t)row->dropped, "x_call",
		      ratio(row->ns[0], row->call_ns));
	if (!o)
		return NULL;
	if (res->peer)
		rc = json_object_update_new(
			o, json_pack("{s:s, s:f, s:f, s:f, s:f}", "peer",
				     res->peer, "peer_ns", row->ns[1],
				     "peer_best_ns", row->best_ns[1],
				     "peer_regs", row->regs[1], "ratio",
				     ratio(row->ns[0], row->ns[1])));
	else
		rc = json_object_update_new(
			o, json_pack("{s:n, s:n, s:n, s:n, s:n}", "peer",
				     "peer_ns", "peer_best_ns", "peer_regs",
				     "ratio"));
	if (!rc)
		return o;
	json_decref(o);
	return NULL;
}

static int print_json(const struct cache_result *res)
{
	json_t *root;

	root = json_pack("{s:s, s:s, s:s, s:s?, s:s?, s:i, s:o}", "version",
			 res->info[0].version, "notifier",
			 res->info[0].notifier, "level", res->info[0].level,
			 "peer", res->peer, "peer_version",
			 res->peer ? res->info[1].version : NULL, "cpus",
			 (int)proc_cpus(), "rows",
			 util_json_rows(res->n, row_json, res));
	return util_json_print(root);
}

int cache_report(const struct cache_result *res, bool csv)
{
	if (util_flags.json)
		return print_json(res) ? CMD_CANNOT : CMD_OK;
	if (csv)
		print_csv(res);
	else
		print_text(res);
	return CMD_OK;
}

/* ---- the picture ---- */

/* A block of "entries kedge peer" a layout: one thread's hits. */
static void plot_data(const struct cache_result *res, uint64_t offset,
		      FILE *out)
{
	size_t i;

	for (i = 0; i < res->n; i++) {
		const struct cache_row *row = &res->rows[i];

		if (row->kind == KIND_HIT && row->threads == 1 &&
		    !row->hidden && row->offset == offset)
			fprintf(out, "%llu %.2f %.2f\n",
				(unsigned long long)row->entries, row->ns[0],
				row->ns[1]);
	}
}

static void plot_script(const struct cache_result *res, FILE *out)
{
	static const char *const title[] = { "aligned", "4 KiB-offset" };
	bool first = true;
	int block, side;

	fputs("set logscale xy\nset xlabel 'registered entries'\n"
	      "set ylabel 'get and put, ns'\nset key left top\nset grid\n"
	      "plot ",
	      out);
	for (block = 0; block < 2; block++) {
		for (side = 0; side < (res->peer ? 2 : 1); side++) {
			fprintf(out,
				"%s$data index %d using 1:%d with linespoints "
				"title '%s, %s'",
				first ? "" : ", ", block, side + 2,
				side ? res->peer : "kedge", title[block]);
			first = false;
		}
	}
	fputc('\n', out);
}

static void plot(const void *of, FILE *script, FILE *data)
{
	const struct cache_result *res = of;

	plot_data(res, 0, data);
	/* Two empty lines end a block. */
	fputs("\n\n", data);
	plot_data(res, OFFSET_LAYOUT, data);
	plot_script(res, script);
}

int cache_plot(const struct cache_result *res, const char *file)
{
	return plot_draw(file, PLOT_WIDTH, PLOT_HEIGHT, plot, res);
}
