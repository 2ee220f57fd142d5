// SPDX-License-Identifier: BSD-2-Clause
/*
 * Allocate, get, read through the device, compare, put, free; in every thread.
 *
 * The device reads from a pipe, which the kernel serves on the submitting
 * thread. Each round's bytes differ from all others', so a transfer that went
 * to pages of the past never compares equal.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <liburing.h>

#include "tools/torture/churn.h"
#include "tools/common/raw.h"

#define RING_ENTRIES 8
#define MALLOC_SIZE  ((size_t)40000000)
#define MMAP_SIZE    ((size_t)256 << 10)
#define MIXED_MIN    ((size_t)64 << 10)
#define TICK_MS	     50

extern char **environ;

const char *const churn_alloc_names[CHURN_ALLOCS + 1] = { "malloc", "mmap",
							  "mixed", NULL };
const char *const churn_route_names[CHURN_ROUTES + 1] = { "libc", "syscall",
							  "raw", NULL };

/* A ring, and the cache over it. */
struct unit {
	struct io_uring ring;
	pthread_mutex_t lock; /* submitting and reaping */
	struct kedge_device *dev;
	struct kedge_notifier *nf; /* NULL: the cache has its own */
	struct kedge_cache *cache;
};

struct churn {
	const struct churn_opts *o;
	struct unit unit[CHURN_MAX_THREADS];
	unsigned int units;
	atomic_bool stop;
	atomic_uint running;
	atomic_ullong gets, stale, refused, left;
	pthread_mutex_t lock; /* guards the next three */
	int error;
	bool found;
	char text[CHURN_TEXT];
};

struct lane {
	struct churn *c;
	struct unit *u;
	pthread_t thread;
	unsigned int id;
	int pipe[2];
	uint64_t rng, round;
	uint64_t *bytes; /* what the device reads */
};

