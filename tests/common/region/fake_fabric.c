// SPDX-License-Identifier: BSD-2-Clause
/*
 * Adapters in the place of real ones (fabric.h), for processes of one test: an end puts and
 * gets by the system calls for another process's memory. Loans, and the lines of each, stand
 * in tables that all of them share. As with an adapter, an access is refused once its line is
 * closed, or the loan is over, or is another line's, and a close waits for those under way.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fake_fabric.h"
#include "region/fabric/fabric.h"

#define LENT 4096u

struct lent {
	_Atomic int pid; /* of the process whose memory it is; 0: none */
	uint64_t at;
	uint64_t kept; /* where its bytes are */
	uint64_t len;
	bool writes;
};

/* An end of its owner's. */
struct end {
	_Atomic uint32_t loan; /* 0: it is closed */
	_Atomic int user; /* the process that is in an access: one at a time */
};

struct fabric_loan {
	uint32_t key;
	void *kept;
	uint64_t kept_len;
};

/* @end: of the owner: its own, or the other one */
struct fabric_line {
	bool puts;
	uint32_t end;
};

static struct {
	struct fake_fabric f;
	_Atomic uint32_t cnt;
	struct lent lent[LENT];
	struct end end[FABRIC_ENDS];
} *table;

struct fake_fabric *fake_fabric(void)
{
	return &table->f;
}

unsigned int fake_end_open(void)
{
	unsigned int end = atomic_fetch_add(&table->f.ends, 1) % (FABRIC_ENDS - 1) + 1;

	atomic_store(&table->f.is_over[end], false);
	atomic_fetch_add(&table->f.live, 1);
	return end;
}

static int fake_open(const unsigned char place[16], struct fabric_loan *loan,
		     struct fabric_line **out, struct fabric_end *end)
{
	struct fabric_line *l = calloc(1, sizeof(*l));

	(void)place;
	memset(end, 0, sizeof(*end));
	if (!l || atomic_load(&table->f.refuses) ||
	    (loan && atomic_load(&table->f.loses) == loan->key)) {
		free(l);
		return kedge_reason(-ENODEV, "no adapter");
	}
	l->puts = !loan;
	if (loan) {
		l->end = fake_end_open();
		atomic_store(&table->end[l->end].user, 0);
		atomic_store(&table->end[l->end].loan, loan->key);
	}
	end->verbs.qp = l->end;
	*out = l;
	return 0;
}

static int fake_join(struct fabric_line *l, const struct fabric_end *other)
{
	if (l->puts)
		l->end = other->verbs.qp % FABRIC_ENDS;
	return 0;
}

/* An adapter has the pages, also once they are unmapped: so this has them mapped once more. */
static bool keep(struct fabric_loan *loan, void *at, uint64_t len)
{
	const uint64_t before = (uintptr_t)at % (uint64_t)sysconf(_SC_PAGESIZE);

	loan->kept_len = before + len;
	loan->kept = mremap((char *)at - before, 0, loan->kept_len, MREMAP_MAYMOVE);
	if (loan->kept == MAP_FAILED)
		return false;
	madvise(loan->kept, loan->kept_len, MADV_DONTFORK);
	table->lent[loan->key].kept = (uintptr_t)loan->kept + before;
	return true;
}

static int fake_lend(const unsigned char place[16], void *at, uint64_t len, bool writes,
		     struct fabric_loan **out, uint32_t *key)
{
	struct fabric_loan *loan = calloc(1, sizeof(*loan));
	struct lent *t;

	(void)place;
	if (!loan || atomic_load(&table->f.refuses)) {
		free(loan);
		return kedge_reason(-ENODEV, "no adapter");
	}
	loan->key = atomic_fetch_add(&table->cnt, 1) % (LENT - 1) + 1;
	if (!keep(loan, at, len)) {
		free(loan);
		return kedge_reason(-ENOMEM, "no memory");
	}
	t = &table->lent[loan->key];
	t->at = (uintptr_t)at;
	t->len = len;
	t->writes = writes;
	atomic_store(&t->pid, getpid());
	atomic_fetch_add(&table->f.lent, 1);
	atomic_store(&table->f.last, loan->key);
	atomic_fetch_add(&table->f.loans, 1);
	*key = loan->key;
	*out = loan;
	return 0;
}

