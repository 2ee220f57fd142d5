// SPDX-License-Identifier: BSD-2-Clause
/* See patient.h. */
#include <errno.h>
#include <signal.h>
#include <stddef.h>

#include "base/base.h"
#include "tools/run/patient.h"

/* All that end a process, can be caught, and do not tell of a fault of its own. */
static const int passed[] = {
	SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGPOLL,
	SIGPWR, SIGSTKFLT,
};

static volatile pid_t child;

/* The kernel is who sends a terminal's, to the whole group. */
static void pass_on(int sig, siginfo_t *info, void *context)
{
	int err = errno;

	(void)context;
	if (child > 0 && info->si_code != SI_KERNEL)
		kill(child, sig);
	errno = err;
}

void patient_block(struct patient *before)
{
	const struct sigaction plain = { .sa_handler = SIG_DFL };
	sigset_t block;
	size_t i;

	sigemptyset(&block);
	for (i = 0; i < ARRAY_SIZE(passed); i++)
		sigaddset(&block, passed[i]);
	sigprocmask(SIG_BLOCK, &block, &before->mask);
	sigaction(SIGCHLD, &plain, &before->child);
}

void patient_end(const struct patient *before)
{
	sigaction(SIGCHLD, &before->child, NULL);
	sigprocmask(SIG_SETMASK, &before->mask, NULL);
}

void patient_be(pid_t program, const struct patient *before)
{
	const struct sigaction pass = {
		.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART,
	};
	size_t i;

	child = program;
	for (i = 0; i < ARRAY_SIZE(passed); i++)
		sigaction(passed[i], &pass, NULL);
	sigprocmask(SIG_SETMASK, &before->mask, NULL);
}
