// SPDX-License-Identifier: BSD-2-Clause
/*
 * Converted memory. An extent is a memfd of its own for each range that was converted, so
 * that a peer which is given the descriptor reaches nothing else. Segments of memory that
 * is converted already share the extent.
 *
 * The thread has the memfd before anything is converted: whatever the program closes then, as
 * daemons do, the memory can be made private again. What cannot be for now (there is no memory)
 * stays in the tables, an extent that no segment has, and is tried again (demand.c).
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "segment/extent/change.h"
#include "segment/thread/thread.h"

/* mremap() may make a mapping longer, in place and without an event: the file goes on. */
#define ROOM ((uint64_t)1 << 40)

/* One that has all of it, as it was converted. */
static int find(uintptr_t at, size_t len)
{
	const struct piece *p;

	for (p = seg->piece; p < seg->piece + seg->piece_max; p++)
		if (p->len && p->at <= at && at + len <= p->at + p->len &&
		    p->at - p->off == seg->extent[p->extent].at &&
		    !seg->extent[p->extent].left)
			return (int)p->extent;
	return -1;
}

bool extent_is_within(const struct extent *e, const struct kedge_segment *s)
{
	const size_t page = kedge__page_size();

	return e->at >= round_down(s->addr, page) &&
	       e->at + e->len <= round_up(s->addr + s->len, page);
}

static int free_one(void)
{
	int i;

	for (i = 0; i < (int)EXTENTS && seg->extent[i].len; i++)
		;
	return i < (int)EXTENTS ? i : -1;
}

