/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists in options ("1,1000,1e6", "aligned,offset") and lists of samples. */
#ifndef TOOLS_COMMON_LIST_H
#define TOOLS_COMMON_LIST_H

#include <stddef.h>
#include <stdint.h>

#define LIST_MAX 16

struct number_list {
	uint64_t v[LIST_MAX];
	size_t n;
};

/*
 * "1,1000,1e6" into @out, each in [@min, @max]. UTIL_GO_ON, or CMD_USAGE with
 * a message that names @option.
 */
int list_parse(const char *option, const char *text, uint64_t min,
		     uint64_t max, struct number_list *out);
/* Words of @names (NULL-ended) into a bit mask; as above, and the message lists
 * them. */
int list_parse_words(const char *option, const char *text,
		      const char *const *names, uint32_t *mask);

/* ---- samples ---- */

struct samples {
	double *v;
	size_t n;
	size_t max;
};

int samples_add(struct samples *s, double v);
void samples_fini(struct samples *s);

#endif /* TOOLS_COMMON_LIST_H */
