// SPDX-License-Identifier: BSD-2-Clause
/* The result of kedge perf as JSON. kedge's pairs are rows; a peer's figures
 * are members of the rows that they are to be compared with. */
#include <stdio.h>

#include <kedge/kedge.h>

#include "tools/perf/perf.h"

/* A number, or null where there is none. */
static json_t *real_or_null(double v)
{
	return v > 0 ? json_real(v) : json_null();
}

static json_t *ways_json(const struct perf_row *row)
{
	json_t *o = json_object();
	uint32_t way;
	int rc = o ? 0 : -1;

	for (way = 0; way < KEDGE_WAY_COUNT && !rc; way++)
		if (row->ways[way])
			rc = json_object_set_new(
				o, kedge_way_name(way),
				json_integer((json_int_t)row->ways[way]));
	if (!rc)
		return o;
	json_decref(o);
	return NULL;
}

/* Each transport of the peers, for a row of ours. */
static json_t *peers_json(const struct perf_result *res,
			  const struct perf_row *row)
{
	json_t *list = json_array();
	const struct perf_row *p;
	int rc = list ? 0 : -1;
	size_t i;

	for (i = 0; i < res->n && !rc; i++) {
		p = &res->rows[i];
		if (!perf_is_peer(res, p) || !perf_same(p, row))
			continue;
		rc = json_array_append_new(
			list,
			json_pack("{s:s, s:o, s:f, s:f, s:f, s:I}", "peer",
				  res->pair[p->pair].cfg.side->name, "tls",
				  util_json_text(res->pair[p->pair].cfg.name),
				  "latency_us", p->latency_us, "gbps", p->gbps,
				  "faults", p->faults, "wrong",
				  (json_int_t)p->wrong));
	}
	if (!rc)
		return list;
	json_decref(list);
	return NULL;
}

static int add_peer(const struct perf_result *res, const struct perf_row *row,
		    json_t *o)
{
	struct perf_best best;
	char name[UTIL_HUMAN];

	perf_best_peer(res, row, &best);
	return json_object_update_new(
		o,
		json_pack("{s:s?, s:o, s:o, s:o, s:o, s:o}", "peer",
			  best.cnt ? perf_peers_name(res->opt, name) : NULL,
			  "peer_latency_us", real_or_null(best.latency_us),
			  "peer_gbps", real_or_null(best.gbps), "latency_ratio",
			  real_or_null(perf_ratio(row->latency_us,
						  best.latency_us)),
			  "gbps_ratio",
			  real_or_null(perf_ratio(row->gbps, best.gbps)),
			  "peers", peers_json(res, row)));
}

static json_t *row_json(const void *of, size_t i)
{
	const struct perf_result *res = of;
	const struct perf_row *row = &res->rows[i];
	const struct perf_pair *pair = &res->pair[row->pair];
	double reg = perf_register_us(res, row->buffers);
	json_t *o;

	if (perf_is_peer(res, row))
		return json_null();
	o = json_pack("{s:s, s:s, s:I, s:s, s:f, s:f, s:s, s:o, s:I, s:o, s:o, "
		      "s:f, s:I, s:I, s:I}",
		      "transport", pair->facts.transport, "way", pair->cfg.name,
		      "bytes", (json_int_t)row->bytes, "buffers",
		      perf_buffers_names[row->buffers], "latency_us",
		      row->latency_us, "gbps", row->gbps, "way_taken",
		      perf_way_taken(row), "ways", ways_json(row), "window",
		      (json_int_t)row->window, "cts_us",
		      real_or_null(row->cts_us), "cts_ratio",
		      real_or_null(perf_ratio(row->cts_us, reg)), "faults",
		      row->faults, "wrong", (json_int_t)row->wrong, "rounds",
		      (json_int_t)row->rounds, "dropped",
		      (json_int_t)row->dropped);
	if (!o)
		return NULL;
	if (!add_peer(res, row, o))
		return o;
	json_decref(o);
	return NULL;
}

