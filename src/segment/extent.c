// SPDX-License-Identifier: BSD-2-Clause
/*
 * Converted memory. An extent is a memfd of its own for each range that was converted, so
 * that a peer which is given the descriptor reaches nothing else. Segments of memory that
 * is converted already share the extent.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process/stop.h"
#include "notify/internal.h"
#include "pages/internal.h"
#include "pages/share/share.h"
#include "segment/thread/thread.h"

/* mremap() may make a mapping longer, in place and without an event: the file goes on. */
#define ROOM ((uint64_t)1 << 40)

#define NO_MARK	 (-1)

/* One that has all of it, as it was converted. */
static int find(uintptr_t at, size_t len)
{
	const struct piece *p;

	for (p = seg->piece; p < seg->piece + seg->piece_max; p++)
		if (p->len && p->at <= at && at + len <= p->at + p->len &&
		    p->at - p->off == seg->extent[p->extent].at)
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
static int file_of(size_t len)
{
	int fd = memfd_create("kedge-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct rlimit rl = { RLIM_INFINITY, RLIM_INFINITY };
	uint64_t all = len + ROOM;
	int rc = 0;

	if (fd < 0)
		return -errno;
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

/* A write that changes nothing, to each page of a run that is there. */
static void own_run(uintptr_t at, const unsigned char *there, size_t cnt)
{
	const size_t page = kedge__page_size();
	size_t i = 0, from;

	while (i < cnt) {
		for (; i < cnt && !(there[i] & 1); i++)
			;
		for (from = i; i < cnt && there[i] & 1; i++)
			;
		if (i > from)
			madvise((void *)(at + from * page), (i - from) * page,
				MADV_POPULATE_WRITE);
	}
}

/* Pages that a forked child shares would be refused: they are made this process's own. */
static void own_pages(uintptr_t at, size_t len)
{
	const size_t page = kedge__page_size();
	unsigned char there[256];
	size_t n;

	for (; len; len -= n, at += n) {
		n = len < sizeof(there) * page ? len : sizeof(there) * page;
		if (!mincore((void *)at, n, there))
			own_run(at, there, n / page);
	}
}

int extent_can_lift(void)
{
	struct swap_context *ctx;
	sigset_t saved;
	int rc = swap_begin(&saved);

	if (rc)
		return rc;
	rc = context_get_hearing(kedge__page_size(), &ctx);
	if (!rc)
		context_put(ctx);
	swap_end(&saved);
	return rc;
}

static void undo(uintptr_t at, size_t done, int fd, int mark, int uffd)
{
	size_t undone;

	if (!done)
		return;
	pages_unshare_marked((void *)at, done, fd, 0, mark, uffd, &undone);
	/* Another try wants holes where there are none. */
	fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)done);
}

/* All of it, or nothing. */
static int convert_once(uintptr_t at, size_t len, int fd)
{
	size_t done;
	int rc = pages_share((void *)at, len, fd, 0, &done);

	if (rc)
		undo(at, done, fd, NO_MARK, -1);
	return rc;
}

/* Likewise while others are stopped, and watched from then on. With a mark, of marked memory
 * alone, which stays marked. */
static int lift_once(uintptr_t at, size_t len, int fd, int mark, int uffd)
{
	void *p = (void *)at;
	size_t done;
	int rc = mark >= 0 ? pages_share_marked(p, len, fd, 0, mark, uffd, &done)
			   : pages_share_stopped(p, len, fd, 0, uffd, &done);

	if (rc)
		undo(at, done, fd, mark, uffd);
	return rc;
}

static int lift(uintptr_t at, size_t len, int fd, int mark, int uffd)
{
	int rc;

	/* After a fork the child has them, too. */
	if (mark >= 0)
		own_pages(at, len);
	rc = lift_once(at, len, fd, mark, uffd);
	if (rc != -EBUSY || mark >= 0)
		return rc;
	own_pages(at, len);
	return lift_once(at, len, fd, mark, uffd);
}

static int convert(uintptr_t at, size_t len, int fd)
{
	int rc = convert_once(at, len, fd);

	if (rc == -EOPNOTSUPP) {
		/* Some kernels that move no pages part a device from pinned ones in a fork. */
		int replaced = extent_can_lift();

		/* Without any, the reason is the first one's. */
		if (!replaced)
			replaced = data_make_anonymous(at, len);
		if (replaced <= 0)
			return replaced ? replaced : rc;
	} else if (rc != -EBUSY) {
		return rc;
	}
	/* There was a fork for data, too: pages beside them were shared with that child. */
	own_pages(at, len);
	return convert_once(at, len, fd);
}

/* If another thread has changed a part meanwhile, the rest goes page by page. */
static int part_private(const struct piece *part, int fd, int mark, int uffd)
{
	const size_t page = kedge__page_size();
	size_t at, done;
	int rc = pages_unshare_marked((void *)part->at, part->len, fd, part->off, mark, uffd,
				      &at);

	if (rc != -ESTALE)
		return rc;
	for (; at < part->len; at += page)
		pages_unshare_marked((void *)(part->at + at), page, fd, part->off + at, NO_MARK,
				     uffd, &done);
	return 0;
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
	const bool watched = seg->extent[i].uffd >= 0;
	int fd = call_for_fd(SEG_OP_FILE, i), rc = 0;
	int uffd = watched ? call_for_fd(SEG_OP_HEARS, i) : -1;
	struct piece part;

	if (fd < 0 || (watched && uffd < 0))
		rc = -EBADF;
	while (!rc && first_piece((uint32_t)i, &part)) {
		rc = part_private(&part, fd, mark, uffd);
		if (!rc)
			cut(&part);
	}
	if (fd >= 0)
		close(fd);
	if (uffd >= 0)
		close(uffd);
	return !rc;
}

/* Peers that ask are to ask again. */
static void set_away(int i, bool away)
{
	sig_lock(&seg_lock);
	place_forget();
	seg->extent[i].away = away;
	sig_unlock(&seg_lock);
}

static void forget(struct extent *e)
{
	sig_lock(&seg_lock);
	e->len = 0;
	e->on_attach = e->away = false;
	sig_unlock(&seg_lock);
}

/* To the thread, which closes them or has them. */
static int hand_over(int i, int fd, int uffd)
{
	const struct seg_call call = { .op = SEG_OP_EXTENT, .index = i },
			      hears = { .op = SEG_OP_UFFD, .index = i };
	int rc = call_thread(&call, fd);

	if (!rc)
		return call_thread(&hears, uffd);
	close(uffd);
	return rc;
}

static bool fill(int i, uintptr_t at, size_t len, int fd, bool watched)
{
	struct stat st = { 0 };
	bool room = true;

	/* It cannot fail, of a descriptor that was opened just now. */
	fstat(fd, &st);
	sig_lock(&seg_lock);
	seg->extent[i].at = at;
	seg->extent[i].len = len;
	/* Its pieces are found from now on; nobody is given it before it is watched. */
	seg->extent[i].away = true;
	seg->extent[i].inode = st.st_ino;
	seg->extent[i].dev = st.st_dev;
	/* Before the thread has what hears of it. */
	if (watched)
		room = piece_add(at, len, (uint32_t)i, 0);
	sig_unlock(&seg_lock);
	return room;
}

static int no_pieces(void)
{
	return kedge_reason(-ENOSPC, "the memory of segments is in too many pieces");
}

/* Converted memory; what fails makes it private again. @fd and @uffd are used up. */
static int enter(int i, uintptr_t at, size_t len, int fd, int uffd, bool watched)
{
	const struct seg_call drop = { .op = SEG_OP_DROP_EXTENT, .index = i };
	const struct piece whole = { at, len, 0, (uint32_t)i };
	int mine = fcntl(fd, F_DUPFD_CLOEXEC, 0), rc = mine < 0 ? -errno : 0;

	if (!fill(i, at, len, fd, watched) && !rc)
		rc = no_pieces();
	if (rc) {
		close(uffd);
		watch_forget((uint32_t)i);
		part_private(&whole, fd, NO_MARK, -1);
		close(fd);
	} else {
		rc = hand_over(i, fd, uffd);
		if (!rc && !watched)
			rc = watch_all(i, mine);
		if (rc && seg->extent[i].fd < 0) {
			watch_forget((uint32_t)i);
			part_private(&whole, mine, NO_MARK, -1);
		} else if (rc) {
			make_private(i, NO_MARK);
			call_thread(&drop, -1);
			watch_forget((uint32_t)i);
		}
	}
	if (mine >= 0)
		close(mine);
	if (!rc)
		set_away(i, false);
	return rc;
}

/* As other threads run, or while they are stopped; @mark: as of lift(). */
static int add_at(int i, uintptr_t at, size_t len, bool stopped, int mark)
{
	int fd = file_of(len), uffd, rc;

	if (fd < 0)
		return fd;
	uffd = uffd_open();
	if (uffd < 0)
		rc = uffd;
	else
		rc = stopped ? lift(at, len, fd, mark, uffd) : convert(at, len, fd);
	if (!rc && !stopped)
		others_wait_anew(at, len);
	if (!rc)
		return enter(i, at, len, fd, uffd, stopped);
	close(fd);
	if (uffd >= 0)
		close(uffd);
	return rc;
}

static int add(uintptr_t at, size_t len, bool stopped)
{
	int i = free_one(), rc;

	if (i < 0)
		return kedge_reason(-ENOSPC, "this process has %u ranges of segments, which "
				    "are all that it may have", EXTENTS);
	rc = add_at(i, at, len, stopped, NO_MARK);
	if (rc)
		forget(&seg->extent[i]);
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

/* They have: it becomes this process's alone. */
static void withdraw(int i, int mark)
{
	const struct seg_call call = { .op = SEG_OP_DROP_EXTENT, .index = i };

	make_private(i, mark);
	call_thread(&call, -1);
	watch_forget((uint32_t)i);
}

void extent_drop(int i)
{
	const struct seg_call call = { .op = SEG_OP_DROP_EXTENT, .index = i };

	if (!make_private(i, NO_MARK)) {
		set_away(i, false);
		return;
	}
	call_thread(&call, -1);
	forget(&seg->extent[i]);
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
		withdraw(i, NO_MARK);
	}
	forget(e);
}

/*
 * ---- for a while ----
 *
 * While it is private nothing watches it, and other threads may unmap it and get other
 * memory at its addresses, which nobody has made a segment: peers would find that, or what
 * the owner does not write to any more. So what was made private is marked, while the other
 * threads are stopped, and only what has the mark still is converted, likewise.
 */

static int mark = NO_MARK; /* the gate's */

/* Nothing of it was unmapped or moved: then it may be converted once more. */
static bool is_whole(int i)
{
	const struct extent *e = &seg->extent[i];
	const struct piece *p;
	bool whole = false;

	sig_lock(&seg_lock);
	for (p = seg->piece; p < seg->piece + seg->piece_max && !whole; p++)
		whole = p->len == e->len && p->at == e->at && p->extent == (uint32_t)i;
	sig_unlock(&seg_lock);
	return whole;
}

static void suspend(int i)
{
	seg->extent[i].resume = mark >= 0 && is_whole(i);
	withdraw(i, mark);
	/* A part is converted again when a peer asks for it again. */
	if (!seg->extent[i].segments)
		forget(&seg->extent[i]);
}

/* On the peers of its segments; -1: of all. */
static void hang_up(int i)
{
	struct seg_call call = { .op = SEG_OP_HANG_UP };
	struct kedge_segment *s;

	for (s = seg->segments; s; s = s->next)
		if (i < 0 ? s->extent >= 0 : s->extent == i) {
			call.start = (uintptr_t)s;
			call_thread(&call, -1);
		}
}

void extent_suspend_all(void)
{
	int i, cnt = 0;

	/* First: a peer that got it after the recall would never hear that it is private.
	 * One wait for all, however many there are. */
	for (i = 0; i < (int)EXTENTS; i++)
		if (seg->extent[i].fd >= 0) {
			set_away(i, true);
			extent_recall(i);
			cnt++;
		}
	extent_wait_acks();
	if (cnt)
		mark = pages_mark_open();
	for (i = 0; i < (int)EXTENTS; i++)
		if (seg->extent[i].fd >= 0)
			suspend(i);
	hang_up(-1);
}

/* Its pages stay private: a part is gone, or they are not to be had. */
static void only_copied(int i)
{
	struct kedge_segment *s;

	sig_lock(&seg_lock);
	for (s = seg->segments; s; s = s->next)
		if (s->extent == i) {
			s->backend = KEDGE_SEGMENT_COPY;
			strncpy(s->reason, "after a fork, or as a peer held on to them, its "
				"pages could not be shared again", sizeof(s->reason) - 1);
		}
	sig_unlock(&seg_lock);
}

static void resume(int i)
{
	struct extent *e = &seg->extent[i];

	if (!e->len || e->fd >= 0)
		return;
	if (!e->resume || add_at(i, e->at, e->len, true, mark))
		only_copied(i);
	e->resume = false;
	set_away(i, false);
}

void extent_resume_all(void)
{
	int i;

	for (i = 0; i < (int)EXTENTS; i++)
		resume(i);
	extent_forget_marks();
}

bool extent_has(int i, uintptr_t start, uintptr_t end)
{
	bool has;

	sig_lock(&seg_lock);
	has = seg->extent[i].fd >= 0 && piece_next(NULL, (uint32_t)i, start, end);
	sig_unlock(&seg_lock);
	return has;
}

/* A peer may go on storing there: nothing is waited for. */
void extent_renew(int i)
{
	set_away(i, true);
	extent_recall(i);
	mark = pages_mark_open();
	suspend(i);
	hang_up(i);
	resume(i);
	extent_forget_marks();
}

void extent_forget_marks(void)
{
	if (mark >= 0)
		close(mark);
	mark = NO_MARK;
}
