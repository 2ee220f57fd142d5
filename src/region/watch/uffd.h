/* SPDX-License-Identifier: BSD-2-Clause */
/* A userfaultfd that tells of changes to a region's mapping; by system calls alone. */
#ifndef REGION_WATCH_UFFD_H
#define REGION_WATCH_UFFD_H

#include <stdbool.h>
#include <stdint.h>

/* A descriptor, or a negative errno: -EOPNOTSUPP, this process or kernel lacks what it takes. */
int region_uffd_open(void);
/* Mappings of a memfd: 0 or a negative errno. */
int region_uffd_add(int fd, const void *at, uint64_t len);
int region_uffd_remove(int fd, const void *at, uint64_t len);
/* False: there is no event. An event that does not matter has a range of 0 bytes; *@drop: pages go,
 * and the mapping stays. */
bool region_uffd_read(int fd, uint64_t *start, uint64_t *end, bool *drop);

#endif /* REGION_WATCH_UFFD_H */
