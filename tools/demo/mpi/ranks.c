// SPDX-License-Identifier: BSD-2-Clause
/*
 * Two ranks of an MPI over an RDMA device. Their program is in this one as its source (pages.c),
 * and is compiled by the MPI's own compiler: each MPI has its own ABI, and any that is installed
 * will do.
 *
 * "mpicc" and "mpirun" are those of whichever MPI the user has chosen, which the program tells;
 * Debian has the commands of each under names of their own as well.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/common/util.h"
#include "tools/demo/demo.h"
#include "tools/demo/mpi/mpi.h"

/* Made by embed.py. */
extern const char demo_mpi_pages[];

/**
 * struct mpi_kind - an MPI
 * @begins:   what it says of its version, before the version
 * @ends:     the first characters that are not the version's
 * @packages: Debian's
 * @provider: the variable by which it is told which of libfabric's to use
 * @always:   words for its launcher
 * @use:      words that make it use the library
 */
struct mpi_kind {
	const char *name, *title, *begins, *ends, *packages, *provider;
	const char *compiler[2], *launcher[2];
	const char *always[10];
	const char *use[MPI_LIBRARIES][8];
};

/* Ranks of one machine would use memory that they share. */
static const struct mpi_kind kinds[] = {
	{
		.name = "openmpi", .title = "Open MPI", .begins = "Open MPI v", .ends = ", ",
		.packages = "openmpi-bin and libopenmpi-dev",
		.provider = "OMPI_MCA_mtl_ofi_provider_include",
		.compiler = { "mpicc", "mpicc.openmpi" },
		.launcher = { "mpirun", "mpirun.openmpi" },
		.always = { "--oversubscribe", "-np", "2", "--mca", "btl", "self", "--mca",
			    "oob_tcp_if_include", "lo" },
		.use = {
			[MPI_LIBFABRIC] = { "--mca", "pml", "cm", "--mca", "mtl", "ofi" },
			[MPI_UCX] = { "--mca", "pml", "ucx" },
		},
	}, {
		.name = "mpich", .title = "MPICH", .begins = "MPICH Version:", .ends = " \n",
		.packages = "mpich and libmpich-dev",
		.provider = "FI_PROVIDER",
		.compiler = { "mpicc", "mpicc.mpich" },
		.launcher = { "mpirun", "mpirun.mpich" },
		.always = { "-launcher", "fork", "-np", "2" },
	},
};

/* ---- is it there? ---- */

static bool write_source(const struct mpi_place *p, char path[PATH_MAX])
{
	FILE *f;
	bool ok;

	mpi_place_path(p, "mpi_pages.c", path);
	f = fopen(path, "we");
	if (!f)
		return false;
	ok = fputs(demo_mpi_pages, f) >= 0;
	return !fclose(f) && ok;
}

static int compile(struct mpi_ranks *m, struct mpi_place *p, const char *compiler)
{
	struct mpi_command c = { .words = 0 };
	char source[PATH_MAX];

	if (!write_source(p, source))
		return -EIO;
	mpi_place_path(p, "mpi_pages", m->program);
	mpi_word(&c, compiler);
	mpi_words(&c, (const char *const[]){ "-g", "-D_GNU_SOURCE", "-o", m->program, source,
					     NULL });
	return mpi_run(p, &c);
}

/* The rest of the line that begins by @begins, up to one of @ends. */
static bool read_word(const struct mpi_place *p, const char *begins, const char *ends, char *to,
		      size_t size)
{
	char path[PATH_MAX], line[1024], *at;
	bool found = false;
	FILE *f;

	mpi_place_path(p, "out", path);
	f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f)) {
		if (strncmp(line, begins, strlen(begins)))
			continue;
		at = line + strlen(begins);
		at += strspn(at, " \t");
		at[strcspn(at, ends)] = 0;
		snprintf(to, size, "%s", at);
		found = true;
	}
	if (f)
		fclose(f);
	return found;
}

/* MPICH is built for one of the libraries. */
static void learn_libraries(struct mpi_ranks *m, const struct mpi_place *p)
{
	char device[64] = "";

	if (strcmp(m->kind->name, "mpich"))
		return;
	read_word(p, "MPICH Device:", "\n", device, sizeof(device));
	if (strcmp(device, "ch4:ofi"))
		m->lacks[MPI_LIBFABRIC] = "this MPICH is not built for libfabric (ch4:ofi)";
	if (strcmp(device, "ch4:ucx"))
		m->lacks[MPI_UCX] = "this MPICH is not built for UCX (ch4:ucx)";
}

