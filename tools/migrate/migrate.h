/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kedge migrate: a region goes from one process to another and back while peers read and write it.
 *
 * The command (run.c, kill.c) makes no call of kedge's, so the processes that it forks are as new:
 * two hosts (host.c), of which one owns the region and the other is its target; the peers (peer.c);
 * and a checker (check.c), which has its handle from the beginning. Orders to them, and their
 * answers, are fixed structs over the sockets of tools/common/proc.h. Counts, and the log of what
 * was acknowledged, are in memory that all of them share (load.h), outside the region.
 */
#ifndef TOOLS_MIGRATE_MIGRATE_H
#define TOOLS_MIGRATE_MIGRATE_H

#include <pthread.h>

#include <kedge/kedge.h>

#include "tools/common/proc.h"
#include "tools/migrate/load.h"

#define MIGRATE_SOON_MS 60000 /* an access or an open that takes so long is an error */

enum migrate_way { WAY_MAPPED, WAY_STREAM, WAY_TCP, WAY_RDMA };
enum migrate_victim { VICTIM_NONE, VICTIM_OWNER, VICTIM_TARGET, VICTIM_PEER };

/** struct migrate_opts - the command line
 * @writes: of a hundred accesses
 * @rounds: there and back
 * @count:  kills
 * @node:   of WAY_RDMA: an adapter's address; else NULL
 */
struct migrate_opts {
	uint64_t len;
	unsigned int peers;
	unsigned int writes;
	unsigned int rounds;
	unsigned int count;
	enum migrate_way way;
	const char *node;
	enum migrate_victim victim;
	bool namespaces;
	bool own;
	uint64_t seed;
};

/* An owner that was killed before it came is waited for as long, too. */
#define MIGRATE_ACCEPT_MS      5000u
/* The slowest wires that are meant; adapters that are software, in an emulated machine. */
#define MIGRATE_MIB_PER_SECOND	    16u
#define MIGRATE_RDMA_MIB_PER_SECOND 1u

static inline int migrate_accept_ms(const struct migrate_opts *o)
{
	const unsigned int rate = o->way == WAY_RDMA ? MIGRATE_RDMA_MIB_PER_SECOND
						     : MIGRATE_MIB_PER_SECOND;

	return (int)(MIGRATE_ACCEPT_MS + (o->len >> 20) * 1000u / rate);
}

static inline bool migrate_is_remote(const struct migrate_opts *o)
{
	return o->way == WAY_TCP || o->way == WAY_RDMA;
}

/* verbs.c: regions by RDMA: 0 or a negative errno with a reason. */
int migrate_use_rdma(void);

extern const char *const migrate_ways[];
extern const char *const migrate_victims[];
/* "quiet", for KEDGE_TRACK_QUIET */
const char *migrate_track_name(uint32_t track);

/* ---- orders and answers ---- */

enum order_kind {
	DO_CREATE,    /* a region, filled, and a handle of it */
	DO_ADVERTISE, /* another handle */
	DO_INVITE,    /* SAY_INVITED, and SAY_ARRIVED at the end */
	DO_MIGRATE,   /* by the invitation @handle; SAY_PROGRESS, SAY_FROZEN, SAY_MIGRATED */
	DO_CLOSE,     /* the region */
	DO_QUERY,     /* 0 if the region is this host's */
	DO_STORE,     /* own stores begin */
	DO_HALT,      /* and end */
	DO_LISTEN,    /* SAY_LISTENS, and SAY_DONE when @n bytes have come */
	DO_SEND,      /* @n bytes to @node and @port, and a copy of as much */
	DO_CHECK,     /* all blocks; with @n, by @handle alone */
};

/** struct order - @node is empty where all is local */
struct order {
	uint32_t kind;
	uint32_t port;
	uint64_t n;
	struct kedge_handle handle;
	char node[16];
};

enum said_kind {
	SAY_DONE,
	SAY_INVITED,
	SAY_ARRIVED,
	SAY_PROGRESS,
	SAY_FROZEN,
	SAY_MIGRATED,
	SAY_LISTENS,
};

/** struct said - an answer
 * @rc:        0 or a negative errno, with @why
 * @copy_ns:   of DO_SEND: of a copy
 * @socket_ns: and of as many bytes over a socket, with an answer
 */
struct said {
	uint32_t kind;
	int32_t rc;
	uint32_t port;
	uint32_t pad;
	struct kedge_handle handle;
	struct kedge_migrate_info info;
	double copy_ns;
	double socket_ns;
	char why[200];
};

/* ---- processes ---- */

/** struct migrate_start - how a child is started
 * @space: descriptor of its network namespace, or -1
 * @node:  address of its host, or NULL
 * @index: of a peer
 */
struct migrate_start {
	const struct migrate_opts *opts;
	struct load *load;
	int space;
	const char *node;
	unsigned int index;
	struct kedge_handle handle;
};

/* Mains of the children; @arg is a struct migrate_start. */
void migrate_host(int fd, void *arg);
void migrate_peer(int fd, void *arg);
void migrate_checker(int fd, void *arg);

/** struct host - a process that owns the region, or is its target
 * @halt: own stores are to end
 */
struct host {
	const struct migrate_start *start;
	int fd;
	struct kedge_region *region;
	unsigned char *at;
	pthread_t thread;
	bool stores;
	_Atomic bool halt;
};

/* Handles and invitations of --way tcp look like those of another machine. */
void migrate_disguise(const struct migrate_opts *o, struct kedge_handle *h);
/* @s is sent with @rc and its reason: 0 or a negative errno. */
int migrate_say(int fd, uint32_t kind, int rc, struct said *s);

/* owner.c; results are 0 or a negative errno with a reason. */
int owner_create(struct host *h, struct said *s);
int owner_advertise(struct host *h, struct said *s);
int owner_store(struct host *h);
void owner_halt(struct host *h);
/* Answers are sent by itself. */
int owner_migrate(struct host *h, const struct kedge_handle *invitation);

/* target.c; answers are sent by itself. */
int target_invite(struct host *h);

/* beside.c: bytes over a socket, which is TCP with a @node. The first answers by @fd itself. */
int beside_listen(int fd, const char *node, uint64_t len);
int beside_send(const char *node, uint32_t port, uint64_t len, struct said *s);

#endif /* TOOLS_MIGRATE_MIGRATE_H */
