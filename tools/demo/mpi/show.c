// SPDX-License-Identifier: BSD-2-Clause
/* kedge demo --mpi: the table, for people and as JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/base.h"
#include "tools/common/util.h"
#include "tools/demo/mpi/mpi.h"

#define LEN 262144

const char *const mpi_hows[MPI_COLUMNS] = { "kept", "munmap", "raw-munmap", "raw-dontneed" };

static const char *const libraries[MPI_LIBRARIES] = { "libfabric", "UCX" };

/* Of the first library's rows, and of the second's. */
static const char *const ways[MPI_LIBRARIES][MPI_WAYS] = {
	{ "as shipped", "with libkedge-fi", "under kedge run -t" },
	{ "as shipped", "with libkedge-ucx", "under kedge run --ucx" },
};

static const char *const way_words[MPI_WAYS] = { "shipped", "preloaded", "run" };

/* ---- for people ---- */

static void print_head(const struct mpi_report *r)
{
	struct utsname u;
	char what[MPI_TEXT];
	int i;

	snprintf(what, sizeof(what), "%s", r->what);
	*what = *what == 't' ? 'T' : *what;
	printf("%s%s%s", util_colour(UTIL_BOLD), what, util_colour(UTIL_PLAIN));
	if (!strcmp(r->stage, "standin"))
		for (i = 0; i < MPI_LIBRARIES; i++)
			printf("%s %s %s", i ? "," : ":", libraries[i],
			       *r->version[i] ? r->version[i] : "(absent)");
	printf("; Linux %s.\n", uname(&u) ? "" : u.release);
	printf("%d messages of 256 KiB for each cell, between which the sender's buffer changes "
	       "its pages.\nCells: how many arrived with other bytes than were sent.\n\n",
	       MPI_MESSAGES);
}

static void print_columns(void)
{
	printf("%s%-32s %8s %10s %12s %15s%s\n", util_colour(UTIL_BOLD), "", "kept", "munmap()",
	       "raw munmap", "raw DONTNEED", util_colour(UTIL_PLAIN));
}

static void print_row(const struct mpi_row *row)
{
	static const int widths[MPI_COLUMNS] = { 8, 10, 12, 15 };
	char name[64];
	int i;

	snprintf(name, sizeof(name), "%s %s", libraries[row->library],
		 ways[row->library][row->way]);
	printf("%-32s", name);
	for (i = 0; i < MPI_COLUMNS; i++) {
		if (!row->ran)
			printf(" %*s", widths[i], "-");
		else
			printf(" %s%*d%s", util_colour(row->wrong[i] ? UTIL_RED : UTIL_GREEN),
			       widths[i], row->wrong[i], util_colour(UTIL_PLAIN));
	}
	putchar('\n');
}

static int sum(const struct mpi_row *row)
{
	int i, all = 0;

	for (i = 0; i < MPI_COLUMNS; i++)
		all += row->wrong[i];
	return all;
}

static void print_shipped(const struct mpi_row *row)
{
	const char *name = libraries[row->library];

	if (sum(row))
		printf("%s as shipped: %d messages arrived wrong, and no call failed. Its cache "
		       "of registrations\n  did not see the change, so the adapter sent the pages "
		       "of before.\n", name, sum(row));
	else
		printf("%s as shipped shows nothing here: it kept no registration of the buffer, "
		       "or saw each change.\n", name);
}

static void print_kedge(const struct mpi_report *r)
{
	const char *by = getenv("KEDGE_NOTIFIER");
	const struct mpi_row *row;
	int wrong = 0, rows = 0;
	bool held = false;

	for (row = r->row; row < r->row + MPI_ROWS; row++) {
		if (!row->ran || row->way == MPI_SHIPPED)
			continue;
		rows++;
		wrong += sum(row);
		held |= row->held;
	}
	if ((wrong || held) && by && *by)
		printf("with kedge: WRONG DATA, or registrations held whose pages had gone, by "
		       "KEDGE_NOTIFIER=%s:\n  unset that variable; it must not happen then.\n", by);
	else if (wrong || held)
		printf("with kedge: WRONG DATA, or registrations held whose pages had gone. This "
		       "must not happen:\n  please report it with 'kedge info --json'.\n");
	else if (rows)
		printf("with kedge: every message of %d rows arrived right.\n", rows);
	else
		printf("with kedge: no row could be run.\n");
}

