// SPDX-License-Identifier: BSD-2-Clause
/*
 * The measurement, in rounds: a batch of an access by the handle, and one of the same in
 * shared memory. What the owner does it times itself, while this process goes on to read.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/perf/region/region.h"

#define BATCH_NS 1000000u
#define CNT_MAX	 100000u
#define FOREVER	 (-1)
#define SOON_MS	 10000
#define READ_LEN 4096

/* ---- accesses ---- */

int region_get(struct region_side *s, size_t bytes, uint64_t cnt)
{
	int rc = 0;

	while (cnt-- && !rc)
		rc = kedge_remote_get(s->remote, 0, s->data, bytes, FOREVER);
	return rc;
}

static int get_shared(struct region_side *s, size_t bytes, uint64_t cnt)
{
	while (cnt--) {
		memcpy(s->data, s->shared, bytes);
		__asm__ volatile("" ::: "memory");
	}
	return 0;
}

int region_put(struct region_side *s, size_t bytes, uint64_t cnt)
{
	int rc = 0;

	while (cnt-- && !rc)
		rc = kedge_remote_put(s->remote, 0, s->data, bytes, FOREVER);
	return rc;
}

static int put_shared(struct region_side *s, size_t bytes, uint64_t cnt)
{
	while (cnt--) {
		memcpy(s->shared, s->data, bytes);
		__asm__ volatile("" ::: "memory");
	}
	return 0;
}

static int get_served(struct region_side *s, size_t bytes, uint64_t cnt)
{
	int rc = 0;

	while (cnt-- && !rc)
		rc = kedge_remote_get(s->served, 0, s->data, bytes, FOREVER);
	return rc;
}

static int get_raw(struct region_side *s, size_t bytes, uint64_t cnt)
{
	int rc = 0;

	while (cnt-- && !rc)
		rc = raw_get(s->owner.raw[0], s->data, bytes);
	return rc;
}

static int put_served(struct region_side *s, size_t bytes, uint64_t cnt)
{
	int rc = 0;

	while (cnt-- && !rc)
		rc = kedge_remote_put(s->served, 0, s->data, bytes, FOREVER);
	return rc;
}

static int put_raw(struct region_side *s, size_t bytes, uint64_t cnt)
{
	int rc = 0;

	while (cnt-- && !rc)
		rc = raw_put(s->owner.raw[0], s->data, bytes);
	return rc;
}

static int add(struct region_side *s, size_t bytes, uint64_t cnt)
{
	int rc = 0;

	while (cnt-- && !rc)
		rc = kedge_remote_fetch_add(s->remote, 0, 1, NULL, FOREVER);
	return rc;
}

static int add_shared(struct region_side *s, size_t bytes, uint64_t cnt)
{
	while (cnt--)
		__atomic_fetch_add((uint64_t *)(void *)s->shared, 1, __ATOMIC_SEQ_CST);
	return 0;
}

/* As many at once as @s->queue has room for, each with a completion. */
static int submit(struct region_side *s, struct kedge_remote *remote, size_t bytes, uint64_t cnt)
{
	struct kedge_remote_completion c = { .size = sizeof(c) };
	const struct kedge_remote_op o = { .size = sizeof(o), .op = KEDGE_REMOTE_PUT,
					   .data = s->data, .len = bytes, .timeout_ms = FOREVER };
	uint64_t sent = 0, done = 0;
	int rc;

	while (done < cnt) {
		while (sent < cnt && (rc = kedge_remote_submit(remote, s->queue, &o, 1)) == 1)
			sent++;
		if (sent < cnt && rc != -EAGAIN)
			return rc;
		do {
			rc = kedge_queue_read(s->queue, &c, 1, FOREVER);
			if (rc < 0 || c.status)
				return rc < 0 ? rc : c.status;
		} while (++done < sent);
	}
	return 0;
}

static int submit_put(struct region_side *s, size_t bytes, uint64_t cnt)
{
	return submit(s, s->remote, bytes, cnt);
}

static int submit_served(struct region_side *s, size_t bytes, uint64_t cnt)
{
	return submit(s, s->served, bytes, cnt);
}

/* ---- rounds ---- */

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
	qsort(v, n, sizeof(*v), by_value);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void add_row(struct region_side *s, const struct region_row *row, size_t n)
{
	struct region_row *r = &s->res->row[s->res->n++];

	*r = *row;
	r->ratio = median(s->sample[2], n);
	r->ns = median(s->sample[0], n);
	r->beside_ns = median(s->sample[1], n);
}

static void keep(struct region_side *s, size_t i, double ns, double beside_ns)
{
	s->sample[0][i] = ns;
	s->sample[1][i] = beside_ns;
	s->sample[2][i] = beside_ns > 0 ? ns / beside_ns : 0;
}

static int timed(struct region_side *s, region_op_fn *op, size_t bytes, uint64_t cnt, double *ns)
{
	const uint64_t start = clock_ns();
	int rc = op(s, bytes, cnt);

	*ns = (double)(clock_ns() - start) / (double)cnt;
	return rc;
}