/* A block that a round allocated. */
struct block {
	void *mem;
	size_t len;
	bool heap;
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* splitmix64 */
static uint64_t draw(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* Note the first error, else the first stale round; an error ends the run. */
__attribute__((format(printf, 3, 4)))
static void note(struct churn *c, int error, const char *fmt, ...)
{
	va_list ap;

	pthread_mutex_lock(&c->lock);
	if (error ? !c->error : !c->error && !c->found) {
		va_start(ap, fmt);
		vsnprintf(c->text, sizeof(c->text), fmt, ap);
		va_end(ap);
		c->found = true;
		c->error = error;
	}
	pthread_mutex_unlock(&c->lock);
	if (error)
		atomic_store(&c->stop, true);
}

/* ---- memory ---- */

/* mmap() and munmap() by the route: the result, or a negative errno. */
static long call(enum churn_route route, long nr, long a, long b, long prot,
		 long flags, long fd)
{
	long rc;

	switch (route) {
	case CHURN_RAW:
		return raw_syscall6(nr, a, b, prot, flags, fd, 0);
	case CHURN_SYSCALL:
		rc = syscall(nr, a, b, prot, flags, fd, 0L);
		break;
	default:
		if (nr == SYS_munmap)
			rc = munmap((void *)a, (size_t)b);
		else
			rc = (long)mmap((void *)a, (size_t)b, (int)prot,
					(int)flags, (int)fd, 0);
	}
	return rc == -1 ? -errno : rc;
}

static int block_alloc(struct lane *l, struct block *b)
{
	const struct churn_opts *o = l->c->o;
	size_t max = o->size;
	long rc;

	b->heap = o->alloc == CHURN_MALLOC ||
		  (o->alloc == CHURN_MIXED && draw(&l->rng) % 2);
	if (!max)
		max = o->alloc == CHURN_MMAP ? MMAP_SIZE : MALLOC_SIZE;
	b->len = max;
	/* Small ones as often as large ones: halve at random. */
	if (o->alloc == CHURN_MIXED) {
		b->len = max >> draw(&l->rng) % 10;
		b->len -= draw(&l->rng) % (b->len / 2);
		if (b->len < MIXED_MIN)
			b->len = MIXED_MIN;
	}
	if (b->len < o->transfer)
		b->len = o->transfer;
	if (b->heap) {
		b->mem = malloc(b->len);
		return b->mem ? 0 : -ENOMEM;
	}
	rc = call(o->route, SYS_mmap, 0, (long)b->len, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS, -1);
	if (rc < 0 && rc > -4096)
		return (int)rc;
	b->mem = (void *)rc;
	return 0;
}

static int block_free(struct lane *l, struct block *b)
{
	if (b->heap) {
		free(b->mem);
		return 0;
	}
	return (int)call(l->c->o->route, SYS_munmap, (long)b->mem,
			 (long)b->len, 0, 0, 0);
}

/* ---- the transfer ---- */

/* New bytes into the pipe. */
static int fill(struct lane *l)
{
	size_t len = l->c->o->transfer, done = 0, i;
	uint64_t base = draw(&l->rng);
	ssize_t n;

	for (i = 0; i < len / sizeof(*l->bytes); i++)
		l->bytes[i] = base + i * 0x100000001u;
	while (done < len) {
		n = write(l->pipe[1], (char *)l->bytes + done, len - done);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0)
			done += (size_t)n;
	}
	return 0;
}

/* One fixed-buffer read: bytes read, or a negative errno. */
static int read_fixed(struct lane *l, const struct kedge_mr *mr, char *at,
		      size_t len)
{
	char *pos = (char *)(uintptr_t)(mr->offset + (uintptr_t)at - mr->addr);
	struct io_uring *ring = &l->u->ring;
	struct io_uring_cqe *cqe;
	struct io_uring_sqe *sqe;
	int rc;

	pthread_mutex_lock(&l->u->lock);
	sqe = io_uring_get_sqe(ring);
	io_uring_prep_read_fixed(sqe, l->pipe[0], pos, (unsigned int)len,
				 (uint64_t)-1, (int)mr->device_handle);
	do
		rc = io_uring_submit_and_wait(ring, 1);
	while (rc == -EINTR || rc == -EAGAIN);
	while (rc >= 0) {
		rc = io_uring_wait_cqe(ring, &cqe);
		if (rc == -EINTR || rc == -EAGAIN) {
			rc = 0;
			continue;
		}
		if (rc)
			break;
		rc = cqe->res;
		io_uring_cqe_seen(ring, cqe);
		break;
	}
	pthread_mutex_unlock(&l->u->lock);
	return rc;
}

static int transfer(struct lane *l, const struct kedge_mr *mr, char *at)
{
	size_t len = l->c->o->transfer, done = 0;
	int rc = fill(l);

	while (!rc && done < len) {
		rc = read_fixed(l, mr, at + done, len - done);
		if (rc <= 0)
			return rc ? rc : -EIO;
		done += (size_t)rc;
		rc = 0;
	}
	return rc;
}

/*
 * The value that the CPU sees at @at. Atomic, so that the compiler assumes nothing of
 * memory from malloc(), and a sanitizer nothing of an address that came round
 * by a route it does not follow.
 */
static void compare(struct lane *l, const char *at)
{
	size_t len = l->c->o->transfer, i;
	const uint64_t *p = (const void *)at;
	uint64_t seen = 0;

	atomic_fetch_add(&l->c->gets, 1);
	for (i = 0; i < len / sizeof(*p); i++) {
		seen = __atomic_load_n(&p[i], __ATOMIC_RELAXED);
		if (seen != l->bytes[i])
			break;
	}
	if (i == len / sizeof(*p))
		return;
	atomic_fetch_add(&l->c->stale, 1);
	note(l->c, 0, "thread %u, round %llu: at %p the device wrote %016llx, "
	     "the CPU reads %016llx", l->id, (unsigned long long)l->round,
	     (const void *)(at + i * sizeof(*p)),
	     (unsigned long long)l->bytes[i], (unsigned long long)seen);
}

static void use(struct lane *l, char *at)
{
	const struct churn_api *api = l->c->o->api;
	const struct kedge_mr *mr;
	int rc;

	/* The page may come with the CPU's store or with the registration. */
	if (draw(&l->rng) % 2)
		__atomic_store_n(at, 1, __ATOMIC_RELAXED);
	rc = api->cache_get(l->u->cache, at, l->c->o->transfer,
			    KEDGE_ACCESS_LOCAL_WRITE, &mr);
	if (rc == -ENOMEM || rc == -ENOSPC) {
		atomic_fetch_add(&l->c->refused, 1);
		return;
	}
	if (rc) {
		note(l->c, rc, "kedge_cache_get(%p, %zu): %s", (void *)at,
		     l->c->o->transfer, api->error_text(rc));
		return;
	}
	rc = transfer(l, mr, at);
	if (rc)
		note(l->c, rc, "a transfer at %p: %s", (void *)at,
		     strerror(-rc));
	else
		compare(l, at);
	api->cache_put(l->u->cache, mr);
}

/* ---- threads ---- */

/* One of the gets that are allowed; false when none is left. */
static bool take_turn(struct churn *c)
{
	unsigned long long left;

	if (atomic_load_explicit(&c->stop, memory_order_relaxed))
		return false;
	if (!c->o->gets)
		return true;
	left = atomic_load(&c->left);
	while (left && !atomic_compare_exchange_weak(&c->left, &left, left - 1))
		;
	return left;
}

static void *lane_main(void *p)
{
	struct lane *l = p;
	struct block b;
	int rc;

	while (take_turn(l->c)) {
		l->round++;
		rc = block_alloc(l, &b);
		if (rc) {
			note(l->c, rc, "cannot allocate: %s", strerror(-rc));
			break;
		}
		/* As aligned as io_uring and the comparison like it. */
		use(l, (char *)b.mem + (-(uintptr_t)b.mem & 7));
		rc = block_free(l, &b);
		if (rc)
			note(l->c, rc, "munmap: %s", strerror(-rc));
	}
	atomic_fetch_sub(&l->c->running, 1);
	return NULL;
}

static int lane_open(struct churn *c, struct lane *l, unsigned int id)
{
	int rc;

	l->c = c;
	l->id = id;
	l->u = &c->unit[c->o->apart ? id : 0];
	l->rng = c->o->seed + id;
	l->rng = draw(&l->rng);
	l->bytes = malloc(c->o->transfer);
	if (!l->bytes)
		return -ENOMEM;
	if (pipe2(l->pipe, O_CLOEXEC)) {
		rc = -errno;
		goto free_bytes;
	}
	/* All of a transfer must fit: this thread fills it, then reads it. */
	if (fcntl(l->pipe[0], F_SETPIPE_SZ, (int)c->o->transfer) < 0) {
		rc = -errno;
		goto close_pipe;
	}
	atomic_fetch_add(&c->running, 1);
	rc = -pthread_create(&l->thread, NULL, lane_main, l);
	if (!rc)
		return 0;
	atomic_fetch_sub(&c->running, 1);
close_pipe:
	close(l->pipe[0]);
	close(l->pipe[1]);
free_bytes:
	free(l->bytes);
	return rc;
}

static void lane_close(struct lane *l)
{
	pthread_join(l->thread, NULL);
	close(l->pipe[0]);
	close(l->pipe[1]);
	free(l->bytes);
}

static void wait_for_end(struct churn *c, uint64_t start)
{
	const struct timespec pause = { .tv_nsec = TICK_MS * 1000000 };
	uint64_t ns;

	while (atomic_load(&c->running)) {
		nanosleep(&pause, NULL);
		ns = now_ns() - start;
		if (c->o->seconds > 0 && (double)ns >= c->o->seconds * 1e9)
			atomic_store(&c->stop, true);
		if (c->o->tick)
			c->o->tick(c->o->tick_arg, ns / 1000000);
	}
}

static int run_lanes(struct churn *c, struct churn_result *res)
{
	uint64_t start = now_ns();
	unsigned int i, cnt;
	struct lane *lane;
	int rc = 0;

	lane = calloc(c->o->threads, sizeof(*lane));
	if (!lane)
		return -ENOMEM;
	for (cnt = 0; cnt < c->o->threads && !rc; cnt++)
		rc = lane_open(c, &lane[cnt], cnt);
	if (rc) {
		cnt--;
		atomic_store(&c->stop, true);
		snprintf(res->text, sizeof(res->text),
			 "cannot start thread %u: %s", cnt, strerror(-rc));
	}
	wait_for_end(c, start);
	for (i = 0; i < cnt; i++)
		lane_close(&lane[i]);
	res->ns = now_ns() - start;
	free(lane);
	return rc;
}

/* ---- kedge ---- */

static int unit_fail(const struct churn_api *api, struct churn_result *res,
		     const char *what, int rc)
{
	snprintf(res->text, sizeof(res->text), "%s: %s", what,
		 api->error_text(rc));
	return rc;
}

/* With @defaults the cache opens its own notifier. */
static int open_notifier(const struct churn_opts *o, struct unit *u,
			 struct churn_result *res)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };
	struct kedge_notifier_opts no = { .size = sizeof(no),
					  .backend = o->notifier,
					  .flags = o->flags };
	int rc;

	snprintf(res->backend, sizeof(res->backend), "default");
	if (o->defaults)
		return 0;
	rc = o->api->notifier_open(&no, &u->nf);
	if (rc)
		return unit_fail(o->api, res, "cannot open a notifier", rc);
	if (!o->api->notifier_info(u->nf, &info)) {
		snprintf(res->backend, sizeof(res->backend), "%s",
			 info.backend);
		res->level = info.level;
	}
	return 0;
}

