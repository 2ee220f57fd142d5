// SPDX-License-Identifier: BSD-2-Clause
/*
 * The measurement. An operation and the one beside it take turns in batches of
 * a millisecond or two; a round is a batch of each. A round in which one of the
 * two processes lost its CPU is set aside, unless there are too many of them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/common/sys.h"
#include "tools/perf/segment/segment.h"

#define TRIAL_NS 200000u
#define BATCH_NS 1500000u
#define CNT_MAX	 (1ull << 20)
/* Medians of fewer clean rounds than that, and than were asked for, take the
 * others in. */
#define CLEAN_MIN 5u
/* Rounds for each that was asked for, at most. */
#define ROUNDS_A_CLEAN 2
/* Of a conversion, which takes some hundred times as long as a batch. */
#define MAKE_PART 4

/* @cnt of it, and the nanoseconds of one into *@ns. 0 or a negative errno. */
typedef int seg_op_fn(struct seg_side *s, size_t bytes, uint64_t cnt, double *ns);

/* ---- loads ---- */

static double follow(const char *at, uint64_t cnt)
{
	uint64_t i = 0, k, start = clock_ns();

	for (k = 0; k < cnt; k++)
		i = *(const volatile uint64_t *)(const void *)(at + i * SEG_LINE);
	return (double)(clock_ns() - start) / (double)cnt;
}

static int load_there(struct seg_side *s, size_t bytes, uint64_t cnt, double *ns)
{
	*ns = follow(s->there, cnt);
	return 0;
}

static int load_own(struct seg_side *s, size_t bytes, uint64_t cnt, double *ns)
{
	*ns = follow(s->own, cnt);
	return 0;
}

/* Pages that the kernel takes away in between (the module's may move) are attached
 * anew, so that the quick path is measured. */
static int attach_again(struct seg_side *s)
{
	struct kedge_attachment *a;
	int rc;

	if (kedge_segment_valid(s->whole))
		return 0;
	rc = kedge_segment_attach(s->grant, 0, s->owner.len, 0, &a);
	if (rc)
		return rc;
	kedge_segment_detach(s->whole);
	s->whole = a;
	s->there = kedge_segment_addr(a);
	return 0;
}

static int valid(struct seg_side *s, size_t bytes, uint64_t cnt, double *ns)
{
	uint64_t start, k;
	int rc = attach_again(s);

	if (rc)
		return rc;
	start = clock_ns();
	/* "No" is no error: the next batch attaches again. */
	for (k = 0; k < cnt; k++)
		(void)kedge_segment_valid(s->whole);
	*ns = (double)(clock_ns() - start) / (double)cnt;
	return 0;
}

/* ---- mappings ---- */

static int attach(struct seg_side *s, size_t bytes, uint64_t cnt, double *ns)
{
	uint64_t k, start = clock_ns();
	struct kedge_attachment *a;
	int rc;

	for (k = 0; k < cnt; k++) {
		rc = kedge_segment_attach(s->grant, 0, bytes, 0, &a);
		if (rc)
			return rc;
		kedge_segment_detach(a);
	}
	*ns = (double)(clock_ns() - start) / (double)cnt;
	return 0;
}

/* By the system call: this command has libkedge-hooks, which would be measured. */
static void *map_memfd(struct seg_side *s, size_t bytes)
{
	long p = syscall(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			 s->memfd, 0L);

	return p == -1 ? NULL : (void *)p;
}

static int map(struct seg_side *s, size_t bytes, uint64_t cnt, double *ns)
{
	uint64_t k, start = clock_ns();
	void *p;

	for (k = 0; k < cnt; k++) {
		p = map_memfd(s, bytes);
		if (!p)
			return -errno;
		syscall(SYS_munmap, p, bytes);
	}
	*ns = (double)(clock_ns() - start) / (double)cnt;
	return 0;
}

/* ---- the first touch of a page ---- */

