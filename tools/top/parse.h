/* SPDX-License-Identifier: BSD-2-Clause */
/* The text that a process publishes, line by line. It comes from other processes, maybe of another
 * user, so anything else is refused. */
#ifndef TOOLS_TOP_PARSE_H
#define TOOLS_TOP_PARSE_H

#include <stdbool.h>
#include <stddef.h>

#define PARSE_LABELS_MAX 12

struct sample {
	const char *name;
	const char *head; /* the name's HELP and TYPE, two lines, or "" */
	size_t cnt;
	struct {
		const char *name;
		const char *value;
	} label[PARSE_LABELS_MAX];
	const char *number; /* as it was written */
	double value;
};

struct samples {
	struct sample *v;
	size_t cnt;
	char *text; /* all that they point into */
	char *heads;
};

/* @text of @len bytes is taken over, and need not end with a NUL. 0, -EBADMSG or -ENOMEM; then
 * *@out is empty. */
int parse_text(char *text, size_t len, struct samples *out);
void parse_free(struct samples *s);
/* A label's value, or NULL. */
const char *parse_label(const struct sample *s, const char *name);

#endif /* TOOLS_TOP_PARSE_H */
