// SPDX-License-Identifier: BSD-2-Clause
/* Lists in options ("1,1000,1e6", "aligned,offset") and lists of samples. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/list.h"
#include "tools/common/util.h"

#define WORD_LEN   32
#define LIST_LEN   160

/*
 * The next word of a comma-separated list into @word. 1 if there was one, 0 at
 * the end, -EINVAL for an empty or a long one.
 */
static int next_word(const char **text, char word[WORD_LEN])
{
	size_t len;

	if (!*text)
		return 0;
	len = strcspn(*text, ",");
	if (!len || len >= WORD_LEN)
		return -EINVAL;
	memcpy(word, *text, len);
	word[len] = '\0';
	*text = (*text)[len] ? *text + len + 1 : NULL;
	return 1;
}

/* 1000, or 1e3 as people write entries. */
static int parse_number(const char *word, uint64_t *out)
{
	char *e = strncmp(word, "0x", 2) ? strchr(word, 'e') : NULL;
	uint64_t mantissa, exponent;
	int rc;

	if (!e)
		return util_parse_u64(word, out);
	*e = '\0';
	rc = util_parse_u64(word, &mantissa);
	if (!rc)
		rc = util_parse_u64(e + 1, &exponent);
	*e = 'e';
	if (rc)
		return rc;
	if (exponent > 19)
		return -ERANGE;
	while (exponent--)
		if (__builtin_mul_overflow(mantissa, 10u, &mantissa))
			return -ERANGE;
	*out = mantissa;
	return 0;
}

int list_parse(const char *option, const char *text, uint64_t min,
		     uint64_t max, struct number_list *out)
{
	char word[WORD_LEN];
	uint64_t v;
	int rc;

	out->n = 0;
	while ((rc = next_word(&text, word)) > 0) {
		if (parse_number(word, &v))
			return util_usage("--%s: '%s' is no number", option,
					  word);
		if (v < min || v > max)
			return util_usage("--%s: %s is not in %llu..%llu",
					  option, word, (unsigned long long)min,
					  (unsigned long long)max);
		if (out->n == LIST_MAX)
			return util_usage("--%s: more than %d numbers", option,
					  LIST_MAX);
		out->v[out->n++] = v;
	}
	if (rc)
		return util_usage("--%s: numbers and commas, please", option);
	return UTIL_GO_ON;
}

static int find_word(const char *word, const char *const *names)
{
	int i;

	for (i = 0; names[i]; i++)
		if (!strcmp(word, names[i]))
			return i;
	return -ENOENT;
}

/* "one, two, three" */
static void list_names(char *buf, size_t size, const char *const *names)
{
	size_t len = 0;
	int i;

	*buf = '\0';
	for (i = 0; names[i] && len < size; i++)
		len += (size_t)snprintf(buf + len, size - len, "%s%s",
					i ? ", " : "", names[i]);
}

int list_parse_words(const char *option, const char *text,
		      const char *const *names, uint32_t *mask)
{
	char word[WORD_LEN], all[LIST_LEN];
	const char *near;
	int rc, i;

	*mask = 0;
	while ((rc = next_word(&text, word)) > 0) {
		i = find_word(word, names);
		if (i >= 0) {
			*mask |= 1u << i;
			continue;
		}
		near = util_did_you_mean(word, names);
		list_names(all, sizeof(all), names);
		return util_usage("--%s: there is no '%s'%s%s%s: %s", option,
				  word, near ? ", did you mean '" : "",
				  near ? near : "", near ? "'?" : "", all);
	}
	list_names(all, sizeof(all), names);
	if (rc)
		return util_usage("--%s: of these, with commas between them: "
				  "%s", option, all);
	return UTIL_GO_ON;
}

int samples_add(struct samples *s, double v)
{
	size_t max = s->max ? 2 * s->max : 64;
	double *bigger;

	if (s->n == s->max) {
		bigger = reallocarray(s->v, max, sizeof(*s->v));
		if (!bigger)
			return -ENOMEM;
		s->v = bigger;
		s->max = max;
	}
	s->v[s->n++] = v;
	return 0;
}

void samples_fini(struct samples *s)
{
	free(s->v);
	*s = (struct samples){ 0 };
}
