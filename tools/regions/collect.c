// SPDX-License-Identifier: BSD-2-Clause
/*
 * The answers of processes, and /proc's of the others, as one list by process. /proc is gone
 * through first: a process that makes its first handle meanwhile is found, and then tells.
 */
#include <errno.h>
#include <stdlib.h>

#include <kedge/kedge.h>

#include "tools/regions/regions.h"

/* ---- what they tell ---- */

static int add_entry(struct listing *l, const struct kedge_region_entry *e)
{
	struct kedge_region_entry *more = l->entry;

	/* A power of 2 is full. */
	if (!(l->entry_cnt & (l->entry_cnt - 1)))
		more = realloc(l->entry, (l->entry_cnt ? 2 * l->entry_cnt : 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	l->entry = more;
	l->entry[l->entry_cnt++] = *e;
	return 0;
}

static int ask(struct listing *l, int pid, int wait_s)
{
	const struct kedge_regions_opts o = { .size = sizeof(o), .pid = pid,
					      .timeout_ms = (uint32_t)wait_s * 1000u };
	struct kedge_region_entry e = { .size = sizeof(e) };
	struct kedge_regions *told;
	int rc = kedge_regions_open(&o, &told);

	if (rc)
		return rc;
	while (!rc && kedge_regions_next(told, &e) > 0)
		rc = add_entry(l, &e);
	kedge_regions_close(told);
	return rc;
}

/* ---- processes ---- */

static struct process *add_process(struct listing *l, int pid, uint32_t uid, uint32_t gid)
{
	struct process *p = &l->process[l->cnt++];

	*p = (struct process){ .pid = pid, .uid = uid, .gid = gid };
	who_command(pid, p->command, sizeof(p->command));
	who_user(uid, p->user, sizeof(p->user));
	return p;
}

static void count_told(struct listing *l, const struct process *p)
{
	const struct kedge_region_entry *e;

	for (e = p->regions; e < p->regions + p->cnt; e++) {
		l->bytes += e->len;
		l->handles += e->handles;
		l->peers += (uint64_t)e->mapped + e->local + e->tcp;
	}
}

/* Entries of one process, from @i on: where the next one's begin. Those that cannot be told apart
 * have no pid. */
static size_t take_told(struct listing *l, size_t i)
{
	const struct kedge_region_entry *e = &l->entry[i];
	struct process *p = add_process(l, e->pid, e->uid, e->gid);

	p->status = e->status;
	p->silent = e->status && e->status != -EACCES;
	p->told = !e->status;
	l->silent += p->silent;
	l->others += e->status == -EACCES;
	if (!p->told)
		return i + 1;
	p->regions = e;
	while (i + p->cnt < l->entry_cnt && l->entry[i + p->cnt].pid == e->pid &&
	       !l->entry[i + p->cnt].status)
		p->cnt++;
	count_told(l, p);
	return i + p->cnt;
}

static struct process *process_of(struct listing *l, size_t cnt, int pid)
{
	struct process *p;

	for (p = l->process; p < l->process + cnt; p++)
		if (p->pid == pid)
			return p;
	return NULL;
}

/* The same for what was found; @told: processes that were there before. */
static size_t take_found(struct listing *l, size_t i, size_t told)
{
	const struct unasked *u = &l->found[i];
	struct process *p = process_of(l, told, u->pid);
	size_t cnt = 0, j;

	while (i + cnt < l->found_cnt && l->found[i + cnt].pid == u->pid)
		cnt++;
	if (p && (p->told || p->found))
		return i + cnt;
	if (!p)
		p = add_process(l, u->pid, u->uid, u->gid);
	p->found = u;
	p->cnt = cnt;
	for (j = 0; j < cnt; j++)
		l->bytes += u[j].len;
	return i + cnt;
}

static int by_pid(const void *x, const void *y)
{
	const struct process *a = x, *b = y;

	return (a->pid > b->pid) - (a->pid < b->pid);
}

static int group(struct listing *l)
{
	size_t i, told;

	l->process = calloc(l->entry_cnt + l->found_cnt + 1, sizeof(*l->process));
	if (!l->process)
		return -ENOMEM;
	for (i = 0; i < l->entry_cnt; )
		i = take_told(l, i);
	told = l->cnt;
	for (i = 0; i < l->found_cnt; )
		i = take_found(l, i, told);
	qsort(l->process, l->cnt, sizeof(*l->process), by_pid);
	for (i = 0; i < l->cnt; i++) {
		l->regions += l->process[i].cnt;
		l->owners += l->process[i].cnt > 0;
	}
	return 0;
}

int collect(struct listing *l, int pid, int wait_s)
{
	int rc = search(l, pid, wait_s);

	if (!rc)
		rc = ask(l, pid, wait_s);
	if (!rc)
		rc = group(l);
	return rc ? util_fail(rc, "cannot list the regions") : 0;
}

void collect_end(struct listing *l)
{
	free(l->process);
	free(l->entry);
	free(l->found);
}
