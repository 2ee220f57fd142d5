// SPDX-License-Identifier: BSD-2-Clause
/*
 * A thread forks in the moment in which the first swap of this process makes
 * itself known to fork(). The handler was there before what it looks at.
 */
#include "cases.h"
#include "wrap.h"

typedef void (*handler_fn)(void);

static unsigned int registered;

/* As the other thread's fork() would call them. */
WRAP(int, pthread_atfork, handler_fn prepare, handler_fn parent, handler_fn child)
{
	int rc = __real_pthread_atfork(prepare, parent, child);

	if (!rc && prepare && parent) {
		registered++;
		prepare();
		parent();
	}
	return rc;
}

static void a_fork_meets_the_first_swap(void **state)
{
	char *a = new_pages(1), *b = new_pages(1);
	unsigned int before = registered;
	int rc;

	a[0] = 1;
	b[0] = 2;
	rc = kedge_page_swap(a, b, page_len());
	if (rc == -EOPNOTSUPP)
		skip();
	assert_int_equal(rc, 0);
	assert_int_equal(registered, before + 1);
	assert_int_equal(a[0], 2);
	assert_int_equal(b[0], 1);
}

#define LISTED PLAIN
#include "test_swap_fork.cases.h"
