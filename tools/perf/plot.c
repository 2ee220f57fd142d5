// SPDX-License-Identifier: BSD-2-Clause
/*
 * The result of kedge perf as a picture: a column of panels for each kind of
 * buffers, with latency above bandwidth, or what the model expects for used and
 * for new ones. A block of data is a curve, which has its name at its right end.
 * Where another way becomes the best one, and stays so, a line goes down to the
 * size that it is from.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <kedge/kedge.h>

#include "tools/perf/perf.h"

#define CURVES_MAX PERF_PAIRS_MAX
#define PANELS_MAX (2 * PERF_BUFFERS)
/* Of two that are closer than that, neither is the better one. */
#define CLEAR 0.05
/* Each size, and the break-evens. */
#define POINTS_MAX (PERF_SIZES_MAX + 16)
#define WIDTH	   620
#define HEIGHT	   380
#define TICS	   8
/* Between two names, as a part of the panel's height. */
#define NAME_GAP 0.06

/* Dark enough for lines and words on white, and apart for the colour-blind. */
static const char *const colours[] = { "#0060a8", "#c04a00", "#00735a",
				       "#8a3a82", "#000000", "#7a5a00",
				       "#5a5aa0", "#606060" };

struct curve {
	char name[64];
	const char *colour;
	bool dashed;
	bool kept;
	size_t n;
	double x[POINTS_MAX];
	double y[POINTS_MAX];
	double at; /* of the name, 0 to 1 */
};

/** struct panel - some curves over the same sizes
 * @up:   more is better
 * @mark: from @mark[i] on @best[i] is the best one
 */
struct panel {
	char title[64];
	const char *unit;
	bool up;
	struct curve curve[CURVES_MAX];
	size_t n;
	double x[2];
	double y[2];
	double mark[CURVES_MAX];
	const struct curve *best[CURVES_MAX];
	size_t marks;
};

static struct curve *add_curve(struct panel *p, unsigned int colour,
			       bool dashed)
{
	struct curve *c = &p->curve[p->n++];

	c->colour = colours[colour % ARRAY_SIZE(colours)];
	c->dashed = dashed;
	return c;
}

/* Points are kept in the order of their sizes. */
static void add_point(struct curve *c, uint64_t bytes, double y)
{
	const double x = (double)bytes;
	size_t i = c->n;

	if (y <= 0 || c->n == POINTS_MAX)
		return;
	for (; i && c->x[i - 1] > x; i--) {
		c->x[i] = c->x[i - 1];
		c->y[i] = c->y[i - 1];
	}
	c->x[i] = x;
	c->y[i] = y;
	c->n++;
}

/* ---- where a way becomes the best ---- */

/* A curve's value there, between its points by the line that is drawn; 0 where
 * it has none. */
static double value(const struct curve *c, double x)
{
	size_t i;
	double part;

	for (i = 0; i < c->n; i++) {
		if (c->x[i] < x)
			continue;
		if (c->x[i] == x)
			return c->y[i];
		if (!i)
			return 0;
		part = log(x / c->x[i - 1]) / log(c->x[i] / c->x[i - 1]);
		return c->y[i - 1] * pow(c->y[i] / c->y[i - 1], part);
	}
	return 0;
}

static bool better(const struct panel *p, double a, double b)
{
	return a > 0 && (b <= 0 || (p->up ? a > b : a < b));
}

static const struct curve *best_at(const struct panel *p, double x)
{
	const struct curve *best = NULL;
	size_t i;

	for (i = 0; i < p->n; i++)
		if (better(p, value(&p->curve[i], x),
			   best ? value(best, x) : 0))
			best = &p->curve[i];
	return best;
}

/* True: it is the best of all from there to the last size. */
static bool stays(const struct panel *p, const struct curve *c, double x)
{
	const struct curve *sizes = NULL;
	size_t i;

	for (i = 0; i < p->n; i++)
		if (!sizes || p->curve[i].n > sizes->n)
			sizes = &p->curve[i];
	for (i = 0; sizes && i < sizes->n; i++)
		if (sizes->x[i] >= x && best_at(p, sizes->x[i]) != c)
			return false;
	return true;
}

/* Where @b passes @a, which is better at @low and worse at @high. */
static double crossing(const struct panel *p, const struct curve *a,
		       const struct curve *b, double low, double high)
{
	unsigned int step;
	double mid;

	for (step = 0; step < 40; step++) {
		mid = sqrt(low * high);
		if (better(p, value(b, mid), value(a, mid)))
			high = mid;
		else
			low = mid;
	}
	return high;
}

