// SPDX-License-Identifier: BSD-2-Clause
/* The result of kedge bench watch for people and programs. */
#include <stdio.h>
#include <stdlib.h>

#include "tools/bench/watch.h"

static const char *cpus_name(const struct munmap_row *row)
{
	return row->one_cpu ? "one" : "any";
}

static double ratio(double a, double b)
{
	return b > 0 ? a / b : 0;
}

static bool counted(const struct watch_opts *opt,
		    const struct watch_result *res)
{
	return opt->instructions && !res->insn_rc;
}

/* ---- text ---- */

static void print_munmap(const struct watch_opts *opt,
			 const struct watch_result *res)
{
	bool insn = counted(opt, res);
	size_t i;

	printf("munmap() of a touched 64 KiB range\n\n%-11s %-4s %7s %9s %9s "
	       "%9s %7s %13s %8s",
	       "", "cpus", "pace us", "ns", "best", "adds ns", "x none",
	       "quartiles", "x plain");
	if (insn)
		printf(" %9s %7s", "insns", "x none");
	putchar('\n');
	for (i = 0; i < res->munmap_n; i++) {
		const struct munmap_row *row = &res->munmap[i];

		if (i && row->config == CFG_NONE)
			putchar('\n');
		printf("%-11s %-4s %7llu %9.0f %9.0f %9.0f %7.3f %6.3f-%6.3f",
		       munmap_names[row->config], cpus_name(row),
		       (unsigned long long)row->pace_us, row->ns, row->best_ns,
		       row->over, row->ratio, row->lo, row->hi);
		if (row->config > CFG_CONTROL)
			printf(" %8.2f", row->vs_plain);
		else if (insn)
			printf(" %8s", "");
		if (insn)
			printf(" %9.0f %7.4f", row->insn, row->insn_ratio);
		putchar('\n');
	}
	if (opt->instructions && res->insn_rc)
		printf("\nInstructions cannot be counted here: %s.\n",
		       strerror(-res->insn_rc));
}

static void print_cost(const struct watch_result *res)
{
	char n[UTIL_HUMAN];
	size_t i;

	printf("\nWatching, ns a watch or an event\n\n%-11s %9s %9s %9s %9s "
	       "%9s %6s\n",
	       "", "watches", "kedge ns", "best", "plain ns", "best", "ratio");
	for (i = 0; i < res->cost_n; i++) {
		const struct cost_row *row = &res->cost[i];

		printf("%-11s %9s %9.1f %9.1f", cost_names[row->step],
		       util_human_count(n, row->watches), row->ns[0],
		       row->best_ns[0]);
		if (row->ns[1] > 0)
			printf(" %9.1f %9.1f %6.2f", row->ns[1],
			       row->best_ns[1], ratio(row->ns[0], row->ns[1]));
		putchar('\n');
	}
}

static void print_text(const struct watch_opts *opt,
		       const struct watch_result *res)
{
	printf("notifier %s (%s), libkedge-hooks %s; %u CPUs\n\n", res->backend,
	       res->level, res->hooked ? "linked" : "not linked", proc_cpus());
	print_munmap(opt, res);
	if (res->cost_n)
		print_cost(res);
}

/* ---- CSV ---- */

static void print_csv(const struct watch_opts *opt,
		      const struct watch_result *res)
{
	size_t i;

	puts("bench,config,cpus,pace_us,watches,ns,best_ns,overhead_ns,"
	     "ratio_none,ratio_none_q25,ratio_none_q75,ratio_plain,"
	     "instructions,peer_ns,peer_best_ns,ratio");
	for (i = 0; i < res->munmap_n; i++) {
		const struct munmap_row *row = &res->munmap[i];

		printf("munmap,%s,%s,%llu,,%.1f,%.1f,%.1f,%.4f,%.4f,%.4f,"
		       "%.4f,",
		       munmap_names[row->config], cpus_name(row),
		       (unsigned long long)row->pace_us, row->ns, row->best_ns,
		       row->over, row->ratio, row->lo, row->hi, row->vs_plain);
		if (counted(opt, res))
			printf("%.0f", row->insn);
		puts(",,,");
	}
	for (i = 0; i < res->cost_n; i++) {
		const struct cost_row *row = &res->cost[i];

		printf("%s,,,,%llu,%.1f,%.1f,,,,,,,", cost_names[row->step],
		       (unsigned long long)row->watches, row->ns[0],
		       row->best_ns[0]);
		if (row->ns[1] > 0)
			printf("%.1f,%.1f,%.4f\n", row->ns[1], row->best_ns[1],
			       ratio(row->ns[0], row->ns[1]));
		else
			puts(",,");
	}
}

