// SPDX-License-Identifier: BSD-2-Clause
/* The command line of kedge perf. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kedge/kedge.h>

#include "tools/perf/perf.h"
#include "tools/perf/segment/segment.h"

#define ROUNDS_MAX  10000
#define REGISTER_AT (4ull << 20)
#define SIZES                                                                  \
	"1,8,64,256,1K,4K,8K,16K,64K,256K,1M,4M,16M,64M"
#define SEG_SIZES      "64,256,1K,4K,16K,64K,256K,1M,4M,16M"
#define ROUNDS	       11
#define SEG_ROUNDS     41
#define REG_SIZES      "64,4K,64K,1M"
#define COPY_MIN       64u /* of --segment and --region */
#define COPY_MAX       (16u << 20)

const char *const perf_buffers_names[PERF_BUFFERS + 1] = { "malloc", "heap",
							   "fresh", "segment",
							   NULL };

static int add_size(struct perf_opts *opt, uint64_t size)
{
	if (opt->size_cnt == PERF_SIZES_MAX)
		return util_usage("--sizes: more than %u", PERF_SIZES_MAX);
	opt->sizes[opt->size_cnt++] = size;
	return UTIL_GO_ON;
}

static int parse_size(struct perf_opts *opt, const char *word)
{
	const bool copy = opt->segment || opt->region;
	uint64_t size;

	if (util_parse_size(word, &size) || !size || size > PERF_BYTES_MAX)
		return util_usage("--sizes: '%s' is no size from 1 to 1G", word);
	if (copy && (size < COPY_MIN || size > COPY_MAX))
		return util_usage("--sizes: '%s' is no size from 64 to 16M, as --%s takes them",
				  word, opt->segment ? "segment" : "region");
	return add_size(opt, size);
}

static int parse_sizes(struct perf_opts *opt)
{
	char *copy = strdup(opt->sizes_text ? opt->sizes_text
			    : opt->segment  ? SEG_SIZES
			    : opt->region   ? REG_SIZES
					    : SIZES);
	char *save = NULL, *word;
	int rc = UTIL_GO_ON;

	if (!copy)
		return util_fail(-ENOMEM, "--sizes");
	for (word = strtok_r(copy, ",", &save); word && rc == UTIL_GO_ON;
	     word = strtok_r(NULL, ",", &save))
		rc = parse_size(opt, word);
	if (rc == UTIL_GO_ON && !opt->size_cnt)
		rc = util_usage("--sizes: sizes and commas, please");
	free(copy);
	return rc;
}

static int parse_ways(struct perf_opts *opt)
{
	const char *names[KEDGE_WAY_COUNT + 1];
	uint32_t way;
	int rc;

	for (way = 0; way < KEDGE_WAY_COUNT; way++)
		names[way] = kedge_way_name(way);
	names[way] = NULL;
	rc = list_parse_words("way", opt->ways_text && !opt->rdma ? opt->ways_text : "auto",
			       names, &opt->ways);
	if (rc != UTIL_GO_ON)
		return rc;
	return list_parse_words("buffers",
				 opt->buffers_text   ? opt->buffers_text
				 : opt->turnaround ? "fresh"
						   : "malloc",
				 perf_buffers_names, &opt->buffers);
}

/* The turnaround is compared with a registration of 4 MiB. */
static int add_register(struct perf_opts *opt)
{
	size_t i;

	if (!opt->turnaround)
		return UTIL_GO_ON;
	opt->ways |= 1u << KEDGE_WAY_REGISTER;
	for (i = 0; i < opt->size_cnt; i++)
		if (opt->sizes[i] == REGISTER_AT)
			return UTIL_GO_ON;
	return add_size(opt, REGISTER_AT);
}

static int set(char **to, const char *text)
{
	*to = strdup(text);
	return *to ? UTIL_GO_ON : util_fail(-ENOMEM, "cannot keep an option");
}

static bool is_number(const char *text)
{
	return *text && !text[strspn(text, "0123456789")];
}

/* A number, or the name of a service. */
static int set_port(struct perf_opts *opt, const char *text)
{
	uint64_t port = 1;

	if (!*text || (is_number(text) && (util_parse_u64(text, &port) ||
					   !port || port > UINT16_MAX)))
		return util_usage("'%s' is no port: from 1 to 65535, or a "
				  "service's name, please", text);
	return set(&opt->place.service, text);
}

