// SPDX-License-Identifier: BSD-2-Clause
/*
 * The subcommands' common ground. A command is one process with one command line,
 * so the flags and the name that all of it reads are globals.
 */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "base/base.h"
#include "tools/common/util.h"

struct util_flags util_flags;
const char *util_name = "kedge";

void util_error(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s: ", util_name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

int util_fail(int rc, const char *fmt, ...)
{
	/* First: whatever runs in between may end the text's life. */
	const char *why = kedge_strerror(rc);
	va_list ap;

	fprintf(stderr, "%s: ", util_name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, ": %s\n", why);
	return CMD_CANNOT;
}

int util_usage(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s: ", util_name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\nTry '%s --help'.\n", util_name);
	return CMD_USAGE;
}

void util_args_fini(struct util_args *args)
{
	while (args->cnt > 0)
		free(args->arg[--args->cnt]);
}

/* popt's context goes before the caller's work starts, so copy. */
static int take_args(const struct util_cmd *cmd, poptContext con,
		     struct util_args *args)
{
	const char *a;

	while ((a = poptGetArg(con))) {
		if (args->cnt == cmd->max_args || args->cnt == UTIL_MAX_ARGS)
			return util_usage("one argument too many: '%s'", a);
		args->arg[args->cnt] = strdup(a);
		if (!args->arg[args->cnt])
			return util_fail(-ENOMEM, "cannot keep an argument");
		args->cnt++;
	}
	return UTIL_GO_ON;
}

static void print_help(const struct util_cmd *cmd, poptContext con)
{
	poptPrintHelp(con, stdout, 0);
	if (cmd->help)
		printf("\n%s", cmd->help);
}

int util_options(const struct util_cmd *cmd, int argc, char **argv,
		 struct util_args *args)
{
	struct poptOption common[] = {
		{ "json", 'j', POPT_ARG_NONE, &util_flags.json, 0,
		  "Print JSON instead of text", NULL },
		{ "quiet", 'q', POPT_ARG_NONE, &util_flags.quiet, 0,
		  "Print no progress", NULL },
		{ "help", 'h', POPT_ARG_NONE, NULL, 'h',
		  "Print this help and exit", NULL },
		POPT_TABLEEND
	};
	struct poptOption all[] = {
		{ NULL, 0, POPT_ARG_INCLUDE_TABLE, cmd->opts, 0, NULL, NULL },
		{ NULL, 0, POPT_ARG_INCLUDE_TABLE, common, 0,
		  "Of every subcommand:", NULL },
		POPT_TABLEEND
	};
	poptContext con;
	int rc;

	args->cnt = 0;
	con = poptGetContext(NULL, argc, (const char **)argv, all, 0);
	if (!con)
		return util_fail(-ENOMEM, "cannot read the command line");
	poptSetOtherOptionHelp(con, cmd->synopsis);

	rc = poptGetNextOpt(con);
	if (rc == 'h') {
		print_help(cmd, con);
		rc = CMD_OK;
	} else if (rc < -1) {
		rc = util_usage("%s: %s", poptBadOption(con, 0),
				poptStrerror(rc));
	} else {
		rc = take_args(cmd, con, args);
	}
	if (rc != UTIL_GO_ON)
		util_args_fini(args);
	poptFreeContext(con);
	return rc;
}

void util_free_texts(const struct poptOption *table)
{
	for (; table->longName || table->shortName || table->arg; table++)
		if ((table->argInfo & POPT_ARG_MASK) == POPT_ARG_STRING)
			free(*(char **)table->arg);
}

int util_parse_u64(const char *text, uint64_t *out)
{
	unsigned long long v;
	char *end;

	/* strtoull() takes a sign and blanks: we do not. */
	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	v = strtoull(text, &end, text[0] == '0' && text[1] == 'x' ? 16 : 10);
	if (*end)
		return -EINVAL;
	if (errno)
		return -ERANGE;
	*out = v;
	return 0;
}

static int size_shift(const char *unit)
{
	static const char units[] = "kmgt";
	const char *u;

	if (!*unit || !strcasecmp(unit, "b"))
		return 0;
	u = strchr(units, tolower((unsigned char)*unit));
	if (!u)
		return -EINVAL;
	unit++;
	if (*unit && strcasecmp(unit, "b") && strcasecmp(unit, "ib"))
		return -EINVAL;
	return 10 * (int)(u - units + 1);
}