/* ---- JSON ---- */

static json_t *munmap_json(const struct munmap_row *row, bool insn)
{
	json_t *o;

	o = json_pack("{s:s, s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f}",
		      "bench", "munmap", "config", munmap_names[row->config],
		      "cpus", cpus_name(row), "pace_us",
		      (json_int_t)row->pace_us, "ns", row->ns, "best_ns",
		      row->best_ns, "overhead_ns", row->over, "ratio_none",
		      row->ratio, "ratio_none_q25", row->lo, "ratio_none_q75",
		      row->hi);
	if (!o)
		return NULL;
	if (!json_object_set_new(o, "ratio_plain",
				 row->config > CFG_CONTROL
					 ? json_real(row->vs_plain)
					 : json_null()) &&
	    !json_object_set_new(o, "instructions",
				 insn ? json_real(row->insn) : json_null()) &&
	    !json_object_set_new(o, "instructions_ratio_none",
				 insn ? json_real(row->insn_ratio)
				      : json_null()))
		return o;
	json_decref(o);
	return NULL;
}

static json_t *cost_json(const struct cost_row *row)
{
	const bool peer = row->ns[1] > 0;
	json_t *o;

	o = json_pack("{s:s, s:I, s:f, s:f, s:s?}", "bench",
		      cost_names[row->step], "watches",
		      (json_int_t)row->watches, "kedge_ns", row->ns[0],
		      "kedge_best_ns", row->best_ns[0], "peer",
		      peer ? "plain" : NULL);
	if (!o)
		return NULL;
	if (!json_object_set_new(o, "peer_ns",
				 peer ? json_real(row->ns[1]) : json_null()) &&
	    !json_object_set_new(o, "peer_best_ns",
				 peer ? json_real(row->best_ns[1])
				      : json_null()) &&
	    !json_object_set_new(o, "ratio",
				 peer ? json_real(ratio(row->ns[0], row->ns[1]))
				      : json_null()))
		return o;
	json_decref(o);
	return NULL;
}

/* For both tables, one after the other. */
struct both {
	const struct watch_result *res;
	bool insn;
};

static json_t *row_json(const void *of, size_t i)
{
	const struct both *b = of;
	const struct watch_result *res = b->res;

	return i < res->munmap_n ? munmap_json(&res->munmap[i], b->insn)
				 : cost_json(&res->cost[i - res->munmap_n]);
}

static int print_json(const struct watch_opts *opt,
		      const struct watch_result *res)
{
	const struct both both = { res, counted(opt, res) };

	return util_json_print(json_pack(
		"{s:s, s:s, s:b, s:i, s:s?, s:o}", "notifier", res->backend,
		"level", res->level, "hooked", (int)res->hooked, "cpus",
		(int)proc_cpus(), "instructions_unavailable",
		opt->instructions && res->insn_rc ? strerror(-res->insn_rc)
						  : NULL,
		"rows",
		util_json_rows(res->munmap_n + res->cost_n, row_json, &both)));
}

int watch_report(const struct watch_opts *opt, const struct watch_result *res)
{
	if (util_flags.json)
		return print_json(opt, res) ? CMD_CANNOT : CMD_OK;
	if (opt->csv)
		print_csv(opt, res);
	else
		print_text(opt, res);
	return CMD_OK;
}
