/* SPDX-License-Identifier: BSD-2-Clause */
/* Peers of migrate.h that have several steps under way, each of four operations. */
#ifndef TESTS_REGION_PEERS_SUBMIT_H
#define TESTS_REGION_PEERS_SUBMIT_H

#define STEPS 8

struct steps {
	struct kedge_queue *queue;
	uint64_t block[STEPS][BLOCK / 8];
	uint64_t seen[STEPS]; /* what is there behind the first put */
	uint64_t tried;
	uint64_t ended; /* operations */
	int error;
};

static inline int steps_begin_one(struct steps *s, struct kedge_remote *r, int me)
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
	if (c.op == KEDGE_REMOTE_GET && s->seen[(c.user / 4 + 1) % STEPS] != c.user / 4 + 1)
		return -EBADE;
	return s->error || (c.op == KEDGE_REMOTE_FETCH_ADD && c.old != c.user / 4) ? -EBADE : 0;
}

static inline int peer_works(struct peers *p, struct kedge_remote *r, int me)
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

#endif /* TESTS_REGION_PEERS_SUBMIT_H */
