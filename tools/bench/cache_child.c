// SPDX-License-Identifier: BSD-2-Clause
/*
 * A side of the cache benchmark, in a process of its own: fills its cache, then
 * serves batches until the socket closes.
 *
 * Worker threads live as long as the child and sleep between batches. A batch
 * is warmed up untimed (the other side has just had the CPU and its caches);
 * then the threads meet at a barrier, each times its own operations, and none
 * stops before all are done, so that contention lasts for the whole of it.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/bench/cache.h"

const char *const kind_names[KIND_CNT + 1] = { "hit",  "miss",
					       "hint", "invalidate",
					       "unmap", "call", NULL };

/* A warm-up is this part of a batch. */
#define WARM_PART 4
/* Operations between two looks at whether the others are done. */
#define TAIL_OPS 64
/* Spins before a thread that waits for others gives its CPU away. */
#define SPINS 2000

struct child;

/** struct worker - a thread at work
 * @walk:  the addresses of this batch
 * @own:   its own entries; @own_order is their order
 * @all:   all entries
 * @ns:    for an operation
 */
struct worker {
	struct child *child;
	pthread_t thread;
	unsigned int index;
	bool started;
	sem_t go;
	sem_t done;
	struct walk walk;
	struct walk own;
	struct walk all;
	uint32_t *own_order;
	double ns;
	bool preempted;
	int rc;
};

/** struct child - the state of this process
 * @job:  the batch; NULL tells the workers to end
 * @at_start, @at_end: threads that have come there
 */
struct child {
	const struct cache_cfg *cfg;
	void *ctx;
	char *scratch;
	uint32_t *order;
	uint32_t *miss_slots;
	uint32_t *hint_slots;
	struct walk miss;
	struct walk hint;
	struct worker *workers;
	const struct cache_req *job;
	unsigned int at_start;
	unsigned int at_end;
};

/* New, untouched, writable memory at a fixed address; 0 or a negative errno. */
static int cache_map(void *addr, uint64_t len)
{
	/* Untouched, so that it costs address space and no memory. */
	void *p = mmap(addr, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
		       -1, 0);

	return p == MAP_FAILED ? -errno : 0;
}

/* 0, @step, 2 * @step, ... from @first, shuffled. NULL if there is no memory.
 */
static uint32_t *shuffled(uint64_t first, uint64_t step, uint64_t cnt,
			  uint64_t seed)
{
	uint32_t *order = reallocarray(NULL, cnt, sizeof(*order));
	struct util_rng rng;
	uint64_t i, j;
	uint32_t tmp;

	if (!order)
		return NULL;
	for (i = 0; i < cnt; i++)
		order[i] = (uint32_t)(first + i * step);
	util_rng_init(&rng, seed);
	for (i = cnt; i > 1; i--) {
		j = util_rng_below(&rng, i);
		tmp = order[i - 1];
		order[i - 1] = order[j];
		order[j] = tmp;
	}
	return order;
}

/* All threads of the batch come together here, or nearly so. */
static void meet(struct child *c, unsigned int *at)
{
	unsigned int spins = 0;

	/* Acquire and release: a barrier orders what is around it. */
	__atomic_fetch_add(at, 1, __ATOMIC_ACQ_REL);
	while (__atomic_load_n(at, __ATOMIC_ACQUIRE) < c->job->threads) {
		cpu_relax();
		if (++spins % SPINS == 0)
			sched_yield();
	}
}

static long times_preempted(void)
{
	struct rusage ru;

	return getrusage(RUSAGE_THREAD, &ru) ? 0 : ru.ru_nivcsw;
}

static int drop_pages(void *addr, uint64_t len)
{
	return madvise(addr, len, MADV_DONTNEED) ? -errno : 0;
}

/* munmap() first: not every cache sees what is mapped over. */
static int map_anew(void *addr, uint64_t len)
{
	return munmap(addr, len) ? -errno : cache_map(addr, len);
}

/* Each entry is used once more after @change. */
static int run_changes(struct worker *w, uint64_t n,
		       int (*change)(void *addr, uint64_t len))
{
	const struct child *c = w->child;
	int rc = 0;
	void *addr;

	while (n-- && !rc) {
		addr = walk_next(&w->walk);
		rc = change(addr, w->walk.len);
		if (!rc)
			rc = c->cfg->side->get_put(c->ctx, addr, w->walk.len);
	}
	return rc;
}

static int run(struct worker *w, uint64_t n)
{
	struct child *c = w->child;
	const struct side *side = c->cfg->side;

	switch (c->job->kind) {
	case KIND_CALL:
		while (n--)
			syscall(SYS_getppid);
		return 0;
	case KIND_INVALIDATE:
		return run_changes(w, n, drop_pages);
	case KIND_UNMAP:
		return run_changes(w, n, map_anew);
	case KIND_HINT:
		return side->hints(c->ctx, &w->walk, n);
	default:
		return side->get_puts(c->ctx, &w->walk, n);
	}
}

