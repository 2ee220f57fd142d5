// SPDX-License-Identifier: BSD-2-Clause
/* The result of kedge migrate, for people and programs. */
#include <stdio.h>

#include "base/base.h"
#include "tools/migrate/run.h"

const char *const migrate_ways[] = { "mapped", "stream", "tcp", "rdma", NULL };
const char *const migrate_victims[] = { "", "owner", "target", "peer", NULL };

const char *migrate_track_name(uint32_t track)
{
	static const char *const name[] = {
		[KEDGE_TRACK_ALL] = "not",
		[KEDGE_TRACK_QUIET] = "quiet",
		[KEDGE_TRACK_USERFAULTFD] = "userfaultfd",
		[KEDGE_TRACK_SOFT_DIRTY] = "soft-dirty",
	};

	return track < ARRAY_SIZE(name) ? name[track] : "unknown";
}

bool report_is_right(const struct run *r)
{
	return !atomic_load(&r->load->lost) && !atomic_load(&r->load->torn) &&
	       !atomic_load(&r->load->errors) && !atomic_load(&r->load->owners);
}

/* ---- text ---- */

static void print_head(const struct run *r)
{
	const struct migrate_opts *o = r->opts;
	char len[UTIL_HUMAN];

	printf("a region of %s, %u %s, %u %% of their accesses write; %s%s%s; seed %llu\n\n",
	       util_human_bytes(len, o->len), o->peers, o->peers == 1 ? "peer" : "peers",
	       o->writes, migrate_ways[o->way], o->namespaces ? ", two network namespaces" : "",
	       o->own ? ", the owner stores" : "", (unsigned long long)o->seed);
}

static const char *time_text(char buf[UTIL_HUMAN], double ns)
{
	if (ns <= 0)
		return "-";
	return util_human_ns(buf, ns);
}

static void print_move(const struct move *m)
{
	char sent[UTIL_HUMAN], last[UTIL_HUMAN], pause[UTIL_HUMAN], wait[UTIL_HUMAN];
	char all[UTIL_HUMAN], copy[UTIL_HUMAN], socket[UTIL_HUMAN];

	printf("%7d %7d %6u %10s %10s %9s %9s %9s  %-11s %9s %9s\n", (int)m->from, (int)m->to,
	       m->info.rounds, util_human_bytes(sent, m->info.sent),
	       util_human_bytes(last, m->info.last), util_human_ns(pause, (double)m->info.pause_ns),
	       util_human_ns(wait, (double)m->longest),
	       util_human_ns(all, (double)m->info.total_ns), migrate_track_name(m->info.track),
	       time_text(copy, m->copy_ns), time_text(socket, m->socket_ns));
}

static unsigned int by_adapter(const struct run *r)
{
	unsigned int i, cnt = 0;

	for (i = 0; i < r->moves_cnt; i++)
		cnt += r->moves[i].info.rdma;
	return cnt;
}

static void print_moves(const struct run *r)
{
	unsigned int i;

	printf("%s%7s %7s %6s %10s %10s %9s %9s %9s  %-11s %9s %9s%s\n", util_colour(UTIL_BOLD),
	       "FROM", "TO", "ROUNDS", "SENT", "LAST", "PAUSE", "WAIT", "TOTAL", "OWN STORES",
	       "MEMCPY", "SOCKET", util_colour(UTIL_PLAIN));
	for (i = 0; i < r->moves_cnt; i++)
		print_move(&r->moves[i]);
	if (r->opts->way == WAY_RDMA)
		printf("\n%u of %u were copied by the adapters\n", by_adapter(r), r->moves_cnt);
	printf("\nWAIT is the longest that a peer waited for an access; MEMCPY and SOCKET are what "
	       "as many\nbytes as the last round's take alone.\n");
}

