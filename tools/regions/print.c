// SPDX-License-Identifier: BSD-2-Clause
/*
 * The list for people. Names of commands are other processes' words: a terminal gets none of them
 * that could move its cursor.
 */
#include <errno.h>
#include <stdio.h>

#include "base/base.h"
#include "tools/regions/regions.h"

const char *regions_state(const struct kedge_region_entry *e)
{
	static const char *const names[] = {
		[KEDGE_REGION_HERE] = "here",
		[KEDGE_REGION_MOVING] = "moving",
		[KEDGE_REGION_MIGRATING] = "migrating",
		[KEDGE_REGION_COMING] = "coming",
		[KEDGE_REGION_IN_DOUBT] = "in doubt",
		[KEDGE_REGION_LEFT] = "left",
	};

	return e->state < ARRAY_SIZE(names) ? names[e->state] : "?";
}

const char *regions_silent(int status)
{
	switch (status) {
	case -EACCES:
		return "it is another user's: run it as root";
	case -ETIMEDOUT:
		return "it does not answer: it is stopped, or busy";
	case -EBUSY:
		return "it has no descriptor or memory left to answer, or many ask it: try again";
	case -EFBIG:
		return "it has more regions than a list takes, or others have: ask by --pid";
	case -EOPNOTSUPP:
		return "it does not answer that question: it has another version of kedge";
	}
	return "what it says has no meaning: it is no program of kedge's";
}

const char *regions_unasked(const struct process *p)
{
	if (p->silent)
		return "does not tell";
	return p->found->elsewhere ? "is in another network namespace, and was not asked"
				   : "has no handle yet, and cannot be asked";
}

/* ---- regions ---- */

static const char *state(char *to, size_t room, const struct kedge_region_entry *e)
{
	if (e->state != KEDGE_REGION_HERE || !e->suspended)
		snprintf(to, room, "%s", regions_state(e));
	else if (e->suspended == 1)
		snprintf(to, room, "suspended");
	else
		snprintf(to, room, "suspended %u", e->suspended);
	return to;
}

static void print_notes(const struct kedge_region_entry *e)
{
	char to[sizeof(e->to)], bytes[UTIL_HUMAN];

	if (e->state == KEDGE_REGION_LEFT && e->to_pid)
		printf("%14s to process %d\n", "", e->to_pid);
	if (e->state == KEDGE_REGION_LEFT && *e->to)
		printf("%14s to %s\n", "", who_plain(to, sizeof(to), e->to));
	if (e->expired && e->expired != KEDGE_REGION_UNKNOWN)
		printf("%14s %u of the handles %s expired\n", "", e->expired,
		       who_plural(e->expired, "has", "have"));
	if (e->revoked)
		printf("%14s %llu %s revoked\n", "", (unsigned long long)e->revoked,
		       who_plural(e->revoked, "handle was", "handles were"));
	if (e->inside && e->inside != KEDGE_REGION_UNKNOWN)
		printf("%14s %u of the peers that have it mapped %s an access under way\n", "",
		       e->inside, who_plural(e->inside, "has", "have"));
	if (e->missing)
		printf("%14s %s missing, as its program has unmapped, replaced or dropped them: "
		       "kedge_region_recommit()\n", "", util_human_bytes(bytes, e->missing));
	if (e->served)
		printf("%14s %s served\n", "", util_human_bytes(bytes, e->served_bytes));
}

static void print_region(const struct kedge_region_entry *e)
{
	char len[UTIL_HUMAN], max[UTIL_HUMAN], page[UTIL_HUMAN], is[32];

	printf("%#14llx %10s %10s %8s %-11s %7u %6u %5u %5u %9llu %5llu %5u %5u\n",
	       (unsigned long long)e->addr, util_human_bytes(len, e->len),
	       util_human_bytes(max, e->max_len), util_human_bytes(page, e->page_size),
	       state(is, sizeof(is), e), e->handles, e->mapped, e->local, e->tcp,
	       (unsigned long long)e->served, (unsigned long long)e->suspensions, e->moves,
	       e->migrations);
	print_notes(e);
}

