/* SPDX-License-Identifier: BSD-2-Clause */
/* Peers whose accesses the owner does, as they are without the library's calls. */
#ifndef TESTS_REGION_BY_HAND_H
#define TESTS_REGION_BY_HAND_H

#include "region/stream.h"
#include "remote.h"

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
