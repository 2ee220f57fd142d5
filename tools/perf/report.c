// SPDX-License-Identifier: BSD-2-Clause
/* The result of kedge perf for people and spreadsheets. */
#include <stdio.h>

#include <kedge/kedge.h>

#include "tools/perf/perf.h"

#define REGISTER_AT (4ull << 20)

double perf_ratio(double a, double b)
{
	return b > 0 ? a / b : 0;
}

bool perf_is_peer(const struct perf_result *res, const struct perf_row *row)
{
	return res->pair[row->pair].cfg.side != &perf_kedge;
}

bool perf_same(const struct perf_row *a, const struct perf_row *b)
{
	return a->bytes == b->bytes && a->buffers == b->buffers;
}

void perf_best_peer(const struct perf_result *res, const struct perf_row *row,
		    struct perf_best *best)
{
	const struct perf_row *p;
	size_t i;

	*best = (struct perf_best){ 0 };
	for (i = 0; i < res->n; i++) {
		p = &res->rows[i];
		if (!perf_is_peer(res, p) || !perf_same(p, row))
			continue;
		if (!best->cnt || p->latency_us < best->latency_us)
			best->latency_us = p->latency_us;
		if (p->gbps > best->gbps)
			best->gbps = p->gbps;
		best->cnt++;
	}
}

const char *perf_way_taken(const struct perf_row *row)
{
	uint32_t way, most = 0;

	for (way = 1; way < KEDGE_WAY_COUNT; way++)
		if (row->ways[way] > row->ways[most])
			most = way;
	return row->ways[most] ? kedge_way_name(most) : "";
}

double perf_register_us(const struct perf_result *res,
			enum perf_buffers buffers)
{
	const struct perf_row *row;
	size_t i;

	for (i = 0; i < res->n; i++) {
		row = &res->rows[i];
		if (res->pair[row->pair].cfg.way == KEDGE_WAY_REGISTER &&
		    row->bytes == REGISTER_AT && row->buffers == buffers &&
		    row->ways[KEDGE_WAY_REGISTER])
			return row->cts_us;
	}
	return 0;
}

const char *perf_size_name(char buf[UTIL_HUMAN], uint64_t bytes)
{
	static const char *const unit[] = { "B", "KiB", "MiB", "GiB" };
	size_t i = 0;

	while (bytes && !(bytes % 1024) && i + 1 < ARRAY_SIZE(unit)) {
		bytes /= 1024;
		i++;
	}
	snprintf(buf, UTIL_HUMAN, "%llu %s", (unsigned long long)bytes,
		 unit[i]);
	return buf;
}

static const char *number(char buf[UTIL_HUMAN], double v)
{
	snprintf(buf, UTIL_HUMAN, v < 10 ? "%.3f" : v < 1000 ? "%.2f" : "%.0f",
		 v);
	return buf;
}

/* ---- text ---- */

static void print_peer(const struct perf_result *res,
		       const struct perf_row *row)
{
	struct perf_best best;
	char a[UTIL_HUMAN], b[UTIL_HUMAN];

	perf_best_peer(res, row, &best);
	if (best.cnt)
		printf(" %9s %6.2f %8s %6.2f", number(a, best.latency_us),
		       perf_ratio(row->latency_us, best.latency_us),
		       number(b, best.gbps), perf_ratio(row->gbps, best.gbps));
}

static void print_row(const struct perf_result *res, const struct perf_row *row)
{
	const struct perf_pair *pair = &res->pair[row->pair];
	double reg = perf_register_us(res, row->buffers);
	char n[UTIL_HUMAN], a[UTIL_HUMAN], b[UTIL_HUMAN], c[UTIL_HUMAN];
	char way[64];

	snprintf(way, sizeof(way), "%s%s%s",
		 perf_is_peer(res, row) ? pair->cfg.side->name : "",
		 perf_is_peer(res, row) ? " " : "", pair->cfg.name);
	printf("%9s %-6s %-14s %-8s %9s %8s", perf_size_name(n, row->bytes),
	       perf_buffers_names[row->buffers], way, perf_way_taken(row),
	       number(a, row->latency_us), number(b, row->gbps));
	printf(" %8s", row->cts_us > 0 ? number(c, row->cts_us) : "");
	if (res->opt->turnaround && row->cts_us > 0 && reg > 0)
		printf(" %8.3f", perf_ratio(row->cts_us, reg));
	else if (res->opt->turnaround)
		printf(" %8s", "");
	if (!perf_is_peer(res, row))
		print_peer(res, row);
	if (row->wrong)
		printf("  %s%llu wrong%s", util_colour(UTIL_RED),
		       (unsigned long long)row->wrong, util_colour(UTIL_PLAIN));
	putchar('\n');
}

static void print_place(const struct perf_result *res)
{
	const struct perf_facts *f = &res->pair[0].facts;

	printf("kedge %s, %s channel", f->version, f->transport);
	if (res->opt->connect)
		printf(" to %s", res->opt->connect);
	else if (res->cpus > 1)
		printf(", both ends on this host, a CPU each of %u",
		       res->cpus);
	else
		printf(", both ends on this host, %sone CPU for both%s",
		       util_colour(UTIL_YELLOW), util_colour(UTIL_PLAIN));
}

