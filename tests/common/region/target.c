// SPDX-License-Identifier: BSD-2-Clause
/* See target.h. */
#include "target.h"

struct target *target_new(void)
{
	struct target *t = shared_memory(sizeof(*t));

	t->opts.size = sizeof(t->opts);
	t->opts.node = way->node;
	t->accept_ms = SOON_MS;
	return t;
}

int migrate_patiently(struct kedge_region *r, const struct kedge_handle *to,
		      const struct kedge_migrate_opts *o, struct kedge_migrate_info *info)
{
	struct kedge_migrate_opts patient = { .size = sizeof(patient) };

	if (o)
		patient = *o;
	patient.timeout_ms = SOON_MS;
	return kedge_region_migrate(r, to, &patient, info);
}

static void target_accept(struct target *t, struct kedge_invitation *i, struct kedge_region **r)
{
	int rc = kedge_invitation_accept(i, t->accept_ms, r);

	if (rc)
		fprintf(stderr, "# accept: %s\n", kedge_strerror(rc));
	atomic_store(&t->rc, rc);
	atomic_store(&t->state, rc ? TARGET_FAILED : TARGET_OWNS);
}

static void target_do(struct target *t, int what, struct kedge_invitation *i,
		      struct kedge_region **r)
{
	struct kedge_region_info info = { .size = sizeof(info) };
	int rc = 0;

	if (what == TARGET_READ) {
		rc = kedge_region_query(*r, &info);
		if (!rc)
			t->byte = ((unsigned char *)(uintptr_t)info.addr)[t->off];
	} else if (what == TARGET_ACCEPT) {
		target_accept(t, i, r);
	} else if (what == TARGET_MIGRATE) {
		rc = migrate_patiently(*r, &t->next, NULL, NULL);
		if (rc)
			fprintf(stderr, "# migrate: %s\n", kedge_strerror(rc));
	} else if (what == TARGET_ADVERTISE) {
		rc = kedge_region_advertise(*r, NULL, &t->next);
	}
	if (what != TARGET_ACCEPT)
		atomic_store(&t->rc, rc);
	atomic_store(&t->said, what);
}

static void target_run(void *arg)
{
	struct target *t = arg;
	struct kedge_invitation *i;
	struct kedge_region *r = NULL;
	int what;

	if (t->budget)
		kedge_region_budget_set(t->budget);
	CHILD_CHECK(!kedge_invitation_open(&t->opts, &i, &t->invitation));
	/* As if it were of another host. */
	if (t->opts.node)
		t->invitation.bytes[16] ^= 1;
	atomic_store(&t->state, TARGET_WAITS);
	target_accept(t, i, &r);
	for (;;) {
		what = atomic_load(&t->say);
		if (what == TARGET_EXIT)
			break;
		if (what && what != atomic_load(&t->said))
			target_do(t, what, i, &r);
		usleep(1000);
	}
	kedge_invitation_close(i);
	kedge_region_close(r);
}

void start_processes(void)
{
	static bool had_threads;

	if (had_threads || regions_were_made() || way->provider)
		need_threads_after_fork();
	had_threads = true;
}

void target_start(struct target *t)
{
	atomic_store(&t->state, TARGET_STARTS);
	atomic_store(&t->say, 0);
	atomic_store(&t->said, 0);
	t->pid = start_child(target_run, t);
	while (atomic_load(&t->state) == TARGET_STARTS && !waitpid(t->pid, NULL, WNOHANG))
		usleep(1000);
	assert_int_equal(atomic_load(&t->state), TARGET_WAITS);
}

int target_say(struct target *t, int what)
{
	atomic_store(&t->said, 0);
	atomic_store(&t->say, what);
	while (atomic_load(&t->said) != what)
		usleep(1000);
	atomic_store(&t->say, 0);
	return atomic_load(&t->rc);
}

void target_accept_again(struct target *t)
{
	target_wait(t, TARGET_FAILED);
	atomic_store(&t->state, TARGET_WAITS);
	atomic_store(&t->said, 0);
	atomic_store(&t->say, TARGET_ACCEPT);
}

void target_wait(struct target *t, int state)
{
	while (atomic_load(&t->state) < TARGET_OWNS)
		usleep(1000);
	assert_int_equal(atomic_load(&t->state), state);
}

void target_end(struct target *t)
{
	atomic_store(&t->say, TARGET_EXIT);
	reap(t->pid);
	munmap(t, sizeof(*t));
}

void migrate_to(struct target *t, const struct kedge_migrate_opts *o,
		struct kedge_migrate_info *info)
{
	int rc = migrate_patiently(region, &t->invitation, o, info);

	if (rc)
		fail_msg("%s", kedge_strerror(rc));
}
