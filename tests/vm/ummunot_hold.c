// SPDX-License-Identifier: BSD-2-Clause
/*
 * The time for which the module holds the lock of an address space: in a callback,
 * when a change starts and when it ends, and in a step of the reader that works off
 * the log. In the guest, as root, by the kernel's function_graph tracer.
 *
 *	ummunot_hold [WATCHES [BAR]]
 *
 * Each case has WATCHES (1,000,000) ranges: all of one page, one range a page
 * with a change of all pages, or all of one page in four files. The functions
 * that are traced take the lock as they begin and release it as they end; their
 * time has the tracer's own in it. Meant for "vm.py run --icount", where a
 * nanosecond is an instruction of the guest; there BAR is the most that one of
 * them may take, in microseconds, and the exit status is 1 beyond it.
 */
#include <sys/mount.h>

#include "ummunot_lib.h"

#define TRACING "/sys/kernel/tracing/"
#define FILES	4
#define ROUNDS	50

struct hold {
	const char *function;
	unsigned long least; /* of the calls in a case */
	unsigned long calls;
	double longest; /* microseconds */
};

static struct hold holds[] = {
	{ "changes_start", ROUNDS, 0, 0 },
	{ "changes_end", ROUNDS, 0, 0 },
	{ "changes_resolve_some", 1, 0, 0 },
};

#define HOLDS (sizeof(holds) / sizeof(holds[0]))

static void set(const char *name, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), TRACING "%s", name);
	if (vm_write(path, text))
		err(1, "%s: %s", path, text);
}

/* The file takes one name a write. */
static void add_function(const char *name)
{
	int fd = open(TRACING "set_ftrace_filter", O_WRONLY | O_APPEND);

	if (fd < 0 || write(fd, name, strlen(name)) < 0 || close(fd))
		err(1, "set_ftrace_filter: %s", name);
}

static void start_tracer(void)
{
	size_t i;

	if (mount("none", TRACING, "tracefs", 0, NULL) && errno != EBUSY)
		err(1, TRACING);
	set("buffer_size_kb", "65536");
	for (i = 0; i < HOLDS; i++)
		add_function(holds[i].function);
	set("current_tracer", "function_graph");
	set("trace_options", "nofuncgraph-overhead");
	set("tracing_on", "0");
}

/* " 0)   1.234 us    |  changes_end [ummunot]();" */
static void take_line(const char *line)
{
	const char *bar = strchr(line, '|'), *paren = strchr(line, ')');
	double us;
	size_t i;

	for (i = 0; bar && i < HOLDS; i++)
		if (strstr(bar, holds[i].function)) {
			/* A call that others are nested in has its time
			 * elsewhere. */
			if (!paren || sscanf(paren + 1, "%lf us", &us) != 1)
				errx(1, "no time in: %s", line);
			holds[i].calls++;
			if (us > holds[i].longest)
				holds[i].longest = us;
		}
}

static void collect(void)
{
	FILE *f = fopen(TRACING "trace", "r");
	char line[256];

	if (!f)
		err(1, TRACING "trace");
	while (fgets(line, sizeof(line), f))
		take_line(line);
	fclose(f);
}

static double report(const char *name)
{
	double longest = 0;
	size_t i;

	for (i = 0; i < HOLDS; i++) {
		printf("%-34s %-21s %8lu %10.3f\n", name, holds[i].function,
		       holds[i].calls, holds[i].longest);
		if (holds[i].calls < holds[i].least)
			errx(1, "%s: fewer than %lu calls", holds[i].function,
			     holds[i].least);
		if (holds[i].longest > longest)
			longest = holds[i].longest;
		holds[i].calls = 0;
		holds[i].longest = 0;
	}
	return longest;
}

/* The trace goes as the file is truncated. */
static void clear(void)
{
	int fd = open(TRACING "trace", O_WRONLY | O_TRUNC);

	if (fd < 0 || close(fd))
		err(1, TRACING "trace");
}

static void drain(struct um *u)
{
	static struct ummunot_event ev[512];

	while (um_read(u, ev, 512) > 0)
		;
}

/*
 * @files that watch @pages pages in turns, @watches times in all; then a change
 * of all of them, ROUNDS times, read by each file.
 */
static double measure(const char *name, size_t watches, size_t pages, int files)
{
	char *m = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct um u[FILES];
	size_t i;
	int f;

	if (m == MAP_FAILED)
		err(1, "mmap");
	for (f = 0; f < files; f++)
		um_open(&u[f], O_NONBLOCK);
	for (i = 0; i < watches; i++)
		if (um_watch(&u[i % (size_t)files], m + i % pages * PAGE, PAGE,
			     i, 0))
			err(1, "register");
	clear();
	set("tracing_on", "1");
	for (i = 0; i < ROUNDS; i++) {
		m[0] = 1;
		madvise(m, pages * PAGE, MADV_DONTNEED);
		/* Of a million events a round, one round's will do. */
		for (f = 0; i % 25 == 0 && f < files; f++)
			drain(&u[f]);
	}
	set("tracing_on", "0");
	collect();
	for (f = 0; f < files; f++)
		um_close(&u[f]);
	munmap(m, pages * PAGE);
	return report(name);
}

int main(int argc, char **argv)
{
	const size_t watches = argc > 1 ? strtoul(argv[1], NULL, 0) : 1000000;
	const double bar = argc > 2 ? strtod(argv[2], NULL) : 0;
	double longest = 0, t;

	start_tracer();
	printf("%-34s %-21s %8s %10s\n", "watches", "function", "calls",
	       "longest us");
	t = measure("one page, one file", watches, 1, 1);
	longest = t > longest ? t : longest;
	t = measure("one page, four files", watches, 1, FILES);
	longest = t > longest ? t : longest;
	t = measure("a page each, a change of all", watches, watches, 1);
	longest = t > longest ? t : longest;
	return bar > 0 && longest > bar;
}
