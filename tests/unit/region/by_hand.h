/* SPDX-License-Identifier: BSD-2-Clause */
/* Peers whose accesses the owner does, as they are without the library's calls. */
#ifndef TESTS_REGION_BY_HAND_H
#define TESTS_REGION_BY_HAND_H

#include "region/share/share.h"
#include "region/stream.h"
#include "remote.h"

/* A connection to the owner that made @h, for packets, or -1. */
int stranger(const struct kedge_handle *h);
/* The error of its answer, 0 if that is of another kind, or -ECONNRESET; it is closed then. */
int answer_of(int fd);
/* The same for @len bytes that are said by one. */
int answer_to_packet(const void *p, size_t len);
/* The owner has ended it; it is closed then. */
bool is_cut_off(int fd);
/* Opens remotes until that fails with -EMFILE, and waits until one can be opened again. */
void open_as_many_as_can_be(void);

/* A listener at a handle of another host, whose owner the test is. */
int make_owner(void);

/* A connection to the owner of the handle, what it says first, and a question that it answers. */
int dial(void);
struct stream_hello greeted(int fd);
struct stream_ask question(const struct stream_hello *h);
/* The owner's answer to it, or -ECONNRESET where the connection ends. */
int answer_to(int fd, const struct stream_ask *q);
/* One that has opened it with what it likes to say, on this host or by TCP. */
int open_by_hand(void);
int dial_by_tcp(void);
/* The answer's error, or -ECONNRESET. */
int ask(int fd, struct stream_req q);

#endif /* TESTS_REGION_BY_HAND_H */
