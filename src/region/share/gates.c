// SPDX-License-Identifier: BSD-2-Clause
/*
 * The owner's side of gates (gate.h has how they work), and what the program does by them. A
 * peer that ends in an access has it counted for ever; its connection ends too, and then
 * its gate is no more (serve.c).
 */
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "region/keeper.h"
#include "region/share/share.h"

#define LOOKS	100   /* before it sleeps: an access of a page takes less than a microsecond */
#define NAP_NS	20000
#define LOOKS_AT_PEERS 500 /* some 40 ms */

static void wake(struct gate *g)
{
	syscall(SYS_futex, &g->state, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- with shares_lock ---- */

static uint32_t *count_of(struct conn *c)
{
	const enum peer_way local = c->local ? PEER_LOCAL : PEER_TCP;

	return &c->region->counts.peers[c->stream ? local : PEER_MAPPED];
}

void conn_join(struct conn *c, struct slot *s)
{
	c->slot = s;
	c->region = s->region;
	list_add_tail(&s->conns, &c->of_slot);
	sig_lock(&gaps_lock);
	list_add_tail(&s->region->conns, &c->of_region);
	++*count_of(c);
	sig_unlock(&gaps_lock);
}

/* Those of the region, within what the handle gives. With gaps_lock, while the gate is shut. */
static void set_gaps(struct conn *c, const struct kedge_region *r)
{
	struct gate *g = c->gate;
	const uint64_t first = c->slot ? c->slot->offset : 0;
	uint32_t i, cnt = 0;

	atomic_fetch_add(&g->gap_seq, 1);
	for (i = 0; i < r->gaps.cnt; i++) {
		if (r->gaps.at[i].to <= first)
			continue;
		atomic_store(&g->gap[cnt].from,
			     r->gaps.at[i].from < first ? 0 : r->gaps.at[i].from - first);
		atomic_store(&g->gap[cnt].to, r->gaps.at[i].to - first);
		cnt++;
	}
	atomic_store(&g->gap_cnt, cnt);
	atomic_fetch_add(&g->gap_seq, 1);
	if (cnt)
		atomic_fetch_or(&g->state, GATE_GAPS);
	else
		atomic_fetch_and(&g->state, ~GATE_GAPS);
}

void gate_open_to(struct conn *c, struct slot *s)
{
	conn_join(c, s);
	atomic_store(&c->gate->len, part_of(s, s->region->open_len));
	atomic_store(&c->gate->expires, s->expires);
	atomic_store(&c->gate->opened, clock_ns());
	atomic_store(&c->gate->epoch, s->region->epoch);
	sig_lock(&gaps_lock);
	atomic_store(&c->gate->state, s->region->suspended ? GATE_CLOSED : 0);
	set_gaps(c, s->region);
	sig_unlock(&gaps_lock);
}

void gates_gaps_change(struct kedge_region *r)
{
	struct list *l, *tmp;
	struct gate *g;

	list_for_each_safe(l, tmp, &r->conns) {
		g = list_entry(l, struct conn, of_region)->gate;
		/* seq_cst, and so before the event is read: that is a system call. */
		if (g)
			atomic_fetch_or(&g->state, GATE_CHANGING);
	}
}

void gates_gaps_changed(struct kedge_region *r)
{
	struct list *l, *tmp;
	struct conn *c;

	list_for_each_safe(l, tmp, &r->conns) {
		c = list_entry(l, struct conn, of_region);
		if (!c->gate)
			continue;
		set_gaps(c, r);
		atomic_fetch_and(&c->gate->state, ~GATE_CHANGING);
		wake(c->gate);
	}
}

static void part(struct conn *c)
{
	sig_lock(&gaps_lock);
	if (c->slot)
		list_remove(&c->of_slot);
	c->slot = NULL;
	sig_unlock(&gaps_lock);
}

void gate_take(struct conn *c)
{
	part(c);
	sig_lock(&gaps_lock);
	if (c->region) {
		list_remove(&c->of_region);
		--*count_of(c);
	}
	c->region = NULL;
	sig_unlock(&gaps_lock);
}

static void end_gate(struct gate *g, int why)
{
	atomic_store(&g->why, (uint32_t)why);
	atomic_fetch_or(&g->state, GATE_ENDED);
	wake(g);
}

/* It comes in no more, whatever it does. */
bool gate_lingers(struct conn *c, struct gate **gate)
{
	if (!c->region || !c->gate)
		return false;
	/* The reason that was given first stays: the end of the connection follows from it. */
	if (!(atomic_load(&c->gate->state) & GATE_ENDED))
		end_gate(c->gate, ECONNRESET);
	c->lingers = !gate_is_empty(c->gate);
	if (!c->lingers)
		return false;
	sig_lock(&gaps_lock);
	*gate = c->gate;
	c->gate = NULL;
	sig_unlock(&gaps_lock);
	return true;
}

/* Out of the gate, or without its memory. A peer that has sealed the file against seals is
 * taken for that, too. */
bool gate_is_gone(const struct conn *c)
{
	uint32_t inside = 0;

	if (syscall(SYS_pread64, c->gate_fd, &inside, sizeof(inside),
		    offsetof(struct gate, inside)) == sizeof(inside) && !inside)
		return true;
	return !syscall(SYS_fcntl, c->gate_fd, F_ADD_SEALS, F_SEAL_WRITE) || errno != EBUSY;
}

void gates_end(struct slot *s, int why)
{
	struct list *l, *tmp;
	struct conn *c;

	list_for_each_safe(l, tmp, &s->conns) {
		c = list_entry(l, struct conn, of_slot);
		if (c->gate)
			end_gate(c->gate, why);
	}
}

void gates_part(struct slot *s)
{
	struct list *l, *tmp;

	list_for_each_safe(l, tmp, &s->conns)
		part(list_entry(l, struct conn, of_slot));
}

static void close_all(struct kedge_region *r, bool closed)
{
	struct list *l, *tmp;
	struct gate *g;

	list_for_each_safe(l, tmp, &r->conns) {
		g = list_entry(l, struct conn, of_region)->gate;
		if (!g)
			continue;
		if (closed) {
			atomic_fetch_or(&g->state, GATE_CLOSED);
		} else {
			atomic_fetch_and(&g->state, ~GATE_CLOSED);
			wake(g);
		}
	}
}

void gates_turn_out(struct kedge_region *r, int why, const struct owner_place *to)
{
	struct list *l, *tmp;
	struct gate *g;

	list_for_each_safe(l, tmp, &r->conns) {
		g = list_entry(l, struct conn, of_region)->gate;
		if (g && to)
			g->to = *to;
		if (g)
			end_gate(g, why);
	}
}

void gates_moved(struct kedge_region *r)
{
	struct list *l, *tmp;
	struct gate *g;

	r->epoch++;
	list_for_each_safe(l, tmp, &r->conns) {
		g = list_entry(l, struct conn, of_region)->gate;
		if (g)
			atomic_store(&g->epoch, r->epoch);
	}
}

/* The peer that is in there, or NULL. */
static struct conn *first_inside(struct kedge_region *r, struct slot *s)
{
	struct list *l, *tmp;
	struct conn *c;

	list_for_each_safe(l, tmp, &r->conns) {
		c = list_entry(l, struct conn, of_region);
		if ((!s || c->slot == s) &&
		    (c->lingers || c->leased || (c->gate && !gate_is_empty(c->gate))))
			return c;
	}
	return NULL;
}

/* ---- waiting ---- */

const char *peer_name(pid_t pid, char text[PEER_NAME])
{
	if (pid > 0)
		snprintf(text, PEER_NAME, "process %d", (int)pid);
	else
		snprintf(text, PEER_NAME, "a peer of another host");
	return text;
}

static bool is_inside(struct kedge_region *r, struct slot *s, pid_t *pid)
{
	const struct conn *c;

	sig_lock(&shares_lock);
	c = first_inside(r, s);
	if (c)
		*pid = c->pid;
	sig_unlock(&shares_lock);
	return c;
}

static bool recall(struct kedge_region *r, const struct slot *s, bool cut)
{
	bool any;

	sig_lock(&shares_lock);
	any = leases_recall(r, s, cut);
	sig_unlock(&shares_lock);
	return any;
}

/* A zombie has ended, too. */
static bool has_ended(pid_t pid)
{
	const struct timespec now = { 0, 0 };
	int fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	struct pollfd p = { fd, POLLIN, 0 };
	bool is;

	if (fd < 0)
		return pid > 0 && errno == ESRCH;
	is = syscall(SYS_ppoll, &p, 1, &now, NULL, 0) > 0;
	syscall(SYS_close, fd);
	return is;
}

/* By the keeper, which has the connections. A process that has ended may have a child with its
 * socket, as _Fork() and clone() run no handlers: that is not waited for. The thread of serve.c
 * ends the connection then. */
static int end_those_that_ended(void *region)
{
	const struct kedge_region *r = region;
	struct list *l, *tmp;
	struct conn *c;

	sig_lock(&shares_lock);
	list_for_each_safe(l, tmp, &r->conns) {
		c = list_entry(l, struct conn, of_region);
		if (c->gate && !gate_is_empty(c->gate) && has_ended(c->pid))
			syscall(SYS_shutdown, c->fd, SHUT_RDWR);
	}
	sig_unlock(&shares_lock);
	return 0;
}

/* New ones may be let in meanwhile, where the gates are open: @s is of no new ones. */
int gates_wait(struct kedge_region *r, struct slot *s, int timeout_ms, pid_t *pid)
{
	const uint64_t begun = clock_ns(), limit = (uint64_t)timeout_ms * 1000000u;
	const struct timespec nap = { 0, NAP_NS };
	int n;

	if (recall(r, s, false))
		leases_nudge();
	for (n = 0; is_inside(r, s, pid); n++) {
		if (timeout_ms >= 0 && clock_ns() - begun >= limit)
			return -ETIMEDOUT;
		if (n < LOOKS)
			cpu_relax();
		else
			nanosleep(&nap, NULL);
		if (n % LOOKS_AT_PEERS == LOOKS_AT_PEERS - 1)
			keeper_call(end_those_that_ended, r);
	}
	return 0;
}

static void lend(struct kedge_region *r, bool again)
{
	sig_lock(&shares_lock);
	r->unlent += again ? -1u : 1u;
	sig_unlock(&shares_lock);
}

/* The thread of serve.c does it, which waits for no peer. Another lease is not given meanwhile. */
void gates_cut(struct kedge_region *r, struct slot *s)
{
	const struct timespec nap = { 0, NAP_NS };

	lend(r, false);
	if (recall(r, s, true) && leases_nudge())
		while (recall(r, s, true))
			nanosleep(&nap, NULL);
	lend(r, true);
}

bool gates_open(struct kedge_region *r)
{
	bool was;

	sig_lock(&shares_lock);
	was = r->suspended;
	if (was && !--r->suspended)
		close_all(r, false);
	sig_unlock(&shares_lock);
	return was;
}

int gates_close(struct kedge_region *r, int timeout_ms, pid_t *pid)
{
	int rc;

	sig_lock(&shares_lock);
	r->suspended++;
	close_all(r, true);
	sig_unlock(&shares_lock);
	rc = gates_wait(r, NULL, timeout_ms, pid);
	if (rc)
		gates_open(r);
	return rc;
}

int gates_empty(struct kedge_region *r)
{
	char name[PEER_NAME];
	pid_t pid = 0;

	if (!r->overstayed)
		return 0;
	if (!gates_close(r, PATIENCE_MS, &pid)) {
		gates_open(r);
		r->overstayed = false;
		return 0;
	}
	return kedge_reason(-ETIMEDOUT, "an access of %s that began before the region was "
			    "trimmed is not over, and would go on in what is added: is it "
			    "stopped? Let it go on, or end it", peer_name(pid, name));
}

void gates_set_len(struct kedge_region *r, uint64_t len)
{
	struct list *l, *tmp;
	struct conn *c;
	pid_t pid;
	bool less;

	sig_lock(&shares_lock);
	less = len < r->open_len;
	r->open_len = len;
	list_for_each_safe(l, tmp, &r->conns) {
		c = list_entry(l, struct conn, of_region);
		if (c->slot && c->gate)
			atomic_store(&c->gate->len, part_of(c->slot, len));
	}
	sig_unlock(&shares_lock);
	if (!less)
		return;
	if (!gates_close(r, PATIENCE_MS, &pid)) {
		gates_open(r);
		return;
	}
	/* A peer that is stopped may store behind the end when it goes on: so the region does not
	 * grow until it is out. Those pages are taken away then, or when the region ends. */
	r->overstayed = true;
	gates_cut(r, NULL);
}

/* Peers that come back with a lease are told so. True: there are some. */
static bool end_handles(struct kedge_region *r)
{
	struct list *l, *tmp;
	struct slot *s;
	bool any;

	sig_lock(&shares_lock);
	list_for_each_safe(l, tmp, &r->slots) {
		s = list_entry(l, struct slot, node);
		s->revoked = true;
		gates_end(s, EKEYREVOKED);
	}
	any = leases_any(r);
	sig_unlock(&shares_lock);
	return any;
}

void shares_close(struct kedge_region *r)
{
	struct list *l, *tmp;
	struct slot *s;
	pid_t pid;

	/* And never again. */
	lend(r, false);
	/* A lease that is cut is an adapter that has failed, for its peer. */
	if (end_handles(r))
		gates_wait(r, NULL, PATIENCE_MS, &pid);
	gates_cut(r, NULL);
	sig_lock(&shares_lock);
	list_for_each_safe(l, tmp, &r->slots) {
		s = list_entry(l, struct slot, node);
		gates_end(s, EKEYREVOKED);
		gates_part(s);
		slot_free(s);
	}
	list_for_each_safe(l, tmp, &r->conns)
		gate_take(list_entry(l, struct conn, of_region));
	served_end(r);
	/* A region in doubt has its bits still. */
	free(r->dirty);
	r->dirty = NULL;
	sig_unlock(&shares_lock);
}

void gates_forget(void)
{
	sig_lock_init(&shares_lock);
}
