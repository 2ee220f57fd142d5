// SPDX-License-Identifier: BSD-2-Clause
/*
 * Of Prometheus' text format as much as kedge writes: "# HELP", "# TYPE", and
 * name{label="value",...} number. Values have no escapes and are short, and names begin with
 * "kedge_". A sample that comes twice would have a collector refuse all that it is given, so a text
 * with one is refused here.
 */
#include "tools/top/parse.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX	  "kedge_"
#define VALUE_MAX 256

static bool name_char(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

/* The end of the name that begins at @at; @at where there is none. */
static char *name_end(char *at)
{
	if (isdigit((unsigned char)*at))
		return at;
	while (name_char(*at))
		at++;
	return at;
}

static bool plain(const char *text)
{
	for (; *text; text++)
		if (*text == '\\' || (unsigned char)*text < ' ' || (unsigned char)*text > '~')
			return false;
	return true;
}

/* Labels are in the order of their names. False: it is there already. */
static bool insert_label(struct sample *s, const char *name, const char *value)
{
	size_t i = s->cnt;

	while (i && strcmp(name, s->label[i - 1].name) < 0)
		i--;
	if (i && !strcmp(name, s->label[i - 1].name))
		return false;
	memmove(&s->label[i + 1], &s->label[i], (s->cnt++ - i) * sizeof(s->label[0]));
	s->label[i].name = name;
	s->label[i].value = value;
	return true;
}

/* One label at @at; the character behind it, or NULL. */
static char *parse_one(struct sample *s, char *at)
{
	char *end = name_end(at), *close;

	if (end == at || end[0] != '=' || end[1] != '"' || s->cnt == PARSE_LABELS_MAX)
		return NULL;
	close = strchr(end + 2, '"');
	if (!close)
		return NULL;
	*end = *close = '\0';
	if (!plain(end + 2) || close - end > VALUE_MAX || !insert_label(s, at, end + 2))
		return NULL;
	return close + 1;
}

/* Behind the brace; the character behind the other, or NULL. */
static char *parse_labels(struct sample *s, char *at)
{
	while (at && *at != '}') {
		at = parse_one(s, at);
		if (at && *at == ',')
			at++;
		else if (at && *at != '}')
			return NULL;
	}
	return at ? at + 1 : NULL;
}

static bool parse_number(struct sample *s, char *at)
{
	char *end;

	/* strtod() takes more than numbers. */
	if (!isdigit((unsigned char)*at) || at[strspn(at, "0123456789.")])
		return false;
	s->number = at;
	s->value = strtod(at, &end);
	return !*end && isfinite(s->value);
}

static bool parse_sample(struct sample *s, char *line)
{
	char *at = name_end(line);

	if (strncmp(line, PREFIX, strlen(PREFIX)) || *at != '{')
		return false;
	*at = '\0';
	s->name = line;
	at = parse_labels(s, at + 1);
	return at && *at == ' ' && parse_number(s, at + 1);
}

/* True: @line has a head's beginning, and is kept. */
static bool parse_head(struct samples *out, size_t *len, const char **head, const char *line)
{
	const bool help = !strncmp(line, "# HELP " PREFIX, 7 + strlen(PREFIX));
	const size_t n = strlen(line);

	if (!help && strncmp(line, "# TYPE " PREFIX, 7 + strlen(PREFIX)))
		return false;
	if (!plain(line))
		return false;
	/* Of each two lines there is one text: the first begins it. */
	if (help) {
		*len += *len > 0;
		*head = out->heads + *len;
	}
	memcpy(out->heads + *len, line, n);
	out->heads[*len + n] = '\n';
	*len += n + 1;
	out->heads[*len] = '\0';
	return true;
}

static int parse_lines(struct samples *out, char *text, size_t len)
{
	const char *head = "";
	char *line = text, *end;
	size_t heads = 0;

	for (; *line; line = end + 1) {
		end = strchr(line, '\n');
		if (!end)
			return -EBADMSG; /* it was cut off */
		*end = '\0';
		if (*line == '#' && parse_head(out, &heads, &head, line))
			continue;
		if (!parse_sample(&out->v[out->cnt], line))
			return -EBADMSG;
		out->v[out->cnt++].head = head;
	}
	return line == text + len ? 0 : -EBADMSG;
}

static int compare(const void *one, const void *other)
{
	const struct sample *a = *(const struct sample *const *)one;
	const struct sample *b = *(const struct sample *const *)other;
	int order = strcmp(a->name, b->name);
	size_t i;

	if (!order)
		order = (a->cnt > b->cnt) - (a->cnt < b->cnt);
	for (i = 0; !order && i < a->cnt; i++) {
		order = strcmp(a->label[i].name, b->label[i].name);
		if (!order)
			order = strcmp(a->label[i].value, b->label[i].value);
	}
	return order;
}

static int check_once(const struct samples *s)
{
	const struct sample **v = calloc(s->cnt + 1, sizeof(*v));
	size_t i;
	int rc = v ? 0 : -ENOMEM;

	for (i = 0; i < s->cnt && v; i++)
		v[i] = &s->v[i];
	if (v)
		qsort(v, s->cnt, sizeof(*v), compare);
	for (i = 1; i < s->cnt && !rc; i++)
		if (!compare(&v[i - 1], &v[i]))
			rc = -EBADMSG;
	free(v);
	return rc;
}

static size_t lines_of(const char *text)
{
	size_t n = 1;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

int parse_text(char *text, size_t len, struct samples *out)
{
	char *whole = realloc(text, len + 1);
	int rc = -ENOMEM;

	memset(out, 0, sizeof(*out));
	out->text = whole ? whole : text;
	if (whole) {
		whole[len] = '\0';
		out->v = calloc(lines_of(whole), sizeof(*out->v));
		/* No longer than the text: two lines of it have one more byte, its NUL. */
		out->heads = calloc(2, len + 2);
		if (out->v && out->heads)
			rc = parse_lines(out, whole, len);
		if (!rc)
			rc = check_once(out);
	}
	if (rc)
		parse_free(out);
	return rc;
}

void parse_free(struct samples *s)
{
	free(s->v);
	free(s->text);
	free(s->heads);
	memset(s, 0, sizeof(*s));
}

const char *parse_label(const struct sample *s, const char *name)
{
	size_t i;

	for (i = 0; i < s->cnt; i++)
		if (!strcmp(s->label[i].name, name))
			return s->label[i].value;
	return NULL;
}
