// SPDX-License-Identifier: BSD-2-Clause
/* kedge perf: messages between two processes. The command line. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/perf/perf.h"
#include "tools/perf/region/region.h"
#include "tools/perf/segment/segment.h"

/* clang-format off */
static const char help[] =
"Runs both ends on this host, each on a CPU of its own where there are two, and\n"
"measures, for each size and way:\n"
"\n"
"  latency     half of the time from sending a message to having its answer, of\n"
"              the same size\n"
"  GB/s        1e9 bytes a second of messages one way, a window of them at a\n"
"              time (at most 32 MiB, or two), until the receiver says it has all\n"
"  cts         from the announcement of a message, or its receive, whichever is\n"
"              later, to telling the sender where it may go\n"
"\n"
"Shown are medians of rounds, in which all that is compared takes turns, on the\n"
"same CPUs, in batches of milliseconds; whoever is not measured sleeps.\n"
"\n"
"Ways: auto, the cheapest that the model of this machine expects; eager; direct,\n"
"which takes buffers of the heap; swap, copy, register. What the receiver really\n"
"took is the column \"taken\".\n"
"\n"
"Buffers:\n"
"  malloc      of malloc(), used again and again\n"
"  heap        the same, of kedge_channel_alloc(); ucp_mem_map() for UCX\n"
"  segment     whole pages of malloc(), made segments, which the other process\n"
"              attaches (kedge)\n"
"  fresh       malloc, receive, use, free for each message; from 128 KiB on they\n"
"              are mapped and unmapped. \"Use\" reads every byte as 64-bit words.\n"
"              Sent is from a buffer of malloc() that is used again\n"
"\n"
"With --peer, \"peer\" is the best of all that is measured beside kedge: UCX by\n"
"each of the transports in --peer-tls, and libfabric's provider. Many packages of\n"
"UCX are built with assertions and parameter checks, and are slower for it: the\n"
"first lines tell, and --peer-prefix takes another one.\n"
"\n"
"With --segment a process attaches memory of another's: loads, stores and copies\n"
"there, attaching, and making a segment, each in turns with the system's means to\n"
"the same end. \"As fast\" is how many times as fast as that.\n"
"\n"
"With --region a process reads and writes a committed region of another's by its\n"
"handle, in turns with the same in memory that both share; meanwhile the owner moves\n"
"it, makes handles, and has it grow. \"As long\" is how many times as long it takes.\n"
"With --way rdma and --node both have an RDMA adapter, and the process reaches the\n"
"region by that, in turns with reads and writes by the adapters' own calls: a queue\n"
"pair between the same two processes, and memory that is registered once. A put is\n"
"compared with a write that has been acknowledged, which the other adapter has then;\n"
"and with a write and a read behind it, which the other processor finds in memory\n"
"then, as it does what kedge has put.\n"
"\n"
"Exit status: 0 done; 1 with --check, a message came out wrong; 2 the command\n"
"line is wrong; 3 it cannot run here, or not to the end.\n";
/* clang-format on */

static int report(const struct perf_result *res)
{
	const struct perf_opts *opt = res->opt;
	int rc = CMD_OK;

	if (util_flags.json)
		rc = perf_print_json(res) ? CMD_CANNOT : CMD_OK;
	else if (opt->csv)
		perf_print_csv(res);
	else
		perf_print_text(res);
	if (!rc && opt->plot)
		rc = perf_plot(res, opt->plot);
	if (!res->wrong)
		return rc;
	util_error("%llu messages came out wrong; the first: %s",
		   (unsigned long long)res->wrong, res->why);
	return rc ? rc : CMD_FINDING;
}

static int run(const struct perf_opts *opt)
{
	struct perf_result *res;
	int rc;

	if (opt->listen)
		return perf_serve(&opt->place);
	if (opt->plot) {
		rc = plot_check(opt->plot);
		if (rc)
			return rc;
	}
	if (opt->segment)
		return seg_perf(opt);
	if (opt->region)
		return region_perf(opt);
	res = calloc(1, sizeof(*res));
	if (!res)
		return util_fail(-ENOMEM, "cannot keep the figures");
	rc = perf_run(opt, res);
	if (!rc)
		rc = report(res);
	perf_result_fini(res);
	free(res);
	return rc;
}

/* popt writes where these point. */
static struct perf_opts given = { .window = PERF_WINDOW,
				  .rounds = PERF_NOT_GIVEN };
