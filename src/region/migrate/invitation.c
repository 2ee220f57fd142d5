// SPDX-License-Identifier: BSD-2-Clause
/* Invitations, as the program has them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/process/cancel.h"
#include "base/process/thread.h"
#include "region/keeper.h"
#include "region/migrate/arrival.h"

#include <kedge/migrate.h>

#define OPTS_V1 STRUCT_END(struct kedge_invitation_opts, max_len)

/* @invite: stays when this is closed, if the region came: its former owner may not know yet. */
struct kedge_invitation {
	pid_t pid;
	uint64_t max_len;
	struct invite *invite;
};

struct work {
	struct arrival a;
	pthread_t thread;
};

static int open_it(struct kedge_invitation *i, const struct kedge_invitation_opts *o,
		   struct kedge_handle *handle)
{
	struct handle_words w = { .slot = INVITE_SLOT };
	int rc = handle_host(&w.host);

	if (!rc)
		rc = serve_use(&w.name);
	if (!rc && o->node)
		rc = place_use(o->node, o->service, &w);
	if (rc)
		return rc;
	invite_add(i->invite);
	w.generation = i->invite->number;
	memcpy(w.key, i->invite->key, sizeof(w.key));
	handle_write(&w, handle);
	return 0;
}

KEDGE_API int kedge_invitation_open(const struct kedge_invitation_opts *user,
				    struct kedge_invitation **out, struct kedge_handle *handle)
{
	struct kedge_invitation_opts o;
	struct kedge_invitation *i;
	int rc;

	NO_CANCEL();
	if (!out || !handle)
		return kedge_reason(-EINVAL, "an argument is NULL");
	rc = kedge__opts_copy(&o, sizeof(o), OPTS_V1, user);
	if (!rc && o.flags)
		rc = kedge_reason(-EINVAL, "a flag is unknown");
	if (rc)
		return rc;
	region_adopt();
	i = calloc(1, sizeof(*i));
	if (i)
		i->invite = calloc(1, sizeof(*i->invite));
	if (!i || !i->invite) {
		free(i);
		return kedge_reason(-ENOMEM, "no memory for an invitation");
	}
	i->pid = getpid();
	i->max_len = o.max_len;
	rc = keeper_use();
	if (!rc) {
		rc = open_it(i, &o, handle);
		if (rc)
			keeper_unuse();
	}
	if (!rc) {
		*out = i;
		return 0;
	}
	free(i->invite);
	free(i);
	return rc;
}

static void *run(void *arg)
{
	struct work *w = arg;

	arrival_run(&w->a);
	return NULL;
}

static int start(void *arg)
{
	struct work *w = arg;

	return thread_start(&w->thread, run, w);
}

static int accept_it(struct kedge_invitation *i, int timeout_ms, struct kedge_region **out)
{
	struct work w = { .a = { .invite = i->invite, .most = i->max_len, .wire.fd = -1 } };
	int rc;

	if (i->invite->state == INVITE_OWNER)
		return kedge_reason(-EALREADY, "the region has come already: open another "
				    "invitation");
	w.a.until = clock_deadline(timeout_ms);
	rc = keeper_call(start, &w);
	if (rc)
		return thread_refused(rc, "take the region");
	pthread_join(w.thread, NULL);
	if (w.a.rc)
		return kedge_reason(w.a.rc, "%s", w.a.reason);
	*out = w.a.r;
	return 0;
}

KEDGE_API int kedge_invitation_accept(struct kedge_invitation *i, int timeout_ms,
				      struct kedge_region **out)
{
	NO_CANCEL();
	if (!i || !out)
		return kedge_reason(-EINVAL, "an argument is NULL");
	if (i->pid != getpid())
		return kedge_reason(-ECHILD, "the invitation is of the process that this one was "
				    "forked from: open another one");
	return accept_it(i, timeout_ms, out);
}

KEDGE_API void kedge_invitation_close(struct kedge_invitation *i)
{
	NO_CANCEL();
	if (!i)
		return;
	if (i->pid == getpid()) {
		if (i->invite->state != INVITE_OWNER) {
			invite_remove(i->invite);
			invite_drop(i->invite);
			free(i->invite);
		}
		keeper_unuse();
	} else {
		free(i->invite);
	}
	free(i);
}
