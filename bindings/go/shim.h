/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The part of the binding that is C. A call of C from Go costs tens of nanoseconds, and
 * two calls in a row may run on different threads, so each function here does all that
 * has to be done on one thread: the call of the library, and the look at its reason,
 * which belongs to the thread whose call failed.
 *
 * A reason is memory of malloc(), which Go frees; NULL where all went well, or where
 * there was no memory for it.
 */
#ifndef GO_SHIM_H
#define GO_SHIM_H

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>

#include <kedge/channel_info.h>
#include <kedge/connector.h>
#include <kedge/kedge.h>
#include <kedge/tcp.h>

/* The answer of a call: a count or a negative errno, and why. */
struct go_rc {
	int64_t rc;
	char *why;
};

struct go_rc go_answer(int64_t rc);

/* ---- objects in use ---- */

/*
 * The number of uses of an object (registrations, calls under way), in several
 * counters, so that threads do not share a cache line: a use may begin at one and end
 * at another, their sum is what counts. No use begins once go_use_close() has found a
 * sum of 0. The sum is made while "state" holds new uses up, and all that succeeded had
 * begun before: their beginnings are seen, their ends may be. So it is never too small.
 */
#define GO_USE_SLOTS 16

/* The answer of a call on an object that was closed; it is no errno. */
#define GO_CLOSED (-10000)

struct go_use {
	_Atomic int64_t n;
	char pad[56];
};

struct go_uses {
	struct go_use slot[GO_USE_SLOTS];
	_Atomic int state;
};

/* 0, or GO_CLOSED. */
/* Of an object that may be a zero value, which counts as closed. */
#define GO_USES(object) ((object) ? &(object)->uses : NULL)

int go_use_begin(struct go_uses *u);
void go_use_end(struct go_uses *u);
/* @n more uses, within one. */
void go_use_more(struct go_uses *u, int64_t n);
/* 0, and no use begins any more; -EBUSY: it is in use; GO_CLOSED: it was closed before. */
int go_use_close(struct go_uses *u);

/* ---- cache.c ---- */

struct go_cache {
	struct go_uses uses;
	struct kedge_cache *c;
};

struct go_got {
	const struct kedge_mr *mr;
	char *why;
	int rc;
};

struct go_cache_opened {
	struct go_cache *c;
	char *why;
	int rc;
};

struct go_cache_opened go_cache_open(struct kedge_device *dev, struct kedge_notifier *nf,
				     struct kedge_cache_opts opts);
/* As go_use_close(). The memory of @c stays until go_cache_free(). */
int go_cache_close(struct go_cache *c);
void go_cache_free(struct go_cache *c);
/* @c is a number, as Go looks each time at what a pointer to such a struct points to. */
struct go_got go_cache_get(uintptr_t c, const unsigned char *addr, size_t len,
			   uint32_t access);
void go_cache_put(uintptr_t c, const struct kedge_mr *mr);

/* A look for a hit, in one argument; @mr is its answer. */
struct go_hit {
	uintptr_t cache;
	uintptr_t addr;
	size_t len;
	const struct kedge_mr *mr;
	uint32_t access;
};

/* 0, or not: then go_cache_get() knows more. It waits for no lock and no device. */
int go_cache_hit(struct go_hit *hit);
/* The put of @hit->mr likewise, for go_cache_put() where the answer is not 0. */
int go_cache_tryput(struct go_hit *hit);
struct go_rc go_cache_getv(struct go_cache *c, const unsigned char *addr, size_t len,
			   uint32_t access, struct kedge_piece *pieces, size_t max);
struct go_rc go_cache_hint(struct go_cache *c, const unsigned char *addr, size_t len,
			   uint32_t access);
struct go_rc go_cache_vouch(struct go_cache *c, const unsigned char *addr, size_t len);
struct go_rc go_cache_unvouch(struct go_cache *c, const unsigned char *addr, size_t len);
struct go_rc go_cache_resync(struct go_cache *c);
struct go_rc go_cache_flush(struct go_cache *c);
struct go_rc go_cache_stats(struct go_cache *c, struct kedge_cache_stats *stats);

struct go_mapped {
	void *at;
	int rc;
};

/* By libc, so that libkedge-hooks sees it where it is loaded. */
struct go_mapped go_buffer_map(size_t len);
void go_buffer_unmap(void *at, size_t len);

/* ---- device.c ---- */

struct go_device_opened {
	struct kedge_device *dev;
	char *why;
	int rc;
};

/* A device that registers nothing. */
struct go_device_opened go_device_memory(void);
/* A device that Go implements; @id is its number there. */
struct go_device_opened go_device_open(uintptr_t id, uint64_t max_len);
/* Record why a registration fails, for the call that asked for it. */
void go_device_why(int rc, const char *why);

/* ---- notifier.c ---- */

struct go_notifier {
	struct go_uses uses;
	struct kedge_notifier *nf;
};

struct go_notifier_opened {
	struct go_notifier *n;
	char *why;
	int rc;
};

struct go_notifier_opened go_notifier_open(const char *backend, uint32_t flags,
					   uint32_t min_level, uint32_t spin_us);
int go_notifier_close(struct go_notifier *n);
void go_notifier_free(struct go_notifier *n);
struct go_rc go_notifier_watch(struct go_notifier *n, const unsigned char *addr,
			       size_t len, uint64_t cookie);
struct go_rc go_notifier_unwatch(struct go_notifier *n, uint64_t cookie);
struct go_rc go_notifier_read(struct go_notifier *n, struct kedge_event *ev, size_t max);
struct go_rc go_notifier_fd(struct go_notifier *n);
struct go_rc go_notifier_unchanged(struct go_notifier *n, uint64_t generation);
struct go_rc go_notifier_info(struct go_notifier *n, struct kedge_notifier_info *info);

/* ---- channel.c ---- */

struct go_channel_opened {
	struct kedge_channel *ch;
	char *why;
	int rc;
};

struct go_listener_opened {
	struct kedge_listener *l;
	char *why;
	int rc;
};

struct go_connector_opened {
	struct kedge_connector *k;
	char *why;
	int rc;
};

/* @tcp: @where is a host, which may be NULL, and @service a port; else a path. */
struct go_listener_opened go_listener_open(int tcp, const char *where, const char *service,
					   const struct kedge_channel_opts *opts);
struct go_channel_opened go_listener_accept(struct kedge_listener *l);
struct go_rc go_listener_address(struct kedge_listener *l, char *buf, size_t len);
struct go_connector_opened go_connector_open(int tcp, const char *where,
					     const char *service,
					     const struct kedge_channel_opts *opts);
struct go_channel_opened go_connector_finish(struct kedge_connector *k);

struct go_posted {
	uint64_t op;
	char *why;
	int rc; /* 1: it is complete, 0: it is under way */
};

struct go_posted go_channel_post(struct kedge_channel *ch, int recv, unsigned char *buf,
				 size_t len, uint64_t tag, uint64_t mask, uint64_t user);
struct go_rc go_channel_poll(struct kedge_channel *ch, struct kedge_completion *out,
			     size_t n, unsigned int spins);
struct go_rc go_channel_arm(struct kedge_channel *ch);
struct go_rc go_channel_cancel(struct kedge_channel *ch, uint64_t op);
struct go_rc go_channel_probe(struct kedge_channel *ch, uint64_t tag, uint64_t mask,
			      struct kedge_envelope *e);
struct go_rc go_channel_info(struct kedge_channel *ch, struct kedge_channel_info *info);
/* The reason that a completion with such a status has, in words. */
struct go_rc go_channel_why(int status);

#endif /* GO_SHIM_H */
