/* SPDX-License-Identifier: BSD-2-Clause */
/* Signals while a program of ours runs: it ends as it likes, and we print something then. */
#ifndef TOOLS_RUN_PATIENT_H
#define TOOLS_RUN_PATIENT_H

#include <signal.h>
#include <sys/types.h>

/* As it was before. */
struct patient {
	sigset_t mask;
	struct sigaction child;
};

/* Before the fork: signals wait, and the child's status is kept, which goes where SIGCHLD is
 * ignored. */
void patient_block(struct patient *before);
/* In the child, and where there is none: as it was. */
void patient_end(const struct patient *before);
/* Signals for us are passed on to @program. The terminal's reach it by themselves, as it is in our
 * group. */
void patient_be(pid_t program, const struct patient *before);

#endif /* TOOLS_RUN_PATIENT_H */