/* As long as it may be. The limit's signal is not sent for what is not tried. */
static int file_of(size_t len, struct fd_id *id)
{
	int fd = memfd_create("kedge-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct rlimit rl = { RLIM_INFINITY, RLIM_INFINITY };
	uint64_t all = len + ROOM;
	int rc = 0;

	if (fd < 0)
		return -errno;
	fd = fd_move_up(fd);
	fd_note(fd, id);
	getrlimit(RLIMIT_FSIZE, &rl);
	if (rl.rlim_cur < all)
		all = len;
	if (rl.rlim_cur < all)
		rc = kedge_reason(-EFBIG, "RLIMIT_FSIZE is less than that memory: raise it "
				  "with ulimit -f");
	else if (ftruncate(fd, (off_t)all) ||
		 fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		rc = -errno;
	if (rc)
		close(fd);
	return rc ? rc : fd;
}

static bool first_piece(uint32_t i, struct piece *part)
{
	const struct piece *p;

	sig_lock(&seg_lock);
	p = piece_next(NULL, i, 0, UINTPTR_MAX);
	if (p)
		*part = *p;
	sig_unlock(&seg_lock);
	return p;
}

static void cut(const struct piece *part)
{
	struct piece gone;

	sig_lock(&seg_lock);
	while (piece_cut(part->extent, part->at, part->at + part->len, &gone))
		;
	sig_unlock(&seg_lock);
}

/* It is watched, and in the table, until its threads are stopped. False: a part stays shared,
 * and is watched still. */
static bool make_private(int i, int mark)
{
	struct piece part;

	while (first_piece((uint32_t)i, &part)) {
		if (change_private(i, &part, mark))
			return false;
		cut(&part);
	}
	return true;
}

/* Peers that ask are to ask again. */
void extent_set_away(int i, bool away)
{
	sig_lock(&seg_lock);
	place_forget();
	seg->extent[i].away = away;
	sig_unlock(&seg_lock);
}

void extent_forget(int i)
{
	struct extent *e = &seg->extent[i];

	sig_lock(&seg_lock);
	e->len = 0;
	e->on_attach = e->away = e->left = false;
	sig_unlock(&seg_lock);
}

static void drop_fds(int i)
{
	const struct seg_call call = { .op = SEG_OP_DROP_EXTENT, .index = i };

	call_thread(&call, -1);
}

/* In the table, where nobody is given it before it is watched. */
static void fill(const struct change *c)
{
	struct extent *e = &seg->extent[c->index];

	sig_lock(&seg_lock);
	e->at = c->at;
	e->len = c->len;
	e->away = true;
	e->left = false;
	e->inode = c->fd_id.ino;
	e->dev = c->fd_id.dev;
	sig_unlock(&seg_lock);
}

/* The thread has its own of them. */
static int hand_over(const struct change *c, enum seg_op op, int fd)
{
	const struct seg_call call = { .op = op, .index = c->index };
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	return copy < 0 ? -errno : call_thread(&call, copy);
}

static int no_pieces(void)
{
	return kedge_reason(-ENOSPC, "the memory of segments is in too many pieces");
}

/* Before the thread has what hears of it. */
static bool has_room(const struct change *c)
{
	bool room;

	sig_lock(&seg_lock);
	room = piece_add(c->at, c->len, (uint32_t)c->index, 0);
	sig_unlock(&seg_lock);
	return room;
}

/* Converted memory; what fails makes it private again. */
static int enter(const struct change *c, bool watched)
{
	int rc = !watched || has_room(c) ? hand_over(c, SEG_OP_UFFD, c->uffd) : no_pieces();

	if (!rc && !watched)
		rc = watch_all(c->index, c->fd);
	if (!rc)
		return 0;
	watch_forget((uint32_t)c->index);
	change_undo(c, c->len);
	return rc;
}

/* @stopped: not if other threads cannot be stopped. */
static int convert_and_enter(struct change *c, bool stopped)
{
	bool watched = stopped;
	int rc = hand_over(c, SEG_OP_EXTENT, c->fd);

	if (rc)
		return rc;
	c->uffd = uffd_open();
	if (c->uffd < 0)
		return c->uffd;
	fd_note(c->uffd, &c->uffd_id);
	rc = stopped ? change_stopped(c) : change_share(c, &watched);
	if (!rc)
		rc = enter(c, watched);
	fd_close(c->uffd, &c->uffd_id);
	return rc;
}

static int add_at(int i, uintptr_t at, size_t len, bool stopped, int mark)
{
	struct change c = { .index = i, .at = at, .len = len, .uffd = -1, .mark = mark };
	int rc;

	c.fd = file_of(len, &c.fd_id);
	if (c.fd < 0)
		return c.fd;
	fill(&c);
	rc = convert_and_enter(&c, stopped);
	fd_close(c.fd, &c.fd_id);
	if (rc && !extent_has(i, 0, UINTPTR_MAX))
		drop_fds(i);
	else if (!rc)
		extent_set_away(i, false);
	return rc;
}

int extent_share_again(int i, int mark)
{
	return add_at(i, seg->extent[i].at, seg->extent[i].len, true, mark);
}

static int add(uintptr_t at, size_t len, bool stopped)
{
	int i = free_one(), rc;

	if (i < 0)
		return kedge_reason(-ENOSPC, "this process has %u ranges of segments, which "
				    "are all that it may have", EXTENTS);
	rc = add_at(i, at, len, stopped, NO_MARK);
	if (rc && !extent_has(i, 0, UINTPTR_MAX))
		extent_forget(i);
	return rc ? rc : i;
}

int extent_get(uintptr_t at, size_t len)
{
	int i;

	sig_lock(&seg_lock);
	i = find(at, len);
	sig_unlock(&seg_lock);
	if (i < 0)
		i = add(at, len, false);
	if (i >= 0)
		seg->extent[i].segments++;
	return i;
}

int extent_add(uintptr_t at, size_t len)
{
	return add(at, len, true);
}

/* Until peers have let go, or a second is over. */
void extent_wait_acks(void)
{
	const struct timespec nap = { 0, 50000 };
	uint64_t deadline = clock_ns() + 1000000000u;

	while (atomic_load(&seg->owed) && clock_ns() < deadline)
		nanosleep(&nap, NULL);
}

/* Peers that have attached it are asked to let go. */
void extent_recall(int i)
{
	const struct seg_call call = { .op = SEG_OP_RECALL, .index = i,
				       .end = seg->extent[i].len };

	call_thread(&call, -1);
}

bool extent_withdraw(int i, int mark)
{
	if (!make_private(i, mark))
		return false;
	drop_fds(i);
	return true;
}

void extent_drop(int i)
{
	if (extent_withdraw(i, NO_MARK))
		extent_forget(i);
	else
		extent_set_away(i, false);
}

/* Peers of other segments have parts of it: then it stays theirs. Or else nobody gets one any
 * more. */
static bool keep_for_parts(int i)
{
	bool kept;

	sig_lock(&seg_lock);
	kept = conns_have_part(i, NULL);
	seg->extent[i].on_attach = kept;
	seg->extent[i].away = !kept;
	sig_unlock(&seg_lock);
	return kept;
}

void extent_put(int i)
{
	struct extent *e = &seg->extent[i];

	if (--e->segments || keep_for_parts(i))
		return;
	if (e->fd >= 0) {
		extent_recall(i);
		extent_wait_acks();
		/* Or it is tried again, as what no peer has any more is. */
		e->on_attach = true;
		extent_drop(i);
	} else {
		extent_forget(i);
	}
}

bool extent_has(int i, uintptr_t start, uintptr_t end)
{
	bool has;

	sig_lock(&seg_lock);
	has = seg->extent[i].fd >= 0 && piece_next(NULL, (uint32_t)i, start, end);
	sig_unlock(&seg_lock);
	return has;
}
