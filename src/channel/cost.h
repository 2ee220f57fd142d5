/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The costs of the ways to receive on this machine, measured once in a process.
 */
#ifndef CHANNEL_COST_H
#define CHANNEL_COST_H

#include <stdbool.h>
#include <stdint.h>

/* A straight line between lengths that were measured, the shortest first, of which
 * there are @points; what is longer goes on at the last one's rate. */
static inline double curve_at(const double *ns, const uint64_t *lens,
			      int points, uint64_t len)
{
	double x = (double)len, x0, x1;
	int i = 1;

	if (len <= lens[0])
		return ns[0] * x / (double)lens[0];
	while (i < points - 1 && len > lens[i])
		i++;
	x0 = (double)lens[i - 1];
	x1 = (double)lens[i];
	if (len > lens[i])
		return ns[i] * x / x1;
	return ns[i - 1] + (ns[i] - ns[i - 1]) * (x - x0) / (x1 - x0);
}

/* Slow: some milliseconds. Any thread, any number of them. */
void cost_measure(void);
bool cost_ready(void);

/* A question to the model. */
struct cost_case {
	uint64_t len;
	uint64_t body; /* bytes that can be swapped; the rest is copied */
	bool fresh;    /* the buffer has no pages yet */
	bool pull;     /* this side can read the sender's memory */
	bool push;     /* the sender can write what it is let to */
	bool heap;     /* the buffer is shared */
};

/* Nanoseconds for an enum kedge_way; UINT64_MAX: not to be had. */
uint64_t cost_of(uint32_t way, const struct cost_case *c);

#endif /* CHANNEL_COST_H */
