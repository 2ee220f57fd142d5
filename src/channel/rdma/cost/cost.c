// SPDX-License-Identifier: BSD-2-Clause
/*
 * The cost model over a device that pins. Measured once in a process and device:
 * registering pages that are there, making pages, copying, and putting pages under a
 * buffer without pages. How long the data take on their
 * way is learned from the messages.
 *
 * Every way waits for the data. What is done meanwhile counts only as far as it takes
 * longer: copying out of slots, and making the next landing pages.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "channel/rdma/cost/costs.h"
#include "channel/rdma/internal.h"
#include "pages/swap.h"

#define TRIES 3
/* A used buffer was used for something: it is likely to be received into again, and a
 * registration that is kept serves the others, too. */
#define USES 8

static const uint64_t lens[POINTS] = { 64u << 10, 512u << 10, 4u << 20 };

struct rdma_costs {
	struct rdma_costs *next;
	char name[64];
	struct curve curve[CURVES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rdma_costs *all; /* guarded by lock; never freed */

static double at(const struct curve *c, uint64_t len)
{
	return curve_at(c->ns, lens, POINTS, len);
}

/* ---- measuring ---- */

static char *map(size_t len)
{
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void touch(char *p, size_t len)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t i;

	for (i = 0; i < len; i += page)
		*(volatile char *)(p + i) = 1;
}

static void least_of(double *ns, uint64_t begin, int try)
{
	double took = (double)(clock_ns() - begin);

	if (!try || took < *ns)
		*ns = took;
}

/* False: it cannot be registered. */
static bool one_try(struct rdma *r, struct rdma_costs *c, char *a, char *b,
		    int i, int try)
{
	const size_t len = lens[i];
	uint64_t t = clock_ns();
	void *reg;

	touch(a, len);
	least_of(&c->curve[CURVE_TOUCH].ns[i], t, try);
	touch(b, len);
	t = clock_ns();
	memcpy(b, a, len);
	least_of(&c->curve[CURVE_COPY].ns[i], t, try);
	t = clock_ns();
	if (r->port->reg(r, a, len, KEDGE_ACCESS_LOCAL_WRITE, &reg))
		return false;
	least_of(&c->curve[CURVE_REG].ns[i], t, try);
	r->port->dereg(r, reg);
	madvise(b, len, MADV_DONTNEED);
	t = clock_ns();
	if (kedge__pages_replace(b, a, len, NULL))
		return false;
	least_of(&c->curve[CURVE_REPLACE].ns[i], t, try);
	return true;
}

static bool measure(struct rdma *r, struct rdma_costs *c)
{
	const size_t most = lens[POINTS - 1];
	bool ok = true;
	int i, try;
	char *p;

	for (i = 0; i < POINTS && ok; i++)
		for (try = 0; try < TRIES && ok; try++) {
			p = map(2 * most);
			ok = p && one_try(r, c, p, p + most, i, try);
			if (p)
				munmap(p, 2 * most);
		}
	return ok;
}

/* With the lock. NULL: no memory, or the device registers nothing now. */
static struct rdma_costs *find(struct rdma *r, const char *device)
{
	struct rdma_costs *c;

	for (c = all; c; c = c->next)
		if (!strcmp(c->name, device))
			return c;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	strncpy(c->name, device, sizeof(c->name) - 1);
	if (!kedge__rdma_costs_load(device, c->curve)) {
		if (!measure(r, c)) {
			free(c);
			return NULL;
		}
		kedge__rdma_costs_save(device, c->curve);
	}
	c->next = all;
	all = c;
	return c;
}

/*
 * Another thread may be measuring; or was, when this process was forked, and its lock
 * is held for good here. So messages do without meanwhile.
 */
static const struct rdma_costs *costs_of(struct rdma *r)
{
	if (r->costs || r->costs_asked || !r->port->device ||
	    pthread_mutex_trylock(&lock))
		return r->costs;
	r->costs = find(r, r->port->device(r));
	/* A measurement that failed is not tried for each message. */
	r->costs_asked = true;
	pthread_mutex_unlock(&lock);
	return r->costs;
}

void kedge__rdma_cost_learn(struct rdma *r, uint64_t len, uint64_t ns)
{
	double now = (double)ns / (double)len;

	r->wire = r->wire ? r->wire + (now - r->wire) / 4 : now;
}

/* ---- asking ---- */

static double more(double a, double b)
{
	return a > b ? a : b;
}

static double beside(double work, double wire)
{
	return work > wire ? work - wire : 0;
}

uint64_t kedge__rdma_cost(void *ctx, uint32_t way, const struct cost_case *q)
{
	struct rdma *r = ctx;
	const struct rdma_costs *c = costs_of(r);
	double wire, fresh, make, ns;
	bool kept;

	if (!c)
		return way == KEDGE_WAY_DIRECT && q->pull ? 0
		       : way == KEDGE_WAY_COPY		  ? 1 : UINT64_MAX;
	wire = r->wire * (double)q->len;
	fresh = q->fresh ? at(&c->curve[CURVE_TOUCH], q->len) : 0;
	switch (way) {
	case KEDGE_WAY_EAGER:
		ns = at(&c->curve[CURVE_COPY], q->len) + fresh;
		break;
	case KEDGE_WAY_DIRECT:
		if (!q->heap && !q->pull)
			return UINT64_MAX;
		ns = fresh;
		break;
	case KEDGE_WAY_REGISTER:
		kept = r->windows && !q->fresh && q->len >= WINDOW_MIN;
		ns = fresh + at(&c->curve[CURVE_REG], q->len) /
			     (kept ? USES : 1);
		break;
	case KEDGE_WAY_SWAP:
		/* Pages of a used one may be pinned by others. */
		if (!q->body || !q->fresh || q->heap || !r->windows)
			return UINT64_MAX;
		make = at(&c->curve[CURVE_TOUCH], q->len) +
		       at(&c->curve[CURVE_REG], q->len);
		ns = beside(make, wire) +
		     at(&c->curve[CURVE_REPLACE], q->body);
		break;
	case KEDGE_WAY_COPY:
		ns = more(beside(at(&c->curve[CURVE_COPY], q->len) + fresh, wire),
			  at(&c->curve[CURVE_COPY], SLOT_LEN < q->len ? SLOT_LEN : q->len));
		break;
	default:
		return UINT64_MAX;
	}
	return (uint64_t)(wire + ns);
}
