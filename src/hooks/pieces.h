/* SPDX-License-Identifier: BSD-2-Clause */
/* mremap() of several mappings. */
#ifndef HOOKS_PIECES_H
#define HOOKS_PIECES_H

#include "hooks/hooks.h"

/* Lengths of whole pages; @to counts with MREMAP_FIXED, else it is a hint. */
struct move {
	uintptr_t old;
	size_t old_len;
	size_t new_len;
	uintptr_t to;
	int flags;
};

/* As mremap(), which has failed with EFAULT. */
void *kedge__move_pieces(const struct move *m) HIDDEN;

/* The mapping that holds an address. */
struct mapping {
	uintptr_t end;
	unsigned int prot;
	int plain; /* private and anonymous */
};

/* 0, or -1 if @at is not mapped or the kernel does not say. */
int kedge__mapping_at(uintptr_t at, struct mapping *m) HIDDEN;

#endif /* HOOKS_PIECES_H */
