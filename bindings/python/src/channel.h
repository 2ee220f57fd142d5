/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations, and messages that are kept for later receives. */
#ifndef BINDING_CHANNEL_H
#define BINDING_CHANNEL_H

#include "binding.h"

/* A receive, and when it was posted and complete, by the channel's count. */
struct order {
	uint64_t posted;
	uint64_t done;
	uint64_t tag;
	uint64_t mask;
};

struct operation {
	PyObject_HEAD
	struct channel *channel; /* NULL once it is done */
	struct operation *next;
	struct operation **link; /* the pointer to it in the list */
	struct range range;
	uint64_t op;
	bool recv;
	bool keeps; /* a task's: it holds its memory until its message is read */
	bool abandoned; /* its message is for a later receive */
	bool cancelled;
	struct kept *given;  /* the message that it ends with */
	struct order order;  /* of a receive; its message's, where that was kept */
	struct kedge_completion result;
};

/*
 * kept.c: messages that came for receives which their tasks had given up, first the one
 * that came first. They are earlier than all that the library has, so receives and
 * probes look here first, and receives that are posted already are given them.
 */
struct kept {
	struct kept *next;
	struct order order; /* of the receive that it came for */
	uint64_t tag;
	uint64_t len;
	uint32_t way;
	char data[];
};

/* A copy of @m, which is in the memory of @op. -1 with a MemoryError raised: it is lost. */
int kept_add(struct channel *c, const struct operation *op, const struct kedge_completion *m);
/* The first that matches, or NULL. */
const struct kept *kept_find(const struct channel *c, uint64_t tag, uint64_t mask);
/* Move the first that matches to a receive that is not posted; false if none does. */
bool kept_take(struct channel *c, struct operation *op);
/*
 * With the channel begun: give each to the receive under way that it matches, which ends
 * early in the library. True if any was given: there are completions to read.
 */
bool kept_offer(struct channel *c);
/* At the end of @op: @result becomes that of the message which it was given, if any. */
void kept_settle(struct channel *c, struct operation *op, struct kedge_completion *result);
void kept_free(struct channel *c);

#endif /* BINDING_CHANNEL_H */
