/* SPDX-License-Identifier: BSD-2-Clause */
/* Signals while a program of ours runs: it ends as it likes, and we print something then. */
#ifndef TOOLS_RUN_PATIENT_H
#define TOOLS_RUN_PATIENT_H

#include <signal.h>
#include <sys/types.h>

/* Before the fork. The program gets the mask that was @before. */
void patient_block(sigset_t *before);
/* The terminal's signals are left to @program, others are passed on to it. */
void patient_be(pid_t program, const sigset_t *before);

#endif /* TOOLS_RUN_PATIENT_H */
