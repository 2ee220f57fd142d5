/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls of UCX 1.14 and later, beside those of their caches (way.h). */
#ifndef ADAPTER_UCX_LATER_H
#define ADAPTER_UCX_LATER_H

#include <stddef.h>
#include <stdint.h>

#include "way.h"

/* uct_md_mem_reg() or _v2(), which is @reg: flags or parameters are @how. */
int later_reg(ucx_fn reg, md_t md, uintptr_t at, size_t len, uintptr_t how, memh_t *memh);
/* uct_md_mem_dereg() or _v2() of that handle: @dereg with @how. */
int later_dereg(ucx_fn dereg, md_t md, uintptr_t how, memh_t memh);

/* ucm_orig_mmap() has failed in this thread. */
void later_has_no_memory(void);

#endif /* ADAPTER_UCX_LATER_H */
