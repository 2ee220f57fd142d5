// SPDX-License-Identifier: BSD-2-Clause
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kedge/hooks.h>

#include "recorder.h"

KEDGE_API __thread struct record record[RECORD_MAX];
KEDGE_API __thread int record_cnt;
KEDGE_API __thread int record_open;
KEDGE_API __thread struct given given[RECORD_MAX];
KEDGE_API __thread int given_cnt;
KEDGE_API _Atomic int recorder_total;
KEDGE_API _Atomic int recorder_blind;
KEDGE_API _Atomic int recorder_attached;
KEDGE_API void (*_Atomic recorder_fn)(const struct record *r);

static __thread bool on;

KEDGE_API void recorder_start(void)
{
	record_cnt = 0;
	record_open = 0;
	given_cnt = 0;
	on = true;
}

KEDGE_API void recorder_stop(void)
{
	on = false;
}

static bool mapped(uint64_t at)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	unsigned char vec;

	return !mincore((void *)(uintptr_t)(at & ~(page - 1)), 1, &vec);
}

/* As the real one promises: errno stays, whatever is done in here. */
KEDGE_API void kedge_hook_begin(struct kedge_hook *hook, int kind,
				const void *addr, size_t len)
{
	int saved = errno;
	struct record *r;

	hook->state = 0;
	if (!len)
		goto out;
	atomic_fetch_add(&recorder_total, 1);
	hook->kind = (uint32_t)kind & 0xff;
	hook->start = (uintptr_t)addr;
	hook->end = hook->start + len;
	if (recorder_fn) {
		struct record now = { .kind = hook->kind,
				      .start = hook->start,
				      .end = hook->end };

		recorder_fn(&now);
	}
	if (!on || record_cnt == RECORD_MAX)
		goto out;
	r = &record[record_cnt];
	r->kind = hook->kind;
	r->flags = (uint32_t)kind & ~0xffu;
	r->start = hook->start;
	r->end = hook->end;
	r->ended = false;
	r->mapped_at_begin = mapped(r->start);
	hook->state = (uint32_t)++record_cnt;
	record_open++;
out:
	errno = saved;
}

KEDGE_API void kedge_hook_end(struct kedge_hook *hook)
{
	int saved = errno;
	struct record *r;

	if (!hook->state || !on)
		return;
	r = &record[hook->state - 1];
	if (r->ended)
		abort();
	r->ended = true;
	r->mapped_at_end = mapped(r->start);
	record_open--;
	errno = saved;
}

KEDGE_API void kedge_hook_done(struct kedge_hook *hook)
{
	kedge_hook_end(hook);
}

static void note_given(const void *addr, size_t len, bool cut)
{
	if (!on || given_cnt == RECORD_MAX)
		return;
	given[given_cnt].cut = cut;
	given[given_cnt].start = (uintptr_t)addr;
	given[given_cnt++].end = (uintptr_t)addr + len;
}

KEDGE_API void kedge_hook_mapped(const void *addr, size_t len)
{
	note_given(addr, len, false);
}

KEDGE_API void kedge_hook_allocated(const void *addr, size_t len)
{
	note_given(addr, len, true);
}

KEDGE_API _Atomic int recorder_sharing[2];

KEDGE_API void kedge_hook_sharing(int pid)
{
	atomic_store(&recorder_sharing[!!pid], pid ? pid : 1);
}

KEDGE_API _Atomic int recorder_number;

KEDGE_API void kedge_hook_number(int fd)
{
	atomic_store(&recorder_number, fd);
}

KEDGE_API int kedge_hook_relieve(void)
{
	return 0;
}

KEDGE_API void kedge_hook_attach(uint32_t blind)
{
	atomic_store(&recorder_blind, (int)blind);
	atomic_fetch_add(&recorder_attached, 1);
}
