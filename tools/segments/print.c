// SPDX-License-Identifier: BSD-2-Clause
/*
 * The list, for people or as JSON. Names of commands and reasons are other processes' words:
 * a terminal gets none of them that could move its cursor.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <kedge/kedge.h>

#include "base/base.h"
#include "tools/common/who.h"
#include "tools/segments/segments.h"

static const char *backend_name(uint32_t backend)
{
	return backend == KEDGE_SEGMENT_MODULE ? "module"
	       : backend == KEDGE_SEGMENT_CONVERT ? "convert" : "copy";
}

static const char *why_silent(int status)
{
	switch (status) {
	case -EACCES:
		return "it is another user's: run it as root";
	case -ETIMEDOUT:
		return "it does not answer: it is stopped, or busy";
	case -EBUSY:
		return "too many processes ask it";
	}
	return "it does not tell: it has another version of kedge, or none";
}

/* ---- text ---- */

static const char *length_of(char *to, const struct kedge_segment_entry *e)
{
	return e->flags & KEDGE_SEGMENT_WHOLE ? "all" : util_human_bytes(to, e->len);
}

/* "2 (8.0 KiB)" */
static const char *attached(char *to, size_t room, const struct kedge_segment_entry *e)
{
	char bytes[UTIL_HUMAN];

	if (e->attachments == KEDGE_SEGMENT_UNKNOWN)
		snprintf(to, room, "-");
	else if (!e->reached)
		snprintf(to, room, "%u", e->attachments);
	else
		snprintf(to, room, "%u (%s)", e->attachments,
			 util_human_bytes(bytes, e->reached));
	return to;
}

static void print_segment(const struct listed *l)
{
	const struct kedge_segment_entry *e = &l->entry;
	char name[64], user[64], bytes[UTIL_HUMAN], maps[64], why[sizeof(e->reason)];

	printf("%7d %-15s %-8s %#14llx %10s %04o %-7s %6u %8s %7llu\n", e->pid,
	       who_plain(name, sizeof(name), l->command), who_plain(user, sizeof(user), l->user),
	       (unsigned long long)e->addr, length_of(bytes, e), e->mode,
	       backend_name(e->backend), e->grants, attached(maps, sizeof(maps), e),
	       (unsigned long long)e->changes);
	if (*e->reason)
		printf("%7s only copied: %s\n", "", who_plain(why, sizeof(why), e->reason));
}

static void print_totals(const struct all_listed *all, int pid)
{
	char bytes[UTIL_HUMAN];

	if (!all->segments && !pid)
		printf("No segments: no process that can be asked has made one.\n");
	else if (!all->segments && !all->others && !all->silent)
		printf("Process %d has no segments.\n", pid);
	else if (all->segments)
		printf("%zu %s of %zu %s, %s; %llu %s\n", all->segments,
		       who_plural(all->segments, "segment", "segments"), all->processes,
		       who_plural(all->processes, "process", "processes"),
		       util_human_bytes(bytes, all->bytes), (unsigned long long)all->grants,
		       who_plural(all->grants, "grant", "grants"));
}

/* On standard error, as the list goes on without it. */
static void print_silent(const struct listed *l)
{
	char name[64], user[64];

	if (l->entry.pid)
		util_error("process %d (%s, user %s) is not listed: %s", l->entry.pid,
			   who_plain(name, sizeof(name), l->command),
			   who_plain(user, sizeof(user), l->user), why_silent(l->entry.status));
	else
		util_error("a process that cannot be told is not listed: %s",
			   why_silent(l->entry.status));
}

static void print_text(const struct all_listed *all, int pid)
{
	const struct listed *l;

	if (all->segments)
		printf("%s%7s %-15s %-8s %14s %10s %4s %-7s %6s %8s %7s%s\n",
		       util_colour(UTIL_BOLD), "PID", "COMMAND", "USER", "ADDRESS", "LENGTH",
		       "MODE", "BACKEND", "GRANTS", "ATTACHED", "CHANGES",
		       util_colour(UTIL_PLAIN));
	for (l = all->of; l < all->of + all->cnt; l++)
		if (!l->entry.status)
			print_segment(l);
	print_totals(all, pid);
	fflush(stdout);
	for (l = all->of; l < all->of + all->cnt; l++)
		if (l->entry.status && (l->entry.status != -EACCES || pid))
			print_silent(l);
	if (all->others && !pid)
		util_error("%zu %s of other users %s not asked: run it as root", all->others,
			   who_plural(all->others, "process", "processes"),
			   who_plural(all->others, "is", "are"));
}

/* ---- JSON ---- */

static json_t *process_json(const struct listed *l)
{
	const struct kedge_segment_entry *e = &l->entry;
	json_t *o = json_pack("{s:o, s:o}", "command", util_json_text(l->command), "user",
			      util_json_text(l->user));

	/* A value that cannot be told is null. */
	json_object_set_new(o, "pid", e->pid ? json_integer(e->pid) : json_null());
	json_object_set_new(o, "uid", e->uid == UINT32_MAX ? json_null()
							    : json_integer(e->uid));
	json_object_set_new(o, "gid", e->gid == UINT32_MAX ? json_null()
							    : json_integer(e->gid));
	return o;
}

static json_t *segment_json(const struct listed *l)
{
	const struct kedge_segment_entry *e = &l->entry;
	const bool whole = e->flags & KEDGE_SEGMENT_WHOLE;
	const bool counted = e->attachments != KEDGE_SEGMENT_UNKNOWN;
	json_t *o = process_json(l);
	char mode[8];

	snprintf(mode, sizeof(mode), "%04o", e->mode);
	json_object_set_new(o, "address", json_integer((json_int_t)e->addr));
	json_object_set_new(o, "length", whole ? json_null() : json_integer((json_int_t)e->len));
	json_object_set_new(o, "whole", json_boolean(whole));
	json_object_set_new(o, "mode", json_string(mode));
	json_object_set_new(o, "backend", json_string(backend_name(e->backend)));
	json_object_set_new(o, "reason", *e->reason ? util_json_text(e->reason) : json_null());
	json_object_set_new(o, "grants", json_integer(e->grants));
	json_object_set_new(o, "attachments", counted ? json_integer(e->attachments)
						      : json_null());
	json_object_set_new(o, "reached", counted ? json_integer((json_int_t)e->reached)
						  : json_null());
	json_object_set_new(o, "changes", json_integer((json_int_t)e->changes));
	return o;
}

static json_t *silent_json(const struct listed *l)
{
	json_t *o = process_json(l);

	json_object_set_new(o, "reason", json_string(why_silent(l->entry.status)));
	return o;
}

static int print_json(const struct all_listed *all)
{
	json_t *segments = json_array(), *silent = json_array(), *others = json_array();
	const struct listed *l;

	for (l = all->of; l < all->of + all->cnt; l++)
		if (!l->entry.status)
			json_array_append_new(segments, segment_json(l));
		else if (l->entry.status == -EACCES)
			json_array_append_new(others, process_json(l));
		else
			json_array_append_new(silent, silent_json(l));
	return util_json_print(json_pack(
		       "{s:o, s:I, s:I, s:I, s:o, s:o}", "segments", segments, "processes",
		       (json_int_t)all->processes, "bytes", (json_int_t)all->bytes, "grants",
		       (json_int_t)all->grants, "silent", silent, "not_asked", others))
		       ? CMD_CANNOT : 0;
}

int segments_print(const struct all_listed *all, int pid)
{
	if (util_flags.json)
		return print_json(all);
	print_text(all, pid);
	return 0;
}
