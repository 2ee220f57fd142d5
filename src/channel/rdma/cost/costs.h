/* SPDX-License-Identifier: BSD-2-Clause */
/* The measured costs of a device, and the file that keeps them. */
#ifndef CHANNEL_RDMA_COST_COSTS_H
#define CHANNEL_RDMA_COST_COSTS_H

#include <stdbool.h>

/* Lengths that are measured, the shortest first. */
#define POINTS 3
/* A quarter of an hour: all that was measured takes less. */
#define NS_MAX 1e12

/* Nanoseconds at each. */
struct curve {
	double ns[POINTS];
};

enum {
	CURVE_REG,
	CURVE_TOUCH,
	CURVE_COPY,
	CURVE_REPLACE, /* under a buffer without pages */
	CURVES,
};

/* True if @text is a file's, whole; it may be anybody's. */
bool kedge__rdma_costs_parse(const char *text, struct curve curves[CURVES]);
/* False: there is none, or none to be trusted. */
bool kedge__rdma_costs_load(const char *device, struct curve curves[CURVES]);
void kedge__rdma_costs_save(const char *device,
			    const struct curve curves[CURVES]);

#endif /* CHANNEL_RDMA_COST_COSTS_H */
