// SPDX-License-Identifier: BSD-2-Clause
/*
 * A program over the stand-in for UCX 1.14 and later: its lookups find the pages that the program
 * has, in all cases, or they do not, which the exit status says: 1, a lookup was stale; 3, anything
 * else is wrong. Changes are made by system calls of its own.
 *
 *	later CASE
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "standin.h"
#include "tools/common/raw.h"

#define LEN	(4 * PAGE)
#define ROUNDS	50
#define THREADS 4

static struct uct_md md;
static _Atomic unsigned int stale;

_Noreturn static void die(const char *what)
{
	fprintf(stderr, "later: %s\n", what);
	_exit(3);
}

#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x))                                                                          \
			die(#x);                                                                   \
	} while (0)

/* ---- memory ---- */

static long call(long nr, void *at, size_t len, long c, long d, long e)
{
	return raw_syscall6(nr, (long)(uintptr_t)at, (long)len, c, d, e, 0);
}

static void fill(void *at, size_t len)
{
	static _Atomic uint64_t last;
	uint64_t word = atomic_fetch_add(&last, 1) + 1;
	size_t i;

	for (i = 0; i < len / sizeof(word); i++)
		((uint64_t *)at)[i] = word << 16 | i;
}

/* Not beside another one, so that their regions are not merged. */
static char *map(size_t len)
{
	char *p = mmap(NULL, len + 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);

	CHECK(p != MAP_FAILED);
	p += PAGE;
	fill(p, len);
	return p;
}

/* Other pages; never is there a moment in which another thread could map its own there. */
static void change(unsigned int how, void *at, size_t len)
{
	const long prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
	void *from;

	if (how % 3 == 0) {
		CHECK(!call(SYS_madvise, at, len, MADV_DONTNEED, 0, 0));
	} else if (how % 3 == 1) {
		from = mmap(NULL, len, (int)prot, (int)flags, -1, 0);
		CHECK(from != MAP_FAILED);
		CHECK(call(SYS_mremap, from, len, (long)len, MREMAP_MAYMOVE | MREMAP_FIXED,
			   (long)(uintptr_t)at) == (long)(uintptr_t)at);
	} else {
		CHECK(call(SYS_mmap, at, len, prot, flags | MAP_FIXED, -1) == (long)(uintptr_t)at);
	}
	fill(at, len);
}

/* The bytes that an adapter would send of it; true, they are those that the program has there. */
static bool is_right(const struct region *r, const void *at, size_t len)
{
	char *got = malloc(len);
	bool same;

	CHECK(got);
	standin_read(r->memh, (uintptr_t)at - r->start, got, len);
	same = !memcmp(got, at, len);
	free(got);
	return same;
}

static void use(struct context *c, void *at, size_t len)
{
	struct region *r = standin_get(c, at, len);

	CHECK(r);
	stale += !is_right(r, at, len);
	standin_put(c, r);
}

static struct context *open_cache(void)
{
	struct context *c = standin_open("ucp_rcache", &md);

	CHECK(c);
	return c;
}

/* ---- cases ---- */

/* Whatever changes, and as often as it does not, by a cache that keeps what has not. */
static void changes(void)
{
	struct context *c = open_cache();
	char *p = map(LEN), *other = map(LEN);
	unsigned int i, before;

	for (i = 0; i < ROUNDS; i++) {
		use(c, p, LEN);
		use(c, p, LEN);
		use(c, other, LEN);
		change(i, p, LEN);
		use(c, p, LEN);
	}
	CHECK(c->lookups == ROUNDS * 4);
	CHECK(standin_regs() < ROUNDS + 10);
	before = standin_regs();
	use(c, other, LEN);
	CHECK(standin_regs() == before);
	standin_close(c);
	CHECK(standin_deregs() == standin_regs());
}

/* Two buffers in one region: one changes while the other one is in use, and is right in both. */
static void merged(void)
{
	struct context *c = open_cache();
	char *p = map(2 * LEN);
	struct region *held;
	unsigned int i;

	for (i = 0; i < ROUNDS; i++) {
		use(c, p, LEN);
		use(c, p + LEN, LEN);
		use(c, p, 2 * LEN);
		held = standin_get(c, p, LEN);
		change(i, p + LEN, LEN);
		use(c, p + LEN, LEN);
		use(c, p, LEN);
		stale += !is_right(held, p, LEN);
		standin_put(c, held);
	}
	standin_close(c);
}

static char *changing;

static void change_it(void *at, size_t len)
{
	if (changing)
		change(1, changing, LEN);
	changing = NULL;
}