static void run_batch(struct worker *w)
{
	struct child *c = w->child;
	const struct cache_req *job = c->job;
	uint64_t start, end;
	long before;
	int rc;

	rc = run(w, job->ops / WARM_PART + 1);
	meet(c, &c->at_start);
	before = times_preempted();
	start = clock_ns();
	if (!rc)
		rc = run(w, job->ops);
	end = clock_ns();
	w->preempted = times_preempted() != before;
	w->ns = (double)(end - start) / (double)job->ops;
	w->rc = rc;

	__atomic_fetch_add(&c->at_end, 1, __ATOMIC_ACQ_REL);
	while (!rc &&
	       __atomic_load_n(&c->at_end, __ATOMIC_ACQUIRE) < job->threads)
		rc = run(w, TAIL_OPS);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;

	/* Not where the kernel would let two share a CPU for a while. A
	 * failure costs precision alone. */
	proc_pin(w->index);
	for (;;) {
		while (sem_wait(&w->go))
			;
		if (!w->child->job)
			return NULL;
		run_batch(w);
		sem_post(&w->done);
	}
}

static int start_worker(struct child *c, unsigned int index)
{
	const struct cache_cfg *cfg = c->cfg;
	struct worker *w = &c->workers[index];
	uint64_t mine =
		(cfg->entries + cfg->threads - 1 - index) / cfg->threads;

	w->child = c;
	w->index = index;
	w->all = (struct walk){
		.base = cfg->area + cfg->offset,
		.stride = ENTRY_STRIDE,
		.len = ENTRY_LEN,
		.order = c->order,
		.cnt = (uint32_t)cfg->entries,
	};
	w->own = w->all;
	if (mine) {
		w->own_order = shuffled(index, cfg->threads, mine,
					cfg->seed + 1 + index);
		if (!w->own_order)
			return -ENOMEM;
		w->own.order = w->own_order;
		w->own.cnt = (uint32_t)mine;
	}
	sem_init(&w->go, 0, 0);
	sem_init(&w->done, 0, 0);
	if (cfg->single)
		return 0; /* this thread alone may */
	if (pthread_create(&w->thread, NULL, worker_main, w))
		return -EAGAIN;
	w->started = true;
	return 0;
}

static int start_workers(struct child *c)
{
	unsigned int i;
	int rc = 0;

	c->workers = calloc(c->cfg->threads, sizeof(*c->workers));
	if (!c->workers)
		return -ENOMEM;
	for (i = 0; i < c->cfg->threads && !rc; i++)
		rc = start_worker(c, i);
	return rc;
}

static void stop_workers(struct child *c)
{
	unsigned int i;

	c->job = NULL;
	for (i = 0; c->workers && i < c->cfg->threads; i++) {
		if (c->workers[i].started) {
			sem_post(&c->workers[i].go);
			pthread_join(c->workers[i].thread, NULL);
		}
		free(c->workers[i].own_order);
	}
	free(c->workers);
}

static bool is_fresh(uint32_t kind)
{
	return kind == KIND_MISS || kind == KIND_HINT;
}

/*
 * New memory for the next misses; one get has the cache notice and tidy up. It
 * stays registered, so hits are measured before the first miss.
 */
static int renew_scratch(struct child *c)
{
	const uint32_t last = MISS_SLOTS - 1;
	struct walk w = c->miss;
	int rc;

	rc = map_anew(c->scratch, SCRATCH_LEN);
	if (rc)
		return rc;
	w.order = &last;
	w.cnt = 1;
	w.pos = 0;
	return c->cfg->side->get_puts(c->ctx, &w, 1);
}

static void prepare(struct child *c, const struct cache_req *req)
{
	struct worker *w;
	unsigned int i;

	for (i = 0; i < req->threads; i++) {
		w = &c->workers[i];
		if (req->kind == KIND_MISS)
			w->walk = c->miss;
		else if (req->kind == KIND_HINT)
			w->walk = c->hint;
		else
			w->walk = req->own ? w->own : w->all;
	}
}

/* The next batch goes on where this one ended; "same" walks start together. */
static void keep_place(struct child *c, const struct cache_req *req)
{
	unsigned int i;

	if (req->own) {
		for (i = 0; i < req->threads; i++)
			c->workers[i].own.pos = c->workers[i].walk.pos;
		return;
	}
	for (i = 0; i < c->cfg->threads; i++)
		c->workers[i].all.pos = c->workers[0].walk.pos;
}

static void run_workers(struct child *c, const struct cache_req *req,
			struct cache_rep *rep)
{
	unsigned int i;

