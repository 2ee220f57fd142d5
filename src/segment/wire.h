/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages of processes to each other about segments: SOCK_SEQPACKET, one message a packet,
 * in the byte order of the host that both are on. A connection is one grant, or a list.
 *
 *	peer:  ASK                     owner:  ANSWER (with descriptors)
 *	peer:  ACK of 0, before it attaches
 *	                               owner:  GONE, for each change
 *	peer:  ACK, where it asks
 *
 * The peer's end of the connection releases the grant, the owner's ends the segment.
 *
 * A segment that is converted as it is attached has a connection for each part, too:
 *
 *	peer:  PART                    owner:  ANSWER, when that part is converted
 *	and so on as above
 *
 *	peer:  LIST                    owner:  PAGE
 *	peer:  LIST of those made before the last of them, and so on
 *
 * The owner sends a page for each LIST alone, so that no more than one waits to be read. It
 * has no word of an id: a list shows what is there, and gives no right to it.
 *
 *	the owner itself:  SELF        its thread: SELF; then what call.c has it do
 *
 * So a program is heard that has closed the socket which it had for that. The kernel says
 * that it is this process.
 */
#ifndef SEGMENT_WIRE_H
#define SEGMENT_WIRE_H

#include <stdint.h>

#define SEG_MAGIC   0x6b656467u
#define SEG_VERSION 2u

enum seg_kind {
	SEG_ASK = 1, SEG_ANSWER, SEG_GONE, SEG_ACK, SEG_LIST, SEG_PAGE, SEG_PART, SEG_SELF
};

struct seg_head {
	uint32_t magic;
	uint16_t version;
	uint16_t kind; /* enum seg_kind */
};

struct seg_ask {
	struct seg_head head;
	uint64_t id; /* its first word */
	uint32_t access;
	uint32_t zero;
};

/* As SEG_ASK, of the part that begins at @start; no more than @end is wanted. */
struct seg_part {
	struct seg_head head;
	uint64_t id;
	uint64_t start; /* addresses of the owner's, of whole pages */
	uint64_t end;
	uint32_t access;
	uint32_t zero;
};

/* No count of changes: one that counts comes with a later message. */
#define COUNT_LATER UINT64_MAX
/* As many parts that are gone a peer knows apart. */
#define GONE_PARTS 16

#define SEG_IN_PARTS 1u /* nothing is shared yet: parts are asked for */

/* Descriptors with it: none, or the check page's and the memfd's. */
struct seg_answer {
	struct seg_head head;
	int32_t rc; /* 0, or a negative errno */
	uint32_t backend;
	uint64_t proof; /* the second word of the id */
	uint64_t addr; /* of a part: of all memory that has this memfd */
	uint64_t len;
	uint64_t until;	   /* of a part: where it ends; with -EFAULT, where the hole does */
	uint64_t file_off; /* of @addr in the memfd */
	uint64_t file_len;
	uint64_t count; /* changes of that memory so far */
	uint32_t word;	/* of the check page, that counts them */
	uint32_t flags;
	char reason[128];
};

/* [start, end) of the memfd is not the owner's memory any more. */
struct seg_gone {
	struct seg_head head;
	uint64_t count; /* what the word is now, at least */
	uint64_t start;
	uint64_t end;
	uint64_t ack; /* to be sent back, or 0 */
};

struct seg_ack {
	struct seg_head head;
	uint64_t ack;
};

struct seg_list {
	struct seg_head head;
	uint64_t before; /* the serial of the last that is known; UINT64_MAX: all */
};

/* A segment in a list. */
struct seg_item {
	uint64_t serial; /* greater for one that was made later */
	uint64_t addr;
	uint64_t len;
	uint64_t changes; /* that peers were told of, since it was made */
	uint32_t backend;
	uint32_t mode;
	uint32_t grants;
	uint32_t zero;
	char reason[128];
};

#define SEG_ITEMS 16

/* Newest first. Fewer than SEG_ITEMS are the last; the packet ends behind them. */
struct seg_page {
	struct seg_head head;
	int32_t rc; /* 0, or -EACCES and no item */
	uint32_t cnt;
	struct seg_item item[SEG_ITEMS];
};

static inline struct seg_head seg_head(enum seg_kind kind)
{
	return (struct seg_head){ SEG_MAGIC, SEG_VERSION, (uint16_t)kind };
}

static inline int seg_is(const struct seg_head *h, enum seg_kind kind)
{
	return h->magic == SEG_MAGIC && h->version == SEG_VERSION && h->kind == kind;
}

#endif /* SEGMENT_WIRE_H */
