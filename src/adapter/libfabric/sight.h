/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A registration that libfabric's cache is to keep has to be made while its range is watched.
 * libfabric tells of it when it is made already, so the proof is an earlier call: a thread that has
 * told of another registration after the watch began (see ranges.h, "since") has made this one
 * later still.
 *
 * The earlier call may have been made within the making of this one: a provider over another one
 * registers with that first, and both tell. It was made deeper in the stack then. So a call counts
 * only if it was made from a frame that is no deeper than the frame of the call that it speaks for.
 * Frames are of one stack: a thread that changes stacks between the two (fibres), and has caches in
 * one another, is beyond that.
 */
#ifndef ADAPTER_LIBFABRIC_SIGHT_H
#define ADAPTER_LIBFABRIC_SIGHT_H

#include <stdint.h>

/* The time of this thread's latest call that counts for one from @frame; 0: there is none. Deeper
 * ones are forgotten. */
uint64_t sight_before(uintptr_t frame);
/* The call is over, at @clock. */
void sight_note(uintptr_t frame, uint64_t clock);

#endif /* ADAPTER_LIBFABRIC_SIGHT_H */
