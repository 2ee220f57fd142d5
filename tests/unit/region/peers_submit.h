/* SPDX-License-Identifier: BSD-2-Clause */
/* Peers of migrate.h that have several steps under way, each of three operations. */
#ifndef TESTS_REGION_PEERS_SUBMIT_H
#define TESTS_REGION_PEERS_SUBMIT_H

#define STEPS 8

struct steps {
	struct kedge_queue *queue;
	uint64_t block[STEPS][BLOCK / 8];
	uint64_t tried;
	uint64_t ended; /* operations */
	int error;
};

static inline int steps_begin_one(struct steps *s, struct kedge_remote *r, int me)
{
	const struct kedge_remote_op like = { .size = sizeof(like), .timeout_ms = SOON_MS };
	uint64_t *block = s->block[++s->tried % STEPS];
	struct kedge_remote_op o[3] = { like, like, like };
	int i;

	for (i = 0; i < BLOCK / 8; i++)
		block[i] = s->tried;
	for (i = 0; i < 3; i++) {
		o[i].op = i < 2 ? KEDGE_REMOTE_PUT : KEDGE_REMOTE_FETCH_ADD;
		o[i].offset = i == 0 ? BLOCK_AT(me) : i == 1 ? FAR_AT(me) : NUMBER_AT(me);
		o[i].data = block;
		o[i].len = BLOCK;
		o[i].value = 1;
		o[i].user = (s->tried - 1) * 3 + (uint64_t)i;
	}
	return kedge_remote_submit(r, s->queue, o, 3) == 3 ? 0 : -EBADE;
}

/* All have a completion, in their order; after an error there is no success. */
static inline int steps_end_one(struct steps *s)
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
	return s->error || (c.op == KEDGE_REMOTE_FETCH_ADD && c.old != c.user / 3) ? -EBADE : 0;
}

static inline int peer_works(struct peers *p, struct kedge_remote *r, int me)
{
	static struct steps s;
	int rc = kedge_queue_open(NULL, &s.queue);

	while (!rc && (s.ended < 3 * s.tried || !(s.error || atomic_load(&p->stop)))) {
		if (s.tried - s.ended / 3 < STEPS && !s.error && !atomic_load(&p->stop)) {
			atomic_store(&p->of[me].tried, s.tried + 1);
			rc = steps_begin_one(&s, r, me);
			continue;
		}
		rc = steps_end_one(&s);
		if (!s.error)
			atomic_store(&p->of[me].done, s.ended / 3);
	}
	return rc ? rc : s.error;
}

#endif /* TESTS_REGION_PEERS_SUBMIT_H */
