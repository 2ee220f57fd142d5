// SPDX-License-Identifier: BSD-2-Clause
/* A misspelt variable is warned about, by the log, which reads one itself. */
#include <unistd.h>

#include "base/base.h"

extern char **environ;

void kedge__env_check(void)
{
	static bool done;
	char **e;

	if (__atomic_exchange_n(&done, true, __ATOMIC_RELAXED))
		return;
	for (e = environ; e && *e; e++) {
		size_t len = strcspn(*e, "=");

		if (!strncmp(*e, "KEDGE_", 6) && !kedge__env_known(*e, len))
			kedge__log(KEDGE_LOG_WARN,
				   "%.*s is no variable of kedge's: see kedge "
				   "info --env",
				   (int)len, *e);
	}
}
