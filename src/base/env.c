// SPDX-License-Identifier: BSD-2-Clause
/*
 * Environment variables: one table, so that kedge info --env can show each with
 * its meaning, and a misspelt one is warned about.
 */
#include <stdlib.h>

#include "base/base.h"

static const struct kedge_env vars[] = {
	{ "KEDGE_NOTIFIER", "the notifier to use where the program names none",
	  "auto|ummunot|uffd|hooks|none", "auto", NULL },
	{ "KEDGE_VERIFY",
	  "check on every hit that the device's page is the CPU's (needs "
	  "CAP_SYS_ADMIN) and abort if not, and on every put that it is not one too many",
	  "0|1", "0", NULL },
	{ "KEDGE_PEERS",
	  "kedge run: whether remote access ends with its registration, or "
	  "peers are trusted with it for as long as it is cached",
	  "revoke|trusted", "revoke", NULL },
	{ "KEDGE_STATS",
	  "where the process's counters are published, for kedge top and Prometheus: a file, a "
	  "socket, or a folder of them; 1 has kedge run print them at exit",
	  "0|1|PATH|unix:PATH", "0", NULL },
	{ "KEDGE_TRACE",
	  "a file, or a folder of them, that has a line for each change of watched memory",
	  "0|PATH", "0", NULL },
	{ "KEDGE_TRACE_STACK",
	  "the calls that led to each change are in the trace, where libkedge-hooks announces it",
	  "0|1", "0", NULL },
	{ "KEDGE_CHECK",
	  "kedge run: a file that each process appends what it has seen to at its "
	  "exit, as kedge run --check reads it",
	  "a path", "(none)", NULL },
	{ "KEDGE_DOCTOR",
	  "kedge doctor: a file in which each process notes what it holds registered",
	  "a path", "(none)", NULL },
	{ "KEDGE_SERVE",
	  "kedge run: whether registrations come from the cache, or are libibverbs' own and "
	  "only followed",
	  "0|1", "1", NULL },
	{ "KEDGE_CHANNEL_SECRET",
	  "what both ends of a channel over TCP prove to know, where the program "
	  "names none; better a file, as the environment can be read by others",
	  "16 characters or more", "(none)", NULL },
	{ "KEDGE_CHANNEL_SECRET_FILE",
	  "the same, in a file that nobody but its owner may read or write",
	  "a path", "(none)", NULL },
	{ "KEDGE_COSTS",
	  "a folder of this user's that keeps what was measured of RDMA devices, "
	  "so that a process does not measure it again",
	  "a path", "(none)", NULL },
	{ "KEDGE_LOG", "print messages of this severity and worse to stderr",
	  "error|warn|info|debug", "(nothing is printed)", NULL },
};

const char *kedge__env(const char *name)
{
	/* A set-user-ID program does not take orders from its caller. */
	return secure_getenv(name);
}

bool kedge__env_ignored(const char *name)
{
	return !kedge__env(name) && getenv(name);
}

size_t kedge_env_list(struct kedge_env *list, size_t max)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(vars) && i < max && list; i++) {
		list[i] = vars[i];
		list[i].value = kedge__env(vars[i].name);
		/* It is printed by whoever asks for this list. */
		if (list[i].value &&
		    !strcmp(list[i].name, "KEDGE_CHANNEL_SECRET"))
			list[i].value = "(set)";
	}
	return ARRAY_SIZE(vars);
}

bool kedge__env_known(const char *name, size_t len)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(vars); i++)
		if (strlen(vars[i].name) == len &&
		    !memcmp(vars[i].name, name, len))
			return true;
	return false;
}
