// SPDX-License-Identifier: BSD-2-Clause
/*
 * Invariants: left->start <= start <= right->start; heights of two children
 * differ by at most one; height and max_end are those of the subtree.
 */
#include "base/tree.h"

static int height(const struct tree_node *n)
{
	return n ? n->height : 0;
}

static uint64_t max_end(const struct tree_node *n)
{
	return n ? n->max_end : 0;
}

static void update(struct tree_node *n)
{
	int l = height(n->left), r = height(n->right);
	uint64_t end = n->end;

	if (max_end(n->left) > end)
		end = max_end(n->left);
	if (max_end(n->right) > end)
		end = max_end(n->right);
	n->max_end = end;
	n->height = (l > r ? l : r) + 1;
}

static void replace_child(struct tree *t, struct tree_node *parent,
			  struct tree_node *old, struct tree_node *new)
{
	if (!parent)
		t->root = new;
	else if (parent->left == old)
		parent->left = new;
	else
		parent->right = new;
	if (new)
		new->parent = parent;
}

static struct tree_node *rotate_left(struct tree *t, struct tree_node *n)
{
	struct tree_node *r = n->right;

	replace_child(t, n->parent, n, r);
	n->right = r->left;
	if (n->right)
		n->right->parent = n;
	r->left = n;
	n->parent = r;
	update(n);
	update(r);
	return r;
}

static struct tree_node *rotate_right(struct tree *t, struct tree_node *n)
{
	struct tree_node *l = n->left;

	replace_child(t, n->parent, n, l);
	n->left = l->right;
	if (n->left)
		n->left->parent = n;
	l->right = n;
	n->parent = l;
	update(n);
	update(l);
	return l;
}

/* Restore the invariants from @n up to the root. */
static void fix_up(struct tree *t, struct tree_node *n)
{
	for (; n; n = n->parent) {
		int balance = height(n->left) - height(n->right);

		update(n);
		if (balance > 1) {
			if (height(n->left->left) < height(n->left->right))
				rotate_left(t, n->left);
			n = rotate_right(t, n);
		} else if (balance < -1) {
			if (height(n->right->right) < height(n->right->left))
				rotate_right(t, n->right);
			n = rotate_left(t, n);
		}
	}
}

void tree_insert(struct tree *t, struct tree_node *n)
{
	struct tree_node *parent = NULL, **link = &t->root;

	while (*link) {
		parent = *link;
		link = n->start < parent->start ? &parent->left
						: &parent->right;
	}
	n->left = NULL;
	n->right = NULL;
	n->parent = parent;
	*link = n;
	t->cnt++;
	fix_up(t, n);
}

void tree_remove(struct tree *t, struct tree_node *n)
{
	struct tree_node *from;

	if (n->left && n->right) {
		/* The successor has no left child: let it take n's place. */
		struct tree_node *s = n->right;

		while (s->left)
			s = s->left;
		from = s->parent == n ? s : s->parent;
		if (s->parent != n) {
			replace_child(t, s->parent, s, s->right);
			s->right = n->right;
			s->right->parent = s;
		}
		s->left = n->left;
		s->left->parent = s;
		replace_child(t, n->parent, n, s);
	} else {
		from = n->parent;
		replace_child(t, from, n, n->left ? n->left : n->right);
	}
	t->cnt--;
	fix_up(t, from);
}

void tree_resize(struct tree *t, struct tree_node *n, uint64_t start,
		 uint64_t end)
{
	n->start = start;
	n->end = end;
	for (; n; n = n->parent)
		update(n);
	(void)t;
}

struct tree_node *tree_first(const struct tree *t)
{
	struct tree_node *n = t->root;

	while (n && n->left)
		n = n->left;
	return n;
}

struct tree_node *tree_next(const struct tree_node *n)
{
	if (n->right) {
		n = n->right;
		while (n->left)
			n = n->left;
		return (struct tree_node *)n;
	}
	while (n->parent && n->parent->right == n)
		n = n->parent;
	return n->parent;
}

struct tree_node *tree_prev(const struct tree_node *n)
{
	if (n->left) {
		n = n->left;
		while (n->right)
			n = n->right;
		return (struct tree_node *)n;
	}
	while (n->parent && n->parent->left == n)
		n = n->parent;
	return n->parent;
}

struct tree_node *tree_at_or_after(const struct tree *t, uint64_t start)
{
	struct tree_node *n = t->root, *best = NULL;

	while (n) {
		if (n->start >= start) {
			best = n;
			n = n->left;
		} else {
			n = n->right;
		}
	}
	return best;
}

/* The leftmost node under @n that overlaps, or NULL. */
static struct tree_node *leftmost(struct tree_node *n, uint64_t start,
				  uint64_t end)
{
	while (n) {
		if (n->left && n->left->max_end > start) {
			/*
			 * Something on the left ends after start. If it does
			 * not overlap, it starts at or after end, and so does
			 * everything from there on.
			 */
			n = n->left;
			continue;
		}
		if (n->start >= end)
			return NULL;
		if (n->end > start)
			return n;
		n = n->right;
		if (n && n->max_end <= start)
			return NULL;
	}
	return NULL;
}

struct tree_node *tree_first_overlap(const struct tree *t, uint64_t start,
				     uint64_t end)
{
	if (start >= end || !t->root || t->root->max_end <= start)
		return NULL;
	return leftmost(t->root, start, end);
}

struct tree_node *tree_next_overlap(const struct tree_node *n, uint64_t start,
				    uint64_t end)
{
	const struct tree_node *from;
	struct tree_node *found;

	for (;;) {
		if (n->right && n->right->max_end > start) {
			found = leftmost(n->right, start, end);
			if (found)
				return found;
		}
		/* Up to the first ancestor that we are on the left of. */
		do {
			from = n;
			n = n->parent;
			if (!n)
				return NULL;
		} while (n->right == from);
		if (n->start >= end)
			return NULL;
		if (n->end > start)
			return (struct tree_node *)n;
	}
}

static bool check_node(const struct tree_node *n, size_t *cnt)
{
	struct tree_node copy;
	int balance;

	if (!n)
		return true;
	++*cnt;
	copy = *n;
	update(&copy);
	balance = height(n->left) - height(n->right);
	return copy.height == n->height && copy.max_end == n->max_end &&
	       balance >= -1 && balance <= 1 &&
	       (!n->left || (n->left->parent == n &&
			     n->left->start <= n->start)) &&
	       (!n->right || (n->right->parent == n &&
			      n->right->start >= n->start)) &&
	       check_node(n->left, cnt) && check_node(n->right, cnt);
}

bool tree_check(const struct tree *t)
{
	size_t cnt = 0;

	return check_node(t->root, &cnt) && cnt == t->cnt;
}
