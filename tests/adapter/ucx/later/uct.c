// SPDX-License-Identifier: BSD-2-Clause
/* libuct's: see standin.h. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "standin.h"

#define PAGES 64
#define DUMMY ((void *)0xdeadbeef)

struct memh {
	struct memh *next; /* of those that share */
	unsigned int refs;
	uintptr_t at;
	size_t pages;
	int pipes[PAGES][2]; /* of one page each */
};

/* In memory that a fork shares: a child's deregistrations are done to the parent, too. */
static _Atomic unsigned int *counts;

static _Atomic unsigned int *count(size_t i)
{
	return &counts[i];
}

__attribute__((constructor)) static void begin(void)
{
	counts = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (counts == MAP_FAILED)
		abort();
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards: */
static struct memh *shared;

static void (*_Atomic in_reg[2])(void *at, size_t len);

void standin_in_reg(void (*fn)(void *at, size_t len), bool behind)
{
	atomic_store(&in_reg[0], behind ? NULL : fn);
	atomic_store(&in_reg[1], behind ? fn : NULL);
}

static void call_in_reg(bool behind, void *at, size_t len)
{
	void (*fn)(void *, size_t) = atomic_load(&in_reg[behind]);

	if (fn)
		fn(at, len);
}

unsigned int standin_regs(void)
{
	return atomic_load(count(0));
}

unsigned int standin_deregs(void)
{
	return atomic_load(count(1));
}

static struct memh *pin(void *at, size_t len)
{
	struct memh *m = calloc(1, sizeof(*m));
	struct iovec v = { at, PAGE };

	if (!m || len > PAGES * PAGE)
		abort();
	m->at = (uintptr_t)at;
	m->refs = 1;
	for (; m->pages < len / PAGE; m->pages++) {
		/* Present, and no page of zeros that all share. */
		*(volatile char *)v.iov_base = *(volatile char *)v.iov_base;
		if (pipe(m->pipes[m->pages]) || vmsplice(m->pipes[m->pages][1], &v, 1, 0) != PAGE)
			abort();
		v.iov_base = (char *)v.iov_base + PAGE;
	}
	return m;
}

static struct memh *share(void *at, size_t len)
{
	struct memh *m;

	pthread_mutex_lock(&lock);
	for (m = shared; m && m->at >> 20 != (uintptr_t)at >> 20; m = m->next)
		;
	if (m) {
		m->refs++;
	} else {
		m = pin(at, len);
		m->next = shared;
		shared = m;
	}
	pthread_mutex_unlock(&lock);
	return m;
}

int uct_md_mem_reg_v2(struct uct_md *md, void *at, size_t len, const void *params, void **memh)
{
	atomic_fetch_add(count(0), 1);
	if (md->fails) {
		md->fails--;
		RETURN(-3);
	}
	call_in_reg(false, at, len);
	*memh = md->dummy ? DUMMY : md->shares ? share(at, len) : pin(at, len);
	call_in_reg(true, at, len);
	RETURN(0);
}

int uct_md_mem_reg(struct uct_md *md, void *at, size_t len, unsigned int flags, void **memh)
{
	uint64_t params[2] = { 1, flags };

	return uct_md_mem_reg_v2(md, at, len, params, memh);
}

static void unpin(struct memh *m)
{
	size_t i;

	for (i = 0; i < m->pages; i++) {
		close(m->pipes[i][0]);
		close(m->pipes[i][1]);
	}
	free(m);
}

int uct_md_mem_dereg(struct uct_md *md, void *memh)
{
	struct memh *m = memh, **at = &shared;
	bool last;

	atomic_fetch_add(count(1), 1);
	if (m == DUMMY)
		RETURN(0);
	pthread_mutex_lock(&lock);
	last = !--m->refs;
	while (last && *at && *at != m)
		at = &(*at)->next;
	if (last && *at)
		*at = m->next;
	pthread_mutex_unlock(&lock);
	if (last)
		unpin(m);
	RETURN(0);
}

int uct_md_mem_dereg_v2(struct uct_md *md, const struct dereg_params *params)
{
	if (!(params->field_mask & 1))
		RETURN(-5);
	return uct_md_mem_dereg(md, params->memh);
}

void standin_read(void *memh, size_t offset, void *to, size_t len)
{
	struct memh *m = memh;
	char page[PAGE];
	size_t i, got;
	int p[2];

	for (i = 0; i < len / PAGE; i++) {
		/* tee(): what is read here stays there. */
		if (pipe(p) || tee(m->pipes[offset / PAGE + i][0], p[1], PAGE, 0) != PAGE)
			abort();
		for (got = 0; got < PAGE;)
			got += (size_t)read(p[0], page + got, PAGE - got);
		for (got = 0; got < PAGE; got++)
			((char *)to)[i * PAGE + got] = page[got];
		close(p[0]);
		close(p[1]);
	}
}
