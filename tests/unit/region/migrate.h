/* SPDX-License-Identifier: BSD-2-Clause */
/* A process that regions migrate to, as tests have it: a child, told what to do by a page. */
#ifndef TESTS_REGION_MIGRATE_H
#define TESTS_REGION_MIGRATE_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "remote.h"

enum target_state { TARGET_STARTS, TARGET_WAITS, TARGET_OWNS, TARGET_FAILED, TARGET_OVER };

/*
 * @say:   1, read a byte at @off into @byte; 2, accept again; 3, migrate by @next; 4, exit; 5, give
 *         another handle, @next
 * @said:  the last one that was done, with @rc
 */
struct target {
	struct kedge_handle invitation;
	struct kedge_handle next;
	struct kedge_invitation_opts opts;
	_Atomic int state;
	_Atomic int rc;
	_Atomic int say;
	_Atomic int said;
	uint64_t off;
	unsigned char byte;
	uint64_t budget;
	int accept_ms;
	pid_t pid;
};

static inline struct target *target_new(void)
{
	struct target *t = mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(t != MAP_FAILED);
	t->opts.size = sizeof(t->opts);
	t->accept_ms = SOON_MS;
	return t;
}

/* The limit of a program ends what is stuck; a machine that is late is no failure of a test. */
static inline int migrate_patiently(struct kedge_region *r, const struct kedge_handle *to,
				    const struct kedge_migrate_opts *o,
				    struct kedge_migrate_info *info)
{
	struct kedge_migrate_opts patient = { .size = sizeof(patient) };

	if (o)
		patient = *o;
	patient.timeout_ms = SOON_MS;
	return kedge_region_migrate(r, to, &patient, info);
}

static inline void target_accept(struct target *t, struct kedge_invitation *i,
				 struct kedge_region **r)
{
	int rc = kedge_invitation_accept(i, t->accept_ms, r);

	if (rc)
		fprintf(stderr, "# accept: %s\n", kedge_strerror(rc));
	atomic_store(&t->rc, rc);
	atomic_store(&t->state, rc ? TARGET_FAILED : TARGET_OWNS);
}

static inline void target_do(struct target *t, int what, struct kedge_invitation *i,
			     struct kedge_region **r)
{
	struct kedge_region_info info = { .size = sizeof(info) };
	int rc = 0;

	if (what == 1) {
		rc = kedge_region_query(*r, &info);
		if (!rc)
			t->byte = ((unsigned char *)(uintptr_t)info.addr)[t->off];
	} else if (what == 2) {
		target_accept(t, i, r);
	} else if (what == 3) {
		rc = migrate_patiently(*r, &t->next, NULL, NULL);
		if (rc)
			fprintf(stderr, "# migrate: %s\n", kedge_strerror(rc));
	}
	if (what == 5)
		rc = kedge_region_advertise(*r, NULL, &t->next);
	if (what != 2)
		atomic_store(&t->rc, rc);
	atomic_store(&t->said, what);
}

static inline void target_run(struct target *t)
{
	struct kedge_invitation *i;
	struct kedge_region *r = NULL;
	int what;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
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
		if (what == 4)
			break;
		if (what && what != atomic_load(&t->said))
			target_do(t, what, i, &r);
		usleep(1000);
	}
	kedge_invitation_close(i);
	kedge_region_close(r);
	_exit(0);
}

/* Before another process is started. A region has threads, and a departure keeps them; so does
 * kedge_region_use_ofi(). */
static inline void start_processes(void)
{
#if defined(BY_OFI)
	static bool had_threads = true;
#else
	static bool had_threads;
#endif

	if (had_threads)
		need_threads_after_fork();
	had_threads = true;
}

