/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A counter that the kernel moves, before the system call returns, when this
 * process makes a change that userfaultfd does not report. See tripwire.c.
 */
#ifndef NOTIFY_TRIPWIRE_TRIPWIRE_H
#define NOTIFY_TRIPWIRE_TRIPWIRE_H

#include <stdint.h>

/* It grows by this: the bits below are the generation's. */
#define TRIPWIRE_STEP (1ull << 40)
#define TRIPWIRE_FDS  5

struct tripwire;

/*
 * 0 or a negative errno with its reason: -EPERM without CAP_BPF and
 * CAP_PERFMON, -EOPNOTSUPP where the kernel lacks all that it takes, or did
 * not pass the test. It may need a few milliseconds, the first time in a
 * process.
 */
int tripwire_open(struct tripwire **out);

/* In a forked child: closes its descriptors and unmaps its view. */
void tripwire_close(struct tripwire *t);

/* Lives until the close; in a forked child it still counts for the parent. */
const uint64_t *tripwire_counter(const struct tripwire *t);

/* KEDGE_BLIND_*: what it closes, each tried at open. */
uint32_t tripwire_covers(const struct tripwire *t);

/*
 * The descriptors that it lives by, at most TRIPWIRE_FDS; returns how many. It
 * goes on for as long as any table of descriptors has them.
 */
unsigned int tripwire_fds(const struct tripwire *t, int *fds);

#endif /* NOTIFY_TRIPWIRE_TRIPWIRE_H */
