// SPDX-License-Identifier: BSD-2-Clause
/* kedge bench swap: the command line. */
#include <errno.h>
#include <stdlib.h>

#include "tools/bench/swap.h"

#define SIZE_MAX_ ((uint64_t)1 << 30)
#define SIZES	  "4K,16K,64K,256K,1M,4M,16M,64M"

static int words(const char *option, const char *text, const char *all,
		 const char *const *names, uint32_t *mask)
{
	return list_parse_words(option, text ? text : all, names, mask);
}

static int parse(void *of)
{
	struct swap_opts *opt = of;
	int rc;

	if (opt->rounds < 1 || opt->rounds > 100000)
		return util_usage("--rounds: %d is not in 1..100000",
				  opt->rounds);
	if (opt->csv && util_flags.json)
		return util_usage("--csv or --json, not both");
	rc = bench_parse_sizes(opt->sizes_text ? opt->sizes_text : SIZES, 4096,
			       SIZE_MAX_, "multiple of 4096 up to 1G",
			       &opt->sizes);
	if (rc == UTIL_GO_ON)
		rc = words("pages", opt->pages_text, "small,huge,fresh",
			   swap_pages_names, &opt->pages);
	if (rc == UTIL_GO_ON)
		rc = words("place", opt->places_text, "congruent",
			   swap_place_names, &opt->places);
	if (rc == UTIL_GO_ON)
		rc = words("way", opt->ways_text, "memcpy,swap,remap,phys,memfd",
			   swap_way_names, &opt->ways);
	return rc;
}

static int run(void *of)
{
	const struct swap_opts *opt = of;
	struct swap_result *res = calloc(1, sizeof(*res));
	int rc;

	if (!res)
		return util_fail(-ENOMEM, "cannot start");
	rc = opt->plot ? plot_check(opt->plot) : 0;
	if (!rc)
		rc = swap_run(opt, res);
	if (!rc)
		rc = swap_report(opt, res);
	if (!rc && opt->plot)
		rc = swap_plot(res, opt->plot);
	free(res);
	return rc;
}

/* clang-format off */
static const char help[] =
"Times an exchange of the pages under two ranges, in turns with copying one to\n"
"the other:\n"
"\n"
"  memcpy  a copy, one way: half an exchange\n"
"  swap    kedge_page_swap_with(KEDGE_SWAP_MOVE): the pages are moved, by\n"
"          userfaultfd\n"
"  remap   KEDGE_SWAP_REMAP: the mappings are moved, by mremap()\n"
"  phys    KEDGE_SWAP_PHYS: the kernel exchanges them, where it can\n"
"  memfd   a memfd that has the data is mapped over the range; for comparison\n"
"          only: such memory is shared with forked children and behaves otherwise\n"
"          under madvise() and mremap()\n"
"\n"
"The pages: small are single ones in both ranges; huge are huge ones in both;\n"
"fresh: the first range was never touched, as a new buffer, and the second has\n"
"huge pages. The place: congruent, where both addresses are equal modulo 2 MiB,\n"
"or offset, where they are a page apart from it.\n"
"\n"
"\"x memcpy\" is how many times faster than the copy: the median of the ratios\n"
"within a round.\n"
"\n"
"Exit status: 0 done, 2 the command line is wrong, 3 it cannot run here.\n";
/* clang-format on */

int bench_swap(int argc, char **argv)
{
	struct swap_opts opt = { .rounds = 41 };
	struct poptOption table[] = {
		{ "size", 's', POPT_ARG_STRING, &opt.sizes_text, 0,
		  "Of a range (" SIZES ")", "BYTES,..." },
		{ "pages", 'p', POPT_ARG_STRING, &opt.pages_text, 0,
		  "small, huge, fresh (all)", "NAME,..." },
		{ "place", 'l', POPT_ARG_STRING, &opt.places_text, 0,
		  "congruent, offset (congruent)", "NAME,..." },
		{ "way", 'w', POPT_ARG_STRING, &opt.ways_text, 0,
		  "memcpy, swap, remap, phys, memfd (all)", "NAME,..." },
		{ "rounds", 'r', POPT_ARG_INT, &opt.rounds, 0,
		  "Of which the medians are taken (41)", "N" },
		BENCH_CSV(&opt.csv),
		{ "plot", 'P', POPT_ARG_STRING, &opt.plot, 0,
		  "Draw the times into FILE with gnuplot", "FILE.svg" },
		POPT_TABLEEND
	};

	return bench_start(help, table, parse, run, &opt, argc, argv);
}
