// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include <linux/mm.h>

unsigned int probe(void);

unsigned int probe(void)
{
	return FOLL_INTERRUPTIBLE;
}
