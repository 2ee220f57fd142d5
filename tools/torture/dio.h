/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The device moves data: out of a registration and into it, eight bytes at a
 * time, through a lane's own pipes.
 */
#ifndef TORTURE_DIO_H
#define TORTURE_DIO_H

#include <stdint.h>

#include "tools/torture/rig.h"

/* How many places of a registration one transfer looks at. */
#define DIO_MAX 4

struct dio_port {
	int out[2]; /* the device writes out[1], we read out[0] */
	int in[2];  /* we write in[1], the device reads in[0] */
};

/* 0 or a negative errno. */
int dio_open(struct dio_port *port);
void dio_close(struct dio_port *port);
/*
 * For each i below @cnt: the device sends the word at @at[i] to us, then puts
 * @in[i] there. What it sent lands in @out. 0, or a negative errno if a
 * transfer failed.
 */
int dio_move(struct rig *rig, struct dio_port *port, const struct ref *ref,
	     uint8_t *const *at, const uint64_t *in, uint64_t *out,
	     unsigned int cnt);

#endif /* TORTURE_DIO_H */