/* That MPI, by its @i-th names. */
static bool try_names(struct mpi_ranks *m, struct mpi_place *p, size_t i, struct mpi_report *r,
		      char why[MPI_WHY])
{
	struct mpi_command c = { .words = 0 };
	char version[64], line[MPI_WHY / 2];
	int rc = compile(m, p, m->kind->compiler[i]);
	bool is_it;

	if (rc) {
		mpi_last_line(p, "err", line, sizeof(line));
		snprintf(why, MPI_WHY, "%s makes no program (%s); of Debian's packages it takes %s",
			 m->kind->compiler[i], rc < 0 ? strerror(-rc) : line, m->kind->packages);
		return false;
	}
	mpi_word(&c, m->program);
	mpi_word(&c, "version");
	is_it = !mpi_run(p, &c) &&
		read_word(p, m->kind->begins, m->kind->ends, version, sizeof(version));
	if (!is_it) {
		snprintf(why, MPI_WHY, "%s is not %s's; of Debian's packages it takes %s",
			 m->kind->compiler[i], m->kind->title, m->kind->packages);
		return false;
	}
	m->launcher = m->kind->launcher[i];
	snprintf(r->version[0], sizeof(r->version[0]), "%s", version);
	learn_libraries(m, p);
	return true;
}

/* The driver of soft-RoCE alone names the interface below. */
static bool is_soft_roce(const char *device)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "/sys/class/infiniband/%s/parent", device) <
		       (int)sizeof(path) && !access(path, F_OK);
}

/* The reason of the first is told where both fail: the second's is mostly that it is not there. */
static bool try_both(struct mpi_ranks *m, struct mpi_place *p, struct mpi_report *r,
		     char why[MPI_WHY])
{
	char other[MPI_WHY];

	if (try_names(m, p, 0, r, why))
		return true;
	if (p->stopped || !try_names(m, p, 1, r, other))
		return false;
	*why = 0;
	return true;
}

bool mpi_ranks_open(struct mpi_ranks *m, const char *name, struct mpi_place *p,
		    struct mpi_report *r, char why[MPI_WHY])
{
	unsigned int port;
	size_t i;
	int rc;

	memset(m, 0, sizeof(*m));
	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		if (!strcmp(kinds[i].name, name))
			m->kind = &kinds[i];
	rc = demo_verbs_find(r->device, sizeof(r->device), &port);
	if (rc) {
		snprintf(why, MPI_WHY, "%s; ranks also take %s, and a C compiler",
			 kedge_strerror(rc), m->kind->packages);
		return false;
	}
	m->soft_roce = is_soft_roce(r->device);
	snprintf(m->net, sizeof(m->net), "%s:%u", r->device, port);
	if (!try_both(m, p, r, why))
		return false;
	r->stage = m->kind->name;
	snprintf(r->what, sizeof(r->what), "two ranks of %s %.64s over the RDMA device %s%s",
		 m->kind->title, r->version[0], r->device, m->soft_roce ? " (soft-RoCE)" : "");
	return !p->stopped;
}

/* ---- a row's command ---- */

/* Messages go from where they lie, as those of this length do on adapters of hardware. */
static void set_ucx(const struct mpi_ranks *m, struct mpi_command *c)
{
	mpi_set_soft(c, "UCX_NET_DEVICES", m->net);
	mpi_set_soft(c, "UCX_RNDV_THRESH", "64k");
	mpi_set_soft(c, "UCX_TLS", m->soft_roce ? "rc_v,ud_v:aux,self" : "rc,ud:aux,self");
	/* Its address of IPv4 is not answered by UCX's connections. */
	if (m->soft_roce)
		mpi_set_soft(c, "UCX_IB_GID_INDEX", "0");
}

/* Sizes are those that soft-RoCE has room for. */
static void set_libfabric(const struct mpi_ranks *m, struct mpi_command *c)
{
	mpi_set_soft(c, m->kind->provider, "verbs;ofi_rxm");
	if (!m->soft_roce)
		return;
	mpi_set_soft(c, "FI_UNIVERSE_SIZE", "2");
	mpi_set_soft(c, "FI_OFI_RXM_MSG_TX_SIZE", "64");
	mpi_set_soft(c, "FI_OFI_RXM_MSG_RX_SIZE", "64");
	mpi_set_soft(c, "FI_OFI_RXM_USE_SRX", "0");
}

void mpi_ranks_command(const struct mpi_ranks *m, enum mpi_library library,
		       struct mpi_command *c)
{
	mpi_set(c, "MPIR_CVAR_NOLOCAL", "1");
	if (!geteuid()) {
		mpi_set(c, "OMPI_ALLOW_RUN_AS_ROOT", "1");
		mpi_set(c, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
	}
	if (library == MPI_UCX)
		set_ucx(m, c);
	else
		set_libfabric(m, c);
	mpi_word(c, m->launcher);
	mpi_words(c, m->kind->always);
	mpi_words(c, m->kind->use[library]);
	mpi_word(c, m->program);
}
