// SPDX-License-Identifier: BSD-2-Clause
/*
 * Messages of owners to this process: parts of their memory that are gone. Pages without any
 * memory behind them take their place, so that whoever touches them has a SIGBUS.
 */
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process/own.h"
#include "segment/peer/attached.h"
#include "segment/thread/thread.h"

#define AT_A_TIME 64
#define BEHIND ((off_t)1 << 40) /* the end of the check page's file */

static uint64_t greater(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t lesser(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void not_valid(struct kedge_attachment *a)
{
	a->gone = true;
	__atomic_store_n(&a->head.seen, NEVER, __ATOMIC_RELAXED);
}

/* [start, end) of the memfd. */
static void take_part(struct kedge_attachment *a, uint64_t start, uint64_t end)
{
	start = greater(start, a->file_off);
	end = lesser(end, a->file_off + a->len);
	if (start >= end)
		return;
	not_valid(a);
	/* An owner that has ended counts no change, by which the whole would be looked at anew. */
	if (a->whole)
		not_valid(a->whole);
	if (a->flags & KEDGE_ATTACH_KEEP)
		return;
	start -= a->file_off;
	end -= a->file_off;
	if (own_mmap(a->at + start, end - start, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, seg->check_fd, BEHIND) < 0)
		kedge__log(KEDGE_LOG_WARN, "pages that their owner has taken back stay "
			   "mapped: no mapping is to be had");
	else
		syscall(SYS_madvise, a->at + start, end - start, MADV_DONTFORK);
}

/* If there are too many, the last is made to hold more than it has to. */
static void note(struct kedge_grant *g, uint64_t start, uint64_t end)
{
	struct gone_part *last;
	uint32_t n = g->gone_cnt;

	if (n < ARRAY_SIZE(g->gone)) {
		g->gone[n] = (struct gone_part){ start, end };
		g->gone_cnt = n + 1;
		return;
	}
	last = &g->gone[ARRAY_SIZE(g->gone) - 1];
	last->start = lesser(last->start, start);
	last->end = greater(last->end, end);
}

static void take(struct kedge_grant *g, uint64_t start, uint64_t end)
{
	struct list *l, *tmp;

	note(g, start, end);
	attached_take(g, take_part, start, end);
	list_for_each_safe(l, tmp, &g->attachments)
		take_part(list_entry(l, struct kedge_attachment, node), start, end);
}

static void end(struct kedge_grant *g)
{
	__atomic_store_n(&g->ended, true, __ATOMIC_RELAXED);
	take(g, 0, UINT64_MAX);
}

void recall_begin(int fd)
{
	const struct seg_ack k = { .head = seg_head(SEG_ACK) };

	syscall(SYS_sendto, fd, &k, sizeof(k), MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
}

static void hear(struct kedge_grant *g, int fd, const struct seg_gone *m)
{
	struct seg_ack k = { .head = seg_head(SEG_ACK), .ack = m->ack };

	if (m->start < m->end)
		take(g, m->start, m->end);
	g->count = m->count;
	if (m->ack)
		syscall(SYS_sendto, fd, &k, sizeof(k), MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
}

/* False: there is no more, now or ever. */
static bool read_one(uint32_t index)
{
	int fd = seg->grant_fd[index];
	struct kedge_grant *g = seg->grant[index];
	struct seg_gone m;
	long n;

	if (fd < 0 || !g)
		return false;
	n = syscall(SYS_recvfrom, fd, &m, sizeof(m), MSG_DONTWAIT | MSG_TRUNC, NULL, NULL);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n == (long)sizeof(m) && seg_is(&m.head, SEG_GONE)) {
		hear(g, fd, &m);
		return true;
	}
	end(g);
	fds_close(fd);
	seg->grant_fd[index] = -1;
	return false;
}

void recall_read(uint32_t index)
{
	bool more = true;
	int n;

	/* An owner that never ends has no more of this thread than others. */
	for (n = 0; n < AT_A_TIME && more; n++) {
		sig_lock_blocked(&seg_lock);
		more = read_one(index);
		sig_unlock_blocked(&seg_lock);
	}
}

void recall_forget(void)
{
	struct kedge_attachment *a;
	struct list *l, *tmp;
	uint32_t i;

	for (i = 0; i < GRANTS; i++) {
		if (!seg->grant[i])
			continue;
		list_for_each_safe(l, tmp, &seg->grant[i]->attachments)
			list_entry(l, struct kedge_attachment, node)->head.seen = NEVER;
		for (a = seg->grant[i]->chain; a; a = a->next)
			a->head.seen = NEVER;
	}
}
