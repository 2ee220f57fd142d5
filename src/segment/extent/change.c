// SPDX-License-Identifier: BSD-2-Clause
/* The steps by which memory of an extent is made shared in place, and private again. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/process/stop.h"
#include "pages/internal.h"
#include "pages/share/share.h"
#include "segment/extent/change.h"

#define TRIES 3

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

static struct fd_id file_id(int i)
{
	return (struct fd_id){ seg->extent[i].dev, seg->extent[i].inode };
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
	for (; at < part->len; at += page) {
		rc = pages_unshare_marked((void *)(part->at + at), page, fd, part->off + at,
					  NO_MARK, uffd, &done);
		if (rc && rc != -ESTALE)
			return rc;
	}
	return 0;
}

/* By the thread's descriptors. */
static int private_once(int i, const struct piece *part, int mark)
{
	const bool watched = seg->extent[i].uffd >= 0;
	const struct fd_id id = file_id(i);
	struct fd_id uffd_id = { 0, 0 };
	int fd = call_for_fd(SEG_OP_FILE, i), rc = -EBADF;
	int uffd = watched ? call_for_fd(SEG_OP_HEARS, i) : -1;

	fd_note(uffd, &uffd_id);
	if (fd >= 0 && (!watched || uffd >= 0) && fd_same(fd, &id))
		rc = part_private(part, fd, mark, uffd);
	fd_close(fd, &id);
	fd_close(uffd, &uffd_id);
	return rc;
}

/* The program may close them meanwhile. */
int change_private(int i, const struct piece *part, int mark)
{
	int try, rc = -EBADF;

	for (try = 0; try < TRIES && rc == -EBADF; try++)
		rc = private_once(i, part, mark);
	return rc;
}

/* It stays shared for now, and no segment has it. */
static void leave(int i, const struct piece *part)
{
	sig_lock(&seg_lock);
	seg->extent[i].on_attach = seg->extent[i].left = true;
	piece_add(part->at, part->len, part->extent, part->off);
	sig_unlock(&seg_lock);
}

void change_undo(const struct change *c, size_t done)
{
	const struct piece part = { c->at, done, 0, (uint32_t)c->index };
	int rc;

	if (!done)
		return;
	rc = part_private(&part, c->fd, c->mark, c->uffd);
	if (rc == -EBADF)
		rc = change_private(c->index, &part, c->mark);
	/* Another try wants holes where there are none. */
	if (rc)
		leave(c->index, &part);
	else if (fd_same(c->fd, &c->fd_id))
		fallocate(c->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)done);
}

/* All of it, or nothing. */
static int convert_once(const struct change *c)
{
	size_t done = 0;
	int rc = fd_same(c->fd, &c->fd_id) ? pages_share((void *)c->at, c->len, c->fd, 0, &done)
					   : -EBADF;

	if (rc)
		change_undo(c, done);
	return rc;
}

/* Likewise while others are stopped, and watched from then on. */
static int lift_once(const struct change *c)
{
	void *p = (void *)c->at;
	size_t done = 0;
	int rc = -EBADF;

	if (fd_same(c->fd, &c->fd_id) && fd_same(c->uffd, &c->uffd_id))
		rc = c->mark >= 0
			? pages_share_marked(p, c->len, c->fd, 0, c->mark, c->uffd, &done)
			: pages_share_stopped(p, c->len, c->fd, 0, c->uffd, &done);
	if (rc)
		change_undo(c, done);
	return rc;
}

int change_stopped(const struct change *c)
{
	int rc;

	/* After a fork the child has them, too. */
	if (c->mark >= 0)
		own_pages(c->at, c->len);
	rc = lift_once(c);
	if (rc != -EBUSY || c->mark >= 0)
		return rc;
	own_pages(c->at, c->len);
	return lift_once(c);
}

/* Other threads run meanwhile, as they cannot be stopped. */
static int convert_running(const struct change *c)
{
	int rc = convert_once(c);

	if (rc != -EBUSY)
		return rc;
	own_pages(c->at, c->len);
	return convert_once(c);
}

static bool cannot_stop(int rc)
{
	return rc == -EPERM || rc == -EAGAIN;
}

/* Of the rest there is a reason. */
static int why_not_lifted(const struct change *c, int rc)
{
	int why;

	if (!rc || cannot_stop(rc))
		return rc;
	if (rc == -EBUSY)
		return kedge_reason(rc, "a page is pinned by a device or a transfer, or shared "
				    "with a forked child: deregister it, or try again later");
	why = swap_why_not(c->at, c->len);
	if (why || rc == -ESTALE)
		return why ? why : rc;
	return kedge_reason(rc, "no memory for pages that are shared (%s): the memory cgroup's "
			    "limit counts them, and vm.max_map_count their mappings",
			    strerrordesc_np(-rc));
}

/* A thread that is busy in the kernel may be stopped later. */
static int lift_in_time(const struct change *c)
{
	int tries = 0, rc;

	do
		rc = change_stopped(c);
	while (rc == -EAGAIN && ++tries < TRIES);
	return why_not_lifted(c, rc);
}

static int share(const struct change *c, bool *watched)
{
	int rc = lift_in_time(c);

	*watched = !rc;
	return cannot_stop(rc) ? convert_running(c) : rc;
}

/*
 * While other threads are stopped: a system call that is given an address there would fail,
 * and so would the kernel's own stores, those of a thread that ends and of its rseq area,
 * where the process may not have userfaultfd handle the kernel's faults.
 */
int change_share(const struct change *c, bool *watched)
{
	int rc = share(c, watched), replaced;

	if (rc == -EOPNOTSUPP) {
		/* Some kernels that move no pages part a device from pinned ones in a fork. */
		replaced = extent_can_lift();
		/* Without any, the reason is the first one's. */
		if (!replaced)
			replaced = data_make_anonymous(c->at, c->len);
		if (replaced <= 0)
			return replaced ? replaced : why_not_lifted(c, rc);
		/* There was a fork: pages beside them were shared with that child. */
		own_pages(c->at, c->len);
		rc = share(c, watched);
	}
	if (!rc && !*watched)
		others_wait_anew(c->at, c->len);
	return rc;
}
