// SPDX-License-Identifier: BSD-2-Clause
/* kedge migrate: its command line. */
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/migrate/run.h"

#define SIZE_LEAST ((uint64_t)1 << 20)
#define SIZE_MOST  ((uint64_t)1 << 40)
#define SIZE_DEFAULT ((uint64_t)256 << 20)
#define ROUNDS_MAX 1000
#define COUNT_MAX  100000
#define UNSET	   INT_MIN

static const char help_text[] =
	"Moves a region from one process to another and back while other processes read\n"
	"and write blocks of 4 KiB in it, and looks whether all is there that they were\n"
	"told is written. All of it happens in processes of its own.\n\n"
	"PAUSE is how long peers were kept out, and LAST what was sent meanwhile; MEMCPY\n"
	"and SOCKET are what as many bytes take alone. With --kill one process is killed\n"
	"at any moment of a migration, COUNT times, each time with new processes.\n"
	"--namespaces takes root, or 'unshare -Ur', and the command 'ip'.\n\n"
	"Exit status: 0 if nothing was lost, torn or failed.\n";

/* The options, as popt has them. */
struct words {
	char *size, *way, *node, *victim, *seed;
	int peers, writes, rounds, count, namespaces, own;
};

static int one_of(const char *const *names, const char *option, const char *text)
{
	const char *near;
	int i;

	for (i = 0; names[i]; i++)
		if (!strcmp(names[i], text))
			return i;
	near = util_did_you_mean(text, names);
	if (near)
		util_usage("%s: there is no '%s': did you mean '%s'?", option, text, near);
	else
		util_usage("%s: there is no '%s'", option, text);
	return -1;
}

static int read_numbers(const struct words *w, struct migrate_opts *o)
{
	if (w->peers < 1 || w->peers > (int)LOAD_PEERS_MAX)
		return util_usage("--peers: 1 to %u", LOAD_PEERS_MAX);
	if (w->writes < 0 || w->writes > 100)
		return util_usage("--writes: 0 to 100 %%");
	if (w->rounds != UNSET && (w->rounds < 1 || w->rounds > ROUNDS_MAX))
		return util_usage("--rounds: 1 to %d", ROUNDS_MAX);
	if (w->count != UNSET && (w->count < 1 || w->count > COUNT_MAX))
		return util_usage("--count: 1 to %d", COUNT_MAX);
	if (w->seed && (util_parse_u64(w->seed, &o->seed) || o->seed > INT64_MAX))
		return util_usage("--seed: '%s' is no number", w->seed);
	o->peers = (unsigned int)w->peers;
	o->writes = (unsigned int)w->writes;
	o->rounds = w->rounds == UNSET ? 1 : (unsigned int)w->rounds;
	o->count = w->count == UNSET ? 1 : (unsigned int)w->count;
	return UTIL_GO_ON;
}

static int read_size(const char *text, struct migrate_opts *o)
{
	if (!text)
		return UTIL_GO_ON;
	if (util_parse_size(text, &o->len) || o->len < SIZE_LEAST || o->len > SIZE_MOST)
		return util_usage("--size: '%s' is none from 1M to 1T", text);
	o->len = round_up(o->len, (uint64_t)sysconf(_SC_PAGESIZE));
	return UTIL_GO_ON;
}

static int read_names(const struct words *w, struct migrate_opts *o)
{
	int way = w->namespaces ? WAY_TCP : WAY_MAPPED, victim = VICTIM_NONE;

	if (w->way)
		way = one_of(migrate_ways, "--way", w->way);
	if (way >= 0 && w->victim)
		victim = one_of(migrate_victims, "--kill", w->victim);
	if (way < 0 || victim < 0)
		return CMD_USAGE;
	if (w->victim && victim == VICTIM_NONE)
		return util_usage("--kill: owner, target or peer");
	if ((way == WAY_RDMA) != !!w->node)
		return util_usage("--way rdma and --node ADDRESS go together");
	if (way == WAY_RDMA && w->namespaces)
		return util_usage("--namespaces and --way rdma: not both");
	if (w->count != UNSET && victim == VICTIM_NONE)
		return util_usage("--count is of --kill");
	if (w->rounds != UNSET && victim != VICTIM_NONE)
		return util_usage("--rounds and --kill: not both");
	o->way = (enum migrate_way)way;
	o->victim = (enum migrate_victim)victim;
	o->node = w->node;
	o->namespaces = w->namespaces;
	o->own = w->own;
	return UTIL_GO_ON;
}

static int run(const struct words *w)
{
	struct migrate_opts o = { .len = SIZE_DEFAULT, .seed = util_rng_seed() };
	int err, rc = read_numbers(w, &o);

	if (rc == UTIL_GO_ON)
		rc = read_size(w->size, &o);
	if (rc == UTIL_GO_ON)
		rc = read_names(w, &o);
	if (rc == UTIL_GO_ON && o.way == WAY_RDMA && (err = migrate_use_rdma()))
		return util_fail(err, "--way rdma");
	return rc == UTIL_GO_ON ? migrate_run(&o) : rc;
}

int cmd_migrate(int argc, char **argv)
{
	struct words w = { .peers = 2, .writes = 50, .rounds = UNSET, .count = UNSET };
	struct poptOption opts[] = {
		{ "size", 's', POPT_ARG_STRING, &w.size, 0, "Of the region; 256M", "BYTES" },
		{ "peers", 'n', POPT_ARG_INT, &w.peers, 0, "Processes that access it; 2", "N" },
		{ "writes", 'w', POPT_ARG_INT, &w.writes, 0, "Of their accesses; 50", "PERCENT" },
		{ "rounds", 'r', POPT_ARG_INT, &w.rounds, 0, "Times there and back; 1", "N" },
		{ "way", '\0', POPT_ARG_STRING, &w.way, 0,
		  "How peers reach it: they have it mapped, or the owner does their accesses, by a "
		  "local stream or by TCP, or RDMA adapters do, which copy it, too",
		  "mapped|stream|tcp|rdma" },
		{ "node", '\0', POPT_ARG_STRING, &w.node, 0,
		  "An IPv4 address of an RDMA adapter of this machine, of RoCE v2: for --way rdma",
		  "ADDRESS" },
		{ "namespaces", '\0', POPT_ARG_NONE, &w.namespaces, 0,
		  "The two processes are in network namespaces of their own; implies --way tcp",
		  NULL },
		{ "own", '\0', POPT_ARG_NONE, &w.own, 0, "The owner itself stores in it, too",
		  NULL },
		{ "kill", '\0', POPT_ARG_STRING, &w.victim, 0,
		  "Kill it at any moment of a migration", "owner|target|peer" },
		{ "count", 'k', POPT_ARG_INT, &w.count, 0, "So many times; 1", "COUNT" },
		{ "seed", 'S', POPT_ARG_STRING, &w.seed, 0, "Draw the same numbers again", "N" },
		POPT_TABLEEND
	};
	struct util_cmd cmd = { .synopsis = "[OPTION...]", .help = help_text, .opts = opts };
	struct util_args args;
	int rc = util_options(&cmd, argc, argv, &args);

	if (rc == UTIL_GO_ON) {
		util_args_fini(&args);
		rc = run(&w);
	}
	util_free_texts(opts);
	return rc;
}
