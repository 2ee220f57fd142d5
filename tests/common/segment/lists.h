/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists of segments as tests use them, programs that own one, and the owners' sockets. */
#ifndef TESTS_SEGMENT_LISTS_H
#define TESTS_SEGMENT_LISTS_H

#include "cases.h"
#include "segment/wire.h"

#define MANY	 40 /* segments: more than two pages of the messages hold */
#define SHORT_MS 100 /* for those that never answer */
#define LONG_MS	 (HANG_S * 1000u)

struct sockaddr_un;

struct listed {
	struct kedge_segment_entry e[2 * MANY];
	size_t cnt;
};

/* Of one process, or of all with 0. Returns as the calls do. */
int list_of(pid_t pid, uint32_t timeout_ms, struct listed *l);
/* It is there, with as long as it takes. */
void list_now(pid_t pid, struct listed *l);

struct kedge_segment *make_as(void *at, size_t len, uint32_t mode, uint32_t backend);

/* A process with one segment of a page. */
struct owner {
	pid_t pid;
	int in; /* its end ends the owner */
};

/* First in main(): it is the owner's, too. */
void owner_main(int argc, char **argv);
/* It makes the segment as user @made_as, and then is user @now. */
void owner_start(struct owner *o, const char *made_as, const char *now);
void owner_end(struct owner *o);

socklen_t list_address(uint32_t name, struct sockaddr_un *a);
/* Of the socket of the process that has @s. */
uint32_t name_of(const struct kedge_segment *s);
/* A connection to that socket, or -1. */
int stranger(uint32_t name);
/* When it has been read to its end. */
bool is_cut_off(int fd);

/* In a child of root's; need_root() skips where one is not root, and says why. */
void become_nobody(void);
void need_root(void);

static const struct seg_list all = { .head = { SEG_MAGIC, SEG_VERSION, SEG_LIST },
				     .before = UINT64_MAX };

#endif /* TESTS_SEGMENT_LISTS_H */
