// SPDX-License-Identifier: BSD-2-Clause
/* See peers.h. */
#include "peers.h"

struct peers *peers_new(void)
{
	return shared_memory(sizeof(struct peers));
}

static int peer_step(struct kedge_remote *r, int me, uint64_t n)
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
static bool peer_check(struct kedge_remote *r, uint64_t at, uint64_t n, uint64_t more)
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

static int peer_works(struct peers *p, struct kedge_remote *r, int me)
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

/* ---- peers that have several steps under way, each of four operations ---- */

#define STEPS 8

struct steps {
	struct kedge_queue *queue;
	uint64_t block[STEPS][BLOCK / 8];
	uint64_t seen[STEPS]; /* what is there behind the first put */
	uint64_t tried;
	uint64_t ended; /* operations */
	int error;
};

static int steps_begin_one(struct steps *s, struct kedge_remote *r, int me)
{
	const struct kedge_remote_op like = { .size = sizeof(like), .timeout_ms = SOON_MS };
	uint64_t *block = s->block[++s->tried % STEPS];
	struct kedge_remote_op o[4] = { like, like, like, like };
	int i;

	for (i = 0; i < BLOCK / 8; i++)
		block[i] = s->tried;
	for (i = 0; i < 4; i++) {
		o[i].op = i < 2 ? KEDGE_REMOTE_PUT : i < 3 ? KEDGE_REMOTE_GET
							   : KEDGE_REMOTE_FETCH_ADD;
		o[i].offset = i == 1 ? FAR_AT(me) : i == 3 ? NUMBER_AT(me) : BLOCK_AT(me);
		o[i].data = i == 2 ? &s->seen[s->tried % STEPS] : block;
		o[i].len = i == 2 ? sizeof(s->seen[0]) : BLOCK;
		o[i].value = 1;
		o[i].user = (s->tried - 1) * 4 + (uint64_t)i;
	}
	return kedge_remote_submit(r, s->queue, o, 4) == 4 ? 0 : -EBADE;
}

/* All have a completion, in their order; after an error there is no success. */
static int steps_end_one(struct steps *s)
{
	struct kedge_remote_completion c = { .size = sizeof(c) };

	if (kedge_queue_read(s->queue, &c, 1, SOON_MS) != 1 || c.user != s->ended++)
		return -EBADE;
	if (c.status) {
		if (!s->error)
			kedge_remote_strerror(&c);
		s->error = s->error ? s->error : c.status;
		return 0;
	}
	if (c.op == KEDGE_REMOTE_GET && s->seen[(c.user / 4 + 1) % STEPS] != c.user / 4 + 1)
		return -EBADE;
	return s->error || (c.op == KEDGE_REMOTE_FETCH_ADD && c.old != c.user / 4) ? -EBADE : 0;
}

static int peer_submits(struct peers *p, struct kedge_remote *r, int me)
{
	static struct steps s;
	int rc = kedge_queue_open(NULL, &s.queue);

	while (!rc && (s.ended < 4 * s.tried || !(s.error || atomic_load(&p->stop)))) {
		if (s.tried - s.ended / 4 < STEPS && !s.error && !atomic_load(&p->stop)) {
			atomic_store(&p->of[me].tried, s.tried + 1);
			rc = steps_begin_one(&s, r, me);
			continue;
		}
		rc = steps_end_one(&s);
		if (!s.error)
			atomic_store(&p->of[me].done, s.ended / 4);
	}
	return rc ? rc : s.error;
}

/* Copied by fork(). */
struct start {
	struct peers *peers;
	int me;
};

static void peer_run(void *arg)
{
	const struct start *start = arg;
	struct peers *p = start->peers;
	const int me = start->me;
	struct kedge_remote *r;
	int rc;

	while (!atomic_load(&p->go))
		usleep(100);
	rc = kedge_remote_open(&handle, SOON_MS, &r);
	if (!rc)
		rc = region_with("submit") ? peer_submits(p, r, me) : peer_works(p, r, me);
	if (rc)
		fprintf(stderr, "# peer %d: %s\n", me, kedge_strerror(rc));
	atomic_store(&p->of[me].error, rc);
}

void peers_start(struct peers *p)
{
	struct start start = { .peers = p };
	int i;

	for (i = 0; i < PEERS; i++) {
		start.me = i;
		p->of[i].pid = start_child(peer_run, &start);
	}
	atomic_store(&p->go, 1);
}

/* Each that has no error does @more additions. */
void peers_work(struct peers *p, uint64_t more)
{
	uint64_t from;
	int i;

	for (i = 0; i < PEERS; i++) {
		from = atomic_load(&p->of[i].done);
		while (!atomic_load(&p->of[i].error) && atomic_load(&p->of[i].done) < from + more)
			usleep(500);
	}
}

void peers_end(struct peers *p)
{
	int i, status;

	atomic_store(&p->stop, 1);
	for (i = 0; i < PEERS; i++)
		assert_int_equal(waitpid(p->of[i].pid, &status, 0), p->of[i].pid);
}

/* All that was acknowledged is there; what was not may be. */
void peers_check(struct peers *p, struct kedge_remote *r)
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

void peers_had_no_error(struct peers *p)
{
	int i;

	for (i = 0; i < PEERS; i++)
		assert_int_equal(atomic_load(&p->of[i].error), 0);
}
