/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An interval tree: ranges [start, end) that may overlap, found by overlap in
 * O(log n + found). A balanced (AVL) tree ordered by start, in which every node
 * knows the largest end below it. Nodes are embedded: no call here allocates.
 */
#ifndef BASE_TREE_H
#define BASE_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tree_node {
	struct tree_node *left;
	struct tree_node *right;
	struct tree_node *parent;
	uint64_t start;
	uint64_t end;
	uint64_t max_end;
	int height;
};

struct tree {
	struct tree_node *root;
	size_t cnt;
};

void tree_insert(struct tree *t, struct tree_node *n);
void tree_remove(struct tree *t, struct tree_node *n);

/* Change a node's range without changing its place in the order. */
void tree_resize(struct tree *t, struct tree_node *n, uint64_t start,
		 uint64_t end);

/* In order of start. */
struct tree_node *tree_first(const struct tree *t);
struct tree_node *tree_next(const struct tree_node *n);
struct tree_node *tree_prev(const struct tree_node *n);

/* The first node with node->start >= start, or NULL. */
struct tree_node *tree_at_or_after(const struct tree *t, uint64_t start);

/* The nodes that share a byte with [start, end), in order of start. */
struct tree_node *tree_first_overlap(const struct tree *t, uint64_t start,
				     uint64_t end);
struct tree_node *tree_next_overlap(const struct tree_node *n, uint64_t start,
				    uint64_t end);

/* Invariants, for tests and debug builds. */
bool tree_check(const struct tree *t);

#endif /* BASE_TREE_H */
