/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The text of /proc/self/maps as the kernel writes it, made and read without
 * the parsers under test: what is in one is known, so that their answers can be
 * compared.
 */
#ifndef FUZZ_MAPS_TEXT_H
#define FUZZ_MAPS_TEXT_H

#include "feed.h"

#define MAPS_MAX 64
#define PAGE	 4096u

struct map_line {
	uint64_t start, end, offset, inode;
	char perm[5];
	const char *name; /* in the text */
	size_t name_len;
};

struct maps {
	int cnt; /* -1: no text that the kernel would write */
	struct map_line at[MAPS_MAX];
};

/* The mappings in a text, or cnt -1. */
void maps_parse(struct maps *m, const char *text, size_t len);

/*
 * Set the feed to the text that an input stands for: its own bytes, or mappings
 * made of them. @m has what is in that text.
 */
void maps_feed(struct maps *m, struct bytes *in);

/* Some page near where a mapping starts or ends. */
uint64_t maps_address(const struct maps *m, struct bytes *in);
/* From such a page to another, or of one page; 0 where it would go over the end of all. */
int maps_range(const struct maps *m, struct bytes *in, uint64_t *start, uint64_t *end);

/*
 * VmPin of a status text in KiB: the first line of that name. -1 if it is not
 * one that the kernel writes, or it has none.
 */
int64_t status_vmpin(const char *text, size_t len);

int has_prefix(const struct map_line *v, const char *prefix);

#endif /* FUZZ_MAPS_TEXT_H */
