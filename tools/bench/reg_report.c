// SPDX-License-Identifier: BSD-2-Clause
/* The result of kedge bench reg for people and programs. */
#include <stdio.h>

#include "tools/bench/reg.h"

static const char *name_of(const struct reg_row *row)
{
	return *row->model ? row->model : reg_device_names[row->device];
}

static void every_text(char buf[UTIL_HUMAN], const struct reg_row *row)
{
	if (row->every)
		util_human_count(buf, row->every);
	else
		*buf = '\0';
}

static void print_text(const struct reg_result *res)
{
	char size[UTIL_HUMAN], count[UTIL_HUMAN], every[UTIL_HUMAN];
	const struct reg_row *row, *last = NULL;
	size_t i;

	printf("notifier %s (%s); %u CPUs\n\n%-8s %-10s %11s %9s %7s %13s "
	       "%11s %11s %11s %8s %7s\n", res->backend, res->level,
	       proc_cpus(), "device", "step", "size", "count", "threads",
	       "every", "us", "best", "ns each", "calls", "x");
	for (i = 0; i < res->n; i++, last = row) {
		row = &res->row[i];
		if (last && (row->size != last->size ||
			     row->count != last->count ||
			     row->threads != last->threads))
			putchar('\n');
		every_text(every, row);
		printf("%-8s %-10s %11s %9s %7llu %13s %11.1f %11.1f %11.1f "
		       "%8.0f", name_of(row), reg_step_names[row->step],
		       util_human_bytes(size, row->size),
		       util_human_count(count, row->count),
		       (unsigned long long)row->threads, every, row->ns / 1e3,
		       row->best_ns / 1e3, row->ns / (double)row->count,
		       row->calls);
		if (row->ratio > 0)
			printf(" %7.4f", row->ratio);
		putchar('\n');
	}
}

static void print_csv(const struct reg_result *res)
{
	const struct reg_row *row;
	size_t i;

	puts("device,model,step,size,count,threads,every,ns,best_ns,calls,"
	     "hits,ratio");
	for (i = 0; i < res->n; i++) {
		row = &res->row[i];
		printf("%s,%s,%s,%llu,%llu,%llu,%llu,%.0f,%.0f,%.0f,%.0f,",
		       reg_device_names[row->device], row->model,
		       reg_step_names[row->step],
		       (unsigned long long)row->size,
		       (unsigned long long)row->count,
		       (unsigned long long)row->threads,
		       (unsigned long long)row->every, row->ns, row->best_ns,
		       row->calls, row->hits);
		if (row->ratio > 0)
			printf("%.6f", row->ratio);
		putchar('\n');
	}
}

static json_t *row_json(const void *of, size_t i)
{
	const struct reg_result *res = of;
	const struct reg_row *row = &res->row[i];
	json_t *o = json_pack(
		"{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f}",
		"device", reg_device_names[row->device], "model", row->model,
		"step", reg_step_names[row->step], "size",
		(json_int_t)row->size, "count", (json_int_t)row->count,
		"threads", (json_int_t)row->threads, "every",
		(json_int_t)row->every, "ns", row->ns, "best_ns", row->best_ns,
		"calls", row->calls, "hits", row->hits);

	if (o && !json_object_set_new(o, "ratio",
				      row->ratio > 0 ? json_real(row->ratio)
						     : json_null()))
		return o;
	json_decref(o);
	return NULL;
}

static int print_json(const struct reg_result *res)
{
	return util_json_print(json_pack("{s:s, s:s, s:i, s:o}", "notifier",
					 res->backend, "level", res->level,
					 "cpus", (int)proc_cpus(), "rows",
					 util_json_rows(res->n, row_json, res)));
}

int reg_report(const struct reg_opts *opt, const struct reg_result *res)
{
	if (util_flags.json)
		return print_json(res) ? CMD_CANNOT : CMD_OK;
	if (opt->csv)
		print_csv(res);
	else
		print_text(res);
	return CMD_OK;
}