int util_parse_size(const char *text, uint64_t *out)
{
	long double v;
	char *end;
	int shift;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	v = strtold(text, &end);
	shift = size_shift(end);
	if (shift < 0)
		return shift;
	v *= (long double)(1ull << shift);
	if (v >= 0x1p64L)
		return -ERANGE;
	*out = (uint64_t)v;
	return 0;
}

int util_parse_device(const char *text, const char *const *names,
		      const char **which)
{
	const char *end = strchrnul(text, ':');
	size_t len = (size_t)(end - text);
	int i;

	/* A colon announces a name. */
	if (*end && !end[1])
		return -EINVAL;
	for (i = 0; names[i]; i++) {
		if (strlen(names[i]) != len || strncmp(names[i], text, len))
			continue;
		*which = *end ? end + 1 : NULL;
		return i;
	}
	return -EINVAL;
}

#define WORD_MAX 32

/* Levenshtein's distance of two short words. */
static size_t distance(const char *a, const char *b)
{
	size_t row[WORD_MAX + 1], la = strlen(a), lb = strlen(b);
	size_t i, j, diag, up;

	if (la > WORD_MAX || lb > WORD_MAX)
		return WORD_MAX;
	for (j = 0; j <= lb; j++)
		row[j] = j;
	for (i = 1; i <= la; i++) {
		diag = row[0];
		row[0] = i;
		for (j = 1; j <= lb; j++) {
			up = row[j];
			row[j] = diag + (a[i - 1] != b[j - 1]);
			if (row[j] > up + 1)
				row[j] = up + 1;
			if (row[j] > row[j - 1] + 1)
				row[j] = row[j - 1] + 1;
			diag = up;
		}
	}
	return row[lb];
}

const char *util_did_you_mean(const char *word, const char *const *names)
{
	const char *best = NULL;
	size_t least = 3, d;

	for (; *names; names++) {
		if (strlen(word) >= 2 &&
		    !strncmp(word, *names, strlen(word)))
			return *names;
		d = distance(word, *names);
		if (d < least && d < strlen(*names)) {
			least = d;
			best = *names;
		}
	}
	return best;
}

const char *util_human_bytes(char buf[UTIL_HUMAN], uint64_t bytes)
{
	static const char *const unit[] = { "B",   "KiB", "MiB", "GiB",
					    "TiB", "PiB", "EiB" };
	double v = (double)bytes;
	size_t i = 0;

	/* 1023.95 would be printed as 1024.0 of the smaller unit. */
	while (v >= 1023.95 && i + 1 < ARRAY_SIZE(unit)) {
		v /= 1024;
		i++;
	}
	snprintf(buf, UTIL_HUMAN, i ? "%.1f %s" : "%.0f %s", v, unit[i]);
	return buf;
}

const char *util_human_count(char buf[UTIL_HUMAN], uint64_t n)
{
	char raw[UTIL_HUMAN];
	int len = snprintf(raw, sizeof(raw), "%llu", (unsigned long long)n);
	char *to = buf;
	int i;

	for (i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			*to++ = ',';
		*to++ = raw[i];
	}
	*to = '\0';
	return buf;
}

const char *util_human_ns(char buf[UTIL_HUMAN], double ns)
{
	if (ns < 1e3)
		snprintf(buf, UTIL_HUMAN, "%.0f ns", ns);
	else if (ns < 1e6)
		snprintf(buf, UTIL_HUMAN, "%.2f us", ns / 1e3);
	else if (ns < 1e9)
		snprintf(buf, UTIL_HUMAN, "%.2f ms", ns / 1e6);
	else
		snprintf(buf, UTIL_HUMAN, "%.2f s", ns / 1e9);
	return buf;
}

const char *util_colour(enum util_colour c)
{
	static const char *const code[] = {
		[UTIL_PLAIN] = "\033[0m",   [UTIL_GREEN] = "\033[32m",
		[UTIL_YELLOW] = "\033[33m", [UTIL_RED] = "\033[31m",
		[UTIL_BOLD] = "\033[1m",
	};
	static int on = -1;
	const char *no, *term;

	if (on < 0) {
		no = getenv("NO_COLOR");
		term = getenv("TERM");
		on = isatty(STDOUT_FILENO) && !(no && *no) &&
		     !(term && !strcmp(term, "dumb"));
	}
	return on ? code[c] : "";
}

#define PROGRESS_AFTER_NS  1000000000u
#define PROGRESS_REDRAW_NS 200000000u

