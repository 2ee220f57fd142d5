/* SPDX-License-Identifier: BSD-2-Clause */
/* Families of cases that go by any way, in one program: test_region_suites. */
#ifndef TESTS_REGION_SUITES_H
#define TESTS_REGION_SUITES_H

#include "way.h"

extern const struct suite suite_migrate;
extern const struct suite suite_migrate_kills;
extern const struct suite suite_recommit;
extern const struct suite suite_recommit_others;
extern const struct suite suite_region_adapter;
extern const struct suite suite_remote;
extern const struct suite suite_remote_closed;
extern const struct suite suite_remote_load;
extern const struct suite suite_remote_peers;
extern const struct suite suite_submit;
extern const struct suite suite_submit_ends;

/* What holds by each way: cases of these. */
int contract_run(void);

#endif /* TESTS_REGION_SUITES_H */
