/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random sequences of calls, right and wrong ones. The program is told
 * "SECONDS [SEED]", and prints the seed of a run that goes wrong: by a crash, an errno
 * that is not documented, or a hang. The kernel's log says the rest.
 */
#ifndef VM_FUZZ_H
#define VM_FUZZ_H

#include "vm_lib.h"

#define AREA_PAGES 32

struct fuzzer {
	uint64_t state;
	bool failed;
};

uint64_t next_random(struct fuzzer *f);
unsigned int below(struct fuzzer *f, unsigned int n);
/* A call that failed had one of these errnos, of which 0 is the last. */
void allow(struct fuzzer *f, const char *call, long rc, const int *errnos);

/* In a child, which has @seconds: @cnt calls by each of two threads; the exit status. */
int fuzz_calls(uint64_t seed, unsigned int seconds, int cnt, void (*call)(struct fuzzer *f));
/* Runs one after the other until the time is over; run() gives a status as of wait(). */
int fuzz_main(int argc, char **argv, int (*run)(uint64_t seed));

#endif /* VM_FUZZ_H */
