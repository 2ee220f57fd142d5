// SPDX-License-Identifier: BSD-2-Clause
#include <errno.h>

#include "base/process/cancel.h"
#include "notify/announce/push.h"

void push_init(struct push *p, const struct kedge_notifier_opts *opts)
{
	p->fn = opts->on_event;
	p->arg = opts->on_event_arg;
	atomic_init(&p->calls, 0);
}

void push_call(struct push *p, uint32_t kind, uint32_t flags, uint64_t start, uint64_t end)
{
	const struct kedge_event ev = {
		.kind = kind,
		.flags = flags,
		.start = start,
		.end = end,
	};
	const int saved = errno;

	NO_CANCEL();
	p->fn(p->arg, &ev);
	errno = saved;
	/* Release: the callback is over for whoever finds 0. */
	atomic_fetch_sub_explicit(&p->calls, 1, memory_order_release);
}
