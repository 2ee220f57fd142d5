// SPDX-License-Identifier: BSD-2-Clause
/*
 * The bytes of a region go to its new owner by adapters (region/fabric/), where both sides have
 * them: the new owner lends its copy, and the former one puts into it. Messages go by the stream as
 * before. Where the adapters fail the loan is ended first, so that nothing arrives late, and the
 * bytes go by the stream. The new owner ends it before the copy is whole in any case.
 */
#include <endian.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "region/migrate/arrival.h"
#include "region/migrate/job.h"
#include "region/stream.h"

static int place_of(const struct wire *w, unsigned char place[16])
{
	union place a;
	socklen_t len = sizeof(a);

	if (syscall(SYS_getsockname, w->fd, &a, &len))
		return -errno;
	stream_place(&a, place);
	return 0;
}

/* ---- the former owner ---- */

static void close_line(struct job *j)
{
	if (j->line)
		fabric()->close(j->line);
	j->line = NULL;
}

/* 0: joined. Errors of the stream alone end the migration. */
static int take(struct job *j)
{
	struct stream_lease got;
	struct msg m;
	int rc = wire_hear(&j->wire, &m, job_until(j));

	if (!rc && (m.op != MSG_LENT || m.id != j->id || m.len != (m.rc ? 0 : sizeof(got))))
		rc = -EPROTO;
	if (!rc && !m.rc)
		rc = wire_read(&j->wire, &got, sizeof(got), job_until(j));
	if (rc)
		return job_lost(rc);
	if (!m.rc && le64toh(got.len) == j->info.len && !fabric()->join(j->line, &got.end)) {
		j->range = (struct fabric_range){ le64toh(got.at), le64toh(got.len),
						  le32toh(got.key) };
		j->info.rdma = 1;
		return 0;
	}
	close_line(j);
	return m.rc ? 0 : lent_end(j);
}

int lent_begin(struct job *j)
{
	struct fabric_end end;
	unsigned char place[16];
	const struct msg m = { .op = MSG_BORROW, .id = j->id, .len = sizeof(end) };
	int rc;

	if (!j->wire.tcp || !fabric() || place_of(&j->wire, place) ||
	    fabric()->open(place, NULL, &j->line, &end))
		return 0;
	rc = wire_send(&j->wire, &m, &end, job_until(j));
	return rc ? job_lost(rc) : take(j);
}

int lent_end(struct job *j)
{
	const struct msg m = { .op = MSG_UNLEND, .id = j->id };
	struct msg a;
	int rc;

	close_line(j);
	j->info.rdma = 0;
	rc = wire_send(&j->wire, &m, NULL, job_until(j));
	if (!rc)
		rc = wire_hear(&j->wire, &a, job_until(j));
	if (!rc && (a.op != MSG_OK || a.id != j->id))
		rc = -EPROTO;
	return rc ? job_lost(rc) : 0;
}

bool lent_put(struct job *j, const struct msg_run *run, uint32_t cnt)
{
	static const _Atomic bool over;

	return !fabric()->put_runs(j->line, &j->range, j->view, (const struct fabric_run *)run,
				   cnt, &over, job_until(j));
}

void lent_close(struct job *j)
{
	close_line(j);
}

/* ---- the new one ---- */

static int lend(struct arrival *a, const struct fabric_end *peer, struct stream_lease *out)
{
	unsigned char place[16];
	uint32_t key = 0;
	int rc = fabric() ? place_of(&a->wire, place) : -EOPNOTSUPP;

	if (!rc)
		rc = fabric()->lend(place, a->r->at, a->r->len, true, &a->loan, &key);
	if (!rc)
		rc = fabric()->open(place, a->loan, &a->line, &out->end);
	if (!rc)
		rc = fabric()->join(a->line, peer);
	out->at = htole64((uintptr_t)a->r->at);
	out->len = htole64(a->r->len);
	out->key = htole32(key);
	return rc;
}

int arrival_lend(struct arrival *a, const struct msg *m)
{
	struct stream_lease out = { .zero = 0 };
	struct msg answer = { .op = MSG_LENT, .id = a->id };
	struct fabric_end peer;
	int rc = m->len == sizeof(peer) && !a->line ? 0 : -EPROTO;

	if (!rc)
		rc = wire_read(&a->wire, &peer, sizeof(peer), a->until);
	if (rc)
		return rc;
	answer.rc = lend(a, &peer, &out);
	if (answer.rc)
		arrival_unlend(a);
	else
		answer.len = sizeof(out);
	return wire_send(&a->wire, &answer, &out, a->until);
}

void arrival_unlend(struct arrival *a)
{
	if (a->line)
		fabric()->close(a->line);
	a->line = NULL;
	if (a->loan)
		fabric()->unlend(a->loan);
	a->loan = NULL;
}