void util_progress_start(struct util_progress *p, const char *what,
			 uint64_t total, bool bytes)
{
	*p = (struct util_progress){
		.what = what,
		.total = total,
		.start_ns = clock_ns(),
		.bytes = bytes,
		.on = !util_flags.json && !util_flags.quiet &&
		      isatty(STDERR_FILENO),
	};
}

static void progress_draw(const struct util_progress *p, uint64_t done,
			  double secs)
{
	double rate = (double)done / secs;
	char n[UTIL_HUMAN], r[UTIL_HUMAN];

	if (p->bytes) {
		util_human_bytes(n, done);
		util_human_bytes(r, (uint64_t)rate);
	} else {
		util_human_count(n, done);
		util_human_count(r, (uint64_t)rate);
	}
	/* \033[K wipes what a longer line left behind. */
	fprintf(stderr, "\r%s: %s, %s/s", p->what, n, r);
	if (p->total && done <= p->total && rate > 0)
		fprintf(stderr, ", %.0f %%, %.0f s left",
			100.0 * (double)done / (double)p->total,
			(double)(p->total - done) / rate);
	fputs("\033[K", stderr);
	fflush(stderr);
}

void util_progress_at(struct util_progress *p, uint64_t done)
{
	uint64_t now;

	if (!p->on)
		return;
	now = clock_ns();
	if (now - p->start_ns < PROGRESS_AFTER_NS ||
	    now - p->drawn_ns < PROGRESS_REDRAW_NS)
		return;
	progress_draw(p, done, (double)(now - p->start_ns) / 1e9);
	p->drawn_ns = now;
	p->shown = true;
}

void util_progress_stop(struct util_progress *p)
{
	if (p->shown)
		fputs("\r\033[K", stderr);
	p->shown = false;
	p->on = false;
}

json_t *util_json_text(const char *text)
{
	json_t *s = json_string(text);
	char *copy, *c;

	if (s)
		return s;
	copy = strdup(text);
	for (c = copy; c && *c; c++)
		if ((unsigned char)*c >= 0x80)
			*c = '?';
	s = copy ? json_string(copy) : NULL;
	free(copy);
	return s;
}

json_t *util_json_rows(size_t n, json_t *(*row)(const void *of, size_t i),
		       const void *of)
{
	json_t *rows = json_array(), *o;
	int rc = rows ? 0 : -1;
	size_t i;

	for (i = 0; i < n && !rc; i++) {
		o = row(of, i);
		if (!json_is_null(o))
			rc = json_array_append_new(rows, o);
	}
	if (!rc)
		return rows;
	json_decref(rows);
	return NULL;
}

int util_json_print(json_t *root)
{
	int rc;

	if (!root) {
		util_fail(-ENOMEM, "cannot build the JSON");
		return -ENOMEM;
	}
	rc = json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	json_decref(root);
	if (rc || putchar('\n') == EOF || fflush(stdout)) {
		util_error("cannot write to standard output");
		return -EIO;
	}
	return 0;
}

const char *util_level_name(uint32_t level)
{
	static const char *const name[] = {
		[KEDGE_LEVEL_DEFAULT] = "default",
		[KEDGE_LEVEL_NONE] = "none",
		[KEDGE_LEVEL_ADVISORY] = "advisory",
		[KEDGE_LEVEL_ORDERED] = "ordered",
		[KEDGE_LEVEL_EXACT] = "exact",
	};

	return level < ARRAY_SIZE(name) ? name[level] : "unknown";
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double util_quantile(double *v, size_t n, double q)
{
	double at;
	size_t lo;

	if (!n)
		return 0;
	qsort(v, n, sizeof(*v), by_value);
	at = q * (double)(n - 1);
	lo = (size_t)at;
	if (lo + 1 >= n)
		return v[n - 1];
	return v[lo] + (at - (double)lo) * (v[lo + 1] - v[lo]);
}

double util_median(double *v, size_t n)
{
	return util_quantile(v, n, 0.5);
}

void util_rng_init(struct util_rng *rng, uint64_t seed)
{
	size_t i;

	/* Near seeds give far states, and never all zero. */
	for (i = 0; i < ARRAY_SIZE(rng->s); i++)
		rng->s[i] = util_mix(seed += UTIL_GOLDEN);
}

uint64_t util_rng_seed(void)
{
	uint64_t seed;

	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) !=
	    (ssize_t)sizeof(seed))
		seed = clock_ns();
	/* Short enough to be typed again, and exact in JSON everywhere. */
	return seed & 0xffffffffu;
}