static void print_unasked(const struct unasked *u)
{
	char addr[32] = "-", len[UTIL_HUMAN];

	if (u->addr)
		snprintf(addr, sizeof(addr), "%#llx", (unsigned long long)u->addr);
	printf("%14s %10s\n", addr, util_human_bytes(len, u->len));
}

/* ---- processes ---- */

static void print_budget(const struct process *p)
{
	const struct kedge_region_entry *e = p->regions;
	char used[UTIL_HUMAN], limit[UTIL_HUMAN];

	if (e->budget_limit == UINT64_MAX)
		printf("%s, no budget\n", util_human_bytes(used, e->budget_used));
	else
		printf("%s of a budget of %s\n", util_human_bytes(used, e->budget_used),
		       util_human_bytes(limit, e->budget_limit));
}

static void print_process(const struct process *p)
{
	char name[WHO_LEN], user[WHO_LEN];
	size_t i;

	if (p->pid)
		printf("%sprocess %d%s (%s, user %s) ", util_colour(UTIL_BOLD), p->pid,
		       util_colour(UTIL_PLAIN), who_plain(name, sizeof(name), p->command),
		       who_plain(user, sizeof(user), p->user));
	if (!p->pid)
		printf("processes of other pid namespaces\n");
	else if (p->told)
		print_budget(p);
	else
		printf("%s\n", regions_unasked(p));
	for (i = 0; i < p->cnt; i++)
		if (p->told)
			print_region(&p->regions[i]);
		else
			print_unasked(&p->found[i]);
}

static void print_totals(const struct listing *l, int pid)
{
	char bytes[UTIL_HUMAN];

	if (l->regions)
		printf("%zu %s of %zu %s, %s; %llu %s, %llu %s\n", l->regions,
		       who_plural(l->regions, "region", "regions"), l->owners,
		       who_plural(l->owners, "process", "processes"),
		       util_human_bytes(bytes, l->bytes), (unsigned long long)l->handles,
		       who_plural(l->handles, "handle", "handles"), (unsigned long long)l->peers,
		       who_plural(l->peers, "peer", "peers"));
	else if (!pid)
		printf("No regions: no process that can be asked has one.\n");
	else if (!l->others && !l->silent)
		printf("Process %d has no regions.\n", pid);
}

/* ---- on standard error, as the list goes on without it ---- */

static void print_silent(const struct process *p)
{
	char name[WHO_LEN], user[WHO_LEN];

	if (p->pid)
		util_error("process %d (%s, user %s) does not tell its regions: %s", p->pid,
			   who_plain(name, sizeof(name), p->command),
			   who_plain(user, sizeof(user), p->user), regions_silent(p->status));
	else
		util_error("a process that cannot be told does not tell its regions: %s",
			   regions_silent(p->status));
}

static void print_missing(const struct listing *l, int pid)
{
	const struct process *p;

	for (p = l->process; p < l->process + l->cnt; p++)
		if (p->silent || (p->status && pid))
			print_silent(p);
	if (l->others && !pid)
		util_error("%zu %s of other users %s not asked: run it as root", l->others,
			   who_plural(l->others, "process", "processes"),
			   who_plural(l->others, "is", "are"));
	if (l->unsearched)
		util_error("processes without a handle may be missing: /proc was not read in "
			   "time, --wait gives it more");
}

void print_listing(const struct listing *l, int pid)
{
	const struct process *p;

	if (l->regions)
		printf("%s%14s %10s %10s %8s %-11s %7s %6s %5s %5s %9s %5s %5s %5s%s\n",
		       util_colour(UTIL_BOLD), "ADDRESS", "LENGTH", "MAX", "PAGES", "STATE",
		       "HANDLES", "MAPPED", "LOCAL", "TCP", "SERVED", "SUSP", "MOVES", "MIGR",
		       util_colour(UTIL_PLAIN));
	for (p = l->process; p < l->process + l->cnt; p++)
		if (p->cnt)
			print_process(p);
	print_totals(l, pid);
	fflush(stdout);
	print_missing(l, pid);
}