int region_compare(struct region_side *s, const struct region_row *row, region_op_fn *ours,
		   region_op_fn *beside)
{
	const size_t rounds = (size_t)s->res->opt->rounds;
	double a = 0, b = 0;
	uint64_t cnt;
	size_t i;
	int rc = timed(s, ours, row->bytes, 1, &a);

	if (!rc)
		rc = timed(s, ours, row->bytes, 1, &a);
	cnt = a > 0 ? (uint64_t)(BATCH_NS / a) + 1 : CNT_MAX;
	cnt = cnt > CNT_MAX ? CNT_MAX : cnt;
	for (i = 0; i < rounds && !rc; i++) {
		rc = timed(s, ours, row->bytes, cnt, &a);
		if (!rc)
			rc = timed(s, beside, row->bytes, cnt, &b);
		keep(s, i, a, b);
	}
	if (!rc)
		add_row(s, row, rounds);
	return rc ? util_fail(rc, "cannot measure %s", row->text) : 0;
}

/* ---- what the owner does ---- */

/* Reading all the time until the answer is there. */
static int ask(struct region_side *s, uint32_t kind, uint64_t n, struct region_rep *rep)
{
	const struct region_req req = { .kind = kind, .n = n };
	struct pollfd p = { s->proc.fd, POLLIN, 0 };
	int rc = proc_send(s->proc.fd, &req, sizeof(req));

	while (!rc && poll(&p, 1, 0) == 0)
		if (region_get(s, READ_LEN, 16))
			s->res->failed++;
	if (!rc)
		rc = proc_recv(s->proc.fd, rep, sizeof(*rep));
	return rc ? rc : rep->rc;
}

static int move(struct region_side *s)
{
	static const struct region_row row = { "move", "move, pause of peers",
					    "a copy of as much", REG_MOVED, 0, 0, 0 };
	const size_t rounds = ((size_t)s->res->opt->rounds + 3) / 4;
	struct region_rep rep;
	size_t i;
	int rc = 0;

	for (i = 0; i < rounds && !rc; i++) {
		rc = ask(s, REG_MOVE, 0, &rep);
		keep(s, i, rep.ns, rep.beside_ns);
	}
	if (!rc)
		add_row(s, &row, rounds);
	return rc ? util_fail(rc, "the owner cannot move its region: %s", rep.why) : 0;
}

/* Steps in the upper half, and beside them those in the lower one. All of it once before: a
 * page that the machine has not used yet costs a hypervisor's time. */
static int grow(struct region_side *s)
{
	static const struct region_row row = { "grow", "grow, above 512 MiB", "below", REG_STEP,
					    0, 0, 0 };
	const size_t half = (REG_GROWN - REG_MOVED) / REG_STEP / 2;
	double *low = calloc(half, sizeof(*low)), *high = calloc(half, sizeof(*high));
	uint64_t len = REG_MOVED;
	struct region_rep rep = { .rc = 0 };
	size_t i;
	int rc = low && high ? ask(s, REG_GROW, REG_GROWN, &rep) : -ENOMEM;

	if (!rc)
		rc = ask(s, REG_TRIM, REG_MOVED, &rep);
	for (i = 0; i < 2 * half && !rc; i++) {
		len += REG_STEP;
		rc = ask(s, REG_GROW, len, &rep);
		(i < half ? low : high)[i % half] = rep.ns;
	}
	if (!rc) {
		keep(s, 0, median(high, half), median(low, half));
		add_row(s, &row, 1);
	} else {
		/* That much is not to be had everywhere. */
		snprintf(s->res->grow_why, sizeof(s->res->grow_why), "%s", rep.why);
	}
	free(low);
	free(high);
	return 0;
}

static int open_close(struct region_side *s, const struct kedge_handle *h, double *ns)
{
	const uint64_t start = clock_ns();
	struct kedge_remote *r;
	int rc = kedge_remote_open(h, SOON_MS, &r);

	if (!rc)
		kedge_remote_close(r);
	*ns = (double)(clock_ns() - start);
	return rc;
}

static int opens(struct region_side *s, const struct kedge_handle *h, double *ns)
{
	const size_t rounds = (size_t)s->res->opt->rounds;
	size_t i;
	int rc = 0;

	for (i = 0; i < rounds && !rc; i++)
		rc = open_close(s, h, &s->sample[0][i]);
	*ns = rc ? 0 : median(s->sample[0], rounds);
	return rc;
}

/* With a thousand of them, and with a hundred thousand. */
static int handles(struct region_side *s)
{
	static const struct region_row rows[] = {
		{ "advertise", "a handle more of 100000", "of 1000", 0, 0, 0, 0 },
		{ "open", "open and close, 100000 handles", "1000", 0, 0, 0, 0 },
		{ "revoke", "a handle less of 100000", "of 1000", 0, 0, 0, 0 },
	};
	double a[3], b[3];
	struct region_rep rep;
	size_t i;
	int rc = ask(s, REG_ADVERTISE, 1000, &rep);

	a[0] = rep.ns;
	if (!rc)
		rc = opens(s, &rep.handle, &a[1]);
	if (!rc)
		rc = ask(s, REG_ADVERTISE, REG_HANDLES, &rep);
	b[0] = rep.ns;
	if (!rc)
		rc = opens(s, &rep.handle, &b[1]);
	if (!rc)
		rc = ask(s, REG_REVOKE, 1000, &rep);
	b[2] = rep.ns;
	if (!rc)
		rc = ask(s, REG_REVOKE, 1, &rep);
	a[2] = rep.ns;
	for (i = 0; i < ARRAY_SIZE(rows) && !rc; i++) {
		keep(s, 0, b[i], a[i]);
		add_row(s, &rows[i], 1);
	}
	return rc ? util_fail(rc, "cannot have %u handles: %s", REG_HANDLES, rep.why) : 0;
}

