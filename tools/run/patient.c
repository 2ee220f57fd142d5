// SPDX-License-Identifier: BSD-2-Clause
/* See patient.h. */
#include <errno.h>
#include <signal.h>
#include <stddef.h>

#include "tools/run/patient.h"

static volatile pid_t child;

static void pass_on(int sig)
{
	int err = errno;

	if (child > 0)
		kill(child, sig);
	errno = err;
}

void patient_block(sigset_t *before)
{
	sigset_t block;

	sigemptyset(&block);
	sigaddset(&block, SIGINT);
	sigaddset(&block, SIGQUIT);
	sigaddset(&block, SIGTERM);
	sigaddset(&block, SIGHUP);
	sigprocmask(SIG_BLOCK, &block, before);
}

/* Those that a terminal sends reach the program by themselves: it is in our group. */
void patient_be(pid_t program, const sigset_t *before)
{
	struct sigaction s = { .sa_handler = SIG_IGN }, pass = { .sa_handler = pass_on };

	child = program;
	sigaction(SIGINT, &s, NULL);
	sigaction(SIGQUIT, &s, NULL);
	sigaction(SIGTERM, &pass, NULL);
	sigaction(SIGHUP, &pass, NULL);
	sigprocmask(SIG_SETMASK, before, NULL);
}
