/* SPDX-License-Identifier: BSD-2-Clause */
/* The subcommands' common ground: options, numbers, progress, JSON, errors. */
#ifndef TOOLS_COMMON_UTIL_H
#define TOOLS_COMMON_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>
#include <popt.h>

#include "tools/cmd.h"

/**
 * struct util_flags - the options that every subcommand has
 * @json:  print JSON on standard output instead of text
 * @quiet: no progress on standard error
 */
struct util_flags {
	int json;
	int quiet;
};

extern struct util_flags util_flags;

/**
 * struct util_cmd - a subcommand's command line, for util_options()
 * @synopsis: what follows the name in the help: "[OPTION...] [FILE]"
 * @help:     paragraphs printed after the options; may be NULL
 * @opts:     its own options, ended by POPT_TABLEEND; every entry's val is 0,
 *            so the value lands where arg points. --json, --quiet and --help
 *            are added
 * @max_args: how many arguments that are no options it takes
 */
struct util_cmd {
	const char *synopsis;
	const char *help;
	struct poptOption *opts;
	int max_args;
};

#define UTIL_MAX_ARGS 4

/* Arguments that are no options; owned, ended by util_args_fini(). */
struct util_args {
	int cnt;
	char *arg[UTIL_MAX_ARGS];
};

/* util_options() says: go on */
#define UTIL_GO_ON (-1)

/*
 * Parse a subcommand's command line. UTIL_GO_ON, or the exit status: CMD_OK
 * after --help, CMD_USAGE with a message printed. Strings that popt made for
 * POPT_ARG_STRING are the caller's to free, in every case.
 */
int util_options(const struct util_cmd *cmd, int argc, char **argv,
		 struct util_args *args);
/* Free all those strings; a table's other entries have none. */
void util_free_texts(const struct poptOption *table);
void util_args_fini(struct util_args *args);

/*
 * "64k", "1M", "1.5GiB", "4096": powers of 1,024. 0, -EINVAL if it is no such
 * size, -ERANGE if it does not fit.
 */
int util_parse_size(const char *text, uint64_t *out);
/* Decimal, or hexadecimal after 0x; errors as util_parse_size(). */
int util_parse_u64(const char *text, uint64_t *out);

/*
 * "verbs:mlx5_0": where "verbs" is among @names (ended by a NULL), with "mlx5_0"
 * (or NULL where none is given) in *@which; or -EINVAL.
 */
int util_parse_device(const char *text, const char *const *names,
		      const char **which);

/*
 * The name that @word was meant to be, or NULL if none of @names (ended by a
 * NULL) is near.
 */
const char *util_did_you_mean(const char *word, const char *const *names);

/* Room for any text of the util_human_* family. */
#define UTIL_HUMAN 32
/* "139.2 MiB" */
const char *util_human_bytes(char buf[UTIL_HUMAN], uint64_t bytes);
/* "1,234,567" */
const char *util_human_count(char buf[UTIL_HUMAN], uint64_t n);
/* "850 ns", "1.25 us", "3.50 s" */
const char *util_human_ns(char buf[UTIL_HUMAN], double ns);

/* Colours, or "" where standard output is no terminal or NO_COLOR is set. */
enum util_colour { UTIL_PLAIN, UTIL_GREEN, UTIL_YELLOW, UTIL_RED, UTIL_BOLD };
const char *util_colour(enum util_colour c);

/**
 * struct util_progress - a meter on standard error
 *
 * Silent unless standard error is a terminal and neither --json nor --quiet is
 * given; appears only when the work takes long enough to wonder. One thread
 * calls it; a call that draws nothing costs one clock reading.
 */
struct util_progress {
	const char *what;
	uint64_t total;
	uint64_t start_ns;
	uint64_t drawn_ns;
	bool bytes;
	bool on;
	bool shown;
};

/* @what is borrowed; @total 0 is "unknown"; @bytes: counts are bytes. */
void util_progress_start(struct util_progress *p, const char *what,
			 uint64_t total, bool bytes);
void util_progress_at(struct util_progress *p, uint64_t done);
/* Wipes the meter off the terminal. */
void util_progress_stop(struct util_progress *p);

/*
 * Print @root on standard output and drop the reference. 0, or -EIO with a
 * message printed. A NULL @root is no memory: -ENOMEM with a message.
 */
int util_json_print(json_t *root);
/* A JSON string of any bytes: what is not UTF-8 (a file's name may be) becomes
 * question marks. */
json_t *util_json_text(const char *text);
/*
 * An array of @n rows, without those that are null. NULL, as a row, is no
 * memory.
 */
json_t *util_json_rows(size_t n, json_t *(*row)(const void *of, size_t i),
		       const void *of);

/* "kedge demo", for messages; main() sets it. */
extern const char *util_name;

/* A line on standard error, after the command's name. */
void util_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/*
 * The same, then ": " and kedge_strerror(@rc): what went wrong and what to do.
 * Returns CMD_CANNOT, so that a function can end with it. Call it before
 * anything else of kedge in this thread.
 */
int util_fail(int rc, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The same for a wrong command line, with a pointer to --help: CMD_USAGE. */
int util_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* "ordered" for KEDGE_LEVEL_ORDERED */
const char *util_level_name(uint32_t level);

/* Both sort @v; 0 for an empty one. @q in [0, 1]. */
double util_median(double *v, size_t n);
double util_quantile(double *v, size_t n, double q);

/* splitmix64: near numbers give far ones. Its numbers are UTIL_GOLDEN apart
 * before they are mixed. */
#define UTIL_GOLDEN 0x9e3779b97f4a7c15u

static inline uint64_t util_mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* A seeded generator (xoshiro256**): the same seed gives the same run. */
struct util_rng {
	uint64_t s[4];
};

void util_rng_init(struct util_rng *rng, uint64_t seed);
/* A seed from the kernel, for a run that names none. */
uint64_t util_rng_seed(void);

static inline uint64_t util_rng_next(struct util_rng *rng)
{
	uint64_t *s = rng->s;
	const uint64_t m = s[1] * 5;
	const uint64_t out = ((m << 7) | (m >> 57)) * 9;
	const uint64_t t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = (s[3] << 45) | (s[3] >> 19);
	return out;
}

/* A number below @n, which is not 0. */
static inline uint64_t util_rng_below(struct util_rng *rng, uint64_t n)
{
	return (uint64_t)(((unsigned __int128)util_rng_next(rng) * n) >> 64);
}

/* A number in [0, 1). */
static inline double util_rng_unit(struct util_rng *rng)
{
	return (double)(util_rng_next(rng) >> 11) * 0x1p-53;
}

#endif /* TOOLS_COMMON_UTIL_H */