/* Pages go while they are registered, before the adapter takes them, or behind that. */
static void within(void)
{
	struct context *c = open_cache();
	char *p = map(LEN), *other = map(LEN);
	unsigned int i;

	for (i = 0; i < ROUNDS; i++) {
		standin_in_reg(change_it, i & 1);
		change(0, p, LEN);
		changing = p;
		/* That lookup has what it may have: the next one has not. */
		standin_put(c, standin_get(c, p, LEN));
		use(c, p, LEN);
		/* Another region goes while one is registered. */
		use(c, other, LEN);
		changing = other;
		change(0, p, LEN);
		use(c, p, LEN);
		use(c, other, LEN);
	}
	standin_in_reg(NULL, false);
	standin_close(c);
}

static void *work(void *arg)
{
	struct context *common = arg, *own = open_cache();
	char *p = map(LEN), *q = map(LEN);
	unsigned int i;

	for (i = 0; i < ROUNDS * 4; i++) {
		use(common, p, LEN);
		use(own, q, LEN);
		use(own, p, LEN);
		if (i % 3 == 0)
			change(i, p, LEN);
		if (i % 5 == 0)
			change(i, q, LEN);
	}
	standin_close(own);
	return NULL;
}

static void threads(void)
{
	struct context *c = open_cache();
	pthread_t t[THREADS];
	size_t i;

	for (i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&t[i], NULL, work, c));
	for (i = 0; i < THREADS; i++)
		CHECK(!pthread_join(t[i], NULL));
	standin_close(c);
	CHECK(standin_deregs() == standin_regs());
}

/* UCX has no memory to keep what it is told: so many times, or for good. */
static void nomem(void)
{
	struct context *c = open_cache();
	char *p = map(LEN);
	struct region *r;
	unsigned int i;

	for (i = 0; i < 8; i++) {
		use(c, p, LEN);
		change(i, p, LEN);
		standin_fail_maps(i);
		use(c, p, LEN);
	}
	change(0, p, LEN);
	standin_fail_maps(~0u);
	r = standin_get(c, p, LEN);
	if (r) {
		stale += !is_right(r, p, LEN);
		standin_put(c, r);
	}
	standin_fail_maps(0);
	use(c, p, LEN);
	standin_close(c);
}

static void in_child(struct context *c, char *p, struct region *held)
{
	unsigned int before = standin_deregs();
	struct uct_md *own = &md;
	void *memh;

	/* The parent's are dropped, and not ended: its adapter uses them. */
	change(0, p, LEN);
	use(c, p, LEN);
	if (stale)
		_exit(1);
	standin_put(c, held);
	CHECK(standin_deregs() == before);
	/* Its own are. */
	CHECK(!STATUS(uct_md_mem_reg(own, p, LEN, 0, &memh)));
	CHECK(!STATUS(uct_md_mem_dereg(own, memh)));
	CHECK(standin_deregs() == before + 1);
	change(1, p, LEN);
	use(c, p, LEN);
	CHECK(standin_deregs() == before + 2);
	_exit(stale ? 1 : 0);
}

static void forked(void)
{
	struct context *c = open_cache();
	char *p = map(LEN), *q = map(LEN);
	struct region *held;
	int status, i;

	for (i = 0; i < 3; i++) {
		use(c, q, LEN);
		use(c, p, LEN);
		held = standin_get(c, p, LEN);
		fflush(NULL);
		switch (fork()) {
		case -1:
			die("no child");
		case 0:
			in_child(c, p, held);
		}
		CHECK(wait(&status) > 0 && WIFEXITED(status));
		CHECK(WEXITSTATUS(status) < 2);
		stale += (unsigned int)WEXITSTATUS(status);
		CHECK(is_right(held, p, LEN));
		standin_put(c, held);
		change(1, q, LEN);
		use(c, q, LEN);
	}
	standin_close(c);
}

/* A cache of imported memory is looked up in as ever, beside one that is watched. */
static void imported(void)
{
	struct context *c = open_cache(), *other = standin_open("ucp_import_rcache[0x1]", &md);
	char *p = map(LEN), *q = map(LEN);
	unsigned int i;

	CHECK(other);
	use(other, q, LEN);
	for (i = 0; i < ROUNDS; i++) {
		use(c, p, LEN);
		/* The first one meets the event of what has changed. */
		use(other, q, LEN);
		use(other, q, LEN);
		change(i, p, LEN);
		use(c, p, LEN);
	}
	CHECK(other->inlined >= ROUNDS);
	standin_close(other);
	use(c, p, LEN);
	standin_close(c);
}

