// SPDX-License-Identifier: BSD-2-Clause
/* See begun.h. */
#include <pthread.h>
#include <stdatomic.h>

#include <kedge/kedge.h>

#include "begun.h"
#include "found.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held while it begins */
static struct regions *_Atomic regions;

/* A thread of the parent's may have been at it. A child of _Fork() or clone() has no such look. */
static void anew(void)
{
	pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void look_out(void)
{
	pthread_atfork(NULL, NULL, anew);
}

struct regions *begin(const struct regions_ops *ops)
{
	struct regions *t;
	int rc;

	pthread_mutex_lock(&lock);
	t = atomic_load_explicit(&regions, memory_order_relaxed);
	if (!t) {
		rc = regions_open(ops, &t);
		if (rc) {
			t = NULL;
			found_say("UCX makes no cache of registrations, which is slow: %s",
				  kedge_strerror(rc));
		} else {
			found()->set_external_event(VM_EVENTS);
			atomic_store_explicit(&regions, t, memory_order_release);
		}
	}
	pthread_mutex_unlock(&lock);
	return t;
}

struct regions *begun(void)
{
	/* acquire: what regions_open() stored. */
	return atomic_load_explicit(&regions, memory_order_acquire);
}

void begin_without(int rc)
{
	found_say("registrations are not kept, which is slow: %s", kedge_strerror(rc));
}
