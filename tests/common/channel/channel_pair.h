/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Both ends of a channel in one process, whose clock is moved, driven by turns, so that each case
 * decides what has happened when; or one of them in a child.
 *
 * TEST_CHANNEL_OVER says what carries them: "shm", which is the default, "tcp", or
 * "ofi:PROVIDER" of libfabric's, where ofi_fixtures is linked.
 */
#ifndef TESTS_CHANNEL_PAIR_H
#define TESTS_CHANNEL_PAIR_H

#include <sys/types.h>

#include "base/base.h"
#include "core.h"

#define ANY    0, 0
#define TAG(t) (t), UINT64_MAX
#define MIB    ((size_t)1 << 20)

struct end {
	struct kedge_channel *ch;
	struct kedge_completion done[64];
	size_t cnt;
};

extern struct end a, b;

enum over { OVER_SHM, OVER_TCP, OVER_OFI, OVERS };

enum over pair_over(void);
/* 77 after saying why, if there is no such transport here; else 0. */
int pair_missing(void);
/* pair_missing(), and the clock: before anything of kedge's. */
int pair_begin(void);
/* Skips the case over anything else than shared memory. */
void need_shm(const char *why);

/* ---- meeting ---- */

/* Where two ends meet. @opts: of the end that accepts. */
struct meeting {
	const struct kedge_channel_opts *opts;
	int sv[2];
	struct kedge_listener *l;
	struct ofi_listener *ofi;
	char port[8];
};

/* What a transport does for that; 0 or a negative errno. */
struct meeting_ops {
	int (*missing)(void); /* as pair_missing(); may be NULL */
	int (*open)(struct meeting *m);
	int (*accept)(struct meeting *m, struct kedge_channel **ch);
	int (*connect)(struct meeting *m, const struct kedge_channel_opts *o,
		       struct kedge_channel **ch);
	/* One end is a child's: in that, or in its parent. May be NULL, as close(). */
	void (*forked)(struct meeting *m, bool child);
	void (*close)(struct meeting *m);
};

extern const struct meeting_ops *meeting_ops[OVERS];

/* Connected, each with its options. */
void open_pair(const struct kedge_channel_opts *oa,
	       const struct kedge_channel_opts *ob);
void close_pair(void);
/* The other end is driven meanwhile, where what was sent is in nobody's hands before it is
 * received, and time passes when it knows of the end. */
void close_a(void);
/* Nobody drives the other end: time passes for one that waits for it, and what was sent may be
 * lost. */
void close_unheard(struct end *e);
/* The other end is a child's, which runs @fn and ends with 0; b is the test's. */
pid_t open_child(void (*fn)(struct kedge_channel *ch));

/* ---- turns ---- */

/* Poll once: what that says. */
ssize_t turn(struct end *e);
/* Until both have so many completions; more is a failure. */
void turns(size_t on_a, size_t on_b);
/* So many that all that can move has. */
void many_turns(void);

/* A pattern that tells bytes and messages apart. */
void fill(char *p, size_t len, unsigned int seed);
bool is_filled(const char *p, size_t len, unsigned int seed);

void post(struct end *e, void *buf, size_t len, uint64_t tag, uint64_t mask,
	  uint64_t user);
/* 1 if it was complete at once. */
int put(struct end *e, const void *buf, size_t len, uint64_t tag);

#endif /* TESTS_CHANNEL_PAIR_H */
