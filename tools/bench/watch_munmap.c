// SPDX-License-Identifier: BSD-2-Clause
/*
 * A process that maps 64 KiB, touches it, lets it be watched where that is its
 * way to live, and times the munmap() alone.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "tools/bench/watch.h"

/* Memory of no interest that a notifier watches: it has something to search. */
#define OTHER_WATCHES 1000u
#define OTHER_LEN     ((uint64_t)OTHER_WATCHES * WATCH_STRIDE)
#define COOKIE	      (OTHER_WATCHES + 1u)
#define LONELY_LEN    ((size_t)16 << 20)
#define LONELY_ALIGN  ((uint64_t)2 << 20)
#define WARM_OPS      4
#define EVENTS	      16

/** struct munmap_state - the state of this process
 * @libc_munmap: libc's own, past any interposition
 * @other:       memory that is not unmapped, alike in all processes
 * @slot:        where the range is mapped, between two mappings that it cannot
 *               merge with: a munmap() that splits a mapping costs more
 * @near:        memory 64 KiB before the slot
 * @lonely:      the reservation that holds both
 * @insn:        counter, or a negative errno
 * @insn_cost:   of reading it
 */
struct munmap_state {
	const struct munmap_cfg *cfg;
	int (*libc_munmap)(void *addr, size_t len);
	struct kedge_notifier *nf;
	struct plain *plain;
	char *other;
	char *lonely;
	char *slot;
	char *near;
	int insn;
	uint64_t insn_cost;
	struct samples ns;
	struct samples count;
};

static int find_libc_munmap(struct munmap_state *s)
{
	void *lib = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD), *p;

	p = lib ? dlsym(lib, "munmap") : NULL;
	if (!p)
		return -ENOENT;
	memcpy(&s->libc_munmap, &p, sizeof(p));
	return 0;
}

/*
 * The slot and its neighbour, in the middle of address space where nothing else
 * lies within 2 MiB.
 */