static json_t *model_json(const struct perf_result *res)
{
	json_t *curves = json_array(), *evens = json_array();
	int rc = curves && evens ? 0 : -1;
	size_t i;

	for (i = 0; i < res->point_cnt && !rc; i++) {
		const struct perf_point *p = &res->points[i];

		if (!p->ns)
			continue;
		rc = json_array_append_new(
			curves, json_pack("{s:s, s:b, s:I, s:I}", "way",
					  kedge_way_name(p->way), "fresh",
					  (int)p->fresh, "bytes",
					  (json_int_t)p->bytes, "ns",
					  (json_int_t)p->ns));
	}
	for (i = 0; i < res->even_cnt && !rc; i++) {
		const struct perf_even *e = &res->evens[i];

		rc = json_array_append_new(
			evens, json_pack("{s:b, s:s, s:s, s:I}", "fresh",
					 (int)e->fresh, "below",
					 kedge_way_name(e->below), "above",
					 kedge_way_name(e->above), "bytes",
					 (json_int_t)e->bytes));
	}
	if (!rc)
		return json_pack("{s:o, s:o}", "curves", curves, "break_even",
				 evens);
	json_decref(curves);
	json_decref(evens);
	return NULL;
}

/* null where nobody knows. */
static json_t *flag_json(const struct perf_facts *f, uint32_t flag)
{
	return f->build & PERF_BUILD_KNOWN ? json_boolean(f->build & flag)
					   : json_null();
}

/* The build of each library that is measured. */
static json_t *builds_json(const struct perf_result *res)
{
	const struct perf_side *last = &perf_kedge;
	json_t *list = json_array();
	int rc = list ? 0 : -1;
	unsigned int i;

	for (i = 0; i < res->pair_cnt && !rc; i++) {
		const struct perf_pair *pair = &res->pair[i];

		if (pair->cfg.side == last || pair->cfg.side == &perf_kedge)
			continue;
		last = pair->cfg.side;
		rc = json_array_append_new(
			list,
			json_pack(
				"{s:s, s:s, s:o, s:o, s:o}", "peer", last->name,
				"version", pair->facts.version, "path",
				util_json_text(pair->facts.path), "assertions",
				flag_json(&pair->facts, PERF_BUILD_ASSERTIONS),
				"parameter_checks",
				flag_json(&pair->facts,
					  PERF_BUILD_PARAM_CHECKS)));
	}
	if (!rc)
		return list;
	json_decref(list);
	return NULL;
}

/* The first peer's. */
static const char *peer_version(const struct perf_result *res)
{
	unsigned int i;

	for (i = 0; i < res->pair_cnt; i++)
		if (res->pair[i].cfg.side != &perf_kedge)
			return res->pair[i].facts.version;
	return NULL;
}

int perf_print_json(const struct perf_result *res)
{
	const struct perf_opts *opt = res->opt;
	char peers[UTIL_HUMAN];
	json_t *root;

	root = json_pack("{s:s, s:s, s:b, s:i, s:i, s:i, s:b, s:b, s:I, s:I, "
			 "s:o, s:s?, s:s?, s:o, s:o, s:o?}",
			 "version", res->pair[0].facts.version, "transport",
			 res->pair[0].facts.transport, "remote",
			 opt->connect != NULL, "cpus", (int)res->cpus,
			 "window", opt->window, "rounds", opt->rounds, "check",
			 opt->check, "use", opt->use, "seed",
			 (json_int_t)opt->seed, "wrong", (json_int_t)res->wrong,
			 "register_4m_us",
			 real_or_null(perf_register_us(
				 res, opt->buffers & (1u << PERF_FRESH)
					      ? PERF_FRESH
					      : PERF_MALLOC)),
			 "peer",
			 opt->peer_cnt ? perf_peers_name(opt, peers) : NULL,
			 "peer_version", peer_version(res), "peers",
			 builds_json(res), "rows",
			 util_json_rows(res->n, row_json, res), "model",
			 opt->model ? model_json(res) : NULL);
	return util_json_print(root);
}
