// SPDX-License-Identifier: BSD-2-Clause
/* The counters as tables: caches, notifiers, channels. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "tools/common/util.h"
#include "tools/common/who.h"
#include "tools/top/top.h"

enum shape { RATE, BYTE_RATE, NOW, NOW_BYTES, LABEL, PERCENT, REASON };

struct column {
	const char *head;
	const char *name; /* of the value, or label */
	int width;	  /* negative: to the left */
	enum shape shape;
};

static const struct column caches[] = {
	{ "DEVICE", "device", -10, LABEL },
	{ "REGIONS", "regions", 8, NOW },
	{ "BYTES", "bytes", 10, NOW_BYTES },
	{ "GETS", "gets", 8, RATE },
	{ "HIT%", "hits", 6, PERCENT },
	{ "MISSES", "misses", 8, RATE },
	{ "UNCACHED", "uncached", 9, RATE },
	{ "MOST FOR", "uncached", -9, REASON },
	{ "CHANGES", "invalidations", 8, RATE },
	{ "BY", "invalidations", -7, REASON },
	{ "EVICTED", "evictions", 8, RATE },
	{ "FAILED", "failures", 7, RATE },
};

static const struct column notifiers[] = {
	{ "BACKEND", "backend", -10, LABEL },
	{ "LEVEL", "level", -9, LABEL },
	{ "CHECK", "check", -6, LABEL },
	{ "WATCHES", "watches", 8, NOW },
	{ "RANGES", "armed_ranges", 8, NOW },
	{ "EVENTS", "events", 9, RATE },
};

static const struct column channels[] = {
	{ "TRANSPORT", "transport", -10, LABEL },
	{ "PEER", "peer_pid", -8, LABEL },
	{ "SENT", "sent_messages", 8, RATE },
	{ "RECEIVED", "received_messages", 9, RATE },
	{ "OUT", "sent_bytes", 11, BYTE_RATE },
	{ "IN", "received_bytes", 11, BYTE_RATE },
	{ "UNEXPECTED", "unexpected", 11, RATE },
	{ "FAILED", "failed", 7, RATE },
};

static const struct table {
	const char *kind, *head;
	const struct column *v;
	size_t cnt;
} tables[] = {
	{ "cache", "CACHE", caches, ARRAY_SIZE(caches) },
	{ "notifier", "NOTIFIER", notifiers, ARRAY_SIZE(notifiers) },
	{ "channel", "CHANNEL", channels, ARRAY_SIZE(channels) },
};

static const char *text_at(json_t *o, const char *name)
{
	const char *text = json_string_value(json_object_get(o, name));

	return text ? text : "-";
}

/* Of several values, their sum. */
static double value_at(json_t *o, const char *name)
{
	json_t *v = json_object_get(json_object_get(o, "values"), name), *one;
	double sum = json_number_value(v);
	const char *unused;

	json_object_foreach(v, unused, one)
		sum += json_number_value(one);
	return sum;
}

/* The same object a while ago, or NULL. */
static json_t *before_of(json_t *before, json_t *o)
{
	json_t *b;
	size_t i;

	json_array_foreach(before, i, b)
		if (!strcmp(text_at(b, "source"), text_at(o, "source")) &&
		    !strcmp(text_at(b, "kind"), text_at(o, "kind")) &&
		    !strcmp(text_at(b, "number"), text_at(o, "number")))
			return b;
	return NULL;
}

struct cell {
	json_t *now, *before;
	double seconds;
};

/* By the second, where there is a before. */
static double rate(const struct cell *c, const char *name)
{
	double v = value_at(c->now, name);

	if (!c->before)
		return v;
	v = (v - value_at(c->before, name)) / c->seconds;
	return v > 0 ? v : 0;
}

/* The name of the greatest of several. */
static const char *most_of(const struct cell *c, const char *name)
{
	json_t *now = json_object_get(json_object_get(c->now, "values"), name), *one;
	json_t *was = json_object_get(json_object_get(c->before, "values"), name);
	const char *key, *most = "-";
	double v, max = 0;

	json_object_foreach(now, key, one) {
		v = json_number_value(one) - json_number_value(json_object_get(was, key));
		if (v > max) {
			max = v;
			most = key;
		}
	}
	return most;
}

