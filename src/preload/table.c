// SPDX-License-Identifier: BSD-2-Clause
/* See table.h. The file is named by KEDGE_DOCTOR; forked children inherit its mapping. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "preload/library.h"
#include "preload/table.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct held_table *shared;

static void say_why(const char *path, const char *why)
{
	char *text;

	if (asprintf(&text, "kedge: cannot map %s (KEDGE_DOCTOR), so no changes of this process "
		     "are found: %s\n", path, why) >= 0)
		library_say(text);
}

/* A file that is too short would end the program with SIGBUS. */
static const char *map_file(int fd)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return strerror(errno);
	if (st.st_size < (off_t)sizeof(*shared))
		return "too short";
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (shared != MAP_FAILED)
		return NULL;
	shared = NULL;
	return strerror(errno);
}

static void find_table(void)
{
	const char *path = secure_getenv("KEDGE_DOCTOR"), *why;
	int fd;

	if (!path || !*path)
		return;
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	why = map_file(fd);
	if (why)
		say_why(path, why);
	if (fd >= 0)
		close(fd);
}

/* Threads ask at once: one opens a device while another registers. */
static struct held_table *table(void)
{
	pthread_once(&once, find_table);
	return shared;
}

bool table_asked(void)
{
	return table() != NULL;
}

bool table_traced(void)
{
	struct held_table *t = table();

	return t && atomic_load_explicit(&t->traced, memory_order_relaxed);
}

static struct table_slot *claim(struct held_table *t, uint32_t i)
{
	uint32_t was = 0, used;

	if (!atomic_compare_exchange_strong(&t->slot[i].pid, &was, TABLE_CLAIMED))
		return NULL;
	/* seq_cst: it counts before the slot has a range that a reader should find. */
	used = atomic_load(&t->used);
	while (used <= i && !atomic_compare_exchange_weak(&t->used, &used, i + 1))
		;
	return &t->slot[i];
}

static void fill(struct table_slot *s, const struct table_range *r)
{
	uint32_t i;

	/* seq_cst, before all else: see table_note(). */
	atomic_fetch_add(&s->serial, 1);
	for (i = 0; i < TABLE_GONE; i++) {
		atomic_store(&s->gone[i].end, 0);
		atomic_store_explicit(&s->gone[i].used, 0, memory_order_relaxed);
	}
	atomic_store_explicit(&s->taken, 0, memory_order_relaxed);
	atomic_store_explicit(&s->ended, 0, memory_order_relaxed);
	atomic_store_explicit(&s->lkey, r->lkey, memory_order_relaxed);
	atomic_store_explicit(&s->rkey, r->rkey, memory_order_relaxed);
	atomic_store_explicit(&s->context, (uintptr_t)r->context, memory_order_relaxed);
	atomic_store_explicit(&s->iova, r->iova, memory_order_relaxed);
	atomic_store(&s->start, r->at);
	atomic_store(&s->end, r->at + r->len);
	snprintf(s->library, sizeof(s->library), "%s", r->library);
	atomic_store_explicit(&s->pid, (uint32_t)getpid(), memory_order_release);
}

struct table_slot *table_add(const struct table_range *r)
{
	static uint32_t next;
	struct held_table *t = table();
	struct table_slot *s = NULL;
	uint32_t i;

	if (!t)
		return NULL;
	for (i = 0; i < TABLE_SLOTS && !s; i++)
		s = claim(t, (next + i) % TABLE_SLOTS);
	if (!s) {
		atomic_fetch_add(&t->lost, 1);
		return NULL;
	}
	next = (uint32_t)(s - t->slot);
	fill(s, r);
	return s;
}

void table_remove(struct table_slot *s)
{
	if (s)
		table_end(s);
}

void table_gone(struct table_slot *s, enum table_kind kind, uint64_t start, uint64_t end)
{
	if (s && !table_traced())
		table_note(s, kind, 0, start, end);
}

/* ---- work requests ---- */

/* Keys are the adapter's: of two processes with an adapter each the same one may mean both ranges,
 * so the address has to fit as well. */
static void use(struct table_slot *s, uint64_t at, uint64_t len)
{
	uint64_t start = atomic_load_explicit(&s->start, memory_order_relaxed), end;
	uint32_t i;

	at = at - atomic_load_explicit(&s->iova, memory_order_relaxed) + start;
	if (at < start || at + len > atomic_load_explicit(&s->end, memory_order_relaxed))
		return;
	for (i = 0; i < TABLE_GONE; i++) {
		end = atomic_load_explicit(&s->gone[i].end, memory_order_acquire);
		start = atomic_load_explicit(&s->gone[i].start, memory_order_relaxed);
		if (at < end && at + len > start) {
			atomic_fetch_add_explicit(&s->gone[i].used, 1, memory_order_relaxed);
			return;
		}
	}
}

static bool is_meant(const struct table_slot *s, const void *context, uint32_t key)
{
	uint32_t pid = atomic_load_explicit(&s->pid, memory_order_acquire);

	if (!pid || pid == TABLE_CLAIMED || atomic_load_explicit(&s->ended, memory_order_relaxed))
		return false;
	if (!context)
		return atomic_load_explicit(&s->rkey, memory_order_relaxed) == key;
	return pid == (uint32_t)getpid() &&
	       atomic_load_explicit(&s->lkey, memory_order_relaxed) == key &&
	       atomic_load_explicit(&s->context, memory_order_relaxed) == (uintptr_t)context;
}

/* A slot that was meant is tried first when its key comes again: there may be thousands. */
#define HINTS 1024u

void table_use(const void *context, uint32_t key, uint64_t at, uint64_t len)
{
	static _Atomic uint32_t hint[HINTS];
	struct held_table *t = table();
	uint32_t used = t && len ? atomic_load(&t->used) : 0, i;
	_Atomic uint32_t *first = &hint[(key ^ key >> 10) % HINTS];

	if (used > TABLE_SLOTS)
		used = TABLE_SLOTS;
	i = atomic_load_explicit(first, memory_order_relaxed);
	if (context && i < used && is_meant(&t->slot[i], context, key)) {
		use(&t->slot[i], at, len);
		return;
	}
	for (i = 0; i < used; i++) {
		if (!is_meant(&t->slot[i], context, key))
			continue;
		use(&t->slot[i], at, len);
		if (context) {
			atomic_store_explicit(first, i, memory_order_relaxed);
			return;
		}
	}
}
