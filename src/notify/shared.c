// SPDX-License-Identifier: BSD-2-Clause
/*
 * The notifier that a process's caches share where their users named none. The kernel
 * lets one userfaultfd watch a mapping: with a notifier each, the second cache that
 * registers a buffer could not keep it.
 *
 * One for each value of KEDGE_NOTIFIER that was in force when it was asked for. A forked
 * child gets one of its own, and closes its copies of its parent's as their last users
 * do.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/process/owner.h"
#include "notify/internal.h"
#include "notify/shared.h"

struct shared {
	struct shared *next;
	struct kedge_notifier *nf;
	unsigned int refs;
	pid_t pid;
	char name[32]; /* KEDGE_NOTIFIER; longer ones are no backend's */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shared *first; /* guarded by lock */
static _Atomic int owner;

/* Another thread may have had it when the process was forked. */
static void init(void)
{
	const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

	lock = fresh;
}

static void take_lock(void)
{
	owner_adopt(&owner, init);
	pthread_mutex_lock(&lock);
}

/* With the lock. */
static int open_one(const char *name, struct kedge_notifier **nf)
{
	struct shared *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	rc = kedge_notifier_open(NULL, &s->nf);
	if (rc) {
		free(s);
		return rc;
	}
	snprintf(s->name, sizeof(s->name), "%s", name);
	s->refs = 1;
	s->pid = getpid();
	s->next = first;
	first = s;
	*nf = s->nf;
	return 0;
}

int kedge__notifier_get(struct kedge_notifier **nf)
{
	const char *name = kedge__env("KEDGE_NOTIFIER");
	struct shared *s;
	int rc = 0;

	if (!name)
		name = "";
	take_lock();
	for (s = first; s; s = s->next)
		if (s->pid == getpid() && !strcmp(s->name, name))
			break;
	if (s) {
		s->refs++;
		*nf = s->nf;
	} else {
		rc = open_one(name, nf);
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

void kedge__notifier_put(struct kedge_notifier *nf)
{
	struct shared **at, *s;

	take_lock();
	for (at = &first; (*at)->nf != nf; at = &(*at)->next)
		;
	s = *at;
	if (!--s->refs) {
		*at = s->next;
		kedge_notifier_close(nf);
		free(s);
	}
	pthread_mutex_unlock(&lock);
}
