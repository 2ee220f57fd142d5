/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An HTTP server on loopback in the place of etcd. It gives for each path what etcd gives, or
 * what the test has set for it, and counts and keeps what it was asked.
 */
#ifndef TESTS_FAKE_ETCD_H
#define TESTS_FAKE_ETCD_H

#include "core.h"

enum fake_path { RANGE, TXN, GRANT, KEEPALIVE, REVOKE, AUTHENTICATE, OTHER, FAKE_PATHS };

enum fake_how {
	ANSWER,	/* status and body */
	RAW,	/* the body as it is, and the end */
	CUT,	/* read the request, and end */
	RESET,	/* the same, with an RST */
	HOLD,	/* no answer until the peer ends */
	FLOOD,	/* body, then letters until the peer ends */
};

struct fake_reply {
	enum fake_how how;
	unsigned int status;
	const char *body; /* NULL: as etcd */
	size_t len;	  /* of body; 0: up to its 0 */
	int times;	  /* then as etcd again; 0: for ever */
};

struct fake {
	int fd;
	unsigned int port;
	char url[64];
	pthread_t thread;
	_Atomic int conns;
	pthread_mutex_t lock; /* guards what follows */
	struct fake_reply on[FAKE_PATHS];
	unsigned int cnt[FAKE_PATHS];
	char body[FAKE_PATHS][4096]; /* of the last request */
	char token[256];	     /* of the last request; "": none */
	unsigned int granted;	     /* leases */
};

struct fake *fake_start(void);
void fake_end(struct fake *f);
void fake_set(struct fake *f, enum fake_path path, struct fake_reply reply);
unsigned int fake_cnt(struct fake *f, enum fake_path path);
/* The last request's body, until the next call. */
const char *fake_body(struct fake *f, enum fake_path path);
const char *fake_token(struct fake *f);

/* The place that the fake has for every region. */
extern const struct kedge_place fake_place;

/* A place that is all @c. */
struct kedge_place place_of(char c);
/* A directory whose entries are for @ttl_s seconds. */
struct kedge_directory *open_at(const char *endpoints, uint32_t ttl_s);
/* A port at which nothing listens, as an endpoint. */
void dead_url(char url[64]);

#endif /* TESTS_FAKE_ETCD_H */