static int map_slot(struct munmap_state *s)
{
	uintptr_t at;
	void *p;

	p = mmap(NULL, LONELY_LEN, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return -errno;
	s->lonely = p;
	at = round_up((uintptr_t)p, LONELY_ALIGN) + LONELY_LEN / 2 +
	     LONELY_ALIGN / 2;
	s->slot = s->lonely + (at - (uintptr_t)p);
	s->near = s->slot - WATCH_STRIDE;
	if (mprotect(s->near, WATCH_LEN, PROT_READ | PROT_WRITE))
		return -errno;
	return raw_munmap(s->slot, WATCH_LEN) ? -EINVAL : 0;
}

static int map_all(struct munmap_state *s)
{
	void *p;

	p = mmap(NULL, OTHER_LEN, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return -errno;
	s->other = p;
	return map_slot(s);
}

static int watch_others(struct munmap_state *s)
{
	uint64_t i;
	int rc = 0;

	for (i = 0; i < OTHER_WATCHES && rc >= 0; i++)
		rc = kedge_watch_add(s->nf, s->other + i * WATCH_STRIDE,
				     WATCH_LEN, i);
	if (rc >= 0 && s->cfg->config == CFG_NEAR)
		rc = kedge_watch_add(s->nf, s->near, WATCH_LEN, COOKIE);
	return rc < 0 ? rc : 0;
}

static int open_notifier(struct munmap_state *s, struct munmap_rep *rep)
{
	struct kedge_notifier_opts no = { .size = sizeof(no),
					  .backend = s->cfg->notifier };
	struct kedge_notifier_info info = { .size = sizeof(info) };
	int rc;

	rc = kedge_notifier_open(&no, &s->nf);
	if (rc)
		goto say;
	rc = kedge_notifier_info(s->nf, &info);
	if (rc)
		goto say;
	snprintf(rep->backend, sizeof(rep->backend), "%s", info.backend);
	snprintf(rep->level, sizeof(rep->level), "%s",
		 util_level_name(info.level));
	rep->hooked = info.hooked;
	if (info.level == KEDGE_LEVEL_NONE)
		rc = kedge_reason(-EOPNOTSUPP,
				  "notifier \"%s\" watches nothing",
				  info.backend);
	else
		rc = watch_others(s);
	if (!rc)
		return 0;
say:
	snprintf(rep->why, sizeof(rep->why), "cannot open the notifier: %s",
		 kedge_strerror(rc));
	return rc;
}

static int set_up(struct munmap_state *s, struct munmap_rep *rep)
{
	uint64_t n;
	int rc;

	/* Before any thread is made: all are to share the one CPU. */
	rc = s->cfg->one_cpu ? proc_pin(0) : 0;
	if (!rc)
		rc = find_libc_munmap(s);
	if (!rc)
		rc = map_all(s);
	if (rc) {
		snprintf(rep->why, sizeof(rep->why), "cannot start: %s",
			 strerror(-rc));
		return rc;
	}
	s->insn = bench_insn_open();
	if (s->insn >= 0) {
		n = bench_insn_read(s->insn);
		s->insn_cost = bench_insn_read(s->insn) - n;
	}
	switch (s->cfg->config) {
	case CFG_UNWATCHED:
	case CFG_NEAR:
	case CFG_WATCHED:
	case CFG_RAW:
		return open_notifier(s, rep);
	case CFG_PLAIN:
		return plain_open(&s->plain, rep->why);
	default:
		return 0;
	}
}

static void tear_down(struct munmap_state *s)
{
	kedge_notifier_close(s->nf);
	plain_close(s->plain);
	/* The slot is a hole in it, which munmap() allows. */
	if (s->lonely)
		munmap(s->lonely, LONELY_LEN);
	if (s->other)
		munmap(s->other, OTHER_LEN);
	if (s->insn >= 0)
		close(s->insn);
	samples_fini(&s->ns);
	samples_fini(&s->count);
}

static void *touched(char *slot, size_t page)
{
	char *p;
	size_t i;

	/* A hint: were the slot taken meanwhile, it would be elsewhere. */
	p = mmap(slot, WATCH_LEN, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	for (i = 0; i < WATCH_LEN; i += page)
		*(volatile char *)(p + i) = 1;
	return p;
}

static int watch(struct munmap_state *s, void *addr)
{
	int rc = 0;

	if (s->cfg->config == CFG_WATCHED || s->cfg->config == CFG_RAW)
		rc = kedge_watch_add(s->nf, addr, WATCH_LEN, COOKIE);
	else if (s->cfg->config == CFG_PLAIN)
		rc = plain_add(s->plain, addr, WATCH_LEN);
	return rc < 0 ? rc : 0;
}

/* The watch goes with its event; the queue is emptied as a cache would. */
static int unwatch(struct munmap_state *s)
{
	struct kedge_event ev[EVENTS];
	ssize_t n;
	int rc;

	if (s->cfg->config != CFG_WATCHED && s->cfg->config != CFG_RAW)
		return 0;
	rc = kedge_watch_remove(s->nf, COOKIE);
	if (rc)
		return rc;
	do {
		n = kedge_notifier_read(s->nf, ev, EVENTS);
	} while (n == EVENTS);
	return n < 0 ? (int)n : 0;
}

static int unmap(struct munmap_state *s, void *addr)
{
	switch (s->cfg->config) {
	case CFG_NONE:
	case CFG_CONTROL:
		return s->libc_munmap(addr, WATCH_LEN) ? -errno : 0;
	case CFG_RAW:
	case CFG_PLAIN:
		return (int)raw_munmap(addr, WATCH_LEN);
	default:
		return munmap(addr, WATCH_LEN) ? -errno : 0;
	}
}

/* Busy, as an application is: its CPU does not go to sleep, others may. */
static void wait_busy(uint64_t ns)
{
	uint64_t end = clock_ns() + ns;

	while (ns && clock_ns() < end)
		cpu_relax();
}

static int one(struct munmap_state *s, const struct munmap_req *req,
	       size_t page, bool keep)
{
	uint64_t start, end, n0 = 0, n1 = 0;
	void *addr;
	int rc;

	addr = touched(s->slot, page);
	if (!addr)
		return -ENOMEM;
	rc = watch(s, addr);
	if (rc)
		return rc;
	wait_busy(req->pace_ns);
	if (req->count_insn)
		n0 = bench_insn_read(s->insn);
	start = clock_ns();
	rc = unmap(s, addr);
	end = clock_ns();
	if (req->count_insn)
		n1 = bench_insn_read(s->insn);
	if (!rc)
		rc = unwatch(s);
	if (rc || !keep)
		return rc;
	rc = samples_add(&s->ns, (double)(end - start));
	if (!rc)
		rc = samples_add(&s->count,
				       (double)(n1 - n0 - s->insn_cost));
	return rc;
}

static void batch(struct munmap_state *s, const struct munmap_req *req,
		  struct munmap_rep *rep)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint32_t i;

	s->ns.n = 0;
	s->count.n = 0;
	for (i = 0; i < WARM_OPS + req->ops && !rep->rc; i++)
		rep->rc = one(s, req, page, i >= WARM_OPS);
	if (rep->rc) {
		snprintf(rep->why, sizeof(rep->why), "%s", strerror(-rep->rc));
		return;
	}
	rep->ns = util_median(s->ns.v, s->ns.n);
	rep->best_ns = s->ns.v[0];
	if (req->count_insn)
		rep->insn = util_median(s->count.v, s->count.n);
}

void munmap_child(int fd, void *arg)
{
	struct munmap_state s = { .cfg = arg, .insn = -ENOENT };
	struct munmap_rep rep = { 0 };
	struct munmap_req req;

	rep.rc = set_up(&s, &rep);
	while (!proc_send(fd, &rep, sizeof(rep)) && !rep.rc &&
	       !proc_recv(fd, &req, sizeof(req))) {
		rep = (struct munmap_rep){ 0 };
		batch(&s, &req, &rep);
	}
	tear_down(&s);
}
