/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations, and messages that are kept for later receives. */
#ifndef BINDING_CHANNEL_H
#define BINDING_CHANNEL_H

#include "binding.h"

struct operation {
	PyObject_HEAD
	struct channel *channel; /* NULL once it is done */
	struct operation *next;
	struct operation **link; /* what points to it in the list */
	struct range range;
	uint64_t op;
	bool recv;
	bool abandoned; /* its message is for a later receive */
	bool cancelled;
	bool was_kept; /* its message came from the channel's list */
	struct kedge_completion result;
};

/*
 * kept.c: messages that came for receives which their tasks had given up. They are
 * earlier than all that the library has, so receives and probes look here first.
 */
struct kept {
	struct kept *next;
	uint64_t tag;
	uint64_t len;
	uint32_t way;
	char data[];
};

/* @again: before the others, where it was. -1 with a MemoryError raised: it is lost. */
int kept_add(struct channel *c, const struct kedge_completion *m, const void *data, bool again);
/* The first that matches, or NULL. */
const struct kept *kept_find(const struct channel *c, uint64_t tag, uint64_t mask);
/* Move it to a receive's memory, as the library would; false if none matches. */
bool kept_take(struct channel *c, uint64_t tag, uint64_t mask, const struct range *to,
	       struct kedge_completion *result);
void kept_free(struct channel *c);

#endif /* BINDING_CHANNEL_H */
