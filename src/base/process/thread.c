// SPDX-License-Identifier: BSD-2-Clause
/*
 * The C library takes what threads keep for themselves (static TLS) from the
 * stack, and refuses one where that leaves less than the processor's registers
 * need in a signal frame. Neither size is public; what all loaded objects have as
 * TLS is at least as much.
 */
#include "base/process/thread.h"

#include <errno.h>
#include <link.h>
#include <unistd.h>

#include "base/base.h"

#define STACK_LEN ((size_t)64 << 10) /* beside those */

static size_t tls_len;

static int add_tls(struct dl_phdr_info *i, size_t size, void *sum)
{
	size_t n;

	(void)size;
	for (n = 0; n < i->dlpi_phnum; n++)
		if (i->dlpi_phdr[n].p_type == PT_TLS)
			*(size_t *)sum += i->dlpi_phdr[n].p_memsz +
					  i->dlpi_phdr[n].p_align;
	return 0;
}

/* Once, as the lock of this is one that a child would wait for if another thread of its parent had
 * it. What is loaded later has its TLS elsewhere, or in what the C library keeps in reserve. */
static void __attribute__((constructor)) look_at_tls(void)
{
	size_t len = 0;

	dl_iterate_phdr(add_tls, &len);
	tls_len = len;
}

int thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
	long least = sysconf(_SC_THREAD_STACK_MIN);
	size_t len = STACK_LEN + tls_len + (least > 0 ? (size_t)least : 0);
	pthread_attr_t attr;
	int rc;

	if (pthread_attr_init(&attr))
		return -ENOMEM;
	rc = pthread_attr_setstacksize(&attr,
				       round_up(len, kedge__page_size()));
	if (!rc)
		rc = pthread_create(thread, &attr, run, arg);
	pthread_attr_destroy(&attr);
	/* It wants more than was guessed. */
	if (rc == EINVAL)
		rc = pthread_create(thread, NULL, run, arg);
	return -rc;
}

int thread_refused(int rc, const char *what)
{
	return kedge_reason(rc, "no thread can be made to %s: RLIMIT_NPROC (ulimit -u), pids.max, "
			    "or no addresses for its stack: RLIMIT_AS (ulimit -v), "
			    "vm.max_map_count", what);
}
