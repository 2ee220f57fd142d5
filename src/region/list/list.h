/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions of all processes, as another process lists them. */
#ifndef REGION_LIST_LIST_H
#define REGION_LIST_LIST_H

#include <kedge/region_list.h>

#include <sys/socket.h>

#include "base/process/clofork.h"
#include "region/wire.h"

/* Of a region, or of a process that tells nothing: 0 or -ENOMEM. @owner: the socket that tells it;
 * @to: of a region that has left, where it is. */
typedef int found_fn(void *arg, const struct kedge_region_entry *e, uint64_t owner,
		     const struct owner_place *to);

/* ---- names.c: how the owners' sockets are called ---- */

struct names {
	uint64_t *name;
	size_t cnt;
	size_t room;
};

/* Each once: 0 or a negative errno; the caller frees @n->name in either case. */
int names_read(struct names *n);
/* True if a line of /proc/net/unix shows an owner's socket that listens: its @name. */
bool region_owner_name(const char *line, uint64_t *name);

/* ---- owners.c: what owners say, checked before anything else looks at it ---- */

/* Of a process: each takes two mappings, of which it has 65,530 unless told otherwise. */
#define REGIONS	 (1u << 16)
#define PAGE_LEN ((size_t)64 << 10)

enum owner_state { WAITS, ASKED, DONE };

struct owner {
	struct clofork sock;
	enum owner_state state;
	uint64_t name;
	struct ucred cred;
	int tries;
	int status;  /* why it is silent */
	bool left_out;
	uint64_t limit;
	uint64_t used;
	struct list_item *item;
	size_t cnt;
	size_t room;
};

/* A page of @len bytes; PAGE_LEN can be read. 0: it was the last one; -EAGAIN: there are more to
 * be asked for; or what is wrong with the owner, or -ENOMEM. */
int region_owner_take(struct owner *o, const char *page, size_t len);
/* Call @add for each region, or once for an owner with a status. */
int region_owner_tell(const struct owner *o, found_fn *add, void *arg);
void region_owner_forget(struct owner *o);

/* Those that @o is about: 0 or a negative errno of this process's. */
int owners_ask(const struct kedge_regions_opts *o, found_fn *add, void *arg);

/* ---- list.c ---- */

/* @owner: name of the owner's socket; @to: of the next one's, if the region has left to one of this
 * host. */
struct found {
	struct kedge_region_entry entry;
	uint64_t owner;
	uint64_t to;
};

struct kedge_regions {
	struct found *found;
	size_t cnt;
	size_t room;
	size_t next;
	uint64_t host;
};

/* To a struct kedge_regions. */
found_fn found_add;
/* Name the processes that regions have left to, and put the list into any order. */
void found_name_owners(struct kedge_regions *l);

#endif /* REGION_LIST_LIST_H */
