// SPDX-License-Identifier: BSD-2-Clause
/* A library that brings another along, which dlclose() takes away with it. */
#include <kedge/base.h>

extern char plugin_bss_of_needed[1 << 16];
KEDGE_API char *plugin_user(void);

char *plugin_user(void)
{
	return plugin_bss_of_needed;
}
