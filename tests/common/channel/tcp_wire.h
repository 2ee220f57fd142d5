/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A channel over TCP whose peer is a socket in the test's hands, what that one says
 * and hears, and what the channel is told of its socket. Linked with --wrap of
 * sendmsg, getsockopt and malloc.
 */
#ifndef TESTS_TCP_WIRE_H
#define TESTS_TCP_WIRE_H

#include "channel/protocol/packet.h"
#include "channel/tcp/internal.h"
#include "core.h"

#define LEN (600u << 10) /* three frames of the shortest */

extern struct kedge_channel *ch;
extern int wire; /* the peer's end */
/* LEN bytes each, of the test's main(): where messages land, and byte_at() of each place. */
extern char *buf, *data;

char byte_at(size_t i);
int wire_setup(void **state);
int wire_teardown(void **state);

/* A socket that takes whatever it is given: it goes here, unless NULL. */
extern char *stash;
extern size_t stash_at, stash_end;
/* Long mallocs fail, as where the limit of the address space is near. */
extern bool no_long_malloc;
extern unsigned int malloc_failed;
/* The socket's answer about its congestion control, unless NULL. */
extern const char *congestion;

/* ---- the peer ---- */

void wire_say(const void *at, size_t len);
void say_head(uint32_t len, uint32_t id);
void say_tail(uint32_t whole, uint32_t id);
void say_packet(uint8_t type, uint64_t tag, const void *body, uint32_t len);
/* Exactly @len bytes; the channel is polled meanwhile. */
void wire_hear(void *to, size_t len);
/* The next packet; @body of its length. */
struct packet_head hear_packet(void *body, size_t max);
/* A message of @len bytes is announced. */
void say_rts(uint64_t len);
/* The name of the flow that the receive of @len bytes is answered with. */
uint32_t wire_agreed(size_t len);

/* ---- the channel ---- */

uint64_t wire_receive(size_t len);
struct kedge_completion wait_one(void);
/* As many polls as it takes to see what has been said: what ended the channel. */
int wire_ends(void);

#endif /* TESTS_TCP_WIRE_H */