/* All of a library's rows, from its first one on. */
static bool miss_alike(const struct mpi_row *row)
{
	int i;

	for (i = 0; i < MPI_WAYS; i++)
		if (row[i].ran || row[i].failed || strcmp(row[i].why, row->why))
			return false;
	return true;
}

static void print_missing(const struct mpi_report *r)
{
	const struct mpi_row *row;
	int i;

	for (row = r->row; row < r->row + MPI_ROWS; row++)
		if (row->way == MPI_SHIPPED && miss_alike(row)) {
			printf("%s: not run: %s\n", libraries[row->library], row->why);
			row += MPI_WAYS - 1;
		} else if (!row->ran) {
			printf("%s %s: %s: %s\n", libraries[row->library],
			       ways[row->library][row->way],
			       row->failed ? "FAILED" : "not run", row->why);
		}
	if (!*r->note[0])
		return;
	printf("\n%s cannot be shown here:\n",
	       strcmp(r->stage, "standin") ? "Another MPI" : "Two ranks of an MPI");
	for (i = 0; i < MPI_NOTES && *r->note[i]; i++)
		printf("- %s\n", r->note[i]);
}

void mpi_show_text(const struct mpi_report *r)
{
	const struct mpi_row *row;

	print_head(r);
	print_columns();
	for (row = r->row; row < r->row + MPI_ROWS; row++)
		print_row(row);
	printf("\nkept: the pages stay. munmap(): by libc's function, and mapped again.\n"
	       "raw: munmap and MADV_DONTNEED by an instruction of the program's own, as "
	       "allocators and runtimes make them.\n\n");
	for (row = r->row; row < r->row + MPI_ROWS; row++)
		if (row->ran && row->way == MPI_SHIPPED)
			print_shipped(row);
	print_kedge(r);
	print_missing(r);
}

/* ---- JSON ---- */

static json_t *row_json(const void *of, size_t i)
{
	const struct mpi_row *row = &((const struct mpi_report *)of)->row[i];
	json_t *wrong = row->ran ? json_object() : json_null();
	int k;

	for (k = 0; row->ran && k < MPI_COLUMNS; k++)
		json_object_set_new(wrong, mpi_hows[k], json_integer(row->wrong[k]));
	return json_pack("{ss ss ss so so sb sb so}", "library", libraries[row->library], "way",
			 way_words[row->way], "name", ways[row->library][row->way], "wrong", wrong,
			 "check", *row->check ? util_json_text(row->check) : json_null(),
			 "held", row->held, "failed", row->failed,
			 "why", *row->why ? util_json_text(row->why) : json_null());
}

static json_t *note_json(const void *of, size_t i)
{
	const char *note = ((const struct mpi_report *)of)->note[i];

	return *note ? util_json_text(note) : json_null();
}

/* Versions are programs' own words, so of any bytes. */
static json_t *version_json(const struct mpi_report *r, bool is_shown, enum mpi_library i)
{
	return is_shown && *r->version[i] ? util_json_text(r->version[i]) : json_null();
}

int mpi_show_json(const struct mpi_report *r)
{
	const bool standin = !strcmp(r->stage, "standin");

	return util_json_print(json_pack(
		"{ss so so so so so si si so so}", "stage", r->stage, "what",
		util_json_text(r->what), "device", util_json_text(r->device),
		"mpi", version_json(r, !standin, 0),
		"libfabric", version_json(r, standin, MPI_LIBFABRIC),
		"ucx", version_json(r, standin, MPI_UCX),
		"messages", MPI_MESSAGES, "bytes", LEN,
		"not_shown", util_json_rows(MPI_NOTES, note_json, r),
		"rows", util_json_rows(MPI_ROWS, row_json, r)));
}