static struct poptOption table[] = {
	{ "sizes", 's', POPT_ARG_STRING, &given.sizes_text, 0,
	  "Of a message, 1 to 1G (some from 1 to 64M); with --segment or --region of a "
	  "copy, 64 to 16M", "BYTES,..." },
	{ "way", 'W', POPT_ARG_STRING, &given.ways_text, 0,
	  "auto, eager, direct, swap, copy, register (auto); with --region rdma",
	  "NAME,..." },
	{ "buffers", 'b', POPT_ARG_STRING, &given.buffers_text, 0,
	  "malloc, heap, fresh, segment (malloc)", "NAME,..." },
	{ "window", 'w', POPT_ARG_INT, &given.window, 0,
	  "Messages under way, at most (16)", "N" },
	{ "rounds", 'r', POPT_ARG_INT, &given.rounds, 0,
	  "Undisturbed rounds, of which the medians are (11; with "
	  "--segment and --region 41)", "N" },
	{ "check", 'C', POPT_ARG_NONE, &given.check, 0,
	  "Verify every byte of every message, in the time measured",
	  NULL },
	{ "use", 'u', POPT_ARG_NONE, &given.use, 0,
	  "Use what is received into malloc and heap, too", NULL },
	{ "peer", 'p', POPT_ARG_STRING, &given.peer_text, 0,
	  "Measure beside kedge: ucx, libfabric[:PROVIDER] (shm)",
	  "NAME,..." },
	{ "peer-prefix", '\0', POPT_ARG_STRING, &given.prefix, 0,
	  "Take the UCX that is installed in DIR/lib", "DIR" },
	{ "peer-tls", '\0', POPT_ARG_STRING, &given.tls_text, 0,
	  "UCX's transports (posix:posix,cma)", "LIST:..." },
	{ "transport", 't', POPT_ARG_STRING, &given.transport_text, 0,
	  "shm, tcp, or a provider of libfabric (shm)", "NAME" },
	{ "listen", '\0', POPT_ARG_NONE, &given.listen, 0,
	  "Be the other end for one --connect; ADDR: where", NULL },
	{ "connect", '\0', POPT_ARG_STRING, &given.connect, 0,
	  "Measure with the end that listens there", "ADDR" },
	{ "turnaround", 'T', POPT_ARG_NONE, &given.turnaround, 0,
	  "Compare cts with registering 4 MiB; buffers are fresh",
	  NULL },
	{ "model", 'm', POPT_ARG_NONE, &given.model, 0,
	  "Print what ways are expected to cost, measure nothing",
	  NULL },
	{ "segment", '\0', POPT_ARG_NONE, &given.segment, 0,
	  "Measure memory of another process that is attached", NULL },
	{ "region", '\0', POPT_ARG_NONE, &given.region, 0,
	  "Measure a region of another process, by its handle", NULL },
	{ "node", '\0', POPT_ARG_STRING, &given.node, 0,
	  "With --region --way rdma: an IPv4 address of an RDMA adapter here, of RoCE v2",
	  "ADDRESS" },
	{ "backend", '\0', POPT_ARG_STRING, &given.backends_text, 0,
	  "convert, module (all that are here; --segment)", "NAME,..." },
	{ "seed", 'S', POPT_ARG_STRING, &given.seed_text, 0,
	  "Of the contents that --check verifies", "N" },
	{ "csv", 'c', POPT_ARG_NONE, &given.csv, 0,
	  "Print CSV instead of text", NULL },
	{ "plot", 'P', POPT_ARG_STRING, &given.plot, 0,
	  "Draw the curves into FILE with gnuplot", "FILE.svg" },
	POPT_TABLEEND
};

int cmd_perf(int argc, char **argv)
{
	const struct util_cmd cmd = { .synopsis = "[OPTION...] [ADDR]",
				      .help = help,
				      .opts = table,
				      .max_args = 1 };
	struct util_args args;
	int rc;

	rc = util_options(&cmd, argc, argv, &args);
	if (rc == UTIL_GO_ON) {
		rc = perf_parse(&given, &args);
		util_args_fini(&args);
	}
	if (rc == UTIL_GO_ON)
		rc = run(&given);
	util_free_texts(table);
	free(given.place.transport);
	free(given.place.node);
	free(given.place.service);
	return rc;
}
