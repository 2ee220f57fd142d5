/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The costs of the ways to receive on this machine, measured once in a process.
 */
#ifndef CHANNEL_COST_H
#define CHANNEL_COST_H

#include <stdbool.h>
#include <stdint.h>

/* Slow: some milliseconds. Any thread, any number of them. */
void model_measure(void);
bool model_ready(void);

/* A question to the model. */
struct model_case {
	uint64_t len;
	uint64_t body; /* bytes that can be swapped; the rest is copied */
	bool fresh;    /* the buffer has no pages yet */
	bool pull;     /* this side can read the sender's memory */
	bool push;     /* the sender can write what it is let to */
	bool heap;     /* the buffer is shared */
};

/* Nanoseconds for an enum kedge_way; UINT64_MAX: not to be had. */
uint64_t model_cost(uint32_t way, const struct model_case *c);

#endif /* CHANNEL_COST_H */
