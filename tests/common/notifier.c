// SPDX-License-Identifier: BSD-2-Clause
#include "notifier.h"

struct kedge_notifier *nf;

int nf_open(void **state)
{
	nf = open_uffd();
	return 0;
}

int nf_end(void **state)
{
	kedge_notifier_close(nf);
	return 0;
}
