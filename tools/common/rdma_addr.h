/* SPDX-License-Identifier: BSD-2-Clause */
/* The address at which this host's RDMA device is reached. */
#ifndef TOOLS_COMMON_RDMA_ADDR_H
#define TOOLS_COMMON_RDMA_ADDR_H

#define RDMA_ADDR_LEN 16

/* The IPv4 address of the first device that has one; -ENODEV with a reason. */
int rdma_addr(char addr[RDMA_ADDR_LEN]);

#endif /* TOOLS_COMMON_RDMA_ADDR_H */
