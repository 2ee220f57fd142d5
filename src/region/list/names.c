// SPDX-License-Identifier: BSD-2-Clause
/* Owners' sockets, which /proc shows to all by their names. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>

#include "base/base.h"
#include "region/list/list.h"

#define LISTENS 0x10000u /* of a socket's flags in /proc */

static int name_add(struct names *n, uint64_t name)
{
	size_t room = n->room ? 2 * n->room : 64;
	uint64_t *more;

	if (n->cnt == n->room) {
		more = realloc(n->name, room * sizeof(*more));
		if (!more)
			return -ENOMEM;
		n->name = more;
		n->room = room;
	}
	n->name[n->cnt++] = name;
	return 0;
}

bool region_owner_name(const char *line, uint64_t *name)
{
	unsigned int flags, type, end = 0;
	unsigned long long number;
	struct sockaddr_un a;
	size_t len;

	if (sscanf(line, "%*s %*s %*s %x %x %*s %*s @kedge-region-%16llx%n", &flags, &type,
		   &number, &end) != 3 || !end || !(flags & LISTENS) || type != SOCK_SEQPACKET)
		return false;
	*name = number;
	/* It is written as it is made, and nothing is behind it. */
	len = handle_address(*name, false, &a) - offsetof(struct sockaddr_un, sun_path) - 1;
	return end > len && line[end - len - 1] == '@' && line[end] == '\n' &&
	       !memcmp(line + end - len, a.sun_path + 1, len);
}

static int by_number(const void *x, const void *y)
{
	const uint64_t *a = x, *b = y;

	return (*a > *b) - (*a < *b);
}

/* A path with a line's end in it may pass for another socket: each name is there once. */
static void sort(struct names *n)
{
	size_t i, kept = 0;

	if (!n->cnt)
		return;
	qsort(n->name, n->cnt, sizeof(*n->name), by_number);
	for (i = 0; i < n->cnt; i++)
		if (!i || n->name[i] != n->name[i - 1])
			n->name[kept++] = n->name[i];
	n->cnt = kept;
}

int names_read(struct names *n)
{
	FILE *f = fopen("/proc/thread-self/net/unix", "re");
	char *line = NULL;
	size_t room = 0;
	uint64_t name;
	int rc = 0;

	if (!f && errno != ENOENT && errno != EACCES)
		return error_no_fd(errno) ? error_no_fd(errno) : -errno;
	if (!f)
		return kedge_reason(-EOPNOTSUPP, "/proc/thread-self/net/unix cannot be read (%s): "
				    "mount /proc", strerrordesc_np(errno));
	while (!rc && getline(&line, &room, f) > 0)
		if (region_owner_name(line, &name))
			rc = name_add(n, name);
	/* Without memory for a line there is no error of the file. */
	if (!rc && !feof(f))
		rc = -ENOMEM;
	free(line);
	fclose(f);
	sort(n);
	return rc ? kedge_reason(rc, "no memory for a list of regions") : 0;
}
