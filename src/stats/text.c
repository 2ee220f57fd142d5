// SPDX-License-Identifier: BSD-2-Clause
/*
 * The text format of Prometheus, version 0.0.4: a line for each value, with its labels, and all
 * lines of a name after its help and type.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "stats/table.h"
#include "stats/text.h"

#define NS UINT64_C(1000000000)

/* A program, or a device, may have any name. */
static void plain(char *to, size_t room, const char *from)
{
	size_t n = 0;

	for (; *from && n + 1 < room; from++)
		to[n++] = (unsigned char)*from < ' ' || *from == '"' || *from == '\\' ||
					  (unsigned char)*from > '~'
				  ? '_' : *from;
	to[n] = '\0';
}

void stats_label(char *labels, const char *name, const char *value)
{
	size_t len = strlen(labels);
	char text[32];

	plain(text, sizeof(text), value);
	snprintf(labels + len, STATS_LABELS_LEN - len, "%s%s=\"%s\"", len ? "," : "", name, text);
}

static void print_value(FILE *f, const struct stats_metric *m, uint64_t v)
{
	if (m->unit == STATS_SECONDS)
		fprintf(f, "%" PRIu64 ".%09" PRIu64 "\n", v / NS, v % NS);
	else
		fprintf(f, "%" PRIu64 "\n", v);
}

static const char *suffix(const struct stats_metric *m)
{
	return m->unit == STATS_GAUGE ? "" : "_total";
}

static void print_head(FILE *f, const struct stats_metric *m)
{
	fprintf(f, "# HELP kedge_%s%s %s\n# TYPE kedge_%s%s %s\n", m->name, suffix(m), m->help,
		m->name, suffix(m), m->unit == STATS_GAUGE ? "gauge" : "counter");
}

static void print_sample(FILE *f, const struct stats_row *row, unsigned int i, const char *process)
{
	const struct stats_metric *m = &row->kind->metrics[i];
	const bool is_closed = !row->number;

	/* A gauge is of what is open. */
	if (is_closed && m->unit == STATS_GAUGE)
		return;
	fprintf(f, "kedge_%s%s{%s,%s=\"", m->name, suffix(m), process, row->kind->name);
	if (is_closed)
		fputs("closed\"", f);
	else
		fprintf(f, "%" PRIu32 "\"", row->number);
	if (*row->labels)
		fprintf(f, ",%s", row->labels);
	if (m->label)
		fprintf(f, ",%s", m->label);
	fputs("} ", f);
	print_value(f, m, row->values[i]);
}

/* @rows are all of one kind. */
static void print_kind(FILE *f, const struct stats_row *rows, size_t cnt, const char *process)
{
	const struct stats_metric *m = rows->kind->metrics;
	unsigned int first, i, end;
	size_t at;

	for (first = 0; first < rows->kind->cnt; first = end) {
		for (end = first + 1; end < rows->kind->cnt; end++)
			if (strcmp(m[first].name, m[end].name))
				break;
		print_head(f, &m[first]);
		for (at = 0; at < cnt; at++)
			for (i = first; i < end; i++)
				print_sample(f, &rows[at], i, process);
	}
}

static void print_all(FILE *f)
{
	char name[64], process[128];
	struct stats_row *rows;
	size_t cnt, at, end;

	plain(name, sizeof(name), program_invocation_short_name);
	snprintf(process, sizeof(process), "pid=\"%d\",command=\"%s\"", (int)getpid(), name);
	fprintf(f, "# HELP kedge_info The version of libkedge in the process\n"
		   "# TYPE kedge_info gauge\nkedge_info{%s,version=\"%s\"} 1\n", process,
		kedge_version());
	rows = table_rows(&cnt);
	for (at = 0; at < cnt; at = end) {
		for (end = at + 1; end < cnt && rows[end].kind == rows[at].kind; end++)
			;
		print_kind(f, rows + at, end - at, process);
	}
	free(rows);
}

char *stats_text(size_t *len)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, len);
	int failed;

	if (!f)
		return NULL;
	print_all(f);
	failed = ferror(f);
	if (!fclose(f) && !failed)
		return text;
	free(text);
	return NULL;
}
