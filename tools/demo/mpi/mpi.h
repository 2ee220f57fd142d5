/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kedge demo --mpi: the table of wrong messages. Its rows are libraries that keep registrations, as
 * they are shipped and with kedge; its columns are ways in which a sender's buffer changes its
 * pages between messages. A stage is what the messages go over: two ranks of an MPI, or the
 * libraries themselves over a stand-in for an adapter.
 */
#ifndef TOOLS_DEMO_MPI_MPI_H
#define TOOLS_DEMO_MPI_MPI_H

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* The command line. @which: openmpi, mpich, standin, or "" for the first that can be had here.
 * @timeout: of a row, in seconds. */
struct mpi_opts {
	const char *which;
	int timeout;
};

/* table.c: an exit status. */
int demo_mpi(const struct mpi_opts *o);

/* ---- the table ---- */

#define MPI_COLUMNS  4
#define MPI_MESSAGES 20

enum mpi_library { MPI_LIBFABRIC, MPI_UCX, MPI_LIBRARIES };
enum mpi_way { MPI_SHIPPED, MPI_PRELOADED, MPI_RUN, MPI_WAYS };

#define MPI_ROWS (MPI_LIBRARIES * MPI_WAYS)
#define MPI_TEXT 200
#define MPI_WHY	 400

/**
 * struct mpi_row - a library, and what watches memory for it
 * @ran:    it has a figure for each column
 * @failed: it began, and did not come to its end as it should
 * @held:   kedge run --check tells of registrations that had lost their pages
 * @check:  what it said at last
 * @wrong:  messages, of MPI_MESSAGES
 * @why:    it did not run
 */
struct mpi_row {
	enum mpi_library library;
	enum mpi_way way;
	bool ran, failed, held;
	int wrong[MPI_COLUMNS];
	char check[MPI_TEXT], why[MPI_WHY];
};

/* show.c: as programs take them. */
extern const char *const mpi_hows[MPI_COLUMNS];

#define MPI_NOTES 3

/**
 * struct mpi_report - what is shown
 * @stage:   openmpi, mpich or standin
 * @what:    the same for people
 * @device:  that the messages go over
 * @version: of the MPI, or of the stand-in's libraries
 * @note:    stages that were tried first, and why they cannot be had; "" ends them
 */
struct mpi_report {
	const char *stage;
	char what[MPI_TEXT];
	char device[64];
	char version[MPI_LIBRARIES][MPI_TEXT];
	char note[MPI_NOTES][MPI_WHY];
	struct mpi_row row[MPI_ROWS];
};

/* show.c */
void mpi_show_text(const struct mpi_report *r);
int mpi_show_json(const struct mpi_report *r);

/* ---- child.c: commands with an environment ---- */

#define MPI_WORDS 48
#define MPI_SETS  32

/* Texts are borrowed. @set: without a value the variable is taken away; @soft: what the user has
 * set stays. */
struct mpi_command {
	const char *word[MPI_WORDS + 1];
	size_t words;
	struct {
		const char *name, *value;
		bool soft;
	} set[MPI_SETS];
	size_t sets;
};

void mpi_word(struct mpi_command *c, const char *word);
void mpi_words(struct mpi_command *c, const char *const *words);
void mpi_set(struct mpi_command *c, const char *name, const char *value);
void mpi_set_soft(struct mpi_command *c, const char *name, const char *value);

/**
 * struct mpi_place - where commands run
 * @dir:     a folder for temporary files, in which "out" and "err" are the last command's
 * @empty:   a folder in it that is empty
 * @tmp:     one for the command's own temporary files, which stay where it is killed
 * @stopped: a signal asked this process to end; or 0
 * @quick:   commands start no others, so that they may be ended soon
 * @waited:  called now and then while a command runs
 */
struct mpi_place {
	char dir[PATH_MAX], empty[PATH_MAX], tmp[PATH_MAX];
	int timeout, stopped;
	bool quick;
	sigset_t before, awaited;
	void (*waited)(void *arg);
	void *arg;
};

/* 0, or an exit status after an error is printed. Signals that end a process wait from here on. */
int mpi_place_open(struct mpi_place *p, int timeout);
/* With all that is in it; a signal that has waited is taken. */
void mpi_place_close(struct mpi_place *p);
/* A path in it. */
void mpi_place_path(const struct mpi_place *p, const char *name, char path[PATH_MAX]);
/* The command's exit status, 128 and a signal's number, or a negative errno: -ETIME after the
 * timeout, -EINTR for a signal to this process; the command has ended in any case. */
int mpi_run(struct mpi_place *p, const struct mpi_command *c);
/* The last line of its "out" or "err" that is not empty; "" if there is none. */
void mpi_last_line(const struct mpi_place *p, const char *name, char *line, size_t size);
/* The end of its "err", on ours. */
void mpi_print_err(const struct mpi_place *p);

/* ---- stages ---- */

/* Paths of things built or installed with kedge; "" for one that is not there. */
struct mpi_kedge {
	char self[PATH_MAX], folder_fi[PATH_MAX], ucx[PATH_MAX];
	char standin[PATH_MAX], caches[PATH_MAX];
};

/* The ranks of an MPI. */
struct mpi_ranks {
	const struct mpi_kind *kind;
	const char *launcher;
	char program[PATH_MAX], net[96];
	bool soft_roce;
	const char *lacks[MPI_LIBRARIES]; /* why the MPI does not use the library, or NULL */
};

/* ranks.c: the MPI by that name; false, with @why: it cannot be had. */
bool mpi_ranks_open(struct mpi_ranks *m, const char *name, struct mpi_place *p,
		    struct mpi_report *r, char why[MPI_WHY]);
/* The command for a row of it, without what the row's way needs. */
void mpi_ranks_command(const struct mpi_ranks *m, enum mpi_library library,
		       struct mpi_command *c);
/* standin.c: likewise. */
bool mpi_standin_open(const struct mpi_kedge *k, struct mpi_report *r, char why[MPI_WHY]);
void mpi_standin_command(const struct mpi_kedge *k, enum mpi_library library,
			 struct mpi_command *c);

#endif /* TOOLS_DEMO_MPI_MPI_H */
