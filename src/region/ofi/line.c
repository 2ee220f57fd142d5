// SPDX-License-Identifier: BSD-2-Clause
/*
 * Both ends tell each other their endpoints' names, and the owner's the key of its memory; with
 * that the other end puts and gets. The owner's is one that others come to, so it knows no name.
 *
 * A provider that is software writes to the owner's memory where it is mapped, while that lasts; an
 * adapter to the pages. So a loan has a mapping of its own, as the owner's may end before it.
 */
#include <endian.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "region/ofi/internal.h"

/* ---- by the driver ---- */

struct opening {
	struct fabric_line *l;
	const unsigned char *place;
	struct fabric_loan *loan;
	struct fabric_end *end;
};

static void kicked(struct work *w)
{
	struct fabric_line *l = container_of(w, struct fabric_line, work);

	/* Before @posted is read. */
	atomic_store(&l->queued, false);
	if (l->end.ep)
		polled_heat(&l->polled);
}

static void ended(struct polled *p)
{
	struct fabric_line *l = container_of(p, struct fabric_line, polled);

	end_close(&l->end);
	line_fails(l);
}

static int poll_it(struct fabric_line *l)
{
	l->polled.fabric = l->end.fabric;
	l->polled.cq = &l->end.cq->fid;
	l->polled.turn = line_turn;
	l->polled.end = ended;
	return polled_add(&l->polled);
}

static int open_it(void *arg)
{
	struct opening *o = arg;
	struct fabric_line *l = o->l;
	const uint64_t rights = FI_REMOTE_READ | (o->loan && o->loan->writes ? FI_REMOTE_WRITE : 0);
	int rc = end_open(&l->end, o->place, o->loan ? &l->polled.fd : NULL);

	if (rc)
		return rc;
	rc = o->loan ? end_register(&l->end, o->loan->at, o->loan->len, rights)
		     : end_register(&l->end, l->staging, STAGING_LEN, 0);
	if (!rc)
		rc = end_tell(&l->end, &o->end->ofi);
	if (!rc)
		rc = poll_it(l);
	if (rc)
		end_close(&l->end);
	return rc;
}

struct joining {
	struct fabric_line *l;
	const struct fabric_ofi_end *other;
};

static int join_it(void *arg)
{
	struct joining *j = arg;
	struct end *e = &j->l->end;
	int rc;

	if (!e->ep)
		return kedge_reason(-ESHUTDOWN, "the program's threads have ended");
	rc = end_join(e, j->other);
	if (!rc && j->l->ring) {
		e->at = le64toh(j->other->at);
		e->key = le64toh(j->other->key);
	}
	return rc;
}

static int close_it(void *arg)
{
	struct fabric_line *l = arg;

	if (!l->end.ep)
		return 0;
	polled_remove(&l->polled);
	end_close(&l->end);
	return 0;
}

/* ---- an end ---- */

static void *map(uint64_t len)
{
	void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return NULL;
	/* A child's copy would take the pages from under an adapter. */
	if (!madvise(at, len, MADV_DONTFORK))
		return at;
	munmap(at, len);
	return NULL;
}

static void free_line(struct fabric_line *l)
{
	/* A child may have something else at these addresses. */
	if (l->pid == getpid()) {
		if (l->staging)
			munmap(l->staging, STAGING_LEN);
		if (l->ring)
			munmap(l->ring, RING * sizeof(*l->ring));
	}
	free(l);
}

/* By its process's end the driver has closed the line already, if it was asked for that in vain. */
static void line_close(struct fabric_line *l)
{
	if (l->pid == getpid())
		driver_call(close_it, l);
	free_line(l);
}

static int line_open(const unsigned char place[16], struct fabric_loan *loan,
		     struct fabric_line **out, struct fabric_end *end)
{
	struct fabric_line *l = calloc(1, sizeof(*l));
	struct opening o = { l, place, loan, end };
	int rc;

	if (!l)
		return kedge_reason(-ENOMEM, "no memory for a connection of adapters");
	memset(end, 0, sizeof(*end));
	end->kind = htole32(FABRIC_OFI);
	l->work.fn = kicked;
	l->pid = getpid();
	l->polled.fd = -1;
	if (!loan) {
		l->staging = map(STAGING_LEN);
		l->ring = map(RING * sizeof(*l->ring));
	}
	rc = loan || (l->staging && l->ring) ? driver_use(true)
					     : kedge_reason(-ENOMEM, "no memory for what is put "
							    "and got");
	if (!rc)
		rc = driver_call(open_it, &o);
	if (rc)
		free_line(l);
	else
		*out = l;
	return rc;
}

static int line_join(struct fabric_line *l, const struct fabric_end *other)
{
	struct joining j = { l, &other->ofi };

	if (le32toh(other->kind) != FABRIC_OFI)
		return kedge_reason(-EPROTO, "the other side does not reach regions by libfabric");
	return driver_call(join_it, &j);
}

/* ---- memory for them ---- */

static void line_unlend(struct fabric_loan *loan)
{
	syscall(SYS_munmap, loan->mapped, loan->mapped_len);
	free(loan);
}

static int map_again(struct fabric_loan *loan, void *at, uint64_t len)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	const uint64_t before = (uintptr_t)at % page;
	long again;

	loan->mapped_len = round_up(before + len, page);
	again = syscall(SYS_mremap, (char *)at - before, 0UL, loan->mapped_len, MREMAP_MAYMOVE,
			NULL);
	if (again == -1)
		return kedge_reason(-errno, "the region cannot be mapped once more for the "
				    "provider: error %d", errno);
	loan->mapped = (char *)again;
	loan->at = loan->mapped + before;
	loan->len = len;
	if (!madvise(loan->mapped, loan->mapped_len, MADV_DONTFORK))
		return 0;
	syscall(SYS_munmap, loan->mapped, loan->mapped_len);
	return kedge_reason(-ENOMEM, "no memory for a loan");
}

static int line_lend(const unsigned char place[16], void *at, uint64_t len, bool writes,
		     struct fabric_loan **out, uint32_t *key)
{
	struct fabric_loan *loan = calloc(1, sizeof(*loan));
	int rc;

	(void)place;
	if (!loan)
		return kedge_reason(-ENOMEM, "no memory for a loan");
	loan->writes = writes;
	rc = map_again(loan, at, len);
	if (rc) {
		free(loan);
		return rc;
	}
	*key = 0;
	*out = loan;
	return 0;
}

const struct fabric line_fabric = {
	.open = line_open,
	.join = line_join,
	.lend = line_lend,
	.unlend = line_unlend,
	.put = line_put,
	.put_runs = line_put_runs,
	.get = line_get,
	.close = line_close,
};