static const char *short_number(char *to, double v)
{
	static const char units[] = " kMGT";
	size_t unit = 0;

	while (v >= 9999.5 && unit < sizeof(units) - 2) {
		v /= 1000;
		unit++;
	}
	if (unit || fmod(v, 1) < 0.05 || v >= 100)
		snprintf(to, UTIL_HUMAN, unit ? "%.4g%c" : "%.0f", v, units[unit]);
	else
		snprintf(to, UTIL_HUMAN, "%.1f", v);
	return to;
}

static const char *cell_text(char *to, const struct column *col, const struct cell *c)
{
	double gets;

	switch (col->shape) {
	case LABEL:
		return who_plain(to, UTIL_HUMAN, text_at(c->now, col->name));
	case NOW:
		return short_number(to, value_at(c->now, col->name));
	case NOW_BYTES:
		return util_human_bytes(to, (uint64_t)value_at(c->now, col->name));
	case RATE:
		return short_number(to, rate(c, col->name));
	case BYTE_RATE:
		return util_human_bytes(to, (uint64_t)rate(c, col->name));
	case PERCENT:
		gets = rate(c, "gets");
		snprintf(to, UTIL_HUMAN, gets > 0 ? "%.1f" : "-",
			 gets > 0 ? 100 * rate(c, col->name) / gets : 0);
		return to;
	case REASON:
		return most_of(c, col->name);
	}
	return "";
}

static const char *head_of(char *to, const struct column *col, bool by_second)
{
	snprintf(to, UTIL_HUMAN, "%s%s", col->head,
		 by_second && (col->shape == RATE || col->shape == BYTE_RATE) ? "/s" : "");
	return to;
}

static int width_of(const struct column *col, bool by_second)
{
	char head[UTIL_HUMAN];
	int len = (int)strlen(head_of(head, col, by_second));

	return col->width < 0 || col->width > len ? col->width : len;
}

static void print_row(const struct table *t, const struct cell *c, bool by_second)
{
	char text[UTIL_HUMAN], command[16];
	size_t i;

	printf("%7d %-15s %8s", (int)json_integer_value(json_object_get(c->now, "pid")),
	       who_plain(command, sizeof(command), text_at(c->now, "command")),
	       text_at(c->now, "number"));
	for (i = 0; i < t->cnt; i++)
		printf(" %*s", width_of(&t->v[i], by_second), cell_text(text, &t->v[i], c));
	putchar('\n');
}

static void print_head(const struct table *t, bool by_second)
{
	char head[UTIL_HUMAN];
	size_t i;

	printf("\n%s%7s %-15s %8s", util_colour(UTIL_BOLD), "PID", "COMMAND", t->head);
	for (i = 0; i < t->cnt; i++)
		printf(" %*s", width_of(&t->v[i], by_second), head_of(head, &t->v[i], by_second));
	printf("%s\n", util_colour(UTIL_PLAIN));
}

static size_t print_table(const struct table *t, json_t *now, json_t *before, double seconds)
{
	struct cell c = { .seconds = seconds };
	size_t i, rows = 0;
	json_t *o;

	json_array_foreach(now, i, o) {
		if (strcmp(text_at(o, "kind"), t->kind))
			continue;
		/* Rates of what has ended are of no use. */
		if (before && !strcmp(text_at(o, "number"), "closed"))
			continue;
		if (!rows++)
			print_head(t, before != NULL);
		c.now = o;
		c.before = before_of(before, o);
		print_row(t, &c, before != NULL);
	}
	return rows;
}

void table_print(json_t *now, json_t *before, double seconds, const struct sources *s)
{
	size_t i, rows = 0, processes = 0;

	for (i = 0; i < s->cnt; i++)
		processes += !s->v[i].status;
	printf("%zu %s\n", processes, who_plural(processes, "process publishes its counters",
						 "processes publish their counters"));
	for (i = 0; i < ARRAY_SIZE(tables); i++)
		rows += print_table(&tables[i], now, before, seconds);
	if (!processes)
		printf("Set KEDGE_STATS=unix:FOLDER for programs that are to be seen here.\n");
	else if (!rows)
		printf("They have no cache, notifier or channel open now.\n");
}