static void print_kills(const struct run *r)
{
	printf("%u times %s %s was killed: the region stayed %u times, moved %u times, and ended "
	       "%u\ntimes with the only process that had it\n", r->kills,
	       r->opts->victim == VICTIM_PEER ? "a" : "the", migrate_victims[r->opts->victim],
	       r->outcome[REGION_STAYED], r->outcome[REGION_MOVED], r->outcome[REGION_ENDED]);
}

static void print_text(const struct run *r)
{
	const struct load *l = r->load;
	char a[UTIL_HUMAN], b[UTIL_HUMAN];

	print_head(r);
	if (r->opts->victim == VICTIM_NONE)
		print_moves(r);
	else
		print_kills(r);
	printf("%s accesses, %s of them writes\n", util_human_count(a, r->accesses),
	       util_human_count(b, r->writes));
	printf("%s%llu lost, %llu torn, %llu errors, %llu times two owners%s\n",
	       util_colour(report_is_right(r) ? UTIL_GREEN : UTIL_RED),
	       (unsigned long long)l->lost, (unsigned long long)l->torn,
	       (unsigned long long)l->errors, (unsigned long long)l->owners,
	       util_colour(UTIL_PLAIN));
	if (*l->found)
		printf("the first: %s\n", l->found);
}

/* ---- JSON ---- */

static json_t *ns_json(double ns)
{
	return ns > 0 ? json_integer((json_int_t)ns) : json_null();
}

static json_t *move_json(const void *of, size_t i)
{
	const struct move *m = &((const struct run *)of)->moves[i];

	return json_pack("{s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:s, s:b, s:I, s:o, s:o}",
			 "from", (int)m->from, "to", (int)m->to, "rounds", (int)m->info.rounds,
			 "sent", (json_int_t)m->info.sent, "last", (json_int_t)m->info.last,
			 "pause_ns", (json_int_t)m->info.pause_ns, "longest_ns",
			 (json_int_t)m->longest, "total_ns", (json_int_t)m->info.total_ns, "track",
			 migrate_track_name(m->info.track), "rdma", (int)m->info.rdma, "accesses",
			 (json_int_t)m->accesses, "memcpy_ns", ns_json(m->copy_ns), "socket_ns",
			 ns_json(m->socket_ns));
}

static json_t *kills_json(const struct run *r)
{
	if (r->opts->victim == VICTIM_NONE)
		return json_null();
	return json_pack("{s:s, s:i, s:i, s:i, s:i}", "victim", migrate_victims[r->opts->victim],
			 "kills", (int)r->kills, "stayed", (int)r->outcome[REGION_STAYED], "moved",
			 (int)r->outcome[REGION_MOVED], "ended", (int)r->outcome[REGION_ENDED]);
}

static json_t *report_json(const struct run *r)
{
	const struct migrate_opts *o = r->opts;
	const struct load *l = r->load;

	return json_pack("{s:s, s:I, s:i, s:i, s:s, s:b, s:b, s:I, s:o, s:o, s:I, s:I, s:I, s:I, "
			 "s:I, s:I, s:I, s:o}", "version", kedge_version(), "size",
			 (json_int_t)o->len, "peers", (int)o->peers, "writes_percent",
			 (int)o->writes, "way", migrate_ways[o->way], "namespaces",
			 (int)o->namespaces, "own", (int)o->own, "seed", (json_int_t)o->seed,
			 "moves", util_json_rows(r->moves_cnt, move_json, r), "killed",
			 kills_json(r), "accesses", (json_int_t)r->accesses, "writes",
			 (json_int_t)r->writes, "lost", (json_int_t)l->lost, "torn",
			 (json_int_t)l->torn, "errors", (json_int_t)l->errors, "two_owners",
			 (json_int_t)l->owners, "unsure", (json_int_t)l->unsure, "found",
			 *l->found ? util_json_text(l->found) : json_null());
}

int report_print(const struct run *r)
{
	if (util_flags.json)
		return util_json_print(report_json(r)) ? CMD_CANNOT : CMD_OK;
	print_text(r);
	return CMD_OK;
}
