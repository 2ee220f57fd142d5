/* SPDX-License-Identifier: BSD-2-Clause */
/* kedge top: where counters come from, and what is made of them. */
#ifndef TOOLS_TOP_TOP_H
#define TOOLS_TOP_TOP_H

#include <jansson.h>

#include "tools/top/parse.h"

/* ---- fetch.c ---- */

/* What is published at @path, to be freed. 0 or a negative errno: -ETIMEDOUT where a process does
 * not answer, -EFBIG for a text that is no process's of kedge, -EBADMSG where it is no file. */
int fetch(const char *path, char **text, size_t *len);

/* ---- sources.c ---- */

struct source {
	char *path;
	int pid;    /* of the process that was found to publish there, or 0 */
	bool named; /* by the user, so it is shown if its process has ended */
	int status; /* why it is silent, or 0 */
	struct samples samples;
};

struct sources {
	struct source *v;
	size_t cnt;
	size_t room;
};

/* All that @words name (files, sockets, folders, processes), ended by a NULL; without any, all
 * processes of this host that may be asked. Their counters of now. 0 or a negative errno. */
int sources_find(struct sources *s, char *const *words);
void sources_end(struct sources *s);
const char *source_silence(const struct source *s);

/* ---- merge.c ---- */

/* An object for each cache, notifier and channel:
 * {"pid", "command", "kind", "number", "source", its labels, "values": {name: number, or
 * {label: number}}}. NULL: no memory. */
json_t *merge_objects(const struct sources *s);
/* One text of all of them, to be freed, or NULL. The samples are used up. */
char *merge_text(struct sources *s, size_t *len);

/* ---- table.c ---- */

/* Print @now. With @before, of @seconds ago, what is counted is printed by the second. */
void table_print(json_t *now, json_t *before, double seconds, const struct sources *s);

/* ---- serve.c ---- */

/* Answer HTTP requests at a port of the loopback interface until a signal comes. An exit status. */
int serve(unsigned int port, char *const *words);

#endif /* TOOLS_TOP_TOP_H */
