// SPDX-License-Identifier: BSD-2-Clause
/*
 * Handles that came with their region from another process. Each names a slot of the process that
 * made it, and is found here by that one's name, its slot and generation, in a tree ordered by a
 * number that is made of the three.
 */
#include <stdlib.h>

#include "base/base.h"
#include "base/tree.h"
#include "region/share/share.h"

/* @node: first, as it is what the tree has; if @entered */
struct alias {
	struct tree_node node;
	uint64_t name;
	uint32_t slot;
	uint32_t generation;
	struct slot *to;
	bool entered;
};

static struct tree aliases; /* guarded by shares_lock */

/* The name is random: two owners' slots are as far from each other as their names. */
static uint64_t number_of(uint64_t name, uint32_t slot, uint32_t generation)
{
	return (name + slot + ((uint64_t)generation << 32)) >> 1;
}

static struct alias *find(uint64_t name, uint32_t slot, uint32_t generation)
{
	const uint64_t number = number_of(name, slot, generation);
	struct tree_node *n = tree_at_or_after(&aliases, number);
	struct alias *a;

	for (; n && n->start == number; n = tree_next(n)) {
		a = (struct alias *)n;
		if (a->name == name && a->slot == slot && a->generation == generation)
			return a;
	}
	return NULL;
}

struct slot *alias_find(uint64_t name, uint32_t slot, uint32_t generation)
{
	const struct alias *a = find(name, slot, generation);

	return a ? a->to : NULL;
}

int alias_make(uint64_t name, uint32_t slot, uint32_t generation, struct slot *s)
{
	struct alias *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->name = name;
	a->slot = slot;
	a->generation = generation;
	a->to = s;
	s->alias = a;
	return 0;
}

void alias_insert(struct slot *s)
{
	struct alias *a = s->alias;

	if (find(a->name, a->slot, a->generation))
		return;
	a->node.start = number_of(a->name, a->slot, a->generation);
	a->node.end = a->node.start + 1;
	tree_insert(&aliases, &a->node);
	a->entered = true;
}

void alias_remove(struct slot *s)
{
	if (!s->alias)
		return;
	if (s->alias->entered)
		tree_remove(&aliases, &s->alias->node);
	free(s->alias);
	s->alias = NULL;
}

void alias_words(const struct slot *s, uint64_t own, struct handle_words *w)
{
	w->name = s->alias ? s->alias->name : own;
	w->slot = s->alias ? s->alias->slot : s->index;
	w->generation = s->alias ? s->alias->generation : s->generation;
}

void aliases_forget(void)
{
	struct tree_node *n;

	while ((n = aliases.root)) {
		tree_remove(&aliases, n);
		free(n);
	}
}
