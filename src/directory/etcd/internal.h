/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A directory in etcd: a key for each region, its value the place, bound to a lease of the
 * process that wrote it.
 *
 * A call makes a connection for each request and closes it. Peers ask seldom: where an owner is,
 * once its place has changed. A connection that is kept costs each of many hosts a descriptor,
 * and etcd one for each of them; a program that closes descriptors which it does not know, as
 * daemons do, would have requests written to the file that it opens under that number; a forked
 * child would have it, too; and where etcd has closed it meanwhile, libcurl sends the request a
 * second time, so that a replacement that was done would be told as one that failed.
 */
#ifndef DIRECTORY_ETCD_INTERNAL_H
#define DIRECTORY_ETCD_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include <kedge/etcd.h>

#include "base/base.h"
#include "base/process/service.h"
#include "directory/etcd/answer.h"

#define ENDPOINTS_MAX 16u
#define PREFIX_MAX    240u
#define USER_MAX      256u
#define KEY64_MAX     360u /* bytes of a key in base64, with the 0 */
#define BODY_MAX      4096u

/* Milliseconds that an endpoint has where the caller sets no limit. */
#define PATIENCE_MS 10000

/* The lease and its thread, by etcd's lock. */
struct lease {
	int64_t id;	   /* 0: no lease */
	uint64_t renew_ns; /* when it is to be renewed, by clock_ns() */
	uint32_t ttl_s;	   /* what etcd gave it */
	bool used;	   /* entries may be bound to it */
	bool lost;	   /* one that was used is gone, and no call has said so */
	bool granting;	   /* a call asks for one */
	bool runs;	   /* there is a thread, or was */
	pthread_t thread;
	struct service service;
};

struct etcd {
	pid_t pid;
	char *endpoints; /* with 0 between them */
	const char *endpoint[ENDPOINTS_MAX];
	unsigned int endpoint_cnt;
	_Atomic unsigned int first; /* the one that answered last, or any other: relaxed */
	char *prefix;
	char *user;
	char *password;
	char *ca;
	char *cert;
	char *key;
	uint32_t ttl_s;

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	char *token; /* of the user, or NULL */
	struct lease lease;
	/* The thread ends. Also read without the lock, while it waits for etcd: relaxed, as no
	 * other memory depends on it. */
	_Atomic bool stop;
};

/* A question to etcd. */
struct request {
	const char *path; /* "/v3/kv/range" */
	const char *body;
	uint64_t deadline; /* of clock_ns(); UINT64_MAX: PATIENCE_MS for each endpoint */
	bool once;	   /* not to be sent a second time: -EINPROGRESS once it was sent */
	bool by_thread;	   /* given up when etcd->stop is set */
	int (*parse)(const char *text, size_t len, void *result);
	void *result;
};

/* A token that etcd does not take, or not any more. http_post() alone returns it: no errno. */
#define TOKEN_REFUSED 1

/*
 * One endpoint after the other until one answers; @token may be NULL. Beside what the parser
 * says:
 *   -ETIMEDOUT, -EHOSTUNREACH, -EKEYREJECTED, -EMFILE, -ENFILE, -ENOMEM  it was not sent, or may
 *               be sent again
 *   -EINPROGRESS  it was sent, and what became of it is not known
 *   -EACCES, -ENOSPC, -EBUSY, -EPROTO  etcd refuses it
 *   -ENOKEY     there is no such lease
 *   -EOPNOTSUPP etcd knows no users
 * The reason is set.
 */
int http_post(struct etcd *e, const struct request *r, const char *token);
int http_init(void);

/* The same as the user of the options, if there is one. */
int user_post(struct etcd *e, const struct request *r);

/* -EKEYEXPIRED: a lease was lost, and this call is the first to say so. */
int lease_check(struct etcd *e);
/* The lease that new entries are bound to. */
int lease_get(struct etcd *e, uint64_t deadline, int64_t *id);
/* An entry is bound to it, or may be. */
void lease_used(struct etcd *e, int64_t id);
/* etcd has no such lease any more. */
void lease_gone(struct etcd *e, int64_t id);
/* End the thread and give the lease back. */
void lease_end(struct etcd *e);

#endif /* DIRECTORY_ETCD_INTERNAL_H */
