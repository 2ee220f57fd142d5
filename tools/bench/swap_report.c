// SPDX-License-Identifier: BSD-2-Clause
/* The result of kedge bench swap for people, programs and gnuplot. */
#include <stdio.h>

#include "tools/bench/swap.h"

const char *const swap_pages_names[] = { "small", "huge", "fresh", NULL };
const char *const swap_place_names[] = { "congruent", "offset", NULL };
const char *const swap_way_names[] = { "memcpy", "swap", "remap", "phys",
				       "memfd", NULL };

static void print_text(const struct swap_result *res)
{
	const struct swap_row *row, *last = NULL;
	char size[UTIL_HUMAN];
	enum swap_way way;
	size_t i;

	printf("%-6s %-10s %11s %-7s %12s %12s %9s\n", "pages", "place", "size",
	       "way", "us", "best", "x memcpy");
	for (i = 0; i < res->n; i++, last = row) {
		row = &res->row[i];
		if (last && row->bytes != last->bytes)
			putchar('\n');
		printf("%-6s %-10s %11s %-7s %12.1f %12.1f",
		       swap_pages_names[row->pages],
		       swap_place_names[row->place],
		       util_human_bytes(size, row->bytes),
		       swap_way_names[row->way], row->ns / 1e3,
		       row->best_ns / 1e3);
		if (row->x > 0)
			printf(" %9.2f", row->x);
		putchar('\n');
	}
	for (way = 0; way < SWAP_WAYS; way++)
		if (*res->why[way])
			printf("\n%s: %s\n", swap_way_names[way],
			       res->why[way]);
}

static void print_csv(const struct swap_result *res)
{
	const struct swap_row *row;
	size_t i;

	puts("pages,place,bytes,way,ns,best_ns,x_memcpy");
	for (i = 0; i < res->n; i++) {
		row = &res->row[i];
		printf("%s,%s,%llu,%s,%.0f,%.0f,", swap_pages_names[row->pages],
		       swap_place_names[row->place],
		       (unsigned long long)row->bytes, swap_way_names[row->way],
		       row->ns, row->best_ns);
		if (row->x > 0)
			printf("%.4f", row->x);
		putchar('\n');
	}
}

static json_t *row_json(const void *of, size_t i)
{
	const struct swap_result *res = of;
	const struct swap_row *row = &res->row[i];

	return json_pack("{s:s, s:s, s:I, s:s, s:f, s:f, s:o}", "pages",
			 swap_pages_names[row->pages], "place",
			 swap_place_names[row->place], "bytes",
			 (json_int_t)row->bytes, "way",
			 swap_way_names[row->way], "ns", row->ns, "best_ns",
			 row->best_ns, "x_memcpy",
			 row->x > 0 ? json_real(row->x) : json_null());
}

static json_t *why_json(const struct swap_result *res)
{
	json_t *o = json_object();
	enum swap_way way;

	for (way = 0; way < SWAP_WAYS && o; way++)
		if (*res->why[way] &&
		    json_object_set_new(o, swap_way_names[way],
					util_json_text(res->why[way]))) {
			json_decref(o);
			o = NULL;
		}
	return o;
}

static int print_json(const struct swap_result *res)
{
	return util_json_print(json_pack("{s:s, s:i, s:o, s:o}", "version",
					 kedge_version(), "cpus",
					 (int)proc_cpus(), "unavailable",
					 why_json(res), "rows",
					 util_json_rows(res->n, row_json, res)));
}

/* The other reports end alike, but what their functions take is different:
 * sharing this would take a wrapper for each. */
int swap_report(const struct swap_opts *opt, const struct swap_result *res)
{
	if (util_flags.json)
		return print_json(res) ? CMD_CANNOT : CMD_OK;
	if (opt->csv)
		print_csv(res);
	else
		print_text(res);
	return CMD_OK;
}

/* ---- the picture: a block of lines for each curve ---- */

static bool on_curve(const struct swap_row *row, int pages, int way)
{
	return (int)row->pages == pages && (int)row->way == way &&
	       row->place == SWAP_CONGRUENT;
}

static void plot(const void *of, FILE *script, FILE *data)
{
	const struct swap_result *res = of;
	int pages, way, blocks = 0;
	size_t i, n;

	fputs("set logscale xy 2\nset logscale y 10\nset xlabel 'bytes'\n"
	      "set format x '%.0b %BB'\nset ylabel 'us'\nset key left top\n"
	      "set grid\nplot ", script);
	for (pages = 0; pages < SWAP_PAGES; pages++)
		for (way = 0; way < SWAP_WAYS; way++) {
			for (i = 0, n = 0; i < res->n; i++) {
				const struct swap_row *row = &res->row[i];

				if (!on_curve(row, pages, way))
					continue;
				if (!n++ && blocks)
					fputs("\n\n", data);
				fprintf(data, "%llu %.3f\n",
					(unsigned long long)row->bytes,
					row->ns / 1e3);
			}
			if (!n)
				continue;
			fprintf(script, "%s$data index %d using 1:2 with "
				"linespoints title '%s, %s'",
				blocks ? ", " : "", blocks,
				swap_way_names[way], swap_pages_names[pages]);
			blocks++;
		}
	fputc('\n', script);
}

int swap_plot(const struct swap_result *res, const char *file)
{
	return plot_draw(file, PLOT_WIDTH, PLOT_HEIGHT, plot, res);
}
