// SPDX-License-Identifier: BSD-2-Clause
/*
 * A peer that shows a handle is given the gate and the memory, and the memory anew when the region
 * was moved. By the thread of serve.c, with the system calls themselves as it does.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "base/process/own.h"
#include "region/share/share.h"
#include "region/watch/look.h"

#define CLOSE(fd) syscall(SYS_close, fd)

void give_refusal(int fd, uint32_t seq, int rc)
{
	struct region_answer a = { .magic = REGION_MAGIC, .version = REGION_VERSION,
				   .seq = seq, .rc = rc };

	syscall(SYS_sendto, fd, &a, sizeof(a), MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
}

int give_may(int fd, struct ucred *peer)
{
	socklen_t len = sizeof(*peer);

	*peer = (struct ucred){ .uid = (uid_t)-1 };
	if (syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, peer, &len))
		return -EACCES;
	return peer->uid && peer->uid != geteuid() ? -EACCES : 0;
}

/* A page that cannot be made shorter under a mapping of it. */
static int make_gate(struct conn *c)
{
	int fd = (int)syscall(SYS_memfd_create, "kedge-gate", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	long at = 0;
	int rc = 0;

	if (fd < 0)
		return -errno;
	if (syscall(SYS_ftruncate, fd, kedge__page_size()) ||
	    syscall(SYS_fcntl, fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
		rc = -errno;
	if (!rc)
		at = own_mmap(NULL, kedge__page_size(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (!rc && at == -1)
		rc = -ENOMEM;
	if (!rc)
		c->gate = (struct gate *)at;
	if (!rc && madvise(c->gate, kedge__page_size(), MADV_DONTFORK))
		rc = -errno;
	c->gate_fd = fd;
	return rc;
}

/* The region's memfd, for as much as the handle gives. */
static int open_pages(const struct slot *s)
{
	char path[48];
	int fd;

	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", s->region->fd);
	if (s->access & ~KEDGE_HANDLE_READ)
		fd = (int)syscall(SYS_fcntl, s->region->fd, F_DUPFD_CLOEXEC, 0);
	else
		fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int send_answer(int to, const struct region_answer *a, const int fd[2])
{
	char space[CMSG_SPACE(2 * sizeof(int))] = { 0 };
	struct iovec iov = { (void *)(uintptr_t)a, sizeof(*a) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1,
			    .msg_control = space, .msg_controllen = sizeof(space) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(2 * sizeof(int));
	memcpy(CMSG_DATA(c), fd, 2 * sizeof(int));
	return syscall(SYS_sendmsg, to, &m, MSG_DONTWAIT | MSG_NOSIGNAL) == (long)sizeof(*a)
		       ? 0 : -errno;
}

static void fill_answer(struct region_answer *a, const struct slot *s)
{
	*a = (struct region_answer){ .magic = REGION_MAGIC, .version = REGION_VERSION,
				     .access = s->access, .offset = s->offset,
				     .max_len = s->len, .epoch = s->region->epoch,
				     .page_size = s->region->page_size };
}

/* With shares_lock, so that the region is not closed meanwhile. Two descriptors in any case. */
static int give(struct conn *c, struct slot *s, int gate, uint32_t seq)
{
	const int pages = open_pages(s);
	const int fd[2] = { gate < 0 ? pages : gate, pages };
	struct region_answer a;
	int rc;

	if (pages < 0)
		return pages;
	fill_answer(&a, s);
	a.seq = seq;
	rc = send_answer(c->fd, &a, fd);
	CLOSE(pages);
	return rc;
}

/* Likewise. */
static int let_in(struct conn *c, struct slot *s, uint32_t seq)
{
	int rc = make_gate(c);

	if (rc)
		return rc;
	gate_open_to(c, s);
	rc = give(c, s, c->gate_fd, seq);
	if (rc)
		gate_take(c);
	return rc;
}

/* Likewise: the region was moved, or the peer says so. It has its gate. */
static int give_again(struct conn *c, uint32_t seq)
{
	int rc = c->slot ? give(c, c->slot, -1, seq) : -EKEYREVOKED;

	/* It asks once more at its next access. */
	if (rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM) {
		give_refusal(c->fd, seq, rc);
		rc = 0;
	}
	return rc;
}

/* The mapping is looked at before each access if changes are not told of (watch/watch.c). */
static bool may_have(const struct slot *s)
{
	return !s->served && s->region->stage == REGION_HERE && !look_is_needed(s->region);
}

int give_answer(struct conn *c, const struct region_ask *ask)
{
	struct handle_words w;
	struct slot *s;
	int rc;

	if (ask->magic != REGION_MAGIC || ask->version != REGION_VERSION ||
	    !handle_read(&ask->handle, &w))
		return -EPROTO;
	sig_lock_blocked(&shares_lock);
	if (c->gate) {
		rc = give_again(c, ask->seq);
	} else {
		rc = slot_find(&w, &s);
		if (rc == REGION_MOVED || (!rc && !may_have(s)))
			rc = REGION_BY_STREAM;
		if (!rc)
			rc = let_in(c, s, ask->seq);
	}
	sig_unlock_blocked(&shares_lock);
	return rc;
}