/* The last change of the best curve. Ones before it come and go with noise. */
static void mark_last_change(struct panel *p)
{
	const struct curve *best, *before;
	const struct curve *c;
	size_t i;

	best = best_at(p, p->x[1]);
	for (c = best, i = c ? c->n : 0; i-- > 0;) {
		before = best_at(p, c->x[i]);
		if (before == c || !before)
			continue;
		if (i + 1 == c->n || !stays(p, c, c->x[i + 1]) ||
		    fabs(log(c->y[i + 1] / value(before, c->x[i + 1]))) < CLEAR)
			return;
		p->best[p->marks] = c;
		p->mark[p->marks++] = crossing(p, before, c, c->x[i],
					       c->x[i + 1]);
		return;
	}
}

/* ---- curves ---- */

static void curves_of_rows(const struct perf_result *res, struct panel *p,
			   unsigned int buffers)
{
	unsigned int index;
	struct curve *c;
	size_t i;

	for (index = 0; index < res->pair_cnt; index++) {
		const struct perf_pair *pair = &res->pair[index];

		c = add_curve(p, index, pair->cfg.side != &perf_kedge);
		snprintf(c->name, sizeof(c->name), "%s %s",
			 pair->cfg.side->name, pair->cfg.name);
		for (i = 0; i < res->n; i++) {
			const struct perf_row *row = &res->rows[i];

			if (row->pair == index && row->buffers == buffers)
				add_point(c, row->bytes,
					  p->up ? row->gbps : row->latency_us);
		}
	}
}

static size_t panels_of_rows(const struct perf_result *res, struct panel *p)
{
	static const char *const kind[] = { "used buffers (malloc)",
					    "used buffers (heap)",
					    "new buffers (fresh)",
					    "used buffers (segment)" };
	unsigned int up, buffers;
	size_t n = 0;

	for (up = 0; up < 2; up++) {
		for (buffers = 0; buffers < PERF_BUFFERS; buffers++) {
			if (!(res->opt->buffers & (1u << buffers)))
				continue;
			p[n].up = up;
			p[n].unit = up ? "GB/s" : "us";
			snprintf(p[n].title, sizeof(p[n].title), "%s, %s",
				 up ? "bandwidth" : "latency", kind[buffers]);
			curves_of_rows(res, &p[n++], buffers);
		}
	}
	return n;
}

static void marks_of_model(const struct perf_result *res, struct panel *p,
			   uint32_t fresh)
{
	const struct perf_even *e;
	size_t i, k;

	for (i = 0; i < res->even_cnt && p->marks < CURVES_MAX; i++) {
		e = &res->evens[i];
		for (k = 0; k < p->n; k++)
			if (!strcmp(p->curve[k].name,
				    kedge_way_name(e->above)))
				break;
		/* Of two that both cost more than a third it says nothing. */
		if (e->fresh != fresh || k == p->n ||
		    best_at(p, (double)e->bytes) != &p->curve[k] ||
		    (p->marks && p->best[p->marks - 1] == &p->curve[k]))
			continue;
		p->best[p->marks] = &p->curve[k];
		p->mark[p->marks++] = (double)e->bytes;
	}
}

static size_t panels_of_model(const struct perf_result *res, struct panel *p)
{
	const struct perf_point *at;
	uint32_t way, fresh;
	struct curve *c;
	size_t i;

	for (fresh = 0; fresh < 2; fresh++, p++) {
		p->unit = "us";
		snprintf(p->title, sizeof(p->title), "expected, %s buffers",
			 fresh ? "new" : "used");
		for (way = KEDGE_WAY_EAGER; way < KEDGE_WAY_COUNT; way++) {
			c = add_curve(p, way - 1, false);
			snprintf(c->name, sizeof(c->name), "%s",
				 kedge_way_name(way));
			for (i = 0; i < res->point_cnt; i++) {
				at = &res->points[i];
				if (at->way == way && at->fresh == fresh)
					add_point(c, at->bytes,
						  (double)at->ns / 1e3);
			}
			for (i = 0; i < res->even_cnt; i++)
				if (res->evens[i].above == way &&
				    res->evens[i].fresh == fresh)
					add_point(c, res->evens[i].bytes,
						  (double)res->evens[i].ns /
							  1e3);
		}
	}
	return 2;
}

