// SPDX-License-Identifier: BSD-2-Clause
/* Answers of a host, and handles that look like those of another machine. */
#include <stdio.h>

#include "tools/migrate/migrate.h"

/* The place of the machine's number in a handle. */
#define MACHINE_AT 16

void migrate_disguise(const struct migrate_opts *o, struct kedge_handle *h)
{
	if (migrate_is_remote(o))
		h->bytes[MACHINE_AT] ^= 1;
}

int migrate_say(int fd, uint32_t kind, int rc, struct said *s)
{
	s->kind = kind;
	s->rc = rc;
	if (rc)
		snprintf(s->why, sizeof(s->why), "%s", kedge_strerror(rc));
	return proc_send(fd, s, sizeof(*s));
}
