/* SPDX-License-Identifier: BSD-2-Clause */
/* PROCMAP_QUERY of <linux/fs.h> (Linux 6.11), which older headers lack. */
#ifndef KEDGE_UAPI_PROCMAP_H
#define KEDGE_UAPI_PROCMAP_H

#include <stdint.h>
#include <sys/ioctl.h>

struct procmap_query_v1 {
	uint64_t size;
	uint64_t query_flags;
	uint64_t query_addr;
	uint64_t vma_start;
	uint64_t vma_end;
	uint64_t vma_flags;
	uint64_t vma_page_size;
	uint64_t vma_offset;
	uint64_t inode;
	uint32_t dev_major;
	uint32_t dev_minor;
	uint32_t vma_name_size;
	uint32_t build_id_size;
	uint64_t vma_name_addr;
	uint64_t build_id_addr;
};

_Static_assert(sizeof(struct procmap_query_v1) == 104, "kernel ABI");

#define PROCMAP_QUERY_V1 _IOWR('f', 17, struct procmap_query_v1)

/* query_flags: the mapping at the address, or the next one. */
#define PROCMAP_COVERING_OR_NEXT 0x10u

#endif /* KEDGE_UAPI_PROCMAP_H */
