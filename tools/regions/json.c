// SPDX-License-Identifier: BSD-2-Clause
/* The list as JSON. What is not known is null. */
#include <errno.h>

#include "tools/regions/regions.h"

static json_t *number(uint64_t n)
{
	return json_integer((json_int_t)n);
}

static json_t *unless(uint64_t n, uint64_t unknown)
{
	return n == unknown ? json_null() : number(n);
}

static json_t *peers_json(const struct kedge_region_entry *e)
{
	return json_pack("{s:o, s:o, s:o, s:o}", "mapped", number(e->mapped), "local",
			 number(e->local), "tcp", number(e->tcp), "inside",
			 unless(e->inside, KEDGE_REGION_UNKNOWN));
}

static json_t *left_json(const struct kedge_region_entry *e)
{
	if (e->state != KEDGE_REGION_LEFT)
		return json_null();
	return json_pack("{s:o, s:o}", "pid", unless((uint64_t)e->to_pid, 0), "address",
			 *e->to ? util_json_text(e->to) : json_null());
}

static json_t *region_json(const void *of, size_t i)
{
	const struct kedge_region_entry *e = (const struct kedge_region_entry *)of + i;
	json_t *o = json_pack("{s:o, s:o, s:o, s:o, s:s, s:o}", "address", number(e->addr),
			      "length", number(e->len), "max_length", number(e->max_len),
			      "page_size", number(e->page_size), "state", regions_state(e),
			      "left_to", left_json(e));

	json_object_set_new(o, "suspended", number(e->suspended));
	json_object_set_new(o, "handles", number(e->handles));
	json_object_set_new(o, "expired", unless(e->expired, KEDGE_REGION_UNKNOWN));
	json_object_set_new(o, "revoked", number(e->revoked));
	json_object_set_new(o, "peers", peers_json(e));
	json_object_set_new(o, "served", number(e->served));
	json_object_set_new(o, "served_bytes", number(e->served_bytes));
	json_object_set_new(o, "suspensions", number(e->suspensions));
	json_object_set_new(o, "missing", number(e->missing));
	json_object_set_new(o, "moves", number(e->moves));
	json_object_set_new(o, "migrations", number(e->migrations));
	return o;
}

static json_t *unasked_json(const void *of, size_t i)
{
	const struct unasked *u = (const struct unasked *)of + i;

	return json_pack("{s:o, s:o}", "address", unless(u->addr, 0), "length", number(u->len));
}

static json_t *process_json(const struct process *p)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:o}", "pid", unless((uint64_t)p->pid, 0), "uid",
			 unless(p->uid, UINT32_MAX), "gid", unless(p->gid, UINT32_MAX), "command",
			 util_json_text(p->command), "user", util_json_text(p->user));
}

static json_t *owner_json(const struct process *p)
{
	const bool one = p->told && p->pid; /* those of other pid namespaces are not told apart */
	json_t *o = process_json(p);

	json_object_set_new(o, "told", json_boolean(p->told));
	json_object_set_new(o, "reason", p->told ? json_null()
						 : json_string(regions_unasked(p)));
	json_object_set_new(o, "budget", one ? unless(p->regions->budget_limit, UINT64_MAX)
						 : json_null());
	json_object_set_new(o, "used", one ? number(p->regions->budget_used) : json_null());
	json_object_set_new(o, "regions", p->told
						  ? util_json_rows(p->cnt, region_json, p->regions)
						  : util_json_rows(p->cnt, unasked_json, p->found));
	return o;
}

static json_t *silent_json(const struct process *p)
{
	json_t *o = process_json(p);

	json_object_set_new(o, "reason", json_string(regions_silent(p->status)));
	return o;
}

int print_json(const struct listing *l)
{
	json_t *owners = json_array(), *silent = json_array(), *others = json_array();
	const struct process *p;

	for (p = l->process; p < l->process + l->cnt; p++) {
		if (p->cnt)
			json_array_append_new(owners, owner_json(p));
		if (p->silent)
			json_array_append_new(silent, silent_json(p));
		else if (p->status)
			json_array_append_new(others, process_json(p));
	}
	return util_json_print(json_pack(
		       "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b}", "processes", owners, "regions",
		       number(l->regions), "bytes", number(l->bytes), "handles",
		       number(l->handles), "peers", number(l->peers), "silent", silent,
		       "not_asked", others, "searched", !l->unsearched))
		       ? CMD_CANNOT : 0;
}
