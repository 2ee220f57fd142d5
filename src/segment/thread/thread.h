/* SPDX-License-Identifier: BSD-2-Clause */
/* The threads of this room: what its files use of each other, and others of them. */
#ifndef SEGMENT_THREAD_H
#define SEGMENT_THREAD_H

#include "segment/internal.h"

/* ---- service.c ---- */

/* With the gate. The thread is there once more, or a negative errno. */
int service_use(void);
void service_unuse(void);
/* In a child. */
void service_forget(void);

/* ---- uffd.c ---- */

struct uffd_msg;
/* One for an extent, or a negative errno; by any thread. */
int uffd_open(void);
int uffd_watch(int fd, uintptr_t at, size_t len);
void uffd_unwatch(int fd, uintptr_t at, size_t len);
bool uffd_readable(int fd);
bool uffd_read(int fd, struct uffd_msg *m);

/* ---- monitor.c: the thread's ---- */

void monitor_events(uint32_t index);

/* ---- drop.c: the thread's ---- */

/* With lock, before an event is read: what of it is about to be emptied is made private,
 * and what was unmapped is gone. @asleep: no other thread was found running. */
bool drop_look(uint32_t extent, bool *asleep);
/* With lock: that range is. */
bool drop_now(uint32_t extent, uintptr_t start, uintptr_t end);
/* With lock. [@start, @end) was unmapped: what is not there any more is gone. */
bool drop_gone(uint32_t extent, uintptr_t start, uintptr_t end);
/* With lock. [@start, @end) was moved to @to: what is not there any more was. */
bool drop_moved(uint32_t extent, uintptr_t start, uintptr_t end, uintptr_t to);

/* ---- serve.c: the thread's ---- */

int serve_open(void);
void serve_close(void);
void serve_accept(void);
/* The descriptor, if that is this process, by which its calls come from now on; or -1. */
int serve_conn(uint32_t index);
/* With lock. Tell the peers of extent @index; @ack: they are to answer. */
void serve_gone(int index, uint64_t start, uint64_t end, bool ack);
/* With lock. Peers are told, and its memory goes back to the system. */
void serve_piece_gone(const struct piece *part);
/* With lock. End the connections to @s. */
void serve_hang_up(const struct kedge_segment *s);
/* With lock. End those that were granted the extent. */
void serve_hang_up_extent(int index);
/* Tell the peer with that ticket: of an extent, or why not, up to @until. */
void serve_part(int conn, uint64_t ticket, int extent, uintptr_t until, const char *why);

/* ---- convert.c: a thread that may wait ---- */

/* With the gate, as the work is done: whenever there may be some. */
int convert_begin(void (*work)(void));
void convert_end(void);
/* In a child. */
void convert_forget(void);
/* There is something to do for it. Waits for nothing. */
void convert_post(void);

/* ---- listing.c: the thread's ---- */

/* With lock. False: the peer may not know, or does not read; it is cut off. */
bool listing_answer(int fd, const struct seg_list *q);

/* ---- recall.c: the thread's ---- */

/* From now on something may be attached: the owner is told. */
void recall_begin(int fd);
void recall_read(uint32_t index);
/* In a child: no attachment is valid. */
void recall_forget(void);

#endif /* SEGMENT_THREAD_H */
