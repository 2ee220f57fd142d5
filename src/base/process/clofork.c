// SPDX-License-Identifier: BSD-2-Clause
/*
 * The lock guards the list and the identities in it. It is the last that a thread
 * takes, and is held over fork(): code that holds another one over fork()
 * registers its handlers after clofork_ready(), as the handlers that run before
 * a fork run in the opposite order.
 *
 * close() may wait, so it is called without the lock, while the descriptor is in
 * the list. A child that is forked right then either has the descriptor and
 * closes it, or finds the number free or another's, by its identity.
 */
#include "base/process/clofork.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/base.h"
#include "base/lock.h"

static struct sig_lock lock = SIG_LOCK_INIT;
static struct list all = { &all, &all };
static _Atomic int handlers;

static void before_fork(void)
{
	sig_lock(&lock);
}

static void in_parent(void)
{
	sig_unlock(&lock);
}

static void in_child(void)
{
	struct list *l, *tmp;
	struct clofork *c;

	list_for_each_safe(l, tmp, &all) {
		c = list_entry(l, struct clofork, node);
		fd_close(c->fd, &c->id);
		c->fd = -1;
		list_remove(l);
	}
	sig_unlock(&lock);
}

void clofork_init(struct clofork *c)
{
	list_init(&c->node);
	c->fd = -1;
	c->id = (struct fd_id){ 0, 0 };
}

enum { NONE, AT_IT, DONE };

int fork_handlers(_Atomic int *state, void (*before)(void),
		  void (*parent)(void), void (*child)(void))
{
	int was = NONE, rc;

	if (atomic_load(state) == DONE)
		return 0;
	/* Twice would take a lock twice. */
	if (!atomic_compare_exchange_strong(state, &was, AT_IT))
		return was == DONE ? 0 : -ENOMEM;
	rc = pthread_atfork(before, parent, child);
	atomic_store(state, rc ? NONE : DONE);
	return -rc;
}

int clofork_ready(void)
{
	return fork_handlers(&handlers, before_fork, in_parent, in_child);
}

__attribute__((constructor)) static void register_early(void)
{
	clofork_ready();
}

int clofork_begin(void)
{
	int rc = clofork_ready();

	if (!rc)
		sig_lock(&lock);
	return rc;
}

int clofork_end(struct clofork *c, int fd)
{
	int rc = fd < 0 ? -errno : 0;

	if (!rc) {
		c->fd = fd;
		c->id = (struct fd_id){ 0, 0 };
		fd_note(fd, &c->id);
		list_add_tail(&all, &c->node);
	}
	sig_unlock(&lock);
	return rc;
}

int clofork_keep(struct clofork *c, int fd)
{
	int rc = fd < 0 ? -errno : clofork_begin();

	if (!rc)
		return clofork_end(c, fd);
	if (fd >= 0)
		close(fd);
	return rc;
}

void clofork_move(struct clofork *dst, struct clofork *src)
{
	sig_lock(&lock);
	dst->fd = src->fd;
	dst->id = src->id;
	list_remove(&src->node);
	if (dst->fd >= 0)
		list_add_tail(&all, &dst->node);
	src->fd = -1;
	sig_unlock(&lock);
}

int clofork_release(struct clofork *c)
{
	int fd = c->fd;

	sig_lock(&lock);
	list_remove(&c->node);
	c->fd = -1;
	sig_unlock(&lock);
	return fd;
}

bool clofork_ours(const struct clofork *c)
{
	return c->fd >= 0 && fd_same(c->fd, &c->id);
}

void clofork_close(struct clofork *c)
{
	if (c->fd < 0)
		return;
	fd_close(c->fd, &c->id);
	clofork_release(c);
}