/* "beside ucx 1.22.0 (release build, /opt/ucx/lib/libucp.so.0): posix" */
static void print_peers(const struct perf_result *res)
{
	const struct perf_side *last = NULL;
	const struct perf_facts *f;
	const char *build;
	unsigned int i;

	for (i = 0; i < res->pair_cnt; i++) {
		const struct perf_pair_cfg *cfg = &res->pair[i].cfg;

		if (cfg->side == &perf_kedge)
			continue;
		f = &res->pair[i].facts;
		build = perf_build_name(f);
		if (cfg->side == last) {
			printf("; %s", cfg->name);
			continue;
		}
		printf("%sbeside %s %s (%s%s%s%s%s): %s", last ? "\n" : "",
		       cfg->side->name, f->version,
		       util_colour(perf_is_release(f) ? UTIL_PLAIN
						      : UTIL_YELLOW),
		       build ? build : "", util_colour(UTIL_PLAIN),
		       build ? ", " : "", f->path, cfg->name);
		last = cfg->side;
	}
	if (last)
		putchar('\n');
}

static void print_head(const struct perf_result *res)
{
	const struct perf_opts *opt = res->opt;

	print_place(res);
	printf("; window %d, %d rounds%s%s\n", opt->window, opt->rounds,
	       opt->check ? ", every byte checked" : "",
	       opt->use ? ", every message used" : "");
	print_peers(res);
	printf("\n%9s %-6s %-14s %-8s %9s %8s %8s", "size", "buffer", "way",
	       "taken", "us", "GB/s", "cts us");
	if (opt->turnaround)
		printf(" %8s", "of reg");
	if (opt->peer_cnt)
		printf(" %9s %6s %8s %6s", "peer us", "ratio", "GB/s", "ratio");
	putchar('\n');
}

static void print_model(const struct perf_result *res)
{
	char n[UTIL_HUMAN], v[UTIL_HUMAN];
	uint32_t way, fresh;
	size_t i, cnt = res->opt->size_cnt;

	print_place(res);
	printf("; what a message is expected to cost, in us\n");
	for (fresh = 0; fresh < 2; fresh++) {
		printf("\n%-9s", fresh ? "fresh" : "used");
		for (way = 0; way < KEDGE_WAY_COUNT; way++)
			printf(" %9s", kedge_way_name(way));
		putchar('\n');
		for (i = 0; i < cnt; i++) {
			printf("%9s", perf_size_name(n, res->opt->sizes[i]));
			for (way = 0; way < KEDGE_WAY_COUNT; way++) {
				const struct perf_point *p =
					&res->points[(fresh * KEDGE_WAY_COUNT +
						      way) * cnt + i];

				printf(" %9s",
				       p->ns ? number(v, (double)p->ns / 1e3)
					     : "-");
			}
			putchar('\n');
		}
	}
	printf("\nbreak-evens\n");
	for (i = 0; i < res->even_cnt; i++)
		printf("%-6s %-8s costs less than %-8s from %llu bytes on\n",
		       res->evens[i].fresh ? "fresh" : "used",
		       kedge_way_name(res->evens[i].above),
		       kedge_way_name(res->evens[i].below),
		       (unsigned long long)res->evens[i].bytes);
	if (!res->even_cnt)
		printf("none from 1 KiB to 256 MiB\n");
}

void perf_print_text(const struct perf_result *res)
{
	double reg;
	size_t i;

	if (res->opt->model) {
		print_model(res);
		return;
	}
	print_head(res);
	for (i = 0; i < res->n; i++)
		print_row(res, &res->rows[i]);
	if (!res->opt->turnaround)
		return;
	for (i = 0; i < PERF_BUFFERS; i++) {
		reg = perf_register_us(res, (enum perf_buffers)i);
		if (reg > 0)
			printf("\nregistering 4 MiB (%s): %.3f us\n",
			       perf_buffers_names[i], reg);
	}
}

/* ---- CSV ---- */

static void csv_model(const struct perf_result *res)
{
	size_t i;

	puts("way,fresh,bytes,ns");
	for (i = 0; i < res->point_cnt; i++)
		if (res->points[i].ns)
			printf("%s,%u,%llu,%llu\n",
			       kedge_way_name(res->points[i].way),
			       res->points[i].fresh,
			       (unsigned long long)res->points[i].bytes,
			       (unsigned long long)res->points[i].ns);
}

static void csv_row(const struct perf_result *res, const struct perf_row *row)
{
	const struct perf_pair *pair = &res->pair[row->pair];
	struct perf_best best;
	char peers[UTIL_HUMAN];

	printf("%s,\"%s\",%llu,%s,%s,%u,%.4f,%.5f,", pair->facts.transport,
	       pair->cfg.name, (unsigned long long)row->bytes,
	       perf_buffers_names[row->buffers], perf_way_taken(row),
	       row->window, row->latency_us, row->gbps);
	if (row->cts_us > 0)
		printf("%.4f", row->cts_us);
	perf_best_peer(res, row, &best);
	if (best.cnt && !perf_is_peer(res, row))
		printf(",\"%s\",%.4f,%.5f,%.4f,%.4f",
		       perf_peers_name(res->opt, peers),
		       best.latency_us, best.gbps,
		       perf_ratio(row->latency_us, best.latency_us),
		       perf_ratio(row->gbps, best.gbps));
	else
		printf(",,,,,");
	printf(",%llu,%llu,%llu\n", (unsigned long long)row->wrong,
	       (unsigned long long)row->rounds,
	       (unsigned long long)row->dropped);
}

void perf_print_csv(const struct perf_result *res)
{
	size_t i;

	if (res->opt->model) {
		csv_model(res);
		return;
	}
	puts("transport,way,bytes,buffers,way_taken,window,latency_us,gbps,"
	     "cts_us,peer,peer_latency_us,peer_gbps,latency_ratio,gbps_ratio,"
	     "wrong,rounds,dropped");
	for (i = 0; i < res->n; i++)
		csv_row(res, &res->rows[i]);
}
