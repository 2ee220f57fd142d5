/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The thread that makes a change of which userfaultfd tells, for the trace: the event does not say,
 * but that thread waits in its system call until the event is read, and /proc shows its arguments.
 */
#ifndef NOTIFY_BACKEND_UFFD_WHO_H
#define NOTIFY_BACKEND_UFFD_WHO_H

#include <linux/userfaultfd.h>

#define WHO_MAX 16

struct who {
	unsigned int cnt;
	struct who_call {
		int tid;
		long nr;
		unsigned long arg[6];
	} call[WHO_MAX];
};

/* The threads that wait in a call that changes mappings. It does not allocate. */
void who_waits(struct who *w);
/* The one of them that makes the change of @m, or 0 where not exactly one may be. */
int who_did(const struct who *w, const struct uffd_msg *m);

#endif /* NOTIFY_BACKEND_UFFD_WHO_H */
