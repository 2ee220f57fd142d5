// SPDX-License-Identifier: BSD-2-Clause
/* The counters of several processes as one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/top/top.h"

static const char *const kinds[] = { "cache", "notifier", "channel" };

static const char *kind_of(const struct sample *s)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		if (parse_label(s, kinds[i]))
			return kinds[i];
	return NULL;
}

/* A label of one value of several, as way="eager" is. */
static const char *inner_of(const struct sample *s)
{
	static const char *const names[] = { "reason", "kind", "way" };
	const char *value = NULL;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(names) && !value; i++)
		value = parse_label(s, names[i]);
	return value;
}

static json_t *new_object(const struct sample *s, const char *kind, const char *path)
{
	const char *pid = parse_label(s, "pid");
	json_t *o = json_pack("{s:i, s:s, s:s, s:s, s:s, s:{}}", "pid", pid ? atoi(pid) : 0, "kind",
			      kind, "number", parse_label(s, kind), "source", path, "command", "?",
			      "values");
	size_t i;

	for (i = 0; i < s->cnt && o; i++) {
		const char *name = s->label[i].name;

		if (strcmp(name, "pid") && strcmp(name, kind) && s->label[i].value != inner_of(s) &&
		    strcmp(name, "values") && strcmp(name, "number") && strcmp(name, "source"))
			json_object_set_new(o, name, json_string(s->label[i].value));
	}
	return o;
}

static json_t *object_of(json_t *by_key, json_t *all, const struct sample *s, const char *path)
{
	const char *kind = kind_of(s);
	char *key;
	json_t *o;

	if (!kind || asprintf(&key, "%s %s %s", kind, parse_label(s, kind), path) < 0)
		return NULL;
	o = json_object_get(by_key, key);
	if (!o) {
		o = new_object(s, kind, path);
		if (json_array_append_new(all, o) || json_object_set(by_key, key, o))
			o = NULL;
	}
	free(key);
	return o;
}

/* "gets" of "kedge_cache_gets_total". */
static void short_name(char *to, size_t room, const char *name, const char *kind)
{
	size_t n;

	name += strlen("kedge_");
	if (!strncmp(name, kind, strlen(kind)) && name[strlen(kind)] == '_')
		name += strlen(kind) + 1;
	n = strlen(name);
	if (n > 6 && !strcmp(name + n - 6, "_total"))
		n -= 6;
	snprintf(to, room, "%.*s", (int)n, name);
}

static json_t *number_of(const struct sample *s)
{
	return strchr(s->number, '.') || s->value >= 0x1p63 ? json_real(s->value)
							     : json_integer((json_int_t)s->value);
}

static void set_value(json_t *o, const struct sample *s)
{
	json_t *values = json_object_get(o, "values"), *within;
	const char *inner = inner_of(s);
	char name[128];

	short_name(name, sizeof(name), s->name, json_string_value(json_object_get(o, "kind")));
	if (!inner) {
		json_object_set_new(values, name, number_of(s));
		return;
	}
	within = json_object_get(values, name);
	if (!json_is_object(within)) {
		within = json_object();
		json_object_set_new(values, name, within);
	}
	json_object_set_new(within, inner, number_of(s));
}

json_t *merge_objects(const struct sources *s)
{
	json_t *all = json_array(), *by_key = json_object(), *o;
	size_t i, k;

	for (i = 0; i < s->cnt; i++)
		for (k = 0; k < s->v[i].samples.cnt; k++) {
			o = object_of(by_key, all, &s->v[i].samples.v[k], s->v[i].path);
			if (o)
				set_value(o, &s->v[i].samples.v[k]);
		}
	json_decref(by_key);
	return all;
}

/* ---- one text ---- */

static void print_sample(FILE *f, const struct sample *s)
{
	size_t i;

	fprintf(f, "%s{", s->name);
	for (i = 0; i < s->cnt; i++)
		fprintf(f, "%s%s=\"%s\"", i ? "," : "", s->label[i].name, s->label[i].value);
	fprintf(f, "} %s\n", s->number);
}

/* All lines of a name, of all processes; each is marked by its name's end. */
static void print_name(FILE *f, struct sources *s, const struct sample *first)
{
	const char *name = first->name;
	size_t i, k;

	fputs(first->head, f);
	for (i = 0; i < s->cnt; i++)
		for (k = 0; k < s->v[i].samples.cnt; k++) {
			struct sample *at = &s->v[i].samples.v[k];

			if (at->name && !strcmp(at->name, name)) {
				print_sample(f, at);
				if (at != first)
					at->name = NULL;
			}
		}
}

char *merge_text(struct sources *s, size_t *len)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, len);
	size_t i, k;

	for (i = 0; i < s->cnt && f; i++)
		for (k = 0; k < s->v[i].samples.cnt; k++) {
			struct sample *at = &s->v[i].samples.v[k];

			if (at->name)
				print_name(f, s, at);
			at->name = NULL;
		}
	if (f && fclose(f)) {
		free(text);
		return NULL;
	}
	return f ? text : NULL;
}
