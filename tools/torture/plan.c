// SPDX-License-Identifier: BSD-2-Clause
/* The cases, those of them that were asked for, and the promise for each. */
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/torture/case.h"
#include "tools/common/raw.h"

const char *const pages_name[PAGES_CNT] = {
	[PAGES_4K] = "small",
	[PAGES_THP] = "huge",
	[PAGES_HUGETLB] = "hugetlb",
};

const char *const mode_name[MODE_CNT] = {
	[MODE_SINGLE] = "single",
	[MODE_STORM] = "storm",
	[MODE_CROWD] = "crowd",
	[MODE_RACE] = "race",
};

static const struct event *const families[] = {
	ev_map,	 ev_remap,  ev_advice, ev_file, ev_shm,
	ev_heap, ev_thread, ev_dl,     ev_fork, ev_race,
};

static bool matches(const char *glob, const char *name)
{
	return !glob || !fnmatch(glob, name, 0);
}

static bool has_mode(const struct torture *t, const struct event *ev,
		     enum mode mode)
{
	/* One thread is enough to show that a naive cache fails. */
	if (t->naive && mode != MODE_SINGLE && mode != MODE_RACE && !t->mode)
		return false;
	switch (mode) {
	case MODE_SINGLE:
		return !ev->race;
	case MODE_STORM:
		return !ev->race && !(ev->flags & EV_NOSTORM);
	case MODE_CROWD:
		return !ev->race && !(ev->flags & EV_SOLO);
	default:
		return ev->race;
	}
}

/* Made by a system call that no interposed symbol leads to? */
static bool by_symbol(enum route_id route)
{
	return route == ROUTE_LIBC || route == ROUTE_SYSCALL ||
	       route == ROUTE_THREAD;
}

/*
 * True: the notifier promises this row. A stale byte of a row that it says it cannot see
 * is no failure, but it is counted and shown.
 */
static bool promised(const struct torture *t, const struct row *row)
{
	const struct kedge_notifier_info *info = &t->rig.info;
	const uint32_t flags = row->ev->flags;
	bool many = row->mode == MODE_CROWD || row->mode == MODE_RACE;

	if (t->naive || t->strict || info->level == KEDGE_LEVEL_NONE)
		return true;
	/* libc's functions are hooked, and those of other libraries not. */
	if (info->blind & KEDGE_BLIND_RAW && row->route != ROUTE_LIBC &&
	    row->route != ROUTE_THREAD)
		return false;
	if (flags & EV_REMAPSHM && info->blind & KEDGE_BLIND_SHM_REMAP &&
	    !(info->hooked && by_symbol(row->route)))
		return false;
	if (flags & EV_GUARD && info->blind & KEDGE_BLIND_GUARD &&
	    !(info->hooked && by_symbol(row->route)))
		return false;
	if (row->route == ROUTE_CLONE && info->blind & KEDGE_BLIND_SHARING && !info->hooked)
		return false;
	/* Where announcements are all there is, not every call has one before. */
	if (flags & EV_RECYCLE && many && info->level < KEDGE_LEVEL_ORDERED)
		return info->hooked && row->ev->race &&
		       row->route == ROUTE_LIBC && !row->ev->arg;
	return true;
}

static bool hugetlb_there(void)
{
	FILE *f = fopen("/proc/sys/vm/nr_hugepages", "re");
	unsigned long n = 0;

	if (!f)
		return false;
	if (fscanf(f, "%lu", &n) != 1)
		n = 0;
	fclose(f);
	return n;
}

static bool thp_there(void)
{
	char line[64] = "";
	FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");

	if (!f)
		return false;
	if (!fgets(line, sizeof(line), f))
		line[0] = '\0';
	fclose(f);
	return *line && !strstr(line, "[never]");
}

static void judge_row(struct row *row, bool thp, bool hugetlb)
{
	if (row->pages == PAGES_HUGETLB && !hugetlb)
		row_fail(row, -EOPNOTSUPP, "vm.nr_hugepages is 0");
	else if (row->pages == PAGES_THP && !thp)
		row_fail(row, -EOPNOTSUPP, "transparent huge pages are off");
	else if ((row->route == ROUTE_VFORK || row->route == ROUTE_CLONE) && !RAW_SYSCALL)
		row_fail(row, -EOPNOTSUPP, "not written for this processor");
}

static int add_row(struct torture *t, const struct row *row)
{
	struct row *rows;

	/* By powers of two, from 64 on. */
	if (t->row_cnt >= 64 ? !(t->row_cnt & (t->row_cnt - 1)) : !t->row_cnt) {
		rows = realloc(t->rows,
			       sizeof(*rows) *
				       (t->row_cnt ? 2 * t->row_cnt : 64));
		if (!rows)
			return -ENOMEM;
		t->rows = rows;
	}
	memcpy(&t->rows[t->row_cnt++], row, sizeof(*row));
	return 0;
}

/* The event by one route, on all its pages and in all its modes. */
static int add_rows(struct torture *t, const struct event *ev, unsigned int rt)
{
	unsigned int pg, mode;
	struct row row;
	int rc;

	for (pg = 0; pg < PAGES_CNT; pg++) {
		for (mode = 0; mode < MODE_CNT; mode++) {
			if (!(ev->pages & 1u << pg) || !has_mode(t, ev, mode) ||
			    !matches(t->mode, mode_name[mode]))
				continue;
			memset(&row, 0, sizeof(row));
			row.ev = ev;
			row.route = rt;
			row.pages = pg;
			row.mode = mode;
			row.promised = promised(t, &row);
			rc = add_row(t, &row);
			if (rc)
				return rc;
		}
	}
	return 0;
}

int plan_make(struct torture *t)
{
	bool thp = thp_there(), hugetlb = hugetlb_there();
	const struct event *ev;
	unsigned int rt;
	size_t i;
	int rc;

	for (i = 0; i < ARRAY_SIZE(families); i++) {
		for (ev = families[i]; ev->name; ev++) {
			if (!matches(t->event, ev->name))
				continue;
			for (rt = 0; rt < ROUTE_CNT; rt++) {
				if (!(ev->routes & 1u << rt) ||
				    !matches(t->route, route_name[rt]))
					continue;
				rc = add_rows(t, ev, rt);
				if (rc)
					return rc;
			}
		}
	}
	for (i = 0; i < t->row_cnt; i++)
		judge_row(&t->rows[i], thp, hugetlb);
	return 0;
}

void plan_free(struct torture *t)
{
	free(t->rows);
	t->rows = NULL;
}

bool row_wanted(const struct torture *t, const struct row *row)
{
	return !atomic_load(&row->off) &&
	       (!t->rounds || atomic_load(&row->rounds) < t->rounds);
}

enum status row_status(const struct row *row)
{
	if (atomic_load(&row->stale))
		return row->promised ? STATUS_STALE : STATUS_UNPROMISED;
	if (atomic_load(&row->errors))
		return STATUS_ERROR;
	return atomic_load(&row->rounds) ? STATUS_OK : STATUS_SKIPPED;
}
