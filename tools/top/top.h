/* SPDX-License-Identifier: BSD-2-Clause */
/* kedge top: where counters come from, and what is made of them. */
#ifndef TOOLS_TOP_TOP_H
#define TOOLS_TOP_TOP_H

#include <sys/types.h>

#include <jansson.h>

#include "tools/top/parse.h"

/* ---- fetch.c ---- */

struct fetch {
	const char *path;
	uid_t owner; /* of the file, or of the process that listens; anything else is not read */
	pid_t pid;   /* of that process */
	bool has_owner;
	/* Set: the text, to be freed, with 0; or a negative errno: -ETIMEDOUT where a process does
	 * not answer, -EFBIG for a text that is no process's of kedge, -EBADMSG where it is no
	 * file, -EPERM for another owner's, -ESRCH for another process's. */
	int status;
	char *text;
	size_t len;
	/* private */
	size_t room;
	int fd;
};

void fetch_all(struct fetch *f, size_t cnt);

/* ---- sources.c ---- */

struct source {
	char *path;
	int pid;    /* of the process that was found to publish there, or 0 */
	int number; /* the same as it sees itself */
	uid_t user; /* its */
	bool named; /* by the user, so it is shown if its process has ended */
	char label[16];
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