	c->job = req;
	c->at_start = 0;
	c->at_end = 0;
	for (i = 0; i < req->threads && !c->cfg->single; i++)
		sem_post(&c->workers[i].go);
	for (i = 0; i < req->threads; i++) {
		struct worker *w = &c->workers[i];

		if (c->cfg->single)
			run_batch(w);
		else
			while (sem_wait(&w->done))
				;
		rep->ns += w->ns / (double)req->threads;
		rep->preempted |= w->preempted;
		if (w->rc)
			rep->rc = w->rc;
	}
}

static void batch(struct child *c, const struct cache_req *req,
		  struct cache_rep *rep)
{
	const struct side *side = c->cfg->side;
	/* The tail of several threads comes on top, and is all hits. */
	uint64_t ops = req->threads * (req->ops + req->ops / WARM_PART + 1);
	uint64_t regs = side->registrations(c->ctx);

	prepare(c, req);
	run_workers(c, req, rep);
	if (rep->rc)
		return;
	rep->regs = (double)(side->registrations(c->ctx) - regs) / (double)ops;
	if (is_fresh(req->kind))
		rep->rc = renew_scratch(c);
	else
		keep_place(c, req);
}

/*
 * In the order of addresses: in the order of the walk, the caches' own structs
 * would lie in memory as the walk finds them, and be prefetched.
 */
static int fill(struct child *c)
{
	const struct cache_cfg *cfg = c->cfg;
	const uint32_t zero = 0;
	struct walk w = { .base = cfg->area + cfg->offset,
			  .len = ENTRY_LEN,
			  .order = &zero,
			  .cnt = 1 };
	uint64_t i;
	int rc = 0;

	for (i = 0; i < cfg->entries && !rc; i++) {
		rc = cfg->side->get_puts(c->ctx, &w, 1);
		w.base += ENTRY_STRIDE;
	}
	return rc;
}

static int child_init(struct child *c)
{
	const struct cache_cfg *cfg = c->cfg;

	c->scratch = cfg->area + cfg->area_len - SCRATCH_LEN;
	c->order = shuffled(0, 1, cfg->entries, cfg->seed);
	/* The last slot of each is renew_scratch()'s. */
	c->miss_slots = shuffled(0, 1, MISS_SLOTS - 1, cfg->seed);
	c->hint_slots = shuffled(0, 1, HINT_SLOTS - 1, cfg->seed);
	if (!c->order || !c->miss_slots || !c->hint_slots)
		return -ENOMEM;
	c->miss = (struct walk){ .base = c->scratch + cfg->offset,
				 .stride = ENTRY_STRIDE,
				 .len = ENTRY_LEN,
				 .order = c->miss_slots,
				 .cnt = MISS_SLOTS - 1 };
	c->hint = (struct walk){ .base = c->scratch + cfg->offset,
				 .stride = HINT_STRIDE,
				 .len = HINT_LEN,
				 .order = c->hint_slots,
				 .cnt = HINT_SLOTS - 1 };
	return cache_map(cfg->area, cfg->area_len);
}

static void child_fini(struct child *c)
{
	free(c->hint_slots);
	free(c->miss_slots);
	free(c->order);
}

static void explain(struct cache_rep *rep, const char *what)
{
	if (rep->rc && !rep->why[0])
		snprintf(rep->why, sizeof(rep->why), "%s: %s", what,
			 strerror(-rep->rc));
}

static void serve(struct child *c, int fd)
{
	struct cache_req req;
	struct cache_rep rep;

	while (!proc_recv(fd, &req, sizeof(req))) {
		rep = (struct cache_rep){ 0 };
		batch(c, &req, &rep);
		explain(&rep, kind_names[req.kind]);
		if (proc_send(fd, &rep, sizeof(rep)))
			return;
	}
}

void cache_child(int fd, void *arg)
{
	struct child c = { .cfg = arg };
	const struct side *side = c.cfg->side;
	struct cache_rep rep = { 0 };

	rep.rc = child_init(&c);
	explain(&rep, "cannot map the entries");
	if (!rep.rc)
		rep.rc = side->open(c.cfg, &c.ctx, &rep.info, rep.why);
	if (!rep.rc) {
		rep.rc = fill(&c);
		explain(&rep, "cannot fill the cache");
	}
	/* After the notifier's thread, which shall not inherit a CPU. */
	if (!rep.rc) {
		rep.rc = start_workers(&c);
		explain(&rep, "cannot start the threads");
	}
	if (!proc_send(fd, &rep, sizeof(rep)) && !rep.rc)
		serve(&c, fd);
	stop_workers(&c);
	if (c.ctx)
		side->close(c.ctx);
	child_fini(&c);
}
