// SPDX-License-Identifier: BSD-2-Clause
/* Why a step or a row failed. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/torture/case.h"

/* A row with more errors than this, and than rounds, is given up. */
#define ERRORS_MAX 64

int why(struct run *x, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(x->why, sizeof(x->why), fmt, ap);
	va_end(ap);
	return rc;
}

void row_fail(struct row *row, int rc, const char *text)
{
	unsigned long long errors;
	int none = 0;

	if (atomic_compare_exchange_strong(&row->rc, &none, rc))
		snprintf(row->why, sizeof(row->why), "%s",
			 text && *text ? text : strerror(-rc));
	if (rc == -EOPNOTSUPP) {
		atomic_store(&row->off, true);
		return;
	}
	errors = atomic_fetch_add(&row->errors, 1);
	if (errors >= ERRORS_MAX && errors > atomic_load(&row->rounds))
		atomic_store(&row->off, true);
}
