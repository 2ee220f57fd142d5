/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Families of cases that run over whatever TEST_CHANNEL_OVER names, where they do
 * not say that they are of one transport.
 */
#ifndef TESTS_CHANNEL_CASES_H
#define TESTS_CHANNEL_CASES_H

#include "channel_pair.h"

/* Run it as cmocka does. */
int family_messages(void);
int family_cancel(void);
int family_ends(void);
int family_seldom(void);
int family_word(void);
int family_match(void);
int family_pieces(void);
int family_access(void);

/* Those that test_channel_contract.c takes from them, too. */
void small_messages_arrive(void **state);
void unexpected_messages_wait(void **state);
void the_order_is_kept(void **state);
void all_sizes_wrap_the_ring(void **state);
void too_long_is_an_error(void **state);
void unexpected_messages_are_bounded(void **state);
void large_messages_arrive(void **state);
void many_at_once(void **state);
void cancel_ends_a_posted_receive(void **state);
void time_runs_out(void **state);
void a_closed_peer_is_seen(void **state);
void a_message_ends_a_wait(void **state);
void a_child_has_no_part(void **state);
void each_refusal_has_its_own_reason(void **state);
void that_the_peer_is_gone_is_told(void **state);
void a_probe_finds_what_a_receive_would_get(void **state);
void an_announced_message_ends_with_the_peer(void **state);
void pieces_go_through_in_order(void **state);
void pieces_are_given_up(void **state);
int pieces_setup(void **state);
int pieces_teardown(void **state);
void a_bad_buffer_fails_one_eager_message(void **state);
int access_setup(void **state);
int access_teardown(void **state);

#endif /* TESTS_CHANNEL_CASES_H */
