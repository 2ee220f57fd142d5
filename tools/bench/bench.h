/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the benchmarks share. Whatever is compared runs in child processes, one
 * a side, that take turns in short batches: each side has its address space to
 * itself, and both meet the same noise.
 */
#ifndef TOOLS_BENCH_BENCH_H
#define TOOLS_BENCH_BENCH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/base.h"
#include "tools/util.h"

int bench_cache(int argc, char **argv);
int bench_watch(int argc, char **argv);
int bench_reg(int argc, char **argv);
int bench_swap(int argc, char **argv);

/* ---- child processes: proc.c ---- */

struct bench_proc {
	pid_t pid;
	int fd;
};

/*
 * Fork a child that runs @serve with its end of a socket and then exits; it
 * dies with its parent. 0 or a negative errno. The caller has no threads.
 */
int bench_proc_start(struct bench_proc *p, void (*serve)(int fd, void *arg),
		     void *arg);
/* Close the socket, which tells the child to end, and wait for it. */
void bench_proc_stop(struct bench_proc *p);

/* One message; 0 or a negative errno, -EPIPE if the other side is gone. */
int bench_send(int fd, const void *msg, size_t len);
/* As bench_send(); -EPROTO for a message of another length. */
int bench_recv(int fd, void *msg, size_t len);
/* The same, and @progress is drawn at @done while it waits. */
int bench_wait(int fd, void *msg, size_t len, struct util_progress *progress,
	       uint64_t done);

/* CPUs this process may use; at least 1. */
unsigned int bench_cpus(void);
/* Bind the calling thread to the @nth of them (modulo their number). */
int bench_pin(unsigned int nth);

/* ---- lists in options: list.c ---- */

#define BENCH_LIST_MAX 16

struct bench_list {
	uint64_t v[BENCH_LIST_MAX];
	size_t n;
};

/*
 * "1,1000,1e6" into @out, each in [@min, @max]. UTIL_GO_ON, or CMD_USAGE with
 * a message that names @option.
 */
int bench_parse_list(const char *option, const char *text, uint64_t min,
		     uint64_t max, struct bench_list *out);
/* Words of @names (NULL-ended) into a bit mask; as above, and the message lists
 * them. */
int bench_parse_words(const char *option, const char *text,
		      const char *const *names, uint32_t *mask);

/*
 * What each benchmark is told: how many rounds, by @option, and --csv. As
 * above.
 */
int bench_check(const char *option, int rounds, int csv);

/* Bytes of a page of memory. */
size_t bench_page(void);

/* ---- samples: list.c ---- */

struct bench_samples {
	double *v;
	size_t n;
	size_t max;
};

int bench_samples_add(struct bench_samples *s, double v);
void bench_samples_fini(struct bench_samples *s);

/* ---- instructions: insn.c ---- */

/* A counter of the calling thread's instructions, user and kernel; a file
 * descriptor, or a negative errno where the machine has none. */
int bench_insn_open(void);
/* Instructions so far. */
uint64_t bench_insn_read(int fd);

/* ---- gnuplot: plot.c ---- */

#define BENCH_PLOT_WIDTH  900
#define BENCH_PLOT_HEIGHT 540

/* Whether a picture can be drawn into @file, before what is in it is measured.
 * CMD_OK, or CMD_CANNOT with a message. */
int bench_plot_check(const char *file);
/* Draw the table @data with gnuplot's commands @script into @file. The same. */
int bench_plot(const char *file, unsigned int width, unsigned int height,
	       const char *script, const char *data);

#endif /* TOOLS_BENCH_BENCH_H */