static void set_range(struct panel *p)
{
	size_t i, k;

	p->x[0] = p->y[0] = HUGE_VAL;
	p->x[1] = p->y[1] = 0;
	for (i = 0; i < p->n; i++) {
		for (k = 0; k < p->curve[i].n; k++) {
			p->x[0] = fmin(p->x[0], p->curve[i].x[k]);
			p->x[1] = fmax(p->x[1], p->curve[i].x[k]);
			p->y[0] = fmin(p->y[0], p->curve[i].y[k]);
			p->y[1] = fmax(p->y[1], p->curve[i].y[k]);
		}
	}
	if (p->x[1] <= 0)
		p->x[0] = p->x[1] = p->y[0] = p->y[1] = 1;
}

/* ---- names ---- */

/* The one that is to stand highest, of those that have no place yet. */
static struct curve *next_name(struct panel *p)
{
	struct curve *c, *high = NULL;
	size_t i;

	for (i = 0; i < p->n; i++) {
		c = &p->curve[i];
		if (c->n && c->x[c->n - 1] >= p->x[1] && !c->kept && (!high || c->at > high->at))
			high = c;
	}
	if (high)
		high->kept = true;
	return high;
}

/* At the height where the curve ends, and apart from each other: downwards, and
 * from the bottom up again. */
static void place_names(struct panel *p)
{
	const double low = log(p->y[0] / 1.5), high = log(p->y[1] * 1.5);
	struct curve *order[CURVES_MAX];
	double limit = 1;
	size_t i, n = 0;

	for (i = 0; i < p->n; i++)
		if (p->curve[i].n)
			p->curve[i].at = (log(p->curve[i].y[p->curve[i].n - 1]) -
					  low) / (high - low);
	while ((order[n] = next_name(p)))
		if (++n == CURVES_MAX)
			break;
	for (i = 0; i < n; i++, limit -= NAME_GAP) {
		order[i]->at = fmin(order[i]->at, limit);
		limit = order[i]->at;
	}
	for (limit = 0, i = n; i-- > 0; limit += NAME_GAP) {
		order[i]->at = fmax(order[i]->at, limit);
		limit = order[i]->at;
	}
}

/* In single quotes, where only they are special. */
static void put_name(FILE *script, const char *name)
{
	fputc('\'', script);
	for (; *name; name++) {
		if (*name == '\'')
			fputc('\'', script);
		fputc((unsigned char)*name < ' ' ? '?' : *name, script);
	}
	fputs("' noenhanced", script);
}

/* ---- gnuplot ---- */

static const char *size_name(char buf[UTIL_HUMAN], double bytes)
{
	static const char *const unit[] = { "B", "KiB", "MiB", "GiB" };
	size_t i = 0;

	for (; bytes >= 1024 && i + 1 < ARRAY_SIZE(unit); i++)
		bytes /= 1024;
	snprintf(buf, UTIL_HUMAN, bytes < 10 ? "%.2g %s" : "%.0f %s", bytes,
		 unit[i]);
	return buf;
}

static void put_axes(FILE *script, const struct panel *p)
{
	const int first = (int)ceil(log2(p->x[0]));
	const int last = (int)floor(log2(p->x[1]));
	const int step = (last - first) / TICS + 1;
	char n[UTIL_HUMAN];
	int i;

	fprintf(script, "set title '%s'\nset ylabel '%s'\n", p->title, p->unit);
	fprintf(script, "set xrange [%g:%g]\nset yrange [%g:%g]\n",
		p->x[0] / 1.3, p->x[1] * 1.3, p->y[0] / 1.5, p->y[1] * 1.5);
	fputs("set xtics (", script);
	for (i = first; i <= last; i += step)
		fprintf(script, "%s'%s' %g", i == first ? "" : ", ",
			size_name(n, exp2(i)), exp2(i));
	fputs(")\n", script);
}