static int unit_open(const struct churn_opts *o, struct unit *u,
		     struct churn_result *res)
{
	int rc;

	pthread_mutex_init(&u->lock, NULL);
	rc = io_uring_queue_init(RING_ENTRIES, &u->ring, 0);
	if (rc) {
		snprintf(res->text, sizeof(res->text), "io_uring_setup: %s",
			 strerror(-rc));
		goto destroy_lock;
	}
	rc = o->api->device_open_uring(&u->ring, NULL, &u->dev);
	if (rc) {
		unit_fail(o->api, res, "cannot open the device", rc);
		goto exit_ring;
	}
	rc = open_notifier(o, u, res);
	if (rc)
		goto close_device;
	rc = o->api->cache_open(u->dev, u->nf, NULL, &u->cache);
	if (rc) {
		unit_fail(o->api, res, "cannot open the cache", rc);
		goto close_notifier;
	}
	return 0;

close_notifier:
	if (u->nf)
		o->api->notifier_close(u->nf);
close_device:
	o->api->device_close(u->dev);
exit_ring:
	io_uring_queue_exit(&u->ring);
destroy_lock:
	pthread_mutex_destroy(&u->lock);
	return rc;
}

static void unit_close(const struct churn_opts *o, struct unit *u,
		       struct churn_result *res)
{
	struct kedge_cache_stats st = { .size = sizeof(st) };

