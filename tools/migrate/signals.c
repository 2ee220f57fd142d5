// SPDX-License-Identifier: BSD-2-Clause
/* Signals that end the command: it ends its children first. */
#include <signal.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/migrate/run.h"

static volatile sig_atomic_t interrupted;
static const int signals[] = { SIGINT, SIGTERM, SIGHUP };

bool run_interrupted(void)
{
	return interrupted != 0;
}

static void interrupt(int signal)
{
	interrupted = signal;
}

/* A signal that is ignored, as by nohup(1), stays so. */
void signals_catch(void)
{
	const struct sigaction a = { .sa_handler = interrupt };
	struct sigaction was;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(signals); i++)
		if (!sigaction(signals[i], NULL, &was) && was.sa_handler != SIG_IGN)
			sigaction(signals[i], &a, NULL);
}

/* Children do not take them, which a terminal sends to all: the command ends its children. */
void signals_block_all(sigset_t *old)
{
	sigset_t set;
	size_t i;

	sigemptyset(&set);
	for (i = 0; i < ARRAY_SIZE(signals); i++)
		sigaddset(&set, signals[i]);
	sigprocmask(SIG_BLOCK, &set, old);
}

void signals_raise(void)
{
	if (!interrupted)
		return;
	signal(interrupted, SIG_DFL);
	raise(interrupted);
}