/* Likewise with a hundred regions, and with ten thousand. */
static int regions(struct region_side *s)
{
	static const struct region_row rows[] = {
		{ "create", "a region more of 10000", "of 100", 0, 0, 0, 0 },
		{ "reach", "open and close, 10000 regions", "100", 0, 0, 0, 0 },
		{ "close", "a region less of 10000", "of 100", 0, 0, 0, 0 },
	};
	double a[3] = { 0 }, b[3] = { 0 };
	struct region_rep rep;
	size_t i;
	int rc = ask(s, REG_CREATE, 100, &rep);

	a[0] = rep.ns;
	if (!rc)
		rc = opens(s, &rep.handle, &a[1]);
	if (!rc)
		rc = ask(s, REG_CREATE, REG_REGIONS - 100, &rep);
	if (!rc)
		rc = ask(s, REG_CREATE, REG_REGIONS, &rep);
	b[0] = rep.ns;
	if (!rc)
		rc = opens(s, &rep.handle, &b[1]);
	if (!rc)
		rc = ask(s, REG_CLOSE, REG_REGIONS - 100, &rep);
	b[2] = rep.ns;
	if (!rc)
		rc = ask(s, REG_CLOSE, 100, &rep);
	if (!rc)
		rc = ask(s, REG_CLOSE, 0, &rep);
	a[2] = rep.ns;
	for (i = 0; i < ARRAY_SIZE(rows) && !rc; i++) {
		keep(s, 0, b[i], a[i]);
		add_row(s, &rows[i], 1);
	}
	/* As many descriptors are not to be had everywhere. */
	if (rc) {
		snprintf(s->res->regions_why, sizeof(s->res->regions_why), "%s", rep.why);
		/* The next step needs some. */
		return ask(s, REG_CLOSE, 0, &rep);
	}
	return 0;
}

static int served(struct region_side *s)
{
	const struct perf_opts *opt = s->res->opt;
	struct region_row row = { .beside = "as much over a socket" };
	struct region_rep rep;
	size_t i;
	int rc = ask(s, REG_SERVE, 0, &rep);

	if (!rc)
		rc = kedge_remote_open(&rep.handle, SOON_MS, &s->served);
	if (rc)
		return util_fail(rc, "cannot open a handle that is served");
	for (i = 0; i < 2 * opt->size_cnt && !rc; i++) {
		row.name = i % 2 ? "served_put" : "served_get";
		row.text = i % 2 ? "put, by the owner's thread" : "get, by the owner's thread";
		row.bytes = opt->sizes[i / 2];
		rc = region_compare(s, &row, i % 2 ? put_served : get_served,
				    i % 2 ? put_raw : get_raw);
	}
	return rc;
}

/* Beside the same one after the other. */
static int submitted(struct region_side *s)
{
	const struct kedge_queue_opts o = { .size = sizeof(o), .depth = REG_AT_ONCE };
	struct region_row row = { .beside = "one after the other", .bytes = REG_SMALL };
	int rc = kedge_queue_open(&o, &s->queue);

	if (rc)
		return util_fail(rc, "cannot have a queue of completions");
	row.name = "submit";
	row.text = "puts submitted, 64 at once";
	rc = region_compare(s, &row, submit_put, region_put);
	row.name = "served_submit";
	row.text = "the same, by the owner's thread";
	return rc ? rc : region_compare(s, &row, submit_served, put_served);
}

int region_measure(struct region_side *s)
{
	const struct perf_opts *opt = s->res->opt;
	struct region_row row = { .beside = "memcpy() in shared memory" };
	size_t i;
	int rc = 0;

	for (i = 0; i < 2 * opt->size_cnt && !rc; i++) {
		row.name = i % 2 ? "put" : "get";
		row.text = row.name;
		row.bytes = opt->sizes[i / 2];
		rc = region_compare(s, &row, i % 2 ? region_put : region_get,
				    i % 2 ? put_shared : get_shared);
	}
	row = (struct region_row){ .name = "add", .text = "fetch and add", .bytes = 8,
				.beside = "the same in shared memory" };
	if (!rc)
		rc = region_compare(s, &row, add, add_shared);
	if (!rc)
		rc = served(s);
	if (!rc)
		rc = submitted(s);
	if (!rc)
		rc = move(s);
	if (!rc)
		rc = handles(s);
	if (!rc)
		rc = regions(s);
	return rc ? rc : grow(s);
}
