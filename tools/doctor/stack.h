/* SPDX-License-Identifier: BSD-2-Clause */
/* The call stack of a thread that is stopped, by libdw: from .eh_frame, so stripped programs have
 * one. */
#ifndef TOOLS_DOCTOR_STACK_H
#define TOOLS_DOCTOR_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define STACK_MAX 32

/* Texts are the frame's own; "" where it is not known. */
struct frame {
	uint64_t pc;
	uint64_t offset; /* in the function */
	int line;
	char function[96];
	char module[64]; /* without folders */
	char file[128];
};

/* Addresses in the calls, the innermost first, and how many; 0: there is no way to tell. */
size_t stack_take(pid_t pid, pid_t tid, uint64_t pc[STACK_MAX]);
/* Finds the function at such an address, before the process goes on. */
void stack_name(pid_t pid, uint64_t pc, struct frame *f);
/* False: this kedge was built without libdw. */
bool stack_can(void);

#endif /* TOOLS_DOCTOR_STACK_H */
