// SPDX-License-Identifier: BSD-2-Clause
/* The result of kedge perf --segment for people, programs and gnuplot. */
#include <stdio.h>

#include "base/base.h"
#include "tools/perf/segment/segment.h"

/* 1e9 bytes a second; 0 where that means nothing. */
static double gbps(const struct seg_row *row, double ns)
{
	return seg_names[row->bench].flow && ns > 0 ? (double)row->bytes / ns : 0;
}

/* ---- text ---- */

static const char *time_text(char buf[UTIL_HUMAN], double ns)
{
	if (ns >= 100)
		return util_human_ns(buf, ns);
	snprintf(buf, UTIL_HUMAN, "%.2f ns", ns);
	return buf;
}

static void print_flow(double v)
{
	if (v > 0)
		printf(" %8.2f", v);
	else
		printf(" %8s", "");
}

static void print_row(const struct seg_row *row)
{
	char a[UTIL_HUMAN], b[UTIL_HUMAN];

	printf("%-8s %-22s %9s %9s", seg_backend_names[row->place],
	       seg_names[row->bench].text,
	       row->bytes ? perf_size_name(a, row->bytes) : "",
	       time_text(b, row->ns));
	print_flow(gbps(row, row->ns));
	printf("   %-24s %9s", seg_names[row->bench].beside,
	       row->beside_ns > 0 ? time_text(b, row->beside_ns) : "-");
	print_flow(gbps(row, row->beside_ns));
	if (row->ratio > 0)
		printf(" %9.*fx", row->ratio < 0.1 ? 3 : 2, row->ratio);
	putchar('\n');
}

static void print_text(const struct seg_result *res)
{
	unsigned int place;
	size_t i;

	printf("kedge %s, segments of another process on this host, ", kedge_version());
	if (res->cpus > 1)
		printf("a CPU each of %u", res->cpus);
	else
		printf("%sone CPU for both%s", util_colour(UTIL_YELLOW),
		       util_colour(UTIL_PLAIN));
	printf("; %d rounds\n\n%-8s %-22s %9s %9s %8s   %-24s %9s %8s %10s\n",
	       res->opt->rounds, "backend", "what", "size", "time", "GB/s", "beside",
	       "time", "GB/s", "as fast");
	for (i = 0; i < res->n; i++) {
		if (i && res->row[i].place != res->row[i - 1].place)
			putchar('\n');
		print_row(&res->row[i]);
	}
	for (place = 0; place < SEG_BACKENDS; place++)
		if (*res->why[place])
			printf("\n%s: %s\n", seg_backend_names[place], res->why[place]);
}

/* ---- CSV ---- */

static void csv_number(double v)
{
	if (v > 0)
		printf("%.5g", v);
	putchar(',');
}

static void print_csv(const struct seg_result *res)
{
	const struct seg_row *row;
	size_t i;

	puts("backend,bench,bytes,ns,gbps,beside,beside_ns,beside_gbps,ratio,rounds,"
	     "dropped");
	for (i = 0; i < res->n; i++) {
		row = &res->row[i];
		printf("%s,%s,%llu,", seg_backend_names[row->place],
		       seg_names[row->bench].name, (unsigned long long)row->bytes);
		csv_number(row->ns);
		csv_number(gbps(row, row->ns));
		printf("\"%s\",", seg_names[row->bench].beside);
		csv_number(row->beside_ns);
		csv_number(gbps(row, row->beside_ns));
		csv_number(row->ratio);
		printf("%llu,%llu\n", (unsigned long long)row->rounds,
		       (unsigned long long)row->dropped);
	}
}

/* ---- JSON ---- */

static json_t *number(double v)
{
	return v > 0 ? json_real(v) : json_null();
}

static json_t *row_json(const void *of, size_t i)
{
	const struct seg_row *row = &((const struct seg_result *)of)->row[i];

	return json_pack("{s:s, s:s, s:I, s:f, s:o, s:s, s:o, s:o, s:o, s:I, s:I}",
			 "backend", seg_backend_names[row->place], "bench",
			 seg_names[row->bench].name, "bytes", (json_int_t)row->bytes, "ns",
			 row->ns, "gbps", number(gbps(row, row->ns)), "beside",
			 seg_names[row->bench].beside, "beside_ns", number(row->beside_ns),
			 "beside_gbps", number(gbps(row, row->beside_ns)), "ratio",
			 number(row->ratio), "rounds", (json_int_t)row->rounds, "dropped",
			 (json_int_t)row->dropped);
}

static json_t *why_json(const struct seg_result *res)
{
	json_t *o = json_object();
	unsigned int place;

	for (place = 0; place < SEG_BACKENDS && o; place++)
		if (*res->why[place] && json_object_set_new(o, seg_backend_names[place],
							    util_json_text(res->why[place]))) {
			json_decref(o);
			o = NULL;
		}
	return o;
}

static int print_json(const struct seg_result *res)
{
	return util_json_print(json_pack("{s:s, s:i, s:i, s:I, s:o, s:o}", "version",
					 kedge_version(), "cpus", (int)res->cpus, "rounds",
					 res->opt->rounds, "wrong", (json_int_t)res->wrong,
					 "unavailable", why_json(res), "rows",
					 util_json_rows(res->n, row_json, res)));
}

int seg_report(const struct seg_result *res)
{
	if (util_flags.json)
		return print_json(res) ? CMD_CANNOT : CMD_OK;
	if (res->opt->csv)
		print_csv(res);
	else
		print_text(res);
	return CMD_OK;
}

/* ---- the picture: the copies of each size ---- */

/* @beside: the curve of what is beside it. Returns the points. */
static size_t put_curve(const struct seg_result *res, FILE *data, enum seg_place place,
			bool beside, bool first)
{
	size_t i, n = 0;

	for (i = 0; i < res->n; i++) {
		const struct seg_row *row = &res->row[i];
		double v = gbps(row, beside ? row->beside_ns : row->ns);

		if (row->bench != SEG_COPY || row->place != place || v <= 0)
			continue;
		if (!n++ && !first)
			fputs("\n\n", data);
		fprintf(data, "%llu %.6g\n", (unsigned long long)row->bytes, v);
	}
	return n;
}

static void plot(const void *of, FILE *script, FILE *data)
{
	const struct seg_result *res = of;
	unsigned int place, beside, blocks = 0;

	fputs("set title 'copied out of memory of another process'\n"
	      "set logscale x 2\nset logscale y\nset xlabel 'bytes'\n"
	      "set format x '%.0b %BB'\nset ylabel 'GB/s'\nset key left top\n"
	      "set key noenhanced\nset grid\nplot ", script);
	for (place = 0; place < SEG_BACKENDS; place++)
		for (beside = 0; beside < 2; beside++) {
			if (!put_curve(res, data, (enum seg_place)place, beside,
				       !blocks))
				continue;
			fprintf(script, "%s$data index %u using 1:2 with linespoints "
				"title '%s'", blocks ? ", " : "", blocks,
				beside ? "process_vm_readv()"
				: place == SEG_MODULE ? "attached, module"
						      : "attached, convert");
			blocks++;
		}
	fputc('\n', script);
}

int seg_plot(const struct seg_result *res, const char *file)
{
	return plot_draw(file, PLOT_WIDTH, PLOT_HEIGHT, plot, res);
}