static double touch(char *at, bool store)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint64_t start = clock_ns();
	volatile char *p;
	size_t i;

	/* The page's own last byte: what the chain and the lines have stays. */
	for (i = page; i <= SEG_TOUCHED; i += page) {
		p = at + i - 1;
		if (store)
			*p = 1;
		else
			(void)*p;
	}
	return (double)(clock_ns() - start) / ((double)SEG_TOUCHED / (double)page);
}

static int touch_there(struct seg_side *s, uint64_t cnt, double *ns, bool store)
{
	struct kedge_attachment *a;
	double sum = 0;
	uint64_t k;
	int rc;

	for (k = 0; k < cnt; k++) {
		rc = kedge_segment_attach(s->grant, 0, SEG_TOUCHED, 0, &a);
		if (rc)
			return rc;
		sum += touch(kedge_segment_addr(a), store);
		kedge_segment_detach(a);
	}
	*ns = sum / (double)cnt;
	return 0;
}

static int touch_memfd(struct seg_side *s, uint64_t cnt, double *ns, bool store)
{
	double sum = 0;
	uint64_t k;
	void *p;

	for (k = 0; k < cnt; k++) {
		p = map_memfd(s, SEG_TOUCHED);
		if (!p)
			return -errno;
		sum += touch(p, store);
		syscall(SYS_munmap, p, SEG_TOUCHED);
	}
	*ns = sum / (double)cnt;
	return 0;
}

static int touch_load(struct seg_side *s, size_t bytes, uint64_t cnt, double *ns)
{
	return touch_there(s, cnt, ns, false);
}

static int memfd_load(struct seg_side *s, size_t bytes, uint64_t cnt, double *ns)
{
	return touch_memfd(s, cnt, ns, false);
}

static int touch_store(struct seg_side *s, size_t bytes, uint64_t cnt, double *ns)
{
	return touch_there(s, cnt, ns, true);
}

static int memfd_store(struct seg_side *s, size_t bytes, uint64_t cnt, double *ns)
{
	return touch_memfd(s, cnt, ns, true);
}

/* ---- copies ---- */

static int copy_loads(struct seg_side *s, size_t bytes, uint64_t cnt, double *ns)
{
	uint64_t k, start = clock_ns();

	for (k = 0; k < cnt; k++) {
		memcpy(s->own, s->there, bytes);
		/* Each copy is made. */
		__asm__ volatile("" : : "r"(s->own) : "memory");
	}
	*ns = (double)(clock_ns() - start) / (double)cnt;
	return 0;
}

static int copy_call(struct seg_side *s, size_t bytes, uint64_t cnt, double *ns)
{
	struct iovec here = { s->own, bytes };
	struct iovec there = { (void *)(uintptr_t)s->remote, bytes };
	uint64_t k, start = clock_ns();

	for (k = 0; k < cnt; k++)
		if (process_vm_readv(s->proc.pid, &here, 1, &there, 1, 0) !=
		    (ssize_t)bytes)
			return -EPERM;
	*ns = (double)(clock_ns() - start) / (double)cnt;
	return 0;
}

/* ---- there and back ---- */

static int exchange_lines(struct seg_side *s, uint64_t cnt, double *ns, bool shared)
{
	char *to = shared ? s->owner.lines : s->there + s->owner.len - SEG_LINES;
	const struct seg_req req = { .kind = SEG_ECHO, .shared = shared, .cnt = cnt + 1,
				     .first = s->line + 1 };
	const struct seg_wait how = { .fd = s->proc.fd, .yield = s->owner.yield };
	uint64_t k, wrong = 0, start = 0;
	struct seg_rep rep;
	int rc = proc_send(s->proc.fd, &req, sizeof(req));

	/* The first one finds the owner awake, or waits for that. */
	for (k = 0; k <= cnt && !rc; k++) {
		if (k == 1)
			start = clock_ns();
		seg_line_put(to, ++s->line);
		rc = seg_line_take(to + SEG_LINES / 2, s->line, &how);
		if (rc > 0) {
			wrong++;
			rc = 0;
		}
	}
	*ns = (double)(clock_ns() - start) / (double)cnt;
	if (!rc)
		rc = proc_recv(s->proc.fd, &rep, sizeof(rep));
	if (!rc)
		rc = rep.rc;
	if (!rc)
		s->res->wrong += wrong + rep.wrong;
	return rc;
}