static void put_marks(FILE *script, const struct panel *p)
{
	char n[UTIL_HUMAN];
	size_t i;

	for (i = 0; i < p->marks; i++) {
		const struct curve *c = p->best[i];

		fprintf(script, "set arrow from %g, %g to %g, graph 0 nohead "
			"dt 3 lc rgb '%s'\n", p->mark[i],
			value(c, p->mark[i]), p->mark[i], c->colour);
		fprintf(script, "set label at %g, %g '' point pt 6 ps 1.2 lw 2 "
			"lc rgb '%s'\n", p->mark[i], value(c, p->mark[i]),
			c->colour);
		fputs("set label ", script);
		put_name(script, c->name);
		fprintf(script, " at %g, graph 0.03 rotate by 90 offset "
			"character -0.8, 0 tc rgb '%s'\n", p->mark[i],
			c->colour);
		fprintf(script, "set label 'from %s' at %g, graph 0.03 rotate "
			"by 90 offset character 0.8, 0 tc rgb '%s'\n",
			size_name(n, p->mark[i]), p->mark[i], c->colour);
	}
}

/* Right of the panel, or where the curve ends before that. */
static void put_curve_name(FILE *script, const struct panel *p,
			   const struct curve *c)
{
	fputs("set label ", script);
	put_name(script, c->name);
	if (c->x[c->n - 1] < p->x[1])
		fprintf(script, " at %g, %g offset character 0.8, -0.4",
			c->x[c->n - 1], c->y[c->n - 1]);
	else
		fprintf(script, " at graph 1.02, graph %.4f", c->at);
	fprintf(script, " tc rgb '%s'\n", c->colour);
}

/* @index: of its first block of data; that of the next panel. */
static unsigned int put_panel(FILE *script, const struct panel *p,
			      unsigned int index)
{
	const char *between = "plot ";
	size_t i;

	put_axes(script, p);
	put_marks(script, p);
	for (i = 0; i < p->n; i++) {
		if (!p->curve[i].n)
			continue;
		put_curve_name(script, p, &p->curve[i]);
	}
	for (i = 0; i < p->n; i++) {
		if (!p->curve[i].n)
			continue;
		fprintf(script, "%s$data index %u using 1:2 with linespoints "
			"lc rgb '%s' lw %d pt 7 ps 0.4 dt %d notitle", between,
			index++, p->curve[i].colour,
			p->curve[i].dashed ? 1 : 2,
			p->curve[i].dashed ? 2 : 1);
		between = ", \\\n ";
	}
	fputs("\nunset label\nunset arrow\n", script);
	return index;
}

static void put_data(FILE *data, const struct panel *p, bool *first)
{
	size_t i, k;

	for (i = 0; i < p->n; i++) {
		if (!p->curve[i].n)
			continue;
		if (!*first)
			fputs("\n\n", data);
		*first = false;
		for (k = 0; k < p->curve[i].n; k++)
			fprintf(data, "%.0f %.6g\n", p->curve[i].x[k],
				p->curve[i].y[k]);
	}
}

/** struct picture - some panels
 * @rows: of panels, one above another
 */
struct picture {
	struct panel panel[PANELS_MAX];
	size_t n;
	unsigned int rows;
};

static void put_all(const void *of, FILE *script, FILE *data)
{
	const struct picture *pic = of;
	unsigned int index = 0;
	bool first = true;
	size_t i;

	fprintf(script, "set logscale x 2\nset logscale y\nset border 3\n"
		"set tics nomirror\nset grid lc rgb '#dddddd' lt 1\n"
		"set format y '%%g'\nset lmargin 9\nset rmargin 20\n"
		"set multiplot layout %u,%zu\n", pic->rows,
		pic->n / pic->rows);
	for (i = 0; i < pic->n; i++) {
		put_data(data, &pic->panel[i], &first);
		index = put_panel(script, &pic->panel[i], index);
	}
	fputs("unset multiplot\n", script);
}

static void picture_make(const struct perf_result *res, struct picture *pic)
{
	struct panel *p = pic->panel;
	size_t i;

	pic->rows = res->opt->model ? 1 : 2;
	pic->n = res->opt->model ? panels_of_model(res, p)
				 : panels_of_rows(res, p);
	for (i = 0; i < pic->n; i++) {
		set_range(&p[i]);
		if (res->opt->model)
			marks_of_model(res, &p[i], (uint32_t)i);
		else
			mark_last_change(&p[i]);
		place_names(&p[i]);
	}
}

int perf_plot(const struct perf_result *res, const char *file)
{
	struct picture *pic = calloc(1, sizeof(*pic));
	int rc;

	if (!pic)
		return util_fail(-ENOMEM, "cannot draw %s", file);
	picture_make(res, pic);
	rc = plot_draw(file, WIDTH * (unsigned int)pic->n / pic->rows,
		       HEIGHT * pic->rows, put_all, pic);
	free(pic);
	return rc;
}
