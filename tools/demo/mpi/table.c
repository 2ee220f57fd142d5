// SPDX-License-Identifier: BSD-2-Clause
/* kedge demo --mpi: chooses what the messages go over, fills the table row by row, and judges. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/common/beside.h"
#include "tools/common/util.h"
#include "tools/demo/mpi/mpi.h"

/* Of the compiler, and of asking which MPI it is; in seconds. */
#define COMPILE_TIMEOUT 600

/* The table while it is filled. @ranks: of an MPI; else the stand-in. */
struct table {
	struct mpi_report report;
	struct mpi_place place;
	struct mpi_kedge kedge;
	struct mpi_ranks ranks;
	struct util_progress progress;
	size_t rows;
};

/* ---- what is there ---- */

static void find_all(const char *folder, struct mpi_kedge *k)
{
	static const char *const fi[] = { "libfabric/libkedge-fi.so",
					  "adapter/libfabric/libkedge-fi.so" };
	static const char *const ucx[] = { "kedge/preload/libkedge-ucx.so",
					   "adapter/ucx/libkedge-ucx.so" };
	static const char *const standin[] = { "kedge/preload/libkedge-standin-rdma.so",
					       "../tools/standin/libkedge-standin-rdma.so" };
	static const char *const caches[] = { "kedge/kedge-demo-caches",
					      "../tools/demo/caches/kedge-demo-caches" };

	if (beside_find(folder, fi, ARRAY_SIZE(fi), k->folder_fi))
		*strrchr(k->folder_fi, '/') = 0;
	beside_find(folder, ucx, ARRAY_SIZE(ucx), k->ucx);
	beside_find(folder, standin, ARRAY_SIZE(standin), k->standin);
	beside_find(folder, caches, ARRAY_SIZE(caches), k->caches);
}

static int find_kedge(struct mpi_kedge *k)
{
	char folder[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", k->self, sizeof(k->self) - 1);

	if (n < 0)
		return util_fail(-errno, "cannot tell where kedge is");
	k->self[n] = 0;
	if (!beside_folder(folder))
		return CMD_CANNOT;
	find_all(folder, k);
	return 0;
}

/* ---- a row ---- */

/* Take away all that would show the libraries otherwise than they are shipped. */
static void clear(struct mpi_command *c, const struct mpi_place *p)
{
	static const char *const names[] = {
		"LD_PRELOAD", "FI_MR_CACHE_MONITOR", "FI_MR_CACHE_MAX_COUNT",
		"FI_MR_CACHE_MAX_SIZE", "UCX_RCACHE_ENABLE", "UCX_IB_REG_METHODS",
		"UCX_MEM_EVENTS", "UCX_MEM_MMAP_HOOK_MODE", "OMPI_MCA_mpi_leave_pinned",
		"KEDGE_PEERS", "KEDGE_SERVE", "KEDGE_CHECK",
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		mpi_set(c, names[i], NULL);
	/* Plug-ins in libfabric's own folder, libkedge-fi among them, are not looked for then. */
	mpi_set(c, "FI_PROVIDER_PATH", p->empty);
}

/* Add what the row's way sets; false: it cannot be had. @preload: for the text. */
static bool set_way(const struct table *t, struct mpi_row *row, char *preload, size_t size,
		    struct mpi_command *c)
{
	const struct mpi_kedge *k = &t->kedge;
	const bool ucx = row->library == MPI_UCX;
	const bool loads = ucx && row->way == MPI_PRELOADED;
	const char *standin = t->ranks.kind ? "" : k->standin;

	if (row->way == MPI_PRELOADED && !*(ucx ? k->ucx : k->folder_fi)) {
		snprintf(row->why, sizeof(row->why), "there is no %s beside kedge: Debian's "
			 "package of that name has it%s", ucx ? "libkedge-ucx" : "libkedge-fi",
			 ucx ? "" : ", and a build where libfabric's headers are");
		return false;
	}
	if (loads && !beside_can_preload(k->ucx)) {
		snprintf(row->why, sizeof(row->why), "LD_PRELOAD cannot name a folder with a blank "
			 "or colon in it: %.200s", k->ucx);
		return false;
	}
	if (row->way == MPI_RUN)
		mpi_set(c, "FI_PROVIDER_PATH", NULL);
	else if (row->way == MPI_PRELOADED && !ucx)
		mpi_set(c, "FI_PROVIDER_PATH", k->folder_fi);
	snprintf(preload, size, "%s%s%s", loads ? k->ucx : "", loads && *standin ? ":" : "",
		 standin);
	if (*preload)
		mpi_set(c, "LD_PRELOAD", preload);
	if (row->way != MPI_RUN)
		return true;
	mpi_word(c, k->self);
	mpi_words(c, (const char *const[]){ "run", ucx ? "--ucx" : "--trusted-peers", "--check",
					    "--", NULL });
	return true;
}

/* "HOW: N of 20 wrong", for each. */
static bool read_figures(struct table *t, struct mpi_row *row)
{
	char path[PATH_MAX], line[MPI_TEXT], how[16];
	int found = 0, wrong, of, i;
	FILE *f;

	mpi_place_path(&t->place, "out", path);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%15[a-z-]: %d of %d wrong", how, &wrong, &of) == 3 &&
		    of == MPI_MESSAGES && wrong >= 0 && wrong <= of)
			for (i = 0; i < MPI_COLUMNS; i++)
				if (!strcmp(how, mpi_hows[i])) {
					row->wrong[i] = wrong;
					found |= 1 << i;
				}
		if (!strncmp(line, "version: ", 9)) {
			line[strcspn(line, "\n")] = 0;
			snprintf(t->report.version[row->library], MPI_TEXT, "%s", line + 9);
		}
	}
	if (f)
		fclose(f);
	return found == (1 << MPI_COLUMNS) - 1;
}

