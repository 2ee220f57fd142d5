// SPDX-License-Identifier: BSD-2-Clause
/* A region is given away, as the program has it: job.h says which thread does what. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/process/cancel.h"
#include "base/process/thread.h"
#include "region/keeper.h"
#include "region/migrate/job.h"

#define OPTS_V1 STRUCT_END(struct kedge_migrate_opts, arg)
#define INFO_V1 STRUCT_END(struct kedge_migrate_info, rdma)

#define TIMEOUT_MS 10000u
#define PAUSE_MS   20u
#define ROUNDS	   30u
#define FORWARD_MS 3600000u
#define MOST_MS	   (UINT64_MAX / 4000000u)

static void *run(void *arg)
{
	struct job *j = arg;

	if (j->settles)
		job_settle(j);
	else
		job_migrate(j);
	j->info.total_ns = clock_ns() - j->begun;
	if (j->rc && !j->reason[0])
		snprintf(j->reason, sizeof(j->reason), "%s", kedge_strerror(j->rc));
	job_over(j);
	return NULL;
}

static int start(void *arg)
{
	struct job *j = arg;

	return thread_start(&j->thread, run, j);
}

static void defaults(struct kedge_migrate_opts *o)
{
	o->timeout_ms = o->timeout_ms ? o->timeout_ms : TIMEOUT_MS;
	o->pause_ms = o->pause_ms ? o->pause_ms : PAUSE_MS;
	o->max_rounds = o->max_rounds ? o->max_rounds : ROUNDS;
	o->forward_ms = o->forward_ms ? o->forward_ms : FORWARD_MS;
	if (o->forward_ms > MOST_MS)
		o->forward_ms = MOST_MS;
	if (o->timeout_ms > INT32_MAX)
		o->timeout_ms = INT32_MAX;
}

static int check(struct job *j, const struct kedge_handle *invitation,
		 const struct kedge_migrate_opts *user)
{
	int rc = kedge__opts_copy(&j->o, sizeof(j->o), OPTS_V1, user);

	if (rc)
		return rc;
	if (j->o.flags & ~KEDGE_MIGRATE_QUIET || j->o.pad)
		return kedge_reason(-EINVAL, "a flag is unknown");
	if (!invitation || !handle_read(invitation, &j->to) || j->to.slot != INVITE_SLOT)
		return kedge_reason(-EINVAL, "it is no invitation: kedge_invitation_open() gives "
				    "one in the process that the region goes to");
	defaults(&j->o);
	return 0;
}

/* The region is this call's; one that is in doubt is asked about by the same invitation. */
static int try_claim(struct job *j, bool *suspended)
{
	struct kedge_region *r = j->r;
	int rc, may = 0;

	sig_lock(&r->lock);
	rc = r->refuses;
	j->settles = rc == -EINPROGRESS && r->doubt.number == j->to.generation &&
		     r->doubt.name == j->to.name;
	if (j->settles)
		rc = 0;
	else if (!rc)
		may = depart_may(r);
	j->info.len = r->len;
	if (!rc && !may)
		r->refuses = -EBUSY;
	sig_unlock(&r->lock);
	*suspended = may == -EBUSY;
	return rc ? region_refused(rc) : may;
}

/* Another thread may have suspended it, and be about to resume it. */
static int claim(struct job *j)
{
	const uint64_t until = job_until(j);
	bool suspended;
	int rc;

	do
		rc = try_claim(j, &suspended);
	while (suspended && job_naps(until));
	return rc;
}

static void release(struct job *j)
{
	int rc = j->rc;

	if (rc && rc != -EINPROGRESS)
		rc = 0;
	else if (!rc)
		rc = -EREMCHG;
	sig_lock(&j->r->lock);
	j->r->refuses = rc;
	sig_unlock(&j->r->lock);
}

static int migrate(struct job *j)
{
	int rc;

	j->begun = clock_ns();
	j->wire.fd = -1;
	pthread_mutex_init(&j->lock, NULL);
	pthread_cond_init(&j->changed, NULL);
	rc = keeper_call(start, j);
	if (rc) {
		j->rc = j->settles ? -EINPROGRESS : rc;
		rc = thread_refused(rc, "send the region");
	} else {
		job_serve(j);
		pthread_join(j->thread, NULL);
		rc = j->rc ? kedge_reason(j->rc, "%s", j->reason) : 0;
	}
	pthread_cond_destroy(&j->changed);
	pthread_mutex_destroy(&j->lock);
	release(j);
	return rc;
}

KEDGE_API int kedge_region_migrate(struct kedge_region *r, const struct kedge_handle *invitation,
				   const struct kedge_migrate_opts *user,
				   struct kedge_migrate_info *info)
{
	struct job j = { .r = r, .info.size = sizeof(j.info) };
	int rc = region_check(r);

	NO_CANCEL();
	if (!rc)
		rc = check(&j, invitation, user);
	if (!rc && info && info->size < INFO_V1)
		rc = kedge_reason(-EINVAL, "info->size is too small");
	if (!rc)
		rc = claim(&j);
	if (!rc)
		rc = migrate(&j);
	return rc || !info ? rc : kedge__info_copy(info, INFO_V1, &j.info, sizeof(j.info));
}
