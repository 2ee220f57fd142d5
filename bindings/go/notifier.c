// SPDX-License-Identifier: BSD-2-Clause
/* The notifier: each call is a use of it, and each cache on it is one, too. */
#include <errno.h>
#include <string.h>

#include "shim.h"

struct go_notifier_opened go_notifier_open(const char *backend, uint32_t flags,
					   uint32_t min_level, uint32_t spin_us)
{
	const struct kedge_notifier_opts opts = {
		.size = sizeof(opts), .flags = flags, .backend = backend,
		.min_level = min_level, .spin_us = spin_us,
	};
	struct go_notifier_opened o = { .n = calloc(1, sizeof(*o.n)) };

	if (!o.n) {
		o.rc = -ENOMEM;
		return o;
	}
	o.rc = kedge_notifier_open(&opts, &o.n->nf);
	if (o.rc) {
		o.why = strdup(kedge_strerror(o.rc));
		free(o.n);
		o.n = NULL;
	}
	return o;
}

int go_notifier_close(struct go_notifier *n)
{
	int rc = go_use_close(GO_USES(n));

	if (!rc)
		kedge_notifier_close(n->nf);
	return rc;
}

void go_notifier_free(struct go_notifier *n)
{
	free(n);
}

struct go_rc go_notifier_watch(struct go_notifier *n, const unsigned char *addr,
			       size_t len, uint64_t cookie)
{
	struct go_rc a = { .rc = go_use_begin(GO_USES(n)) };

	if (a.rc)
		return a;
	a = go_answer(kedge_watch_add(n->nf, addr, len, cookie));
	go_use_end(&n->uses);
	return a;
}

struct go_rc go_notifier_unwatch(struct go_notifier *n, uint64_t cookie)
{
	struct go_rc a = { .rc = go_use_begin(GO_USES(n)) };

	if (a.rc)
		return a;
	a = go_answer(kedge_watch_remove(n->nf, cookie));
	go_use_end(&n->uses);
	return a;
}

struct go_rc go_notifier_read(struct go_notifier *n, struct kedge_event *ev, size_t max)
{
	struct go_rc a = { .rc = go_use_begin(GO_USES(n)) };

	if (a.rc)
		return a;
	a = go_answer(kedge_notifier_read(n->nf, ev, max));
	go_use_end(&n->uses);
	return a;
}

struct go_rc go_notifier_fd(struct go_notifier *n)
{
	struct go_rc a = { .rc = go_use_begin(GO_USES(n)) };

	if (a.rc)
		return a;
	a = go_answer(kedge_notifier_fd(n->nf));
	go_use_end(&n->uses);
	return a;
}

struct go_rc go_notifier_unchanged(struct go_notifier *n, uint64_t generation)
{
	struct go_rc a = { .rc = go_use_begin(GO_USES(n)) };

	if (a.rc)
		return a;
	a = go_answer(kedge_notifier_unchanged(n->nf, generation));
	go_use_end(&n->uses);
	return a;
}

struct go_rc go_notifier_info(struct go_notifier *n, struct kedge_notifier_info *info)
{
	struct go_rc a = { .rc = go_use_begin(GO_USES(n)) };

	if (a.rc)
		return a;
	info->size = sizeof(*info);
	a = go_answer(kedge_notifier_info(n->nf, info));
	go_use_end(&n->uses);
	return a;
}
