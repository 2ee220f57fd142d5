// SPDX-License-Identifier: BSD-2-Clause
/* libucm's: see standin.h. */
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "standin.h"

#define HANDLERS 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards: */
static struct {
	event_fn fn;
	void *arg;
} handlers[HANDLERS];

static _Atomic unsigned int failing;
static int hook_mode = -1, external;

void standin_handle(event_fn fn, void *arg)
{
	size_t i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < HANDLERS; i++)
		if (fn ? !handlers[i].fn : handlers[i].arg == arg)
			break;
	if (i == HANDLERS)
		abort();
	handlers[i].fn = fn;
	handlers[i].arg = fn ? arg : NULL;
	pthread_mutex_unlock(&lock);
}

void ucm_vm_munmap(void *at, size_t len)
{
	size_t i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < HANDLERS; i++)
		if (handlers[i].fn)
			handlers[i].fn(handlers[i].arg, (uintptr_t)at, (uintptr_t)at + len);
	pthread_mutex_unlock(&lock);
}

void ucm_set_external_event(int events)
{
	external |= events;
}

int standin_external(void)
{
	return external;
}

/* Log level, events, mode; and more that libkedge-ucx does not know. */
void ucm_set_global_opts(const void *options)
{
	const int *o = options;

	hook_mode = o[2];
	if (o[31] != 31)
		abort();
}

#define NO_INSTALL (1 << 24)

/* As UCX: events that come from outside are promised, and those of jumps that others asked for. */
int ucm_set_event_handler(int events, int priority, void *fn, void *arg)
{
	(void)priority, (void)fn, (void)arg;
	RETURN(hook_mode || events & NO_INSTALL || !(events & ~external) ? 0 : -22);
}

int standin_hook_mode(void)
{
	return hook_mode;
}

void standin_fail_maps(unsigned int n)
{
	atomic_store(&failing, n);
}

void *ucm_orig_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
	unsigned int n = atomic_load(&failing);

	while (n && !atomic_compare_exchange_weak(&failing, &n, n - 1))
		;
	return n ? MAP_FAILED : mmap(at, len, prot, flags, fd, offset);
}
