// SPDX-License-Identifier: BSD-2-Clause
/* Orders to the processes and their answers. A process that is silent for minutes hangs. */
#include <errno.h>
#include <poll.h>
#include <time.h>

#include "base/base.h"
#include "tools/migrate/run.h"

#define TICK_NS UINT64_C(100000000)
#define HANG_NS UINT64_C(120000000000) /* beyond the longest wait that is meant */

uint64_t talk_hang(const struct run *r)
{
	return clock_ns() + HANG_NS + (uint64_t)migrate_accept_ms(r->opts) * 1000000u;
}

int talk_hear_until(struct proc *p, struct said *s, uint64_t until)
{
	struct pollfd fd = { .fd = p->fd, .events = POLLIN };
	struct timespec tick = { 0, 0 };
	uint64_t now, left;

	while (!run_interrupted()) {
		now = clock_ns();
		left = now < until ? until - now : 0;
		tick.tv_nsec = (long)(left < TICK_NS ? left : TICK_NS);
		if (ppoll(&fd, 1, &tick, NULL) > 0)
			return proc_recv(p->fd, s, sizeof(*s));
		if (!left)
			return -ETIMEDOUT;
	}
	return -EINTR;
}

int talk_hear(struct run *r, struct proc *p, struct said *s)
{
	int rc = talk_hear_until(p, s, talk_hang(r));

	if (rc != -ETIMEDOUT)
		return rc;
	load_found(r->load, &r->load->errors, "process %d is silent for minutes", (int)p->pid);
	return RUN_OVER;
}

int talk_expect(struct run *r, struct proc *p, uint32_t kind, struct said *s)
{
	int rc;

	do {
		rc = talk_hear(r, p, s);
		if (!rc && s->kind == SAY_PROGRESS)
			bar_draw(&r->bar, &s->info);
	} while (!rc && s->kind != kind);
	if (rc != -EPIPE && rc != -EPROTO)
		return rc;
	load_found(r->load, &r->load->errors, "process %d has ended by itself", (int)p->pid);
	return RUN_OVER;
}

int talk_ask(struct run *r, struct proc *p, const struct order *o, uint32_t kind, struct said *s)
{
	/* The end of the process is seen next. */
	int rc = proc_send(p->fd, o, sizeof(*o));

	return rc && rc != -EPIPE ? rc : talk_expect(r, p, kind, s);
}

int talk_fail(const struct said *s, const char *what)
{
	util_error("cannot %s: %s", what, s->why);
	return s->rc;
}

int talk_must(struct run *r, struct proc *p, const struct order *o, const char *what,
	      struct said *s)
{
	int rc = talk_ask(r, p, o, SAY_DONE, s);

	return !rc && s->rc ? talk_fail(s, what) : rc;
}

bool talk_has_ended(const struct proc *p)
{
	struct pollfd fd = { .fd = p->fd, .events = 0 };

	return poll(&fd, 1, 0) > 0 && fd.revents & (POLLHUP | POLLERR);
}
