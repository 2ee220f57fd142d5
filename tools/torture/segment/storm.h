/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A storm of segments. One process owns ranges that its threads store to, make
 * segments, change in every way and make private again; others attach them and
 * look. This process starts both, and kills and replaces one now and then.
 *
 *	supervisor (storm.c)
 *	  owner (owner.c)       a thread for each range, and threads that count
 *	  attachers (look.c)    each visits all ranges
 *
 * Their knowledge of each other is in struct storm, which all of them have
 * mapped, and which outlives any of them. An owner writes a number to a range,
 * and then the same there: so an attacher that finds an older one in what it
 * has attached, and is told that it is valid, was told wrong.
 *
 * The engine needs neither the command nor its libraries: a test is made of it.
 */
#ifndef TORTURE_SEGMENT_STORM_H
#define TORTURE_SEGMENT_STORM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kedge/kedge.h>

#define STORM_RANGES	4u
#define STORM_COUNTERS	4u
#define STORM_PAGES	16u /* of a range */
#define STORM_ATTACHERS 3u
#define STORM_TEXT	192
#define STORM_SKIP	77 /* an owner's exit status: there are no segments here */

/** struct storm_range - what one thread of the owner's has
 * @said:    the latest number in its memory
 * @changes: odd while there may be zeros in it, which are the owner's as well
 * @seq:     odd while the next two are written
 * @id, @there: the segment that it is
 * @later:   it is converted when it is attached: what is at its addresses then
 * @rounds:  done, by all owners
 */
struct storm_range {
	_Atomic uint64_t said;
	_Atomic uint64_t changes;
	_Atomic uint64_t seq;
	_Atomic uint64_t id[2];
	atomic_bool there;
	atomic_bool later;
	_Atomic uint64_t rounds;
};

/** struct storm - what the processes share
 * @epoch:      owners so far: numbers are compared with those of the same one
 * @by_address: segments are what is at their addresses, by the module
 * @claimed:    somebody writes @found, or has
 */
struct storm {
	uint64_t seed, rounds;
	size_t page;
	atomic_bool over;
	_Atomic uint64_t epoch;
	atomic_bool by_address;
	struct storm_range range[STORM_RANGES];
	_Atomic uint64_t looks, attachments, changed, stale, torn, lost;
	_Atomic uint64_t conversions, copied, forks;
	atomic_bool claimed;
	char found[STORM_TEXT];
};

/** struct storm_opts - what to run
 * @rounds:  of each range; 0 is no limit
 * @seconds: at most; 0 is no limit
 * @seed:    of the random numbers
 * @tick:    called now and then with the milliseconds that have passed; may be NULL
 */
struct storm_opts {
	uint64_t rounds, seed;
	double seconds;
	void (*tick)(void *arg, uint64_t ms);
	void *tick_arg;
};

/** struct storm_result - what came of it
 * @backend:     how the memory is attached: "convert" or "module"
 * @rounds:      a range was made a segment, changed and made private again
 * @conversions: the same for the words that count, while they did
 * @copied:      times that a segment could only be copied
 * @looks:       loads that kedge_segment_valid() said to be the owner's
 * @changed:     attachments that were looked at until it said no
 * @stale:       looks that found an older number than the owner had said
 * @torn:        looks that found the second half of a store without the first
 * @lost:        stores that the owner did not find again
 * @crashes:     processes that ended by themselves, or stood still
 * @kills, @owner_kills: attachers and owners that were killed
 * @found:       the first of what is wrong, or why it cannot run
 */
struct storm_result {
	const char *backend;
	uint64_t rounds, conversions, copied, forks, attachments, looks, changed;
	uint64_t stale, torn, lost, crashes, kills, owner_kills, ns;
	char found[STORM_TEXT];
};

/*
 * Run it; the caller has no threads. 0; -EOPNOTSUPP where there are no segments
 * to be attached, or a negative errno if it cannot start.
 */
int storm_run(const struct storm_opts *opts, struct storm_result *res);
/* Nothing of it is wrong. */
bool storm_is_right(const struct storm_result *res);

/* ---- inside ---- */

/* The two processes' mains; each ends when @s->over is set, or all is done. */
int storm_own(struct storm *s);
int storm_attach(struct storm *s, unsigned int index);
/* Count it, and keep the first one in words. */
void storm_wrong(struct storm *s, _Atomic uint64_t *what, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* A page has a number twice: the first word is stored first. */
static inline uint64_t *storm_first(const struct storm *s, void *mem, size_t page)
{
	return (uint64_t *)(void *)((char *)mem + page * s->page);
}

static inline uint64_t *storm_last(const struct storm *s, void *mem, size_t page)
{
	return storm_first(s, mem, page + 1) - 1;
}

/* splitmix64 */
static inline uint64_t storm_draw(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

#endif /* TORTURE_SEGMENT_STORM_H */
