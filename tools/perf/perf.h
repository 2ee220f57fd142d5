/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kedge perf. What is measured is a pair: two processes that exchange messages,
 * rank 0 (which takes the time) and rank 1, on a side's channel (side_kedge.c,
 * side_ucx.c). The planner (run.c) lets the pairs take turns in short batches,
 * while the ranks of all others sleep; pattern.c is what a batch does, the same
 * code for every side.
 *
 * On one host both ranks are children (rank.c, pair.c). With --connect rank 0
 * is this process and rank 1 the one that was started with --listen, over there
 * (remote.c).
 */
#ifndef TOOLS_PERF_PERF_H
#define TOOLS_PERF_PERF_H

#include <limits.h>

#include "tools/perf/rank.h"

#define PERF_SIZES_MAX 64u
#define PERF_WINDOW    16
#define PERF_NOT_GIVEN INT_MIN
#define PERF_PAIRS_MAX 24u
#define PERF_PEERS_MAX 4u

/* ---- pairs: pair.c, remote.c ---- */

struct perf_remote;

/** struct perf_pair - two ranks
 * @cfg:    what it was made of
 * @facts:  what its rank 0 says
 * @proc:   the ranks, where both are children, and
 * @moved:  how far each has come
 * @remote: else the other host, and
 * @local:  the rank that is this process
 * @index:  of the pair over there
 */
struct perf_pair {
	struct perf_pair_cfg cfg;
	struct perf_facts facts;
	struct proc proc[2];
	struct perf_moved *moved;
	struct perf_remote *remote;
	struct perf_rank *local;
	uint32_t index;
};

/* The start of a child; @ends lead to the other rank. */
struct perf_child {
	const struct perf_pair_cfg *cfg;
	unsigned int rank;
	struct perf_moved *moved;
	int ends[2];
};

/* The child's main; @arg is its struct perf_child. */
void perf_rank_child(int fd, void *arg);

/* 0, or an exit status with a message printed. perf_pair_stop() after both. */
int perf_pair_start(struct perf_pair *pair);
int perf_pair_run(struct perf_pair *pair, const struct perf_req *req,
		  struct perf_rep rep[2], struct util_progress *progress,
		  uint64_t done);
/* A question to rank 0 alone: 0 or a negative errno, nothing printed. */
int perf_pair_ask(struct perf_pair *pair, const struct perf_req *req,
		  struct perf_rep *rep);
/* @failed: do not wait for what the ranks are doing. */
void perf_pair_stop(struct perf_pair *pair, bool failed);

/* Reach the process that was started with --listen. */
int perf_remote_open(const struct perf_place *at, struct perf_remote **remote);
/* Tells it the end. */
void perf_remote_close(struct perf_remote *remote);
/* As those of pairs. */
int perf_remote_start(struct perf_remote *remote, struct perf_pair *pair);
int perf_remote_run(struct perf_pair *pair, const struct perf_req *req,
		    struct perf_rep rep[2], struct util_progress *progress,
		    uint64_t done);
void perf_remote_stop(struct perf_pair *pair);
/* Be that process, for one peer; an exit status. */
int perf_serve(const struct perf_place *at);

/* ---- the run ---- */

/** struct perf_peer - a library to measure beside kedge
 * @variants: of UCX, lists for UCX_TLS with colons between them; of libfabric, a
 *            provider
 */
struct perf_peer {
	const struct perf_side *side;
	char variants[96];
};

/** struct perf_opts - the command line, as popt leaves it and as parsed */
struct perf_opts {
	char *sizes_text;
	char *ways_text;
	char *buffers_text;
	char *transport_text;
	char *connect;
	char *peer_text;
	char *tls_text;
	char *prefix;
	char *seed_text;
	char *plot;
	char *backends_text;
	char *node;
	int listen;
	int window;
	int rounds;
	int check;
	int use;
	int turnaround;
	int model;
	int csv;
	int segment;
	int region;
	bool rdma; /* the region is reached by that */
	uint64_t sizes[PERF_SIZES_MAX];
	size_t size_cnt;
	uint32_t ways;
	uint32_t buffers;
	uint32_t backends; /* bits of seg_backend_names; 0 is all that are here */
	struct perf_peer peer[PERF_PEERS_MAX];
	unsigned int peer_cnt;
	uint64_t seed;
	struct perf_place place;
};

