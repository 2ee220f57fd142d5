// SPDX-License-Identifier: BSD-2-Clause
/*
 * The peer's memory by the kernel's leave: process_vm_readv() and _writev().
 *
 * They name a process by its number. Between the handshake and the call it may
 * have executed another program, a set-user-ID one even, or have ended and left
 * its number to another; and the addresses are the peer's word. So each call
 * proves which process it reached, by the nonce that lies in the peer's memory:
 *
 * - a read takes the nonce and the data in one call. The kernel gets hold of an
 *   address space once in a call, so both are of the same one: data that came
 *   with the right nonce is the peer's.
 * - a write proves no identity by itself, so the writer looks at the nonce
 *   and the pidfd before and afterwards (cross_look()). What was written between
 *   two looks of which one fails is never called a success, and the channel
 *   ends. A look takes as long as 20 KiB do, so one is enough for a few MiB.
 *
 * A program that is executed between the look and the write is written to, and
 * that cannot be seen beforehand. It is no escalation: both ends cross only
 * where they had the same ids and capabilities when they connected (handshake.c),
 * so the peer could make the same call itself at that time and with the same
 * leave. A process without capabilities is refused by the kernel as soon as the
 * program has other ids than its own; one with CAP_SYS_PTRACE had a peer with
 * the same, which needed no help to write anywhere. A peer that has dropped
 * rights since then is not seen: one of those, taken over, could aim a write of
 * this process at a program it executes between the looks. A process that keeps
 * rights which its peer drops opens the channel with KEDGE_CHANNEL_NO_CMA, or
 * connects after the drop. Nor does the number of
 * another process help: a pidfd that lives says that it still is the peer's.
 */
#include <sys/uio.h>

#include "channel/shm/internal.h"

static int not_the_peer(struct shm *s)
{
	return ring_break(&s->ring, -ECONNRESET, "the peer's process has ended, "
			 "or is another program's by now");
}

static bool is_nonce(const struct shm *s, const uint64_t *n)
{
	return n[0] == s->nonce[0] && n[1] == s->nonce[1];
}

/* Drop the first @done bytes of a vector; returns the elements that are left. */
static size_t advance(struct iovec *v, size_t n, size_t done)
{
	size_t i = 0, j;

	while (i < n && done >= v[i].iov_len)
		done -= v[i++].iov_len;
	for (j = i; j < n; j++)
		v[j - i] = v[j];
	if (n > i) {
		/* A number: the peer's addresses may be anything. */
		v[0].iov_base = (void *)((uintptr_t)v[0].iov_base + done);
		v[0].iov_len -= done;
	}
	return n - i;
}

static bool look(struct shm *s)
{
	uint64_t nonce[2] = { 0 };
	struct iovec here = { nonce, sizeof(nonce) };
	struct iovec far = { (void *)(uintptr_t)s->nonce_at, sizeof(nonce) };

	return process_vm_readv(s->pid, &here, 1, &far, 1, 0) ==
		       sizeof(nonce) &&
	       is_nonce(s, nonce) && peer_lives(s->peer);
}

/* A look that fails is taken again: the kernel may have had no memory. */
bool cross_same(struct shm *s)
{
	return likely(look(s)) || look(s);
}

/* A peer that is gone has no addresses either: that is -ECONNRESET, whatever the
 * call's own error was. */
static int failed(struct shm *s, int rc)
{
	return cross_same(s) ? rc : not_the_peer(s);
}

/* The kernel may stop early: at a page that it cannot reach, or its limit. */
int cross_read(struct shm *s, struct iovec *v, size_t n, uint64_t there,
	       uint64_t len)
{
	struct iovec far[2];
	uint64_t nonce[2];
	ssize_t did;

	/* v[0] is the caller's room for that of the nonce. */
	while (len) {
		v[0] = (struct iovec){ nonce, sizeof(nonce) };
		far[0] = (struct iovec){ (void *)(uintptr_t)s->nonce_at,
					 sizeof(nonce) };
		far[1] = (struct iovec){ (void *)(uintptr_t)there, len };
		nonce[0] = nonce[1] = 0;
		did = process_vm_readv(s->pid, v, n + 1, far, 2, 0);
		if (did < (ssize_t)sizeof(nonce) || !is_nonce(s, nonce))
			return failed(s, did < 0 ? -errno : -EFAULT);
		did -= (ssize_t)sizeof(nonce);
		if (!did)
			return -EFAULT;
		len -= (uint64_t)did;
		there += (uint64_t)did;
		n = advance(v + 1, n, (size_t)did);
	}
	return 0;
}

int cross_write(struct shm *s, const char *here, struct iovec *v, size_t n,
		uint64_t len)
{
	struct iovec one;
	ssize_t did;

	while (len) {
		one = (struct iovec){ (void *)(uintptr_t)here, len };
		did = process_vm_writev(s->pid, &one, 1, v, n, 0);
		if (did <= 0)
			return failed(s, did ? -errno : -EFAULT);
		len -= (uint64_t)did;
		here += did;
		n = advance(v, n, (size_t)did);
	}
	return 0;
}

int cross_look(struct shm *s)
{
	return cross_same(s) ? 0 : not_the_peer(s);
}
