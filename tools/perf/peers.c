// SPDX-License-Identifier: BSD-2-Clause
/* The libraries measured beside kedge, and the builds of them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/perf/perf.h"

#define TLS	  "posix:posix,cma"
#define TLS_CHARS "abcdefghijklmnopqrstuvwxyz0123456789_,^+"
#define PROVIDER  "shm"

static const struct {
	const char *name;
	const struct perf_side *(*side)(void);
	const char *package;
} known[] = {
	{ "ucx", perf_ucx, "libucx-dev" },
	{ "libfabric", perf_libfabric, "libfabric-dev" },
};

static struct perf_peer *peer_of(struct perf_opts *opt, const char *name)
{
	unsigned int i;

	for (i = 0; i < opt->peer_cnt; i++)
		if (!strcmp(opt->peer[i].side->name, name))
			return &opt->peer[i];
	return NULL;
}

/* "posix:posix,cma": each may be the name of a pair. */
static int check_tls(const char *text)
{
	size_t len;

	for (; text; text = text[len] ? text + len + 1 : NULL) {
		len = strcspn(text, ":");
		if (!len ||
		    len >= sizeof(((struct perf_pair_cfg *)NULL)->name))
			return util_usage("--peer-tls: lists such as posix,cma "
					  "with colons between them, please");
		if (strspn(text, TLS_CHARS) < len)
			return util_usage("--peer-tls: '%s' is no transport of "
					  "UCX", text);
	}
	return UTIL_GO_ON;
}

static int set_variants(struct perf_peer *p, const char *option,
			const char *text)
{
	int len = snprintf(p->variants, sizeof(p->variants), "%s", text);

	if (*text && len < (int)sizeof(p->variants))
		return UTIL_GO_ON;
	return util_usage("%s: a shorter list, please", option);
}

static int add(struct perf_opts *opt, size_t i, const char *detail)
{
	const bool is_ucx = !strcmp(known[i].name, "ucx");
	struct perf_peer *p;

	if (opt->peer_cnt == PERF_PEERS_MAX)
		return util_usage("--peer: more than %u", PERF_PEERS_MAX);
	p = &opt->peer[opt->peer_cnt];
	p->side = known[i].side();
	if (!p->side) {
		util_error("this build knows no %s: install its headers "
			   "(Debian's %s) and build kedge again",
			   known[i].name, known[i].package);
		return CMD_CANNOT;
	}
	if (is_ucx && peer_of(opt, "ucx"))
		return util_usage("--peer: ucx twice");
	opt->peer_cnt++;
	if (is_ucx && detail)
		return util_usage("--peer: transports of UCX go to --peer-tls");
	if (is_ucx)
		return set_variants(p, "--peer-tls",
				    opt->tls_text ? opt->tls_text : TLS);
	if (detail && (strchr(detail, ':') ||
		       strlen(detail) >=
			       sizeof(((struct perf_pair_cfg *)NULL)->name)))
		return util_usage("--peer: '%s' is no provider of libfabric",
				  detail);
	return set_variants(p, "--peer", detail ? detail : PROVIDER);
}

/* "libfabric:tcp" */
static int add_word(struct perf_opts *opt, char *word)
{
	char *detail = strchr(word, ':');
	size_t i;

	if (detail)
		*detail++ = '\0';
	for (i = 0; i < ARRAY_SIZE(known); i++)
		if (!strcmp(word, known[i].name))
			return add(opt, i, detail);
	return util_usage("--peer: there is no peer '%s': ucx, "
			  "libfabric[:PROVIDER] or none", word);
}

static int add_words(struct perf_opts *opt)
{
	char *copy = strdup(opt->peer_text);
	char *save = NULL, *word;
	int rc = UTIL_GO_ON;

	if (!copy)
		return util_fail(-ENOMEM, "--peer");
	for (word = strtok_r(copy, ",", &save); word && rc == UTIL_GO_ON;
	     word = strtok_r(NULL, ",", &save))
		rc = add_word(opt, word);
	free(copy);
	if (rc == UTIL_GO_ON && !opt->peer_cnt)
		rc = util_usage("--peer: ucx, libfabric[:PROVIDER] or none");
	return rc;
}

int perf_parse_peers(struct perf_opts *opt)
{
	int rc;

	if (opt->peer_text && strcmp(opt->peer_text, "none")) {
		if (opt->connect || opt->listen)
			return util_usage("--peer: only where both ends are on "
					  "this host");
		rc = opt->tls_text ? check_tls(opt->tls_text) : UTIL_GO_ON;
		if (rc == UTIL_GO_ON)
			rc = add_words(opt);
		if (rc != UTIL_GO_ON)
			return rc;
	}
	if (peer_of(opt, "ucx"))
		return UTIL_GO_ON;
	if (opt->tls_text)
		return util_usage("--peer-tls: that is of --peer ucx");
	if (opt->prefix)
		return util_usage("--peer-prefix: that is of --peer ucx");
	return UTIL_GO_ON;
}

const char *perf_peers_name(const struct perf_opts *opt, char buf[UTIL_HUMAN])
{
	const struct perf_side *last = NULL;
	unsigned int i;
	size_t len = 0;

	*buf = '\0';
	for (i = 0; i < opt->peer_cnt && len < UTIL_HUMAN; i++) {
		if (opt->peer[i].side != last)
			len += (size_t)snprintf(buf + len, UTIL_HUMAN - len,
						"%s%s", i ? "," : "",
						opt->peer[i].side->name);
		last = opt->peer[i].side;
	}
	return buf;
}

const char *perf_build_name(const struct perf_facts *facts)
{
	const uint32_t b = facts->build;

	if (!(b & PERF_BUILD_KNOWN))
		return NULL;
	if (b & PERF_BUILD_ASSERTIONS && b & PERF_BUILD_PARAM_CHECKS)
		return "assertions and parameter checks";
	return b & PERF_BUILD_ASSERTIONS     ? "assertions"
	       : b & PERF_BUILD_PARAM_CHECKS ? "parameter checks"
					     : "release build";
}

bool perf_is_release(const struct perf_facts *facts)
{
	return !(facts->build &
		 (PERF_BUILD_ASSERTIONS | PERF_BUILD_PARAM_CHECKS));
}

void perf_warn_of_builds(const struct perf_result *res)
{
	const struct perf_pair *pair;
	unsigned int i;

	for (i = 0; i < res->pair_cnt; i++) {
		pair = &res->pair[i];
		if (perf_is_release(&pair->facts))
			continue;
		util_error("%s %s (%s) is built with %s: it is slower than "
			   "the release builds that most sites run, so the "
			   "ratios flatter kedge; name a release build with "
			   "--peer-prefix", pair->cfg.side->name,
			   pair->facts.version, pair->facts.path,
			   perf_build_name(&pair->facts));
		/* All pairs of a library are of one build. */
		return;
	}
}
