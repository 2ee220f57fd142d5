// SPDX-License-Identifier: BSD-2-Clause
/* Turns at a connection, and how an access by it ends. */
#include <sys/socket.h>

#include "base/base.h"
#include "region/peer/turn.h"

void turn_init(struct remote_stream *s)
{
	clock_cond_init(&s->turn);
	pthread_mutex_init(&s->lock, NULL);
}

void turn_fini(struct remote_stream *s)
{
	pthread_cond_destroy(&s->turn);
	pthread_mutex_destroy(&s->lock);
}

int turn_take(struct remote_stream *s, uint64_t until)
{
	bool mine;
	int rc = 0;

	pthread_mutex_lock(&s->lock);
	atomic_fetch_add(&s->waiting, 1);
	while ((s->busy || s->claimed) && !rc)
		rc = clock_cond_wait(&s->turn, &s->lock, until);
	atomic_fetch_sub(&s->waiting, 1);
	mine = !s->busy && !s->claimed;
	s->busy |= mine;
	s->given += mine;
	/* A pipeline that lets others go first looks whether there are any. */
	pthread_cond_broadcast(&s->turn);
	pthread_mutex_unlock(&s->lock);
	return mine ? 0 : kedge_reason(-ETIMEDOUT, "accesses of other threads by this remote "
				       "region take too long");
}

void turn_end(struct remote_stream *s)
{
	pthread_mutex_lock(&s->lock);
	s->busy = false;
	pthread_cond_broadcast(&s->turn);
	pthread_mutex_unlock(&s->lock);
}

bool turn_claim(struct remote_stream *s, uint64_t until)
{
	bool mine;
	int rc = 0;

	pthread_mutex_lock(&s->lock);
	s->claimed = true;
	while (s->busy && !rc)
		rc = clock_cond_wait(&s->turn, &s->lock, until);
	mine = !s->busy;
	s->busy = true;
	s->claimed = !mine;
	pthread_mutex_unlock(&s->lock);
	return mine;
}

/* Those that are done with a former one's place are not waited for. */
void turn_pass(struct remote_stream *s, uint64_t until)
{
	uint64_t given;
	int rc = 0;

	pthread_mutex_lock(&s->lock);
	s->claimed = false;
	given = s->given;
	pthread_cond_broadcast(&s->turn);
	while (atomic_load(&s->waiting) && s->given == given && !rc)
		rc = clock_cond_wait(&s->turn, &s->lock, until);
	pthread_mutex_unlock(&s->lock);
}

int stream_give_up(struct link *l, int rc)
{
	atomic_store(&l->ended, -rc);
	/* The program may have another under the number. */
	if (clofork_ours(&l->sock))
		shutdown(l->sock.fd, SHUT_RDWR);
	if (rc == -EKEYREVOKED || rc == REGION_MOVED)
		return remote_over(l, -rc);
	if (rc == -EFAULT) {
		atomic_store(&l->ended, ECONNRESET);
		return kedge_reason(-ECONNRESET, "the data is not all in memory of this process, "
				    "and the connection is given up");
	}
	if (rc == -EPROTO)
		return kedge_reason(rc, "what the region's owner answers is no answer: the "
				    "connection is given up");
	if (rc == -ETIMEDOUT)
		return kedge_reason(-ECONNRESET, "the region's owner does not answer, and the "
				    "connection is given up: a put may have been done");
	return kedge_reason(-ECONNRESET, "the connection to the region's owner ended: a put that "
			    "was under way may have been done");
}

int stream_said(const struct link *l, const struct stream_req *q, int said,
		const struct gap *gap)
{
	switch (said) {
	case 0:
		return 0;
	case -EFAULT:
		return remote_beyond(q->offset, q->len, stream_had(l));
	case -ENODATA:
		return remote_missing(gap->from, gap->to);
	case -ETIMEDOUT:
		return kedge_reason(said, "the owner has suspended the region for that time");
	case -EACCES:
		return kedge_reason(said, "the handle does not give that access");
	}
	return remote_refused(said);
}
