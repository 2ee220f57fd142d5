// SPDX-License-Identifier: BSD-2-Clause
/*
 * Messages for people. The library never prints by itself unless the
 * environment asks for it with KEDGE_LOG; otherwise the application's callback
 * decides. A message is formatted on the caller's stack, without allocating:
 * the monitor thread of a notifier must not.
 */
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <kedge/base.h>

#include "base/base.h"

/* lock guards fn, ctx and severity; held while they are copied, not called. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static kedge_log_fn log_fn;
static void *log_ctx;
static int log_severity;
static bool log_was_set;

static const char *const names[] = { "", "error", "warn", "info", "debug" };

static int env_severity(void)
{
	const char *v = kedge__env("KEDGE_LOG");
	size_t i;

	if (!v) {
		v = kedge__env("KEDGE_VERIFY");
		return v && !strcmp(v, "1") ? KEDGE_LOG_ERROR : 0;
	}
	for (i = 1; i < ARRAY_SIZE(names); i++)
		if (!strcmp(v, names[i]))
			return (int)i;
	return KEDGE_LOG_WARN;
}

/*
 * A forked child may have inherited it locked, by a thread that it does not
 * have. It is held for a few loads otherwise, so a caller that can't take it goes
 * without.
 */
static bool take(void)
{
	unsigned int tries;

	for (tries = 0; tries < 1000; tries++) {
		if (!pthread_mutex_trylock(&lock))
			return true;
		sched_yield();
	}
	return false;
}

void kedge_log_set(kedge_log_fn fn, void *ctx, int severity)
{
	int env = env_severity();

	if (!take())
		return;
	log_fn = fn;
	log_ctx = ctx;
	log_severity = severity ? severity : env ? env : KEDGE_LOG_WARN;
	log_was_set = true;
	pthread_mutex_unlock(&lock);
}

void kedge__log(int severity, const char *fmt, ...)
{
	char text[1024];
	kedge_log_fn fn;
	void *ctx;
	int limit;
	bool set;
	va_list ap;

	if (!take())
		return;
	fn = log_fn;
	ctx = log_ctx;
	limit = log_severity;
	set = log_was_set;
	pthread_mutex_unlock(&lock);

	if (!set)
		limit = env_severity();
	if (severity > limit || (set && !fn))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (set)
		fn(ctx, severity, text);
	else
		fprintf(stderr, "kedge: %s: %s\n", names[severity], text);
}
