/* SPDX-License-Identifier: BSD-2-Clause */
/* A case's notifier, which is closed at its end, before the case's memory goes. */
#ifndef TESTS_NOTIFIER_H
#define TESTS_NOTIFIER_H

#include "cases.h"

extern struct kedge_notifier *nf;

/* A setup: it watches by userfaultfd. */
int nf_open(void **state);
int nf_end(void **state);

/* A case that has it alone; and one whose file's setup opens it. */
#define NF(f)	   cmocka_unit_test_setup_teardown(f, nf_open, nf_end)
#define NF_CASE(f) cmocka_unit_test_setup_teardown(f, setup, nf_end)

#endif /* TESTS_NOTIFIER_H */
