/* SPDX-License-Identifier: BSD-2-Clause */
/* The common ground of a hostile peer and its honest one: numbers from a seed. */
#ifndef TESTS_HOSTILE_H
#define TESTS_HOSTILE_H

#include <stdint.h>

struct rng {
	uint64_t s;
};

static inline uint64_t rng_next(struct rng *r)
{
	r->s ^= r->s << 13;
	r->s ^= r->s >> 7;
	r->s ^= r->s << 17;
	return r->s * 0x2545f4914f6cdd1du;
}

static inline uint64_t below(struct rng *r, uint64_t n)
{
	return (rng_next(r) >> 16) % n;
}

/* The other end of the socket @fd: speaks the protocol, and lies. Never
 * returns. */
void hostile_peer(int fd, uint64_t seed) __attribute__((noreturn));

#endif /* TESTS_HOSTILE_H */
