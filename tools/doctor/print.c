// SPDX-License-Identifier: BSD-2-Clause
/* The finds of kedge doctor, as text on stderr and as JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "tools/common/util.h"
#include "tools/doctor/doctor.h"

static const char *const kind_words[] = {
	[TABLE_UNMAP] = "unmapped",
	[TABLE_DROP] = "dropped",
	[TABLE_MOVE] = "moved",
};

static const struct record *why(const struct found *f, const struct checked_stale *s)
{
	return record_find(f->recorder, s->change);
}

/* A library that was told of a change may take its time to deregister. So a registration that was
 * no more than held counts only in a process of which no work request was seen at all. */
bool doctor_finds(const struct checked *c)
{
	size_t i;

	for (i = 0; i < c->stale.cnt; i++)
		if (c->stale.all[i].blind)
			return true;
	return c->used.cnt;
}

/* Whether "nothing stale" can be said. */
bool doctor_knows(const struct found *f)
{
	return f->checked->processes && !f->untraced && !atomic_load(&f->recorder->table->lost);
}

/* ---- text ---- */

static void print_frame(size_t i, const struct frame *f)
{
	fprintf(stderr, "    #%-2zu %#018" PRIx64, i, f->pc);
	if (*f->function)
		fprintf(stderr, " %s+%#" PRIx64, f->function, f->offset);
	if (*f->module)
		fprintf(stderr, " (%s)", f->module);
	if (*f->file)
		fprintf(stderr, " %s:%d", f->file, f->line);
	fputc('\n', stderr);
}

static void print_stack(const struct record *r)
{
	size_t i;

	for (i = 0; i < r->frames; i++)
		print_frame(i, &r->frame[i]);
	if (!r->frames)
		fputs("    a stack that cannot be told\n", stderr);
}

static void print_first(const struct found *f, const struct checked_stale *s)
{
	const struct record *r = why(f, s);

	fprintf(stderr, "  the first, %#" PRIx64 " to %#" PRIx64 " of process %d, was %s by%s\n",
		s->start, s->end, s->pid, s->kind,
		r ? "" : " no call that was seen, perhaps by io_uring or another process");
	if (r)
		print_stack(r);
}

static void print_used(const struct found *f, const struct checked_stale *s)
{
	util_error("STALE: work requests named pages that had gone (%llu), by registrations that "
		   "%s holds (%llu)", s->requests, s->name, s->cnt);
	print_first(f, s);
}

static void print_held(const struct found *f, const struct checked_stale *s)
{
	util_error("%s: %s holds registrations whose pages have gone (%llu); %s",
		   s->blind ? "STALE" : "note", s->name, s->cnt,
		   s->blind ? "no work request was seen that could tell whether it uses them" :
			      "no work request named them on this host");
	print_first(f, s);
}

static void print_verdict(const struct found *f)
{
	if (doctor_finds(f->checked))
		return;
	if (doctor_knows(f))
		util_error("nothing stale: %u calls changed memory that was registered",
			   f->recorder->total);
	else
		util_error("nothing stale was found, and not all was followed (%u registrations "
			   "had no room)", atomic_load(&f->recorder->table->lost));
}

void doctor_print(const struct found *f)
{
	const struct checked *c = f->checked;
	size_t i;

	if (f->untraced)
		util_error("the program ran without its system calls being followed (%s), "
			   "so no stack is known: is it traced already, by a debugger, or is "
			   "ptrace() not allowed here (kernel.yama.ptrace_scope, seccomp)?",
			   strerror(f->untraced));
	if (f->recorder->left_out)
		util_error("%" PRIu64 " changes had no room among %u stacks",
			   f->recorder->left_out, RECORDS_MAX);
	if (!c->processes && !c->used.cnt) {
		util_error("no process of the program has registered memory by ibv_reg_mr() and "
			   "its kin, or none has come to its exit: there is nothing to tell");
		return;
	}
	if (c->processes)
		checked_print_processes(c, f->untraced);
	for (i = 0; i < c->used.cnt; i++)
		print_used(f, &c->used.all[i]);
	for (i = 0; i < c->stale.cnt; i++)
		if (!checked_used(c, c->stale.all[i].name))
			print_held(f, &c->stale.all[i]);
	print_verdict(f);
}

/* ---- JSON ---- */

static json_t *frame_row(const void *of, size_t i)
{
	const struct frame *f = &((const struct record *)of)->frame[i];

	return json_pack("{sI so sI so so si}", "pc", (json_int_t)f->pc, "function",
			 util_json_text(f->function), "offset", (json_int_t)f->offset, "module",
			 util_json_text(f->module), "file", util_json_text(f->file), "line",
			 f->line);
}

static json_t *stack_json(const struct record *r)
{
	return r ? util_json_rows(r->frames, frame_row, r) : json_null();
}

static json_t *stale_json(const struct found *f, const struct checked_stale *s)
{
	return json_pack("{so sI sI si sI sI so so}", "library", util_json_text(s->name),
			 "registrations", (json_int_t)s->cnt, "requests", (json_int_t)s->requests,
			 "pid", s->pid, "start", (json_int_t)s->start, "end", (json_int_t)s->end,
			 "kind", util_json_text(s->kind), "stack", stack_json(why(f, s)));
}

static json_t *used_row(const void *of, size_t i)
{
	return stale_json(of, &((const struct found *)of)->checked->used.all[i]);
}

static json_t *held_row(const void *of, size_t i)
{
	return stale_json(of, &((const struct found *)of)->checked->stale.all[i]);
}

static json_t *change_row(const void *of, size_t i)
{
	const struct record *r = &((const struct recorder *)of)->record[i];

	return json_pack("{si ss sI so}", "pid", (int)r->first.pid, "kind",
			 kind_words[r->first.kind], "count", (json_int_t)r->cnt, "stack",
			 stack_json(r));
}

int doctor_print_json(const struct found *f, int status)
{
	const struct checked *c = f->checked;

	return util_json_print(json_pack(
		"{si sb sb sb so so so so}", "status", status, "traced", !f->untraced, "stale",
		doctor_finds(c), "known", doctor_knows(f), "processes", checked_processes_json(c),
		"used", util_json_rows(c->used.cnt, used_row, f), "held",
		util_json_rows(c->stale.cnt, held_row, f), "changes",
		util_json_rows(f->recorder->cnt, change_row, f->recorder)));
}
