/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists of regions as tests use them, and owners' sockets without the library's calls. */
#ifndef TESTS_REGION_LISTED_H
#define TESTS_REGION_LISTED_H

#include "base/base.h"
#include "by_hand.h"

#define SHORT_MS 100 /* for those that never answer */
#define NOBODY	 65534

struct listed_regions {
	struct kedge_region_entry *e;
	size_t cnt;
};

int list_within(pid_t pid, uint32_t timeout_ms, struct listed_regions *l);
void list_of(pid_t pid, struct listed_regions *l);
/* The only one of this process. */
struct kedge_region_entry only(void);

struct packet {
	struct list_head head;
	struct list_item item[LIST_ITEMS];
};

extern const struct list_ask list_question;

/* False: it could not be sent. */
bool ask_list(int fd, int flags);
/* The answer's length. */
ssize_t ask_once(int fd, struct packet *p);

/* A child that ends with this process, and that has done @does() when this returns. */
pid_t child(void (*does)(void *arg), void *arg);

#endif /* TESTS_REGION_LISTED_H */
