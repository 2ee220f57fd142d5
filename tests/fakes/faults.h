/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Replacements, at link time, of what the core takes from the system. The calls
 * of the thread that set the fault are counted, and the one it names fails.
 */
#ifndef TESTS_FAULTS_H
#define TESTS_FAULTS_H

/* The @step-th call from now on fails; 0: none does, and nothing is counted. */
void fault_at(int step);
/* True: it came to that since fault_at(). Ask before fault_at(0). */
int fault_hit(void);
/* The call that failed last, for messages. */
const char *fault_name(void);

/* The number of allocations and mappings that the core holds. */
long fault_live(void);

/* The contexts that the page swap keeps: as many as were in use at a time.
 * Their number is not the code's under test. */
unsigned int fault_contexts(void);
/*
 * Their descriptors, of which two are done without if they cannot be had: one that
 * was made as a step failed has fewer, and that which takes its place has them all.
 */
unsigned int fault_context_fds(void);

/* For replacements elsewhere: whether this call of @name is the one to fail, and
 * that something is held that was not. */
int fault_now(const char *name);
int fault_with(const char *name, int err); /* the same, and errno is @err then */
void fault_holds(void);

#endif /* TESTS_FAULTS_H */
