/* SPDX-License-Identifier: BSD-2-Clause */
/* Peers with a lease, by an adapter that is counted; and those that ask for one by hand. */
#ifndef TESTS_REGION_LEASED_H
#define TESTS_REGION_LEASED_H

#include "by_hand.h"
#include "fake_fabric.h"
#include "region/fabric/fabric.h"

unsigned int puts_done(void);
bool put_is_leased(uint64_t at);

/* By a question of the peer's, as one cannot wait for what does not come. */
int lease_said(int fd, struct stream_lease *got);
int lease_by_hand(int fd);

#endif /* TESTS_REGION_LEASED_H */
