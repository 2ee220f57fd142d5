/* SPDX-License-Identifier: BSD-2-Clause */
/* Another process, which gets and attaches a segment and does to it what it is asked to. */
#ifndef TESTS_SEGMENT_PEER_H
#define TESTS_SEGMENT_PEER_H

#include "cases.h"

struct peer {
	pid_t pid;
	int sock;
};

/* First in main(): it is the peer's, too. */
void peer_main(int argc, char **argv);
/* As user @uid, if that is not 0. */
void peer_start(struct peer *p, uid_t uid);
void peer_start_as(struct peer *p, uid_t uid, gid_t gid, gid_t group);
/* It ends by itself, and well. */
void peer_end(struct peer *p);
void peer_kill(struct peer *p);

/* These return as the calls do there. */
int peer_get(struct peer *p, const struct kedge_segment_id *id, uint32_t access);
int peer_attach(struct peer *p, uint64_t offset, size_t len);
int peer_attach_with(struct peer *p, uint64_t offset, size_t len, uint32_t flags);
int peer_valid(struct peer *p);
/* At the same addresses, or -EXDEV. */
int peer_reattach(struct peer *p);
int peer_detach(struct peer *p);
int peer_release(struct peer *p);
ssize_t peer_copy(struct peer *p, uint64_t offset, uint64_t *value, uint32_t access);
int peer_info(struct peer *p, struct kedge_segment_info *info);
/* Eight bytes at @at of the attachment: 0, or -EFAULT where that is a SIGBUS or SIGSEGV. */
int peer_load(struct peer *p, size_t at, uint64_t *value);
int peer_store(struct peer *p, size_t at, uint64_t value);
/* mprotect() of the attachment, to be written. */
int peer_make_writable(struct peer *p);
/* Adds one to the word at @at, atomically, until it is stopped; how often it did. */
void peer_count_begin(struct peer *p, size_t at);
uint64_t peer_count_end(struct peer *p);

/* Got, and all of it attached. */
void peer_has(struct peer *p, const struct kedge_segment *s, uint32_t access);

/* Skips where memory cannot be converted, and says why. */
void need_convert(void);
/* Of @len bytes, each word is where it is. */
uint64_t *words(size_t len);

#endif /* TESTS_SEGMENT_PEER_H */
