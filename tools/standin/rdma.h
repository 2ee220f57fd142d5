/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls of the stand-in for an RDMA adapter beside those of libibverbs; found by dlsym(). */
#ifndef STANDIN_RDMA_H
#define STANDIN_RDMA_H

#include <stdint.h>

#define STANDIN_MRS 2048

/* Registrations are fixed buffers of this io_uring from now on, STANDIN_MRS of them; those that
 * were made before are not known any more. 0, or a negative errno. */
int kedge_standin_use(int ring_fd);
/* The number of registrations made. */
uint64_t kedge_standin_registered(void);

#endif /* STANDIN_RDMA_H */