static int exchange(struct seg_side *s, size_t bytes, uint64_t cnt, double *ns)
{
	return exchange_lines(s, cnt, ns, false);
}

static int exchange_shared(struct seg_side *s, size_t bytes, uint64_t cnt, double *ns)
{
	return exchange_lines(s, cnt, ns, true);
}

/* ---- rounds ---- */

/** struct turns - what takes turns, and what came of it
 * @op:    what is measured, and what is beside it
 * @cnt:   of each, in a batch
 * @all, @clean: of the two, and of their ratio
 */
struct turns {
	seg_op_fn *op[2];
	size_t bytes;
	uint64_t cnt[2];
	struct samples all[3];
	struct samples clean[3];
	uint64_t dropped;
};

/* The operations that make a batch; 0 where it cannot be done, with the error in *@rc. */
static uint64_t calibrate(struct seg_side *s, const struct turns *t, int i, int *rc)
{
	uint64_t cnt, ns;
	double one;

	for (cnt = 1;; cnt *= 2) {
		ns = clock_ns();
		*rc = t->op[i](s, t->bytes, cnt, &one);
		if (*rc)
			return 0;
		ns = clock_ns() - ns;
		if (ns >= TRIAL_NS || cnt >= CNT_MAX)
			break;
	}
	cnt = (uint64_t)((double)cnt * BATCH_NS / (double)(ns ? ns : 1));
	return cnt < 1 ? 1 : cnt > CNT_MAX ? CNT_MAX : cnt;
}

static int keep(struct turns *t, double ours, double beside, bool clean)
{
	const double v[3] = { ours, beside, ours > 0 ? beside / ours : 0 };
	int i, rc = 0;

	for (i = 0; i < 3 && !rc; i++) {
		rc = samples_add(&t->all[i], v[i]);
		if (!rc && clean)
			rc = samples_add(&t->clean[i], v[i]);
	}
	return rc;
}

/* Enough of the rounds that were asked for, or no hope of them. */
static bool enough(const struct turns *t, uint64_t rounds)
{
	return t->clean[0].n >= rounds || t->all[0].n >= ROUNDS_A_CLEAN * rounds;
}

static void turns_fini(struct turns *t)
{
	int i;

	for (i = 0; i < 3; i++) {
		samples_fini(&t->all[i]);
		samples_fini(&t->clean[i]);
	}
}

static void add_row(struct seg_side *s, enum seg_bench bench, size_t bytes,
		    struct turns *t)
{
	const uint64_t rounds = (uint64_t)s->res->opt->rounds;
	const bool few = t->clean[0].n < (rounds < CLEAN_MIN ? rounds : CLEAN_MIN);
	struct samples *from = few ? t->all : t->clean;
	struct seg_row *row = &s->res->row[s->res->n++];

	row->bench = bench;
	row->place = s->place;
	row->bytes = bytes;
	row->rounds = from->n;
	row->dropped = t->all[0].n - from->n;
	row->ns = util_median(from[0].v, from[0].n);
	row->beside_ns = util_median(from[1].v, from[1].n);
	row->ratio = util_median(from[2].v, from[2].n);
}

/* The order of the two changes from round to round. */
static int one_round(struct seg_side *s, struct turns *t)
{
	double ns[2] = { 0, 0 };
	long before = seg_preempted();
	int k, i, rc = 0;

	for (k = 0; k < 2 && !rc; k++) {
		i = (int)((t->all[0].n + (size_t)k) % 2);
		if (t->cnt[i])
			rc = t->op[i](s, t->bytes, t->cnt[i], &ns[i]);
	}
	return rc ? rc : keep(t, ns[0], ns[1], seg_preempted() == before);
}