/* Below a domain's own cache two registrations have one handle. */
static void shared(void)
{
	struct context *c;
	char *p = map(2 << 20), *q;
	void *first, *second;
	unsigned int i;

	/* In the same 1 MiB. */
	p += ((size_t)1 << 20) - ((uintptr_t)p & (((size_t)1 << 20) - 1));
	q = p + LEN * 2;
	c = open_cache();
	for (i = 0; i < ROUNDS; i++) {
		use(c, p, LEN);
		md.shares = true;
		CHECK(!STATUS(uct_md_mem_reg(&md, q, LEN, 0, &first)));
		CHECK(!STATUS(uct_md_mem_reg(&md, q + PAGE, LEN, 0, &second)));
		CHECK(first == second);
		CHECK(!STATUS(uct_md_mem_dereg(&md, second)));
		md.shares = false;
		change(i, p, LEN);
		use(c, p, LEN);
		CHECK(!STATUS(uct_md_mem_dereg(&md, first)));
	}
	standin_close(c);
}

/* Registrations without a handle, failures, all of memory, and a cache that is not libucp's. */
static void odd(void)
{
	static struct uct_md dummy = { .dummy = true };
	struct dereg_params none = { 0 };
	struct context *c = open_cache(), *gpu = standin_open("gdr_copy", &dummy);
	char *p = map(LEN), *q = map(LEN);
	unsigned int i;
	void *memh;

	CHECK(gpu);
	CHECK(STATUS(uct_md_mem_dereg_v2(&md, &none)) == -5);
	for (i = 0; i < ROUNDS; i++) {
		struct region *r = standin_get(gpu, p, LEN);

		CHECK(r);
		standin_put(gpu, r);
		md.fails = 1;
		CHECK(!standin_get(c, q, LEN));
		use(c, p, LEN);
		change(i, p, LEN);
		use(c, p, LEN);
		CHECK(!STATUS(uct_md_mem_reg(&dummy, NULL, SIZE_MAX, 0, &memh)));
		CHECK(!STATUS(uct_md_mem_dereg(&dummy, memh)));
	}
	standin_close(gpu);
	standin_close(c);
}

/* A cache of another layer's is not made where libkedge-ucx is. */
static void refused(void)
{
	struct context *c = standin_open("mlx5_0", &md);

	stale = c != NULL;
	if (c)
		standin_close(c);
}

/* Events that wait when a lookup comes, as of a GPU's memory: UCX asks for no table then. */
static void queued(void)
{
	struct context *c = open_cache();
	char *p = map(LEN);
	unsigned int i;

	for (i = 0; i < ROUNDS; i++) {
		ucm_vm_munmap(p - PAGE, PAGE);
		use(c, p, LEN);
		change(i, p, LEN);
	}
	standin_close(c);
}

/* A libucp with other lookups, of which there is a library, gets errors. */
static void elsewhere(void)
{
	struct context *c = open_cache();
	char *p = map(LEN);
	struct region *r;
	unsigned int i;

	for (i = 0; i < ROUNDS; i++) {
		r = standin_get(c, p, LEN);
		if (r) {
			stale += !is_right(r, p, LEN);
			standin_put(c, r);
		}
		change(i, p, LEN);
	}
	standin_close(c);
}

/* UCX changes no code, and is told from outside. */
static void quiet(void)
{
	struct context *c = open_cache();

	stale = standin_hook_mode() != 0 || standin_external() != 3 << 16;
	standin_close(c);
}

/* Another library gets no promise of events that do not come, and one of other kinds. */
static unsigned int promised(void)
{
	const int calls = 3, both = 3 << 16, unmapped = 1 << 17, mem_type = 3 << 20;
	const int no_jumps = 1 << 24;

	CHECK(!STATUS(ucm_set_event_handler(0, 0, NULL, NULL)));
	CHECK(!STATUS(ucm_set_event_handler(mem_type | no_jumps, 0, NULL, NULL)));
	return !STATUS(ucm_set_event_handler(unmapped, 0, NULL, NULL)) +
	       !STATUS(ucm_set_event_handler(both, 0, NULL, NULL)) +
	       !STATUS(ucm_set_event_handler(calls, 0, NULL, NULL)) +
	       !STATUS(ucm_set_event_handler(unmapped | no_jumps, 0, NULL, NULL));
}

static void handler(void)
{
	struct context *c;

	stale = promised();
	c = open_cache();
	stale += promised();
	CHECK(stale == (standin_external() == 3 << 16 ? 0 : 8));
	standin_close(c);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{ "changes", changes }, { "merged", merged }, { "within", within },
	{ "threads", threads }, { "nomem", nomem }, { "forked", forked },
	{ "imported", imported }, { "shared", shared }, { "odd", odd },
	{ "refused", refused }, { "quiet", quiet }, { "handler", handler }, { "queued", queued },
	{ "elsewhere", elsewhere },
};

int main(int argc, char **argv)
{
	unsigned int v[3];
	size_t i;

	ucp_get_version(&v[0], &v[1], &v[2]);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (argc < 2 || strcmp(argv[1], cases[i].name) != 0)
			continue;
		cases[i].run();
		return stale ? 1 : 0;
	}
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		puts(cases[i].name);
	return 2;
}
