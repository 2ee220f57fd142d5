// SPDX-License-Identifier: BSD-2-Clause
/* kedge bench swap: the measurements. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "tools/bench/swap.h"

#define HUGE ((size_t)2 << 20)

/* Two ranges and a memfd of one set, which all ways take turns on. */
struct field {
	enum swap_pages pages;
	enum swap_place place;
	size_t len;
	size_t area_len;
	char *area[2];
	char *at[2];
	int memfd;
	struct samples ns[SWAP_WAYS];
	struct samples x[SWAP_WAYS];
};

/* Range @i anew, without a page in it. */
static int lay(struct field *f, int i)
{
	void *p = mmap(f->area[i], f->area_len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS |
			       (f->area[i] ? MAP_FIXED : 0),
		       -1, 0);
	size_t off = i && f->place == SWAP_OFFSET
		? (size_t)sysconf(_SC_PAGESIZE)
		: 0;

	if (p == MAP_FAILED)
		return -errno;
	f->area[i] = p;
	f->at[i] = (char *)round_up((uintptr_t)p, HUGE) + off;
	/* Fails where the kernel has no huge pages: then there are none. */
	if (f->pages == SWAP_SMALL)
		madvise(p, f->area_len, MADV_NOHUGEPAGE);
	else if (f->pages == SWAP_HUGE || i == 1)
		madvise(p, f->area_len, MADV_HUGEPAGE);
	return 0;
}

static int fill(struct field *f, int i)
{
	int rc = lay(f, i);

	if (!rc && (f->pages != SWAP_FRESH || i == 1))
		memset(f->at[i], i + 1, f->len);
	return rc;
}

static void field_fini(struct field *f)
{
	int i;

	for (i = 0; i < 2; i++)
		if (f->area[i])
			munmap(f->area[i], f->area_len);
	for (i = 0; i < SWAP_WAYS; i++) {
		samples_fini(&f->ns[i]);
		samples_fini(&f->x[i]);
	}
	if (f->memfd >= 0)
		close(f->memfd);
}

static int field_init(struct field *f)
{
	void *p;
	int rc;

	f->area_len = round_up(f->len, HUGE) + 2 * HUGE;
	f->memfd = memfd_create("kedge-bench", MFD_CLOEXEC);
	if (f->memfd < 0 || ftruncate(f->memfd, (off_t)f->len)) {
		rc = -errno;
		goto fini;
	}
	/* Its pages are there before anything is timed. */
	p = mmap(NULL, f->len, PROT_READ | PROT_WRITE, MAP_SHARED, f->memfd, 0);
	if (p == MAP_FAILED) {
		rc = -errno;
		goto fini;
	}
	memset(p, 3, f->len);
	munmap(p, f->len);
	rc = fill(f, 0);
	if (!rc)
		rc = fill(f, 1);
	if (!rc)
		return 0;
fini:
	field_fini(f);
	return rc;
}

/* One way, once; what it needs before and after is not in *ns. */
static int once(struct field *f, enum swap_way way, double *ns)
{
	uint64_t t0;
	int rc = 0;

	if (f->pages == SWAP_FRESH || way == SWAP_MEMFD)
		rc = lay(f, 0);
	if (!rc && f->pages != SWAP_FRESH && way == SWAP_MEMFD)
		memset(f->at[0], 1, f->len);
	if (rc)
		return rc;
	t0 = clock_ns();
	switch (way) {
	case SWAP_MEMCPY:
		memcpy(f->at[0], f->at[1], f->len);
		break;
	case SWAP_MOVE:
		rc = kedge_page_swap_with(f->at[0], f->at[1], f->len,
					  KEDGE_SWAP_MOVE);
		break;
	case SWAP_REMAP:
		rc = kedge_page_swap_with(f->at[0], f->at[1], f->len,
					  KEDGE_SWAP_REMAP);
		break;
	case SWAP_PHYS:
		rc = kedge_page_swap_with(f->at[0], f->at[1], f->len,
					  KEDGE_SWAP_PHYS);
		break;
	default:
		if (mmap(f->at[0], f->len, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_FIXED | MAP_POPULATE, f->memfd,
			 0) == MAP_FAILED)
			rc = -errno;
	}
	*ns = (double)(clock_ns() - t0);
	if (rc)
		return rc;
	/* The pages are elsewhere, or the mapping is another: start anew. */
	if (way == SWAP_MEMFD)
		rc = fill(f, 0);
	else if (f->pages == SWAP_FRESH && way != SWAP_MEMCPY)
		rc = fill(f, 1);
	return rc;
}

static int one_round(const struct swap_opts *opt, struct field *f,
		     struct swap_result *res, bool keep)
{
	double ns[SWAP_WAYS] = { 0 };
	enum swap_way way;
	int rc = 0;

	for (way = 0; way < SWAP_WAYS && !rc; way++) {
		if (!(opt->ways & 1u << way) || *res->why[way])
			continue;
		rc = once(f, way, &ns[way]);
		if (rc == -EOPNOTSUPP || rc == -EPERM) {
			snprintf(res->why[way], sizeof(res->why[way]), "%s",
				 kedge_strerror(rc));
			rc = 0;
			continue;
		}
		if (rc || !keep)
			continue;
		rc = samples_add(&f->ns[way], ns[way]);
		if (!rc)
			rc = samples_add(&f->x[way],
					       ns[SWAP_MEMCPY] / ns[way]);
	}
	return rc;
}

static void add_rows(const struct field *f, struct swap_result *res)
{
	enum swap_way way;

	for (way = 0; way < SWAP_WAYS; way++) {
		const struct samples *s = &f->ns[way];

		if (!s->n)
			continue;
		res->row[res->n] = (struct swap_row){
			.pages = f->pages,
			.place = f->place,
			.way = way,
			.bytes = f->len,
			.ns = util_median(s->v, s->n), /* sorts them */
			.x = util_median(f->x[way].v, f->x[way].n),
		};
		res->row[res->n++].best_ns = s->v[0];
	}
}

static int one_set(const struct swap_opts *opt, struct field *f,
		   struct swap_result *res)
{
	int rc = field_init(f), round;

	if (rc)
		return rc;
	/* One before it counts: the first call of each way opens things. */
	for (round = -1; round < opt->rounds && !rc; round++)
		rc = one_round(opt, f, res, round >= 0);
	if (!rc)
		add_rows(f, res);
	field_fini(f);
	return rc;
}

int swap_run(const struct swap_opts *opt, struct swap_result *res)
{
	struct util_progress progress;
	enum swap_pages pages;
	enum swap_place place;
	uint64_t done = 0;
	int rc = 0;
	size_t i;

	util_progress_start(&progress, "swapping",
			    SWAP_PAGES * SWAP_PLACES * opt->sizes.n, false);
	for (pages = 0; pages < SWAP_PAGES; pages++)
		for (place = 0; place < SWAP_PLACES; place++)
			for (i = 0; i < opt->sizes.n && !rc; i++) {
				struct field f = { .pages = pages,
						   .place = place,
						   .len = opt->sizes.v[i],
						   .memfd = -1 };

				util_progress_at(&progress, done++);
				if (opt->pages & 1u << pages &&
				    opt->places & 1u << place)
					rc = one_set(opt, &f, res);
			}
	util_progress_stop(&progress);
	return rc ? util_fail(rc, "cannot swap") : CMD_OK;
}
