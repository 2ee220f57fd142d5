// SPDX-License-Identifier: BSD-2-Clause
/*
 * Invitations: another owner comes to the sockets of serve.c as a peer does, shows that it has an
 * invitation, is told what became of the region that it brought, if it did, and its connection goes
 * to the thread that receives the region. That sleeps on @arrived.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <sodium.h>

#include "base/base.h"
#include "region/keeper.h"
#include "region/share/share.h"

static struct list invites = { &invites, &invites }; /* guarded by shares_lock */
static uint32_t numbers;

void invite_add(struct invite *i)
{
	i->conn.fd = -1;
	i->state = INVITE_OPEN;
	randombytes_buf(i->key, sizeof(i->key));
	sig_lock(&shares_lock);
	i->number = ++numbers;
	list_add_tail(&invites, &i->of_all);
	sig_unlock(&shares_lock);
}

void invite_remove(struct invite *i)
{
	sig_lock(&shares_lock);
	list_remove(&i->of_all);
	sig_unlock(&shares_lock);
	sodium_memzero(i->key, sizeof(i->key));
}

void invites_forget(void)
{
	list_init(&invites);
}

struct invite *invite_find(uint32_t number)
{
	struct list *l, *tmp;
	struct invite *i;

	list_for_each_safe(l, tmp, &invites) {
		i = list_entry(l, struct invite, of_all);
		if (i->number == number)
			return i;
	}
	return NULL;
}

void invite_arrive(struct invite *i, int fd, bool tcp, const unsigned char seal[SEAL_LEN])
{
	if (i->conn.fd >= 0)
		syscall(SYS_close, i->conn.fd);
	i->conn = (struct invite_conn){ .fd = fd, .tcp = tcp };
	memcpy(i->conn.seal, seal, SEAL_LEN);
	atomic_fetch_add(&i->arrived, 1);
	syscall(SYS_futex, &i->arrived, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

bool invite_take(struct invite *i, struct invite_conn *c)
{
	sig_lock(&shares_lock);
	*c = i->conn;
	i->conn.fd = -1;
	sig_unlock(&shares_lock);
	return c->fd >= 0;
}

bool invite_keep(struct invite *i, const struct invite_conn *c)
{
	bool free;

	sig_lock(&shares_lock);
	free = i->conn.fd < 0;
	if (free)
		i->conn = *c;
	sig_unlock(&shares_lock);
	return free;
}

static int close_fd(void *fd)
{
	return close(*(int *)fd) ? -errno : 0;
}

void invite_drop(struct invite *i)
{
	struct invite_conn c;

	if (invite_take(i, &c))
		keeper_call(close_fd, &c.fd);
}

bool invite_wait(struct invite *i, uint64_t until)
{
	struct timespec left;
	uint32_t seen;
	bool there;

	for (;;) {
		seen = atomic_load(&i->arrived);
		sig_lock(&shares_lock);
		there = i->conn.fd >= 0;
		sig_unlock(&shares_lock);
		if (there || clock_ns() >= until)
			return there;
		left = clock_wait_ts(until);
		syscall(SYS_futex, &i->arrived, FUTEX_WAIT_PRIVATE, seen, &left, NULL, 0);
	}
}

void invite_is(struct invite *i, enum invite_state state, uint64_t id)
{
	sig_lock(&shares_lock);
	i->state = state;
	i->id = id;
	sig_unlock(&shares_lock);
}