	if (!o->api->cache_stats(u->cache, &st)) {
		res->hits += st.hits;
		res->uncached += st.uncached;
	}
	o->api->cache_close(u->cache);
	if (u->nf)
		o->api->notifier_close(u->nf);
	o->api->device_close(u->dev);
	io_uring_queue_exit(&u->ring);
	pthread_mutex_destroy(&u->lock);
}

static void forget_environment(void)
{
	char name[64];
	char **e = environ;
	size_t len;

	while (e && *e) {
		len = strcspn(*e, "=");
		if (!strncmp(*e, "KEDGE_", 6) && len < sizeof(name)) {
			memcpy(name, *e, len);
			name[len] = '\0';
			unsetenv(name);
			e = environ;
		} else {
			e++;
		}
	}
}

static bool munmap_is_hooked(void)
{
	void *fn = dlsym(RTLD_DEFAULT, "munmap");
	Dl_info info;

	return fn && dladdr(fn, &info) && info.dli_fname &&
	       strstr(info.dli_fname, "kedge");
}

static int run(struct churn *c, struct churn_result *res)
{
	const struct churn_opts *o = c->o;
	int rc = 0;

	for (; c->units < (o->apart ? o->threads : 1); c->units++) {
		rc = unit_open(o, &c->unit[c->units], res);
		if (rc)
			break;
	}
	if (!rc)
		rc = run_lanes(c, res);
	while (c->units)
		unit_close(o, &c->unit[--c->units], res);
	return rc;
}

int churn_run(const struct churn_opts *o, struct churn_result *res)
{
	struct churn *c = calloc(1, sizeof(*c));
	int rc;

	memset(res, 0, sizeof(*res));
	if (!c)
		return -ENOMEM;
	c->o = o;
	pthread_mutex_init(&c->lock, NULL);
	atomic_init(&c->left, o->gets);
	if (o->defaults)
		forget_environment();
	res->hooked = munmap_is_hooked();
	rc = run(c, res);
	res->gets = atomic_load(&c->gets);
	res->stale = atomic_load(&c->stale);
	res->refused = atomic_load(&c->refused);
	if (!rc) {
		res->error = c->error;
		snprintf(res->text, sizeof(res->text), "%s", c->text);
	}
	pthread_mutex_destroy(&c->lock);
	free(c);
	return rc;
}
