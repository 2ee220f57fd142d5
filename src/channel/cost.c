// SPDX-License-Identifier: BSD-2-Clause
/*
 * The cost model. Measured are the four things that moving a message is made
 * of: copying, copying by the kernel between two address spaces (into single
 * pages, and out of huge ones), first touches of new pages, and the swap. Each
 * is measured at several lengths, the best of a few tries, and between those
 * lengths a straight line is drawn; what is longer goes on at the last one's
 * rate.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/base.h"
#include "channel/cost.h"
#include "channel/internal.h"
#include "pages/swap.h"

#define POINTS 4
#define TRIES  5
#define PACKET_NS 300 /* a rendezvous' control messages */

static const uint64_t lens[POINTS] = { 16u << 10, 128u << 10, 1u << 20,
				       4u << 20 };

struct curve {
	double ns[POINTS];
};

static struct costs {
	struct curve copy;
	struct curve cross;	 /* between processes, single pages */
	struct curve cross_huge; /* the same where the other side's are huge */
	struct curve touch;	 /* the first of new pages */
	struct curve swap;	 /* huge pages under a buffer that has pages */
	struct curve swap_fresh; /* and under one without pages */
	bool has_cross;
	bool has_swap;
} costs;

static atomic_bool ready;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static double at(const struct curve *c, uint64_t len)
{
	return curve_at(c->ns, lens, POINTS, len);
}

/* ---- measuring ---- */

struct field {
	char *area;
	size_t area_len;
	char *a; /* single pages */
	char *b; /* single pages */
	char *h; /* huge pages, where there are */
	size_t len;
};

typedef bool (*work_fn)(struct field *f, size_t len);

static bool copy(struct field *f, size_t len)
{
	memcpy(f->a, f->b, len);
	return true;
}

static bool cross(char *to, char *from, size_t len)
{
	struct iovec here = { from, len }, far = { to, len };

	return process_vm_writev(getpid(), &here, 1, &far, 1, 0) ==
	       (ssize_t)len;
}

static bool cross_small(struct field *f, size_t len)
{
	return cross(f->a, f->b, len);
}

static bool cross_huge(struct field *f, size_t len)
{
	return cross(f->h, f->b, len);
}

static bool touch(struct field *f, size_t len)
{
	size_t page = kedge__page_size(), i;

	/* untouch() gives the pages back outside of the clock. */
	for (i = 0; i < len; i += page)
		*(volatile char *)(f->a + i) = 1;
	return true;
}

static void untouch(struct field *f, size_t len)
{
	madvise(f->a, len, MADV_DONTNEED);
}

static size_t whole(size_t len)
{
	size_t unit = pages_huge_len();

	return len < unit ? unit : round_down(len, unit);
}

/* The best is what it costs again and again: where the kernel takes page tables
 * of single pages away, they are in the way the first time only. */
static bool swap(struct field *f, size_t len)
{
	return !pages_land(f->a, f->h, whole(len), 0);
}

/* Under the second half of the huge pages' area. */
static bool swap_fresh(struct field *f, size_t len)
{
	return !pages_land(f->h + f->len, f->h, whole(len), 0);
}

static void renew(struct field *f, size_t len)
{
	mmap(f->h + f->len, f->len, PROT_READ | PROT_WRITE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	memset(f->h, 1, whole(len));
}

static bool measure(struct curve *c, struct field *f, work_fn work,
		    void (*before)(struct field *f, size_t len))
{
	uint64_t t0, ns;
	int i, j;

	for (i = 0; i < POINTS; i++) {
		c->ns[i] = 1e18;
		for (j = 0; j < TRIES; j++) {
			if (before)
				before(f, lens[i]);
			t0 = clock_ns();
			if (!work(f, lens[i]))
				return false;
			ns = clock_ns() - t0;
			if ((double)ns < c->ns[i])
				c->ns[i] = (double)ns;
		}
	}
	return true;
}

static bool field_init(struct field *f)
{
	size_t unit = pages_huge_len();

	f->len = round_up(lens[POINTS - 1], unit);
	f->area_len = 4 * f->len + unit;
	f->area = mmap(NULL, f->area_len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (f->area == MAP_FAILED)
		return false;
	f->h = (char *)round_up((uintptr_t)f->area, unit);
	f->a = f->h + 2 * f->len;
	f->b = f->a + f->len;
	madvise(f->h, f->len, MADV_HUGEPAGE);
	madvise(f->a, 2 * f->len, MADV_NOHUGEPAGE);
	madvise(f->area, f->area_len, MADV_DONTFORK);
	memset(f->h, 1, f->len);
	memset(f->b, 1, f->len);
	return true;
}

static void measure_all(void)
{
	struct field f;

	if (!field_init(&f))
		return;
	measure(&costs.touch, &f, touch, untouch);
	measure(&costs.copy, &f, copy, NULL);
	costs.has_cross = measure(&costs.cross, &f, cross_small, NULL) &&
			  measure(&costs.cross_huge, &f, cross_huge, NULL);
	costs.has_swap = measure(&costs.swap_fresh, &f, swap_fresh, renew) &&
			 measure(&costs.swap, &f, swap, NULL);
	munmap(f.area, f.area_len);
	/* Release: a thread that sees it sees the costs. */
	atomic_store_explicit(&ready, true, memory_order_release);
}

void cost_measure(void)
{
	pthread_once(&once, measure_all);
}

bool cost_ready(void)
{
	return atomic_load_explicit(&ready, memory_order_acquire);
}

/* ---- asking ---- */

static double fresh_cost(const struct cost_case *c, uint64_t len)
{
	return c->fresh ? at(&costs.touch, len) : 0;
}

/* Two at once: what one does in ns, the other does in its own. */
static double together(double a, double b)
{
	return a * b / (a + b);
}

static double direct_cost(const struct cost_case *c)
{
	if (c->heap)
		return at(&costs.copy, c->len);
	if (!c->pull || !costs.has_cross)
		return -1;
	return at(&costs.cross, c->len) + fresh_cost(c, c->len);
}

static double swap_cost(const struct cost_case *c)
{
	double land = at(&costs.cross, c->len), edges, huge;

	if (!c->body || c->heap || !costs.has_swap || !costs.has_cross ||
	    !(c->pull || c->push))
		return -1;
	huge = at(&costs.cross_huge, c->len);
	if (c->push)
		land = c->pull ? together(land, huge) : huge;
	edges = at(&costs.copy, c->len - c->body) +
		fresh_cost(c, c->len - c->body);
	return land + edges +
	       at(c->fresh ? &costs.swap_fresh : &costs.swap, c->body);
}

/* The sender fills while the receiver drains, but a message that is alone waits
 * for both. */
static double copy_cost(const struct cost_case *c)
{
	return 2 * at(&costs.copy, c->len) + fresh_cost(c, c->len);
}

uint64_t cost_of(uint32_t way, const struct cost_case *c)
{
	double ns = -1;

	switch (way) {
	case KEDGE_WAY_EAGER:
		return (uint64_t)(2 * at(&costs.copy, c->len) +
				  fresh_cost(c, c->len));
	case KEDGE_WAY_DIRECT:
	case KEDGE_WAY_REGISTER:
		ns = direct_cost(c);
		break;
	case KEDGE_WAY_SWAP:
		ns = swap_cost(c);
		break;
	case KEDGE_WAY_COPY:
		ns = copy_cost(c);
		break;
	}
	return ns < 0 ? UINT64_MAX : (uint64_t)ns + PACKET_NS;
}
