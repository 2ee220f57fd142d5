/* SPDX-License-Identifier: BSD-2-Clause */
/* A region, its handle and a peer of it, as the case that runs has them, by the way chosen. */
#ifndef TESTS_REGION_REMOTE_H
#define TESTS_REGION_REMOTE_H

#include "core.h"
#include "way.h"

#define LEN	((size_t)256 << 10)
/* It ends a hang, and no test waits so long else: adapters of an emulated machine are slow, and
 * schedulers have let a thread that could run wait for two minutes. */
#define SOON_MS 600000

extern struct kedge_region *region;
extern struct kedge_handle handle;
extern struct kedge_remote *remote;

struct kedge_region_info query(struct kedge_region *r);
/* Its first byte, and that of @region. */
char *bytes_of(struct kedge_region *r);
char *region_at(void);
uint64_t bytes_had(void);
/* As soon as accesses from before a trim are over, which may have taken longer than that waits. */
void grow_to(size_t len);

/* A handle of the region, as if it were of another host where the way goes by one. */
void advertise(const struct kedge_handle_opts *o);
void make_region(size_t len, const struct kedge_handle_opts *o);
/* make_region() was called, ever. */
bool regions_were_made(void);
struct kedge_remote *open_it(void);
/* A remote region that can have a lease has it when this returns. */
void begin_remote_of(size_t len, const struct kedge_handle_opts *o);
void begin_remote(const struct kedge_handle_opts *o); /* of LEN */
void end_remote(void);
/* A case between the two. */
int with_remote(void **state);
int without_remote(void **state);
#define remote_case(f) remote_case_for(FOR_ALL, f)
#define remote_case_for(which, f) case_with(which, f, with_remote, without_remote)
/* The handle can be opened, and its peer goes on. */
void handle_works(void);

uint64_t remote_len(struct kedge_remote *r);
unsigned int way_of(struct kedge_remote *r);
void wait_for_lease(struct kedge_remote *r);
/* A peer's access works: @c is the region's byte then, or was. */
void puts_byte(struct kedge_remote *r, uint64_t at, char c);
void gets_byte(struct kedge_remote *r, uint64_t at, char c);

/* Memory that the test's processes share. */
void *shared_memory(size_t len);
/* fork(), and the child is killed when this process ends. */
pid_t fork_child(void);
/* A child that runs @run with @arg. */
pid_t start_child(void (*run)(void *arg), void *arg);
/* A child that has ended by itself, with 0. */
void reap(pid_t pid);
/* Kills it, and waits for its end. */
void kill_child(pid_t pid);

#endif /* TESTS_REGION_REMOTE_H */
