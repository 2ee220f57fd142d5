// SPDX-License-Identifier: BSD-2-Clause
/* The locks and tables that the files of this room share, and the thread's descriptors. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process/own.h"
#include "segment/internal.h"

#define NAP_NS 100000

struct sig_lock seg_lock = SIG_LOCK_INIT;
static pthread_mutex_t seg_gate = PTHREAD_MUTEX_INITIALIZER;
struct seg_tables *seg;
_Atomic uint64_t seg_epoch = 1; /* 0: that of an empty memo */
_Atomic uint32_t seg_cnt;

/* A handler that interrupts its holder could call fork(), which takes the gate. */
void gate_lock(void)
{
	signals_block();
	pthread_mutex_lock(&seg_gate);
}

void gate_unlock(void)
{
	pthread_mutex_unlock(&seg_gate);
	signals_restore();
}

bool gate_lock_unless(const _Atomic bool *stop)
{
	const struct timespec nap = { 0, NAP_NS };

	signals_block();
	while (pthread_mutex_trylock(&seg_gate)) {
		if (atomic_load(stop)) {
			signals_restore();
			return false;
		}
		nanosleep(&nap, NULL);
	}
	if (!atomic_load(stop))
		return true;
	gate_unlock();
	return false;
}

/* place.c looks at them with lock alone. */
static void publish(struct seg_tables *t)
{
	sig_lock(&seg_lock);
	__atomic_store_n(&seg, t, __ATOMIC_RELAXED);
	sig_unlock(&seg_lock);
}

int tables_make(void)
{
	struct seg_tables *t = own_map(sizeof(*t));
	uint32_t i;

	if (!t)
		return -ENOMEM;
	for (i = 0; i < EXTENTS; i++)
		t->extent[i].fd = t->extent[i].read_fd = t->extent[i].uffd = -1;
	for (i = 0; i < CONNS; i++)
		t->conn[i].fd = t->conn[i].extent = -1;
	for (i = 0; i < GRANTS; i++)
		t->grant_fd[i] = -1;
	t->check_fd = t->epoll = -1;
	publish(t);
	return 0;
}

void tables_free(void)
{
	struct seg_tables *t = seg;

	publish(NULL);
	if (t->check)
		munmap(t->check, sizeof(*t->check));
	own_unmap(t, sizeof(*t));
}

void tables_forget(void)
{
	const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

	seg_gate = fresh;
	sig_lock_init(&seg_lock);
	if (seg)
		own_unmap(seg, sizeof(*seg));
	seg = NULL;
	atomic_store(&seg_cnt, 0);
}

bool tables_have_extents(void)
{
	int i;

	for (i = 0; i < (int)EXTENTS; i++)
		if (seg->extent[i].len)
			return true;
	return false;
}

void place_forget(void)
{
	atomic_fetch_add(&seg_epoch, 1);
}

int segment_is_stale(void)
{
	return kedge_reason(-ESTALE, "the segment's owner has ended, has removed the segment, "
			    "has unmapped that part of it, or has forked: get and attach it "
			    "anew");
}

int fds_watch(int fd, enum fds_kind what, uint32_t index)
{
	struct epoll_event ev = { .events = EPOLLIN,
				  .data.u64 = (uint64_t)what << 32 | index };

	return syscall(SYS_epoll_ctl, seg->epoll, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

bool conns_have_part(int index, const struct kedge_segment *but)
{
	const struct conn *c;

	for (c = seg->conn; c < seg->conn + CONNS; c++)
		if (c->fd >= 0 && c->part && c->extent == index && c->segment != but)
			return true;
	return false;
}

/* The thread makes its descriptors by system calls alone: tools that follow descriptors by
 * their numbers take them for the program's. */
void fds_close(int fd)
{
	if (fd >= 0)
		syscall(SYS_close, fd);
}

int fds_read_only(int fd)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
	fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}
