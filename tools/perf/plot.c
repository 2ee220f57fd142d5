// SPDX-License-Identifier: BSD-2-Clause
/*
 * The result of kedge perf as a picture: latency and bandwidth by size, or what
 * the model expects. A block of data is a curve.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <kedge/kedge.h>

#include "tools/perf/perf.h"

#define AXES                                                                   \
	"set logscale x 2\nset logscale y\nset grid\nset format x '%.0b%B'\n"  \
	"set xlabel 'message, bytes'\n"

/** struct drawing - gnuplot's commands and data as they grow */
struct drawing {
	FILE *script;
	FILE *data;
	unsigned int curves;
	/* "index N using 1:%s title ..." of each curve */
	FILE *list;
};

/* The next block of data is a curve of that name. */
static void start_curve(struct drawing *d, const char *name, const char *more)
{
	if (d->curves)
		fputs("\n\n", d->data);
	d->curves++;
	/* A tab parts curves in the list; gnuplot sees none. */
	fprintf(d->list, "%s, %s\t", name, more);
}

static void curves_of_rows(const struct perf_result *res, struct drawing *d)
{
	unsigned int lane, buffers;
	char name[80];
	size_t i;

	for (lane = 0; lane < res->lane_cnt; lane++) {
		const struct perf_lane *l = &res->lane[lane];

		snprintf(name, sizeof(name), "%s %s", l->cfg.side->name,
			 l->cfg.name);
		for (buffers = 0; buffers < PERF_BUFFERS; buffers++) {
			if (!(res->opt->buffers & (1u << buffers)))
				continue;
			start_curve(d, name, perf_buffers_names[buffers]);
			for (i = 0; i < res->n; i++) {
				const struct perf_row *row = &res->rows[i];

				if (row->lane == lane &&
				    row->buffers == buffers)
					fprintf(d->data, "%llu %.4f %.5f\n",
						(unsigned long long)row->bytes,
						row->latency_us, row->gbps);
			}
		}
	}
}

static void curves_of_model(const struct perf_result *res, struct drawing *d)
{
	const struct perf_point *p;
	uint32_t way, fresh;
	size_t i, cnt;

	for (fresh = 0; fresh < 2; fresh++) {
		for (way = 1; way < KEDGE_WAY_COUNT; way++) {
			for (i = cnt = 0; i < res->point_cnt; i++) {
				p = &res->points[i];
				if (p->way != way || p->fresh != fresh ||
				    !p->ns)
					continue;
				if (!cnt++)
					start_curve(d, kedge_way_name(way),
						    fresh ? "fresh" : "used");
				fprintf(d->data, "%llu %.4f\n",
					(unsigned long long)p->bytes,
					(double)p->ns / 1e3);
			}
		}
	}
}

/* Every curve of @names, which is "name\tname\t", by that column. */
static void put_plot(FILE *script, const char *names, unsigned int column,
		     bool titles)
{
	unsigned int index = 0;
	const char *end;

	for (; (end = strchr(names, '\t')); names = end + 1, index++) {
		fprintf(script, "%s$data index %u using 1:%u with linespoints ",
			index ? ", " : "plot ", index, column);
		if (titles)
			fprintf(script, "title '%.*s' noenhanced",
				(int)(end - names), names);
		else
			fputs("notitle", script);
	}
	fputc('\n', script);
}

static void put_script(const struct perf_result *res, FILE *script,
		       const char *names)
{
	fputs(AXES, script);
	if (res->opt->model) {
		fputs("set key left top\nset ylabel 'expected, us'\n", script);
		put_plot(script, names, 2, true);
		return;
	}
	fputs("set key left top\nset multiplot layout 1,2\n"
	      "set ylabel 'latency, us'\n",
	      script);
	put_plot(script, names, 2, true);
	fputs("set ylabel 'bandwidth, GB/s'\n", script);
	put_plot(script, names, 3, false);
	fputs("unset multiplot\n", script);
}

int perf_plot(const struct perf_result *res, const char *file)
{
	char *script = NULL, *data = NULL, *names = NULL;
	size_t script_len, data_len, names_len;
	struct drawing d = { 0 };
	int rc;

	d.script = open_memstream(&script, &script_len);
	d.data = open_memstream(&data, &data_len);
	d.list = open_memstream(&names, &names_len);
	rc = d.script && d.data && d.list ? 0 : -ENOMEM;
	if (!rc) {
		if (res->opt->model)
			curves_of_model(res, &d);
		else
			curves_of_rows(res, &d);
		if (fflush(d.list))
			rc = -ENOMEM;
		else
			put_script(res, d.script, names);
	}
	if (d.script && fclose(d.script))
		rc = -ENOMEM;
	if (d.data && fclose(d.data))
		rc = -ENOMEM;
	if (d.list && fclose(d.list))
		rc = -ENOMEM;
	rc = rc ? util_fail(rc, "cannot draw %s", file)
		: bench_plot(file, script, data);
	free(script);
	free(data);
	free(names);
	return rc;
}
