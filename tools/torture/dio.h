/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The device: makes registrations, and moves data out of them and into them,
 * eight bytes at a time, through a lane's own port.
 */
#ifndef TORTURE_DIO_H
#define TORTURE_DIO_H

#include <stddef.h>
#include <stdint.h>

#include "tools/torture/rig.h"

/* The places of a registration that one transfer looks at. */
#define DIO_MAX 4

struct dio_link;

/* A lane's way to the device. */
struct dio_port {
	int out[2]; /* uring: the device writes out[1], we read out[0] */
	int in[2];  /* uring: we write in[1], the device reads in[0] */
	struct dio_link *link; /* verbs: a peer */
};

/**
 * struct dio_ops - a device under test
 * @name:        as --device takes it
 * @access:      what registrations are asked for
 * @rig_open:    open it; @name is which of its kind, or NULL. Each returns 0 or
 *               a negative errno that kedge_strerror() explains
 * @kedge_open:  as a device of kedge's
 * @table_open:  room for @slots raw registrations, instead
 * @table_set:   register anew in a slot
 * @open:        a port for a lane
 * @move:        for each i below @cnt: the device sends the word at @at[i] to
 *               us, then puts @in[i] there. What it sent lands in @out. A
 *               failure leaves the port fit for the next
 */
struct dio_ops {
	const char *name;
	uint32_t access;
	int (*rig_open)(struct rig *rig, const char *name);
	void (*rig_close)(struct rig *rig);
	int (*kedge_open)(struct rig *rig, struct kedge_device **dev);
	int (*table_open)(struct rig *rig, unsigned int slots);
	void (*table_close)(struct rig *rig);
	int (*table_set)(struct rig *rig, unsigned int slot, const void *addr,
			 size_t len, uint64_t *handle);
	int (*open)(struct rig *rig, struct dio_port *port);
	void (*close)(struct dio_port *port);
	int (*move)(struct rig *rig, struct dio_port *port,
		    const struct ref *ref, uint8_t *const *at,
		    const uint64_t *in, uint64_t *out, unsigned int cnt);
};

extern const struct dio_ops dio_uring, dio_verbs, dio_ofi;

#endif /* TORTURE_DIO_H */
