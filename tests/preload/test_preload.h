/* SPDX-License-Identifier: BSD-2-Clause */
/* The common ground of test_preload's files. */
#ifndef TESTS_TEST_PRELOAD_H
#define TESTS_TEST_PRELOAD_H

#include "tests/common/cases.h"

#include "fake_ibverbs.h"

#define PAGE 4096u
#define AREA (64 * PAGE)
#define LW IBV_ACCESS_LOCAL_WRITE
#define RW IBV_ACCESS_REMOTE_WRITE
#define RR IBV_ACCESS_REMOTE_READ

/* Without kedge, and under it in both ways. */
enum mode {
	PLAIN,
	DEFAULT,
	TRUSTED,
};

extern enum mode mode;
extern struct fake *fake;
/* Made for each case. */
extern struct ibv_context *context;
extern struct ibv_pd *pd;
extern char *area;

/* Regions asked of libibverbs, by whatever name. */
int regs_made(void);
/* The one without kedge, the other under it. */
int kept(int plain, int kedge);

struct ibv_mr *reg(void *addr, size_t len, int access);
void dereg(struct ibv_mr *mr);
struct ibv_context *open_fake(void);
/* Asserts that the registration fails with @err, as libibverbs would have it. */
void refused_with(void *addr, size_t len, int access, int err);

/* test_ends.c: domains and devices go */
void a_domain_is_busy_while_it_has_regions(void **state);
void an_imported_domain_is_let_go(void **state);
void an_imported_domain_goes_with_regions_in_use(void **state);
void a_device_is_closed_with_all_that_is_kept(void **state);
void a_device_is_closed_with_regions_in_use(void **state);

/* test_room.c: adapters that are full */
void what_is_kept_makes_room(void **state);
void what_is_kept_makes_room_for_others(void **state);
void another_error_flushes_nothing(void **state);
void who_holds_all_is_told_so(void **state);

#endif /* TESTS_TEST_PRELOAD_H */
