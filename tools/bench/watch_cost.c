// SPDX-License-Identifier: BSD-2-Clause
/* The cost of watching itself: a process that times each step of it. */
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

#include <kedge/kedge.h>

#include "tools/bench/watch.h"

/* Watches that a round adds and removes. */
#define ROUND	 256u
#define AREA_LEN ((uint64_t)ROUND * WATCH_STRIDE)
#define LOADS	 100000u
#define CALLS	 1000u
#define EVENTS	 64

/** struct cost_state - the state of this process
 * @resident: memory whose watches exist all the time, with cookies below
 *            @cfg->watches
 * @area:     memory of the round, mapped anew for each
 */
struct cost_state {
	const struct cost_cfg *cfg;
	struct kedge_notifier *nf;
	struct plain *plain;
	char *resident;
	uint64_t resident_len;
	char *area;
};

static void *map(void *addr, uint64_t len)
{
	return mmap(addr, len, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
			    (addr ? MAP_FIXED : 0),
		    -1, 0);
}

static int add(struct cost_state *s, char *base, uint64_t i, uint64_t cookie)
{
	char *addr = base + i * WATCH_STRIDE;
	int rc;

	if (s->plain)
		return plain_add(s->plain, addr, WATCH_LEN);
	rc = kedge_watch_add(s->nf, addr, WATCH_LEN, cookie);
	return rc < 0 ? rc : 0;
}

static int drain(struct cost_state *s)
{
	struct kedge_event ev[EVENTS];
	ssize_t n;

	if (s->plain)
		return 0;
	do {
		n = kedge_notifier_read(s->nf, ev, EVENTS);
	} while (n == EVENTS);
	return n < 0 ? (int)n : 0;
}

static int step_generation(struct cost_state *s, double *ns)
{
	uint64_t start = clock_ns(), sum = 0;
	unsigned int i;

	for (i = 0; i < LOADS; i++) {
		sum += kedge_notifier_generation(s->nf);
		/* Each load is made, and none is merged with the next. */
		__asm__ volatile("" : "+r"(sum) : : "memory");
	}
	*ns = (double)(clock_ns() - start) / LOADS;
	return 0;
}

static int step_syscall(struct cost_state *s, double *ns)
{
	uint64_t start = clock_ns();
	unsigned int i;

	for (i = 0; i < CALLS; i++)
		raw_getppid();
	*ns = (double)(clock_ns() - start) / CALLS;
	return 0;
}

static int step_add(struct cost_state *s, uint64_t cookie, double *ns)
{
	uint64_t start = clock_ns(), i;
	int rc = 0;

	for (i = 0; i < ROUND && !rc; i++)
		rc = add(s, s->area, i, cookie + i);
	*ns = (double)(clock_ns() - start) / ROUND;
	return rc;
}

static int step_remove(struct cost_state *s, uint64_t cookie, double *ns)
{
	uint64_t start = clock_ns(), i;
	int rc = 0;

	for (i = 0; i < ROUND && !rc; i++)
		rc = s->plain ? plain_remove(s->plain,
					     s->area + i * WATCH_STRIDE,
					     WATCH_LEN)
			      : kedge_watch_remove(s->nf, cookie + i);
	*ns = (double)(clock_ns() - start) / ROUND;
	return rc;
}

/* @read: after each, as a lookup does that comes next. */
static int step_event(struct cost_state *s, bool read, double *ns)
{
	uint64_t start = clock_ns(), i;
	int rc = 0;

	for (i = 0; i < ROUND && !rc; i++) {
		rc = (int)raw_madvise(s->area + i * WATCH_STRIDE, WATCH_LEN,
				      MADV_DONTNEED);
		if (!rc && read)
			rc = drain(s);
	}
	*ns = (double)(clock_ns() - start) / ROUND;
	return rc;
}

static int step_read(struct cost_state *s, double *ns)
{
	uint64_t start;
	double unused;
	int rc;

	rc = step_event(s, false, &unused);
	start = clock_ns();
	if (!rc)
		rc = drain(s);
	*ns = (double)(clock_ns() - start) / ROUND;
	return rc;
}

static int run_round(struct cost_state *s, double ns[COST_CNT])
{
	const uint64_t first = s->cfg->watches, second = first + ROUND;
	int rc;

	if (map(s->area, AREA_LEN) == MAP_FAILED)
		return -errno;
	rc = drain(s);
	if (!rc)
		rc = step_add(s, first, &ns[COST_ADD]);
	if (!rc && s->nf) {
		rc = step_add(s, second, &ns[COST_ADD_AGAIN]);
		if (!rc)
			rc = step_remove(s, second, &ns[COST_REMOVE_ONE]);
	}
	if (!rc)
		rc = step_event(s, true, &ns[COST_EVENT]);
	if (!rc && s->nf)
		rc = step_read(s, &ns[COST_READ]);
	if (!rc)
		rc = step_remove(s, first, &ns[COST_REMOVE]);
	if (!rc && s->nf)
		rc = step_generation(s, &ns[COST_GENERATION]);
	return rc ? rc : step_syscall(s, &ns[COST_SYSCALL]);
}

static int open_side(struct cost_state *s, char why[WATCH_WHY])
{
	struct kedge_notifier_opts no = { .size = sizeof(no),
					  .backend = s->cfg->notifier };
	int rc;

	if (s->cfg->plain)
		return plain_open(&s->plain, why);
	rc = kedge_notifier_open(&no, &s->nf);
	if (rc)
		snprintf(why, WATCH_WHY, "cannot open the notifier: %s",
			 kedge_strerror(rc));
	return rc;
}

static int set_up(struct cost_state *s, char why[WATCH_WHY])
{
	uint64_t i;
	int rc;

	s->resident_len = s->cfg->watches * WATCH_STRIDE;
	s->resident = map(NULL, s->resident_len);
	s->area = map(NULL, AREA_LEN);
	if (s->resident == MAP_FAILED || s->area == MAP_FAILED) {
		snprintf(why, WATCH_WHY, "no address space");
		return -ENOMEM;
	}
	rc = open_side(s, why);
	for (i = 0; i < s->cfg->watches && !rc; i++) {
		rc = add(s, s->resident, i, i);
		if (rc)
			snprintf(why, WATCH_WHY, "watch %llu: %s",
				 (unsigned long long)(i + 1),
				 s->plain ? strerror(-rc) : kedge_strerror(rc));
	}
	return rc;
}

static void tear_down(struct cost_state *s)
{
	kedge_notifier_close(s->nf);
	plain_close(s->plain);
	if (s->resident != MAP_FAILED)
		munmap(s->resident, s->resident_len);
	if (s->area != MAP_FAILED)
		munmap(s->area, AREA_LEN);
}

void cost_child(int fd, void *arg)
{
	struct cost_state s = { .cfg = arg };
	struct cost_rep rep = { 0 };
	uint32_t go;

	rep.rc = set_up(&s, rep.why);
	while (!proc_send(fd, &rep, sizeof(rep)) && !rep.rc &&
	       !proc_recv(fd, &go, sizeof(go))) {
		rep = (struct cost_rep){ 0 };
		rep.rc = run_round(&s, rep.ns);
		if (rep.rc)
			snprintf(rep.why, sizeof(rep.why), "%s",
				 s.plain ? strerror(-rep.rc)
					 : kedge_strerror(rep.rc));
	}
	tear_down(&s);
}