/* "host", "host:port", "[::1]:port", ":port", "port"; a shm path as it is. */
static int parse_address(struct perf_opts *opt, const char *text)
{
	struct perf_place *at = &opt->place;
	const char *colon = strrchr(text, ':');
	const char *first = strchr(text, ':');
	char *node;

	if (!strcmp(at->transport, "shm"))
		return set(&at->node, text);
	if (is_number(text))
		return set_port(opt, text);
	if (text[0] == '[') {
		first = strchr(text, ']');
		if (!first || (first[1] && first[1] != ':'))
			return util_usage("'%s' is no address", text);
		node = strndup(text + 1, (size_t)(first - text - 1));
		colon = first[1] ? first + 1 : NULL;
	} else {
		/* Several colons are an IPv6 address without a port. */
		if (colon != first)
			colon = NULL;
		node = colon ? strndup(text, (size_t)(colon - text))
			     : strdup(text);
	}
	if (!node)
		return util_fail(-ENOMEM, "cannot keep an option");
	if (*node)
		at->node = node;
	else
		free(node);
	return colon ? set_port(opt, colon + 1) : UTIL_GO_ON;
}

static int parse_place(struct perf_opts *opt, const struct util_args *args)
{
	const char *transport = opt->transport_text ? opt->transport_text
						    : "shm";
	int rc;

	if (opt->listen && opt->connect)
		return util_usage("--listen or --connect, not both");
	if (args->cnt && !opt->listen)
		return util_usage("'%s' is an address, which --listen takes",
				  args->arg[0]);
	if (!*transport || strchr(transport, ','))
		return util_usage("--transport: one name, please");
	rc = set(&opt->place.transport, transport);
	if (rc == UTIL_GO_ON && opt->connect)
		rc = parse_address(opt, opt->connect);
	if (rc == UTIL_GO_ON && args->cnt)
		rc = parse_address(opt, args->arg[0]);
	return rc;
}

static int parse_numbers(struct perf_opts *opt)
{
	if (opt->rounds == PERF_NOT_GIVEN)
		opt->rounds = opt->segment || opt->region ? SEG_ROUNDS : ROUNDS;
	if (opt->window < 1 || opt->window > (int)PERF_WINDOW_MAX)
		return util_usage("--window: %d is not in 1..%u", opt->window,
				  PERF_WINDOW_MAX);
	if (opt->rounds < 1 || opt->rounds > ROUNDS_MAX)
		return util_usage("--rounds: %d is not in 1..%d", opt->rounds,
				  ROUNDS_MAX);
	if (opt->csv && util_flags.json)
		return util_usage("--csv or --json, not both");
	opt->seed = util_rng_seed();
	if (opt->seed_text && util_parse_u64(opt->seed_text, &opt->seed))
		return util_usage("--seed: '%s' is no number", opt->seed_text);
	return UTIL_GO_ON;
}

/* Of --region. */
static int parse_rdma(struct perf_opts *opt)
{
	const bool rdma = opt->ways_text && !strcmp(opt->ways_text, "rdma");

	if (rdma != !!opt->node)
		return util_usage("--region: --way rdma and --node ADDRESS go together");
	opt->rdma = rdma;
	return 0;
}

/* What --segment and --region take, and what is of no use without them. */
static int parse_segment(struct perf_opts *opt, const struct util_args *args)
{
	if (!opt->segment && opt->backends_text)
		return util_usage("--backend belongs to --segment");
	if (opt->segment && opt->region)
		return util_usage("--segment or --region, not both");
	if (opt->region && opt->plot)
		return util_usage("--region has no --plot");
	if (!opt->segment && !opt->region)
		return opt->node ? util_usage("--node belongs to --region") : UTIL_GO_ON;
	if (opt->region && parse_rdma(opt))
		return CMD_USAGE;
	if ((!opt->rdma && (opt->ways_text || opt->node)) ||
	    opt->buffers_text || opt->transport_text ||
	    opt->connect || opt->peer_text || opt->tls_text || opt->prefix ||
	    opt->seed_text || opt->listen || opt->check || opt->use ||
	    opt->turnaround || opt->model || opt->window != PERF_WINDOW || args->cnt)
		return opt->region ? util_usage("--region takes --sizes, --rounds, --csv, and "
						"--way rdma with --node only")
				   : util_usage("--segment takes --backend, --sizes, "
						"--rounds, --csv and --plot only");
	if (!opt->backends_text)
		return UTIL_GO_ON;
	return list_parse_words("backend", opt->backends_text, seg_backend_names,
				&opt->backends);
}

int perf_parse(struct perf_opts *opt, const struct util_args *args)
{
	int rc = parse_segment(opt, args);

	if (rc == UTIL_GO_ON)
		rc = parse_numbers(opt);

	if (rc == UTIL_GO_ON)
		rc = parse_sizes(opt);
	if (rc == UTIL_GO_ON)
		rc = parse_ways(opt);
	if (rc == UTIL_GO_ON)
		rc = add_register(opt);
	if (rc == UTIL_GO_ON)
		rc = perf_parse_peers(opt);
	if (rc == UTIL_GO_ON)
		rc = parse_place(opt, args);
	return rc;
}
