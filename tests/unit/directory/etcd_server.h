/* SPDX-License-Identifier: BSD-2-Clause */
/* An etcd of one member on loopback, in a folder of its own, which ends with the test. */
#ifndef TESTS_ETCD_SERVER_H
#define TESTS_ETCD_SERVER_H

#include <stdbool.h>
#include <sys/types.h>

struct server {
	char dir[64];
	char url[64];	   /* for clients */
	char peer_url[64]; /* of a cluster that has no other member */
	unsigned int port;
	const char *option; /* NULL or one more */
	pid_t pid;
};

/* There is an etcd to be started. */
bool server_there(void);
/* It answers; @option may be "--auto-tls". */
struct server *server_start(const char *option);
/* End it, as a service is ended, or by SIGKILL. */
void server_stop(struct server *s);
void server_kill(struct server *s);
/* The same once more, with the data that there are. */
void server_go_on(struct server *s);
/* Its end, and that of its data. */
void server_end(struct server *s);
/* The answer to a POST over plain HTTP, to be freed. */
char *server_post(const struct server *s, const char *path, const char *body);

#endif /* TESTS_ETCD_SERVER_H */
