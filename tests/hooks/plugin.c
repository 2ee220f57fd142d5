// SPDX-License-Identifier: BSD-2-Clause
/* A library with memory of its own, to be closed. */
#include <kedge/base.h>

#ifdef NEEDED
extern KEDGE_API char plugin_bss_of_needed[1 << 16];
char plugin_bss_of_needed[1 << 16];
#else
extern KEDGE_API char plugin_bss[1 << 16];
char plugin_bss[1 << 16];
#endif
