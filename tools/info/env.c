// SPDX-License-Identifier: BSD-2-Clause
/* kedge info --env: the environment variables, and what is wrong with them. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "base/base.h"
#include "tools/info/info.h"

#define MAX_VARS 32

extern char **environ;

/* @value is one of the words of "a|b|c". */
static bool fits(const char *syntax, const char *value)
{
	size_t len = strlen(value), word;

	for (;;) {
		word = strcspn(syntax, "|");
		if (word == len && !memcmp(syntax, value, len))
			return true;
		if (!syntax[word])
			return false;
		syntax += word + 1;
	}
}

/* Only a choice of words can be checked here. */
static bool value_ok(const struct kedge_env *e)
{
	return !e->value || !strchr(e->syntax, '|') ||
	       fits(e->syntax, e->value);
}

static bool is_known(const struct kedge_env *env, size_t n, const char *name,
		     size_t len)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (strlen(env[i].name) == len &&
		    !memcmp(env[i].name, name, len))
			return true;
	return false;
}

static void print_known(const struct kedge_env *e, json_t *all)
{
	bool ok = value_ok(e);

	if (all) {
		json_array_append_new(all, json_pack(
			"{s:s, s:b, s:b, s:s, s:s, s:s, s:o}", "name", e->name,
			"known", 1, "valid", ok, "meaning", e->meaning,
			"syntax", e->syntax, "default", e->dflt, "value",
			e->value ? util_json_text(e->value) : json_null()));
		return;
	}
	printf("%s%s%s\n    %s\n    values:  %s\n    default: %s\n"
	       "    now:     %s%s%s%s\n\n",
	       util_colour(UTIL_BOLD), e->name, util_colour(UTIL_PLAIN),
	       e->meaning, e->syntax, e->dflt,
	       ok ? "" : util_colour(UTIL_RED), e->value ? e->value : "not set",
	       ok ? "" : "  <- none of these values",
	       ok ? "" : util_colour(UTIL_PLAIN));
}

static void print_unknown(const struct kedge_env *env, size_t n,
			  const char *entry, json_t *all)
{
	const char *names[MAX_VARS + 1], *near;
	size_t len = strcspn(entry, "="), i;
	char name[128];

	snprintf(name, sizeof(name), "%.*s", (int)len, entry);
	for (i = 0; i < n; i++)
		names[i] = env[i].name;
	names[n] = NULL;
	near = util_did_you_mean(name, names);
	if (all) {
		json_array_append_new(all, json_pack(
			"{s:o, s:b, s:b, s:s?, s:o}", "name",
			util_json_text(name), "known", 0, "valid", 0,
			"did_you_mean", near, "value",
			util_json_text(entry[len] ? entry + len + 1 : "")));
		return;
	}
	printf("%s%s%s\n    unknown: kedge does not read it%s%s%s\n\n",
	       util_colour(UTIL_RED), name, util_colour(UTIL_PLAIN),
	       near ? "; did you mean " : "", near ? near : "",
	       near ? "?" : "");
}

int info_env(void)
{
	json_t *all = util_flags.json ? json_array() : NULL;
	struct kedge_env env[MAX_VARS];
	size_t n = kedge_env_list(env, MAX_VARS), i;
	int status = CMD_OK;
	char **e;

	if (n > MAX_VARS)
		n = MAX_VARS;
	for (i = 0; i < n; i++) {
		print_known(&env[i], all);
		if (!value_ok(&env[i]))
			status = CMD_FINDING;
	}
	for (e = environ; e && *e; e++) {
		if (strncmp(*e, "KEDGE_", 6) ||
		    is_known(env, n, *e, strcspn(*e, "=")))
			continue;
		print_unknown(env, n, *e, all);
		status = CMD_FINDING;
	}
	if (util_flags.json &&
	    util_json_print(json_pack("{s:o}", "environment", all)))
		return CMD_CANNOT;
	return status;
}