static int compare(struct seg_side *s, enum seg_bench bench, size_t bytes,
		   seg_op_fn *ours, seg_op_fn *beside)
{
	struct turns t = { .op = { ours, beside }, .bytes = bytes };
	int rc;

	/* The one beside it may be forbidden here: process_vm_readv(). */
	t.cnt[1] = calibrate(s, &t, 1, &rc);
	t.cnt[0] = calibrate(s, &t, 0, &rc);
	while (!rc && !enough(&t, (uint64_t)s->res->opt->rounds))
		rc = one_round(s, &t);
	if (!rc)
		add_row(s, bench, bytes, &t);
	turns_fini(&t);
	return rc ? util_fail(rc, "cannot measure %s with %s", seg_names[bench].name,
			      seg_backend_names[s->place]) : 0;
}

/* ---- conversions, which the owner times ---- */

static int ask_make(struct seg_side *s, bool huge, struct seg_rep *rep)
{
	const struct seg_req req = { .kind = SEG_MAKE, .huge = huge };
	int rc = proc_send(s->proc.fd, &req, sizeof(req));

	if (!rc)
		rc = proc_recv(s->proc.fd, rep, sizeof(*rep));
	return rc ? rc : rep->rc;
}

static int make(struct seg_side *s, bool huge)
{
	const uint64_t rounds = ((uint64_t)s->res->opt->rounds + MAKE_PART - 1) / MAKE_PART;
	struct turns made = { .cnt = { 0 } }, removed = { .cnt = { 0 } };
	struct seg_rep rep;
	int rc = ask_make(s, huge, &rep); /* a warm-up */

	while (!rc && !enough(&made, rounds)) {
		rc = ask_make(s, huge, &rep);
		if (!rc)
			rc = keep(&made, rep.make_ns, rep.copy_ns, !rep.preempted);
		if (!rc)
			rc = keep(&removed, rep.remove_ns, rep.copy_ns, !rep.preempted);
	}
	if (!rc)
		add_row(s, huge ? SEG_MAKE_HUGE : SEG_MAKE_PAGES, SEG_MADE, &made);
	if (!rc && !huge)
		add_row(s, SEG_REMOVE, SEG_MADE, &removed);
	turns_fini(&made);
	turns_fini(&removed);
	return rc ? util_fail(rc, "the owner cannot make a segment by %s",
			      seg_backend_names[s->place]) : 0;
}

static bool huge_pages(void)
{
	char word[32];

	sys_choice("/sys/kernel/mm/transparent_hugepage/enabled", word, sizeof(word));
	return *word && strcmp(word, "never");
}

int seg_measure(struct seg_side *s, struct util_progress *progress)
{
	static const struct {
		enum seg_bench bench;
		size_t bytes;
		seg_op_fn *ours, *beside;
	} each[] = {
		{ SEG_LOAD, 8, load_there, load_own },
		{ SEG_VALID, 0, valid, load_own },
		{ SEG_ATTACH, SEG_PART, attach, map },
		{ SEG_TOUCH_LOAD, 0, touch_load, memfd_load },
		{ SEG_TOUCH_STORE, 0, touch_store, memfd_store },
		{ SEG_EXCHANGE, SEG_LINE, exchange, exchange_shared },
	};
	const struct perf_opts *opt = s->res->opt;
	size_t i;
	int rc = 0;

	for (i = 0; i < ARRAY_SIZE(each) && !rc; i++) {
		rc = compare(s, each[i].bench, each[i].bytes, each[i].ours,
			     each[i].beside);
		util_progress_at(progress, s->res->n);
	}
	for (i = 0; i < opt->size_cnt && !rc; i++) {
		rc = compare(s, SEG_COPY, opt->sizes[i], copy_loads, copy_call);
		util_progress_at(progress, s->res->n);
	}
	if (!rc)
		rc = make(s, false);
	if (!rc && huge_pages())
		rc = make(s, true);
	return rc;
}