/** struct perf_row - what a pair did with one size and kind of buffers
 * @pair:    index in the result
 * @window:  messages under way in the stream
 * @latency_us, @gbps: medians
 * @cts_us:  from RTS to CTS, of ping-pong; 0 if none was sent
 * @ways:    messages received by each
 * @faults:  page faults for a message of the stream, of the receiver
 * @wrong:   messages that came out wrong
 * @rounds:  of the medians
 * @dropped: rounds in which a rank lost its CPU
 */
struct perf_row {
	unsigned int pair;
	uint64_t bytes;
	enum perf_buffers buffers;
	uint32_t window;
	double latency_us;
	double gbps;
	double cts_us;
	uint64_t ways[8];
	double faults;
	uint64_t wrong;
	uint64_t rounds;
	uint64_t dropped;
};

/* A point of the cost model; @ns is 0 where the way does not work. */
struct perf_point {
	uint32_t way;
	uint32_t fresh;
	uint64_t bytes;
	uint64_t ns;
};

/* From @bytes on @above costs no more than @below; there it costs @ns. */
struct perf_even {
	uint32_t below;
	uint32_t above;
	uint32_t fresh;
	uint64_t bytes;
	uint64_t ns;
};

struct perf_result {
	const struct perf_opts *opt;
	struct perf_pair pair[PERF_PAIRS_MAX];
	unsigned int pair_cnt;
	struct perf_remote *remote;
	unsigned int cpus;
	struct perf_row *rows;
	size_t n;
	size_t max;
	uint64_t wrong;
	char why[PERF_WHY_LEN];
	struct perf_point *points;
	size_t point_cnt;
	struct perf_even *evens;
	size_t even_cnt;
};

/* perf.c and options.c */
int perf_parse(struct perf_opts *opt, const struct util_args *args);

/* ---- peers: peers.c ---- */

/* --peer and what goes with it: UTIL_GO_ON, or an exit status. */
int perf_parse_peers(struct perf_opts *opt);
/* "ucx", "ucx,libfabric"; "" where there is none. */
const char *perf_peers_name(const struct perf_opts *opt,
			    char buf[UTIL_HUMAN]);
/* The build of a pair's library: "assertions and parameter checks", "release build",
 * or NULL where nobody knows. */
const char *perf_build_name(const struct perf_facts *facts);
/* True: the library was built to be fast, or that is unknown. */
bool perf_is_release(const struct perf_facts *facts);
/* Say on standard error which peers are no release builds. */
void perf_warn_of_builds(const struct perf_result *res);

/*
 * Start the pairs, and measure or ask the model. 0, or an exit status with a
 * message printed; perf_result_fini() in every case.
 */
int perf_run(const struct perf_opts *opt, struct perf_result *res);
int perf_measure(struct perf_result *res);
int perf_model(struct perf_result *res);
void perf_result_fini(struct perf_result *res);

/* ---- the report ---- */

/* The peer's rows for one of ours: the least latency, the most bandwidth. */
struct perf_best {
	double latency_us;
	double gbps;
	size_t cnt;
};

void perf_best_peer(const struct perf_result *res, const struct perf_row *row,
		    struct perf_best *best);
bool perf_same(const struct perf_row *a, const struct perf_row *b);
bool perf_is_peer(const struct perf_result *res, const struct perf_row *row);
/* The way most messages took. */
const char *perf_way_taken(const struct perf_row *row);
/* Time to register 4 MiB in such buffers, or 0 if it was not measured. */
double perf_register_us(const struct perf_result *res,
			enum perf_buffers buffers);
double perf_ratio(double a, double b);

/* "64 KiB", "1 B" */
const char *perf_size_name(char buf[UTIL_HUMAN], uint64_t bytes);

void perf_print_text(const struct perf_result *res);
void perf_print_csv(const struct perf_result *res);
int perf_print_json(const struct perf_result *res);
int perf_plot(const struct perf_result *res, const char *file);

#endif /* TOOLS_PERF_PERF_H */