static inline void target_start(struct target *t)
{
	pid_t pid;

	atomic_store(&t->state, TARGET_STARTS);
	atomic_store(&t->say, 0);
	atomic_store(&t->said, 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		target_run(t);
	t->pid = pid;
	while (atomic_load(&t->state) == TARGET_STARTS && !waitpid(pid, NULL, WNOHANG))
		usleep(1000);
	assert_int_equal(atomic_load(&t->state), TARGET_WAITS);
}

static inline int target_say(struct target *t, int what)
{
	atomic_store(&t->said, 0);
	atomic_store(&t->say, what);
	while (atomic_load(&t->said) != what)
		usleep(1000);
	atomic_store(&t->say, 0);
	return atomic_load(&t->rc);
}

static inline void target_wait(struct target *t, int state)
{
	while (atomic_load(&t->state) < TARGET_OWNS)
		usleep(1000);
	assert_int_equal(atomic_load(&t->state), state);
}

static inline void target_end(struct target *t)
{
	int status;

	atomic_store(&t->say, 4);
	assert_int_equal(waitpid(t->pid, &status, 0), t->pid);
	assert_int_equal(status, 0);
	munmap(t, sizeof(*t));
}

static inline void migrate_to(struct target *t, const struct kedge_migrate_opts *o,
			      struct kedge_migrate_info *info)
{
	int rc = migrate_patiently(region, &t->invitation, o, info);

	if (rc)
		fail_msg("%s", kedge_strerror(rc));
}

/* ---- peers ---- */

#define PEERS	 3
#define BLOCK	 4096
#define PEER_LEN ((size_t)16 << 20)
/* Of peer @p: a number that it adds to, and two blocks on either end that it writes. */
#define NUMBER_AT(p) ((uint64_t)(p) * 8)
#define BLOCK_AT(p)  ((uint64_t)(1 + (p)) * BLOCK)
#define FAR_AT(p)    (PEER_LEN - BLOCK_AT(p))

/*
 * @go: they may begin, as all are there: AddressSanitizer's allocator may be locked by a thread of
 *      the owner's that has work while one is forked, and is so in that child for ever
 * @tried, @done: additions; each with two blocks that are filled with its number before
 * @error: the first one of an access; the peer has ended with it. -EINTR: it was killed
 */
struct peers {
	_Atomic int go;
	_Atomic int stop;
	struct {
		_Atomic uint64_t tried;
		_Atomic uint64_t done;
		_Atomic int error;
		pid_t pid;
	} of[PEERS];
};

static inline struct peers *peers_new(void)
{
	struct peers *p = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

static inline int peer_step(struct kedge_remote *r, int me, uint64_t n)
{
	uint64_t block[BLOCK / 8], old;
	size_t i;
	int rc;
	const struct kedge_remote_part both[2] = { { BLOCK_AT(me), block, BLOCK },
						   { FAR_AT(me), block, BLOCK } };

	for (i = 0; i < BLOCK / 8; i++)
		block[i] = n;
	/* One after the other, or by one access. */
	rc = n % 2 ? kedge_remote_put_parts(r, both, 2, SOON_MS)
		   : kedge_remote_put(r, BLOCK_AT(me), block, BLOCK, SOON_MS);
	if (!rc && n % 2 == 0)
		rc = kedge_remote_put(r, FAR_AT(me), block, BLOCK, SOON_MS);
	if (!rc)
		rc = kedge_remote_fetch_add(r, NUMBER_AT(me), 1, &old, SOON_MS);
	if (!rc && old != n - 1)
		rc = -EBADE;
	return rc;
}

/* A block is whole, and that of the last addition, or of the one after. */
static inline bool peer_check(struct kedge_remote *r, uint64_t at, uint64_t n, uint64_t more)
{
	uint64_t block[BLOCK / 8];
	size_t i;

	if (kedge_remote_get(r, at, block, BLOCK, SOON_MS))
		return false;
	for (i = 1; i < BLOCK / 8; i++)
		if (block[i] != block[0])
			return false;
	return block[0] >= n && block[0] <= more;
}

#ifdef BY_SUBMIT
#include "peers_submit.h"
#else
static inline int peer_works(struct peers *p, struct kedge_remote *r, int me)
{
	uint64_t n = 0;
	int rc = 0;

	while (!rc && !atomic_load(&p->stop)) {
		atomic_store(&p->of[me].tried, ++n);
		rc = peer_step(r, me, n);
		if (!rc)
			atomic_store(&p->of[me].done, n);
	}
	return rc;
}
#endif

static inline void peer_run(struct peers *p, int me)
{
	struct kedge_remote *r;
	int rc;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!atomic_load(&p->go))
		usleep(100);
	rc = kedge_remote_open(&handle, SOON_MS, &r);
	if (!rc)
		rc = peer_works(p, r, me);
	if (rc)
		fprintf(stderr, "# peer %d: %s\n", me, kedge_strerror(rc));
	atomic_store(&p->of[me].error, rc);
	_exit(0);
}

static inline void peers_start(struct peers *p)
{
	pid_t pid;
	int i;

	for (i = 0; i < PEERS; i++) {
		pid = fork();
		assert_true(pid >= 0);
		if (!pid)
			peer_run(p, i);
		p->of[i].pid = pid;
	}
	atomic_store(&p->go, 1);
}

/* Each that has no error does @more additions. */
static inline void peers_work(struct peers *p, uint64_t more)
{
	uint64_t from;
	int i;

	for (i = 0; i < PEERS; i++) {
		from = atomic_load(&p->of[i].done);
		while (!atomic_load(&p->of[i].error) && atomic_load(&p->of[i].done) < from + more)
			usleep(500);
	}
}

static inline void peers_end(struct peers *p)
{
	int i, status;

	atomic_store(&p->stop, 1);
	for (i = 0; i < PEERS; i++)
		assert_int_equal(waitpid(p->of[i].pid, &status, 0), p->of[i].pid);
}

/* All that was acknowledged is there; what was not may be. */
static inline void peers_check(struct peers *p, struct kedge_remote *r)
{
	uint64_t number, done, tried;
	int i;

	for (i = 0; i < PEERS; i++) {
		done = atomic_load(&p->of[i].done);
		tried = atomic_load(&p->of[i].tried);
		assert_int_equal(kedge_remote_get(r, NUMBER_AT(i), &number, 8, SOON_MS), 0);
		assert_in_range(number, done, atomic_load(&p->of[i].error) ? tried : done);
		/* One that was killed may have been in the middle of a copy. */
		if (atomic_load(&p->of[i].error) == -EINTR)
			continue;
		assert_true(peer_check(r, BLOCK_AT(i), done, tried));
		assert_true(peer_check(r, FAR_AT(i), done, tried));
	}
	munmap(p, sizeof(*p));
}

static inline void peers_had_no_error(struct peers *p)
{
	int i;

	for (i = 0; i < PEERS; i++)
		assert_int_equal(atomic_load(&p->of[i].error), 0);
}

#endif /* TESTS_REGION_MIGRATE_H */
