/* SPDX-License-Identifier: BSD-2-Clause */
/* The common ground of the tests of /dev/kedge-segment. */
#ifndef KSEG_LIB_H
#define KSEG_LIB_H

#include <linux/kedge_segment.h>

#include "vm_lib.h"

#define KS_RW (KEDGE_SEGMENT_READ | KEDGE_SEGMENT_WRITE)

/* The outcome of an access. */
enum { KS_OK, KS_SIGBUS, KS_SIGSEGV };

struct ks_id {
	uint64_t word[2];
};

/* Calls as they are: 0 or a negative errno. */
int ks_open(int flags);
int ks_make(int fd, const void *addr, size_t len, unsigned int mode,
	    struct ks_id *id);
int ks_remove(int fd, struct ks_id id);
int ks_get(int fd, struct ks_id id, unsigned int access);
int ks_query(int fd, struct ks_id id, struct kedge_segment_query *q);
/* A mapping, or a negative errno as a pointer: ks_errno() tells. */
char *ks_map(int fd, size_t len, int prot, off_t offset);
int ks_errno(const void *p);
/* A mapping that succeeds. */
char *ks_mapped(int fd, size_t len, int prot, off_t offset);
const uint64_t *ks_generation(int fd);

/* Most cases have an owner's file, one more, and a segment. */
extern int mine, other;
extern struct ks_id shared;

int ks_begin(void **state);
int ks_end(void **state);
#define KS_CASE(f) cmocka_unit_test_setup_teardown(f, ks_begin, ks_end)
/* By the owner, mode 0600. */
void ks_share(const void *m, size_t len);
/* And granted to the other one. */
void ks_grant(const void *m, size_t len);

/* Access that may be refused. */
int ks_load(const volatile char *p, char *value);
int ks_store(volatile char *p, char value);
int ks_load_word(const volatile uint64_t *p, uint64_t *value);
int ks_store_word(volatile uint64_t *p, uint64_t value);

/*
 * A process that has a segment attached. It does what it is told: each call
 * waits for it.
 */
struct peer {
	pid_t pid;
	int fd;
	int failed;	/* -errno of GET or mmap */
};

void peer_start(struct peer *p, struct ks_id id, unsigned int access,
		size_t len);
/* Another process that stays as it was before any peer. */
void peer_stop(struct peer *p);
int peer_load(struct peer *p, size_t offset, char *value);
int peer_store(struct peer *p, size_t offset, char value);
int peer_mprotect(struct peer *p, size_t offset, size_t len, int prot);
int peer_munmap(struct peer *p, size_t offset, size_t len);
uint64_t peer_generation(struct peer *p);
/* Begin a load, and see whether it has ended within some milliseconds. */
void peer_begin_load(struct peer *p, size_t offset);
bool peer_ended(struct peer *p, int ms, int *result, char *value);

#endif /* KSEG_LIB_H */
