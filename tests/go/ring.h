/* SPDX-License-Identifier: BSD-2-Clause */
/* A ring, its cache with the default options, and a file to read from. */
#ifndef TESTS_GO_RING_H
#define TESTS_GO_RING_H

#include <stddef.h>

#include <kedge/kedge.h>
#include <kedge/uring.h>

struct rig;

int rig_open(struct rig **out);
void rig_close(struct rig *r);
const char *rig_why(int rc);
int rig_stats(struct rig *r, struct kedge_cache_stats *st);
/* Asks the default notifier about itself. */
int rig_info(struct kedge_notifier_info *info);

int rig_get(struct rig *r, void *buf, size_t len, struct kedge_mr **mr);
void rig_put(struct rig *r, struct kedge_mr *mr);

/* The file's byte at @at. */
unsigned char rig_byte(size_t at);
/* Read the file from @at on into @buf, through the registration. */
int rig_read(struct rig *r, void *buf, size_t len, size_t at,
	     struct kedge_mr *mr);

#endif /* TESTS_GO_RING_H */