/*
 * True: kedge run --check has found registrations that were held over a change. Its status is 1
 * then, which may be the program's own as well, so its last line is asked.
 */
static bool is_held(const struct mpi_row *row, int status)
{
	return status == CMD_FINDING && strstr(row->check, "registrations whose pages had gone");
}

static void judge(struct table *t, struct mpi_row *row, int status)
{
	char last[MPI_WHY / 2];

	row->ran = read_figures(t, row);
	if (row->ran && row->way == MPI_RUN) {
		mpi_last_line(&t->place, "err", row->check, sizeof(row->check));
		row->held = is_held(row, status);
	}
	if (row->ran && (!status || row->held)) {
		if (row->held && !util_flags.quiet)
			mpi_print_err(&t->place);
		return;
	}
	row->ran = false;
	mpi_last_line(&t->place, "err", last, sizeof(last));
	if (status == CMD_CANNOT && !t->ranks.kind) {
		snprintf(row->why, sizeof(row->why), "%s", last);
		return;
	}
	row->failed = true;
	if (status == -ETIME)
		snprintf(row->why, sizeof(row->why), "it did not end within %d seconds (--timeout)",
			 t->place.timeout);
	else
		snprintf(row->why, sizeof(row->why), "%s %d: %s",
			 status < 0 ? "error" : "exit status", status < 0 ? -status : status,
			 *last ? last : "it said nothing");
	if (!util_flags.quiet && status != -EINTR)
		mpi_print_err(&t->place);
}

static void run_row(struct table *t, struct mpi_row *row)
{
	struct mpi_command c = { .words = 0 };
	char preload[2 * PATH_MAX + 1];
	size_t i;

	if (t->ranks.kind && t->ranks.lacks[row->library]) {
		snprintf(row->why, sizeof(row->why), "%s", t->ranks.lacks[row->library]);
		return;
	}
	clear(&c, &t->place);
	if (!set_way(t, row, preload, sizeof(preload), &c))
		return;
	if (t->ranks.kind)
		mpi_ranks_command(&t->ranks, row->library, &c);
	else
		mpi_standin_command(&t->kedge, row->library, &c);
	for (i = 0; i < MPI_COLUMNS; i++)
		mpi_word(&c, mpi_hows[i]);
	judge(t, row, mpi_run(&t->place, &c));
}

/* ---- the table ---- */

static void draw(void *arg)
{
	struct table *t = arg;

	util_progress_at(&t->progress, t->rows);
}

static void fill(struct table *t)
{
	struct mpi_row *row;

	util_progress_start(&t->progress, "rows of the table", MPI_ROWS, false);
	t->place.waited = draw;
	t->place.arg = t;
	for (t->rows = 0; t->rows < MPI_ROWS && !t->place.stopped; t->rows++) {
		row = &t->report.row[t->rows];
		row->library = t->rows / MPI_WAYS;
		row->way = t->rows % MPI_WAYS;
		run_row(t, row);
	}
	util_progress_stop(&t->progress);
}

static int verdict(const struct mpi_report *r)
{
	bool served = false, broken = false;
	const struct mpi_row *row;
	int i;

	for (row = r->row; row < r->row + MPI_ROWS; row++) {
		broken |= row->failed;
		if (!row->ran || row->way == MPI_SHIPPED)
			continue;
		served = true;
		for (i = 0; i < MPI_COLUMNS; i++)
			if (row->wrong[i] || row->held)
				return CMD_FINDING;
	}
	return served && !broken ? CMD_OK : CMD_CANNOT;
}

/* The first that can be had, of those that are asked for. */
static bool choose(struct table *t, const char *which)
{
	static const char *const mpis[] = { "openmpi", "mpich" };
	struct mpi_report *r = &t->report;
	size_t i, notes = 0;

	for (i = 0; i < ARRAY_SIZE(mpis) && !t->place.stopped; i++) {
		if (*which && strcmp(which, mpis[i]))
			continue;
		if (mpi_ranks_open(&t->ranks, mpis[i], &t->place, r, r->note[notes]))
			return true;
		/* Without a device the next cannot be had for the same reason. */
		if (!notes || strcmp(r->note[0], r->note[notes]))
			notes++;
		else
			*r->note[notes] = 0;
	}
	t->ranks.kind = NULL;
	if (t->place.stopped || (*which && strcmp(which, "standin")))
		return false;
	return mpi_standin_open(&t->kedge, r, r->note[notes]);
}

static int show(const struct mpi_report *r)
{
	if (!util_flags.json)
		mpi_show_text(r);
	else if (mpi_show_json(r))
		return CMD_CANNOT;
	return verdict(r);
}

int demo_mpi(const struct mpi_opts *o)
{
	struct table *t = calloc(1, sizeof(*t));
	bool chosen;
	int rc, i;

	if (!t)
		return util_fail(-ENOMEM, "no memory");
	rc = find_kedge(&t->kedge);
	if (!rc)
		rc = mpi_place_open(&t->place, COMPILE_TIMEOUT);
	if (rc)
		goto free_table;
	chosen = choose(t, o->which);
	if (chosen) {
		t->place.timeout = o->timeout;
		t->place.quick = !t->ranks.kind;
		fill(t);
	}
	for (i = 0; !chosen && i < MPI_NOTES && *t->report.note[i]; i++)
		util_error("--mpi: %s", t->report.note[i]);
	/* Before anything is printed, as that may end the process (SIGPIPE). */
	mpi_place_close(&t->place);
	rc = chosen && !t->place.stopped ? show(&t->report) : CMD_CANNOT;
free_table:
	free(t);
	return rc;
}