static void fake_unlend(struct fabric_loan *loan)
{
	unsigned int i;

	for (i = 0; i < FABRIC_ENDS; i++)
		if (atomic_load(&table->end[i].loan) == loan->key)
			abort();
	atomic_store(&table->lent[loan->key].pid, 0);
	atomic_fetch_sub(&table->f.loans, 1);
	munmap(loan->kept, loan->kept_len);
	free(loan);
}

/* One that was killed in an access is in none. */
static bool lives(int pid)
{
	char byte;
	struct iovec mine = { &byte, 1 }, other = { table, 1 };

	return process_vm_readv(pid, &mine, 1, &other, 1, 0) == 1;
}

static void fake_close(struct fabric_line *l)
{
	struct end *e = &table->end[l->end];
	int pid;

	if (!l->puts) {
		atomic_store(&e->loan, 0);
		atomic_store(&table->f.is_over[l->end], true);
		while ((pid = atomic_load(&e->user)) && lives(pid))
			usleep(10);
		atomic_fetch_sub(&table->f.live, 1);
	}
	free(l);
}

/* Of the owner's process, or 0: the line is closed, or is not of that loan. */
static int lender(const struct end *e, uint32_t key)
{
	return atomic_load(&e->loan) == key ? atomic_load(&table->lent[key].pid) : 0;
}

/* In two halves, so that there is time for what must not come between. */
static int access_it(const struct fabric_line *l, const struct fabric_range *r, uint64_t offset,
		     char *data, uint64_t len, bool put)
{
	struct lent *t = &table->lent[r->key % LENT];
	struct end *e = &table->end[l->end];
	uint64_t half = len / 2, done = 0, n;
	struct iovec mine, other;
	int pid, rc = 0;

	atomic_store(&e->user, getpid());
	/* It is stored last, so what is read behind it is its. */
	if (!lender(e, r->key % LENT) || offset > t->len || len > t->len - offset ||
	    (put && !t->writes))
		rc = -EIO;
	while (!rc && done < len) {
		pid = lender(e, r->key % LENT);
		n = done < half ? half : len - done;
		mine = (struct iovec){ data + done, n };
		/* These calls reach the process's own memory, too, in both ways. */
		other = (struct iovec){ (void *)(uintptr_t)(t->kept + (r->at - t->at) + offset +
							  done), n };
		if (!pid || (put ? process_vm_writev(pid, &mine, 1, &other, 1, 0)
				 : process_vm_readv(pid, &mine, 1, &other, 1, 0)) != (ssize_t)n)
			rc = -EIO;
		done += n;
	}
	atomic_store(&e->user, 0);
	if (!rc)
		atomic_fetch_add(put ? &table->f.puts : &table->f.gets, 1);
	else if (!lender(e, r->key % LENT))
		atomic_fetch_add(&table->f.cut, 1);
	return rc;
}

static int fake_put(struct fabric_line *l, const struct fabric_range *to, uint64_t offset,
		    const void *data, uint64_t len, const _Atomic bool *over, uint64_t until)
{
	if (atomic_load(&table->f.fails)) {
		atomic_store(&table->f.failed, l->end);
		return -EIO;
	}
	return access_it(l, to, offset, (char *)(uintptr_t)data, len, true);
}

static int fake_get(struct fabric_line *l, const struct fabric_range *from, uint64_t offset,
		    void *data, uint64_t len, const _Atomic bool *over, uint64_t until)
{
	if (atomic_load(&table->f.fails))
		return -EIO;
	return access_it(l, from, offset, data, len, false);
}

static int fake_put_runs(struct fabric_line *l, const struct fabric_range *to, const char *base,
			 const struct fabric_run *run, uint32_t cnt, const _Atomic bool *over,
			 uint64_t until)
{
	uint32_t i;
	int rc = 0;

	for (i = 0; !rc && i < cnt; i++)
		rc = fake_put(l, to, run[i].offset, base + run[i].offset, run[i].len, over, until);
	return rc;
}

static const struct fabric fake = {
	.open = fake_open,
	.join = fake_join,
	.lend = fake_lend,
	.unlend = fake_unlend,
	.put = fake_put,
	.get = fake_get,
	.put_runs = fake_put_runs,
	.close = fake_close,
};

int fake_fabric_begin(void)
{
	table = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	return table == MAP_FAILED ? -ENOMEM : 0;
}

int fake_fabric_use(const char *unused)
{
	return kedge__region_fabric(&fake);
}
