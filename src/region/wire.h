/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A handle's words, and the two messages by which a peer gets the memory behind it. They are
 * SOCK_SEQPACKET packets on one host, in its byte order. The connection stays: its end tells
 * each side that the other one has ended.
 */
#ifndef REGION_WIRE_H
#define REGION_WIRE_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <kedge/directory.h>
#include <kedge/handle.h>

#define KEY_LEN 16
/* In place of a handle's slot: it is an invitation, and the generation is its number. */
#define INVITE_SLOT UINT32_MAX

/*
 * @slot, @generation: where the owner finds it, and of what it has had there it is
 * @host:    of the owner that made the handle
 * @name:    of that one's socket; it stays the handle's when the region migrates
 * @region:  a random number, the region's for as long as it lives, wherever it is
 * @key:     random; the owner compares it
 * @port:    of TCP at @place, an IPv6 address or an IPv4 one in that form; both zero: it is
 *           reached on its own host alone
 */
struct handle_words {
	char magic[4];
	uint32_t slot;
	uint32_t generation;
	uint16_t port;
	uint16_t zero;
	uint64_t host;
	uint64_t name;
	uint64_t region;
	unsigned char key[KEY_LEN];
	unsigned char place[16];
};

/* The place of the owner that a region has migrated to; fields as above. */
struct owner_place {
	uint64_t host;
	uint64_t name;
	uint16_t port; /* little-endian, as the number is sent */
	uint16_t zero[3];
	unsigned char place[16];
};

_Static_assert(sizeof(struct handle_words) == sizeof(struct kedge_handle), "one is the other");

/* False: it is none. */
bool handle_read(const struct kedge_handle *h, struct handle_words *w);
void handle_write(const struct handle_words *w, struct kedge_handle *h);
/* The place that they name. */
void handle_place(const struct handle_words *w, struct owner_place *p);
/* As a directory has it; false: it is none. */
void place_write(const struct owner_place *p, struct kedge_place *out);
bool place_read(const struct kedge_place *in, struct owner_place *p);
/* A number of this host's, since it was started: 0 or a negative errno. */
int handle_host(uint64_t *host);
/* Of the socket that gives the memory, or of that for streams. Returns the length. */
socklen_t handle_address(uint64_t name, bool stream, struct sockaddr_un *a);

#define REGION_MAGIC   0x6b726567u
#define REGION_VERSION 2u

/* An answer to the first: the handle gives no memory, but what stream.h has. */
#define REGION_BY_STREAM (-EREMOTE)
/* The region has migrated: a stream's owner says where it is. */
#define REGION_MOVED	 (-EREMCHG)
/* A lease is to be given back. */
#define REGION_RECALLED	 (-ESTALE)

/* Once as a peer comes, and again whenever the region was moved. */
struct region_ask {
	uint32_t magic;
	uint32_t version;
	uint32_t seq;
	uint32_t zero;
	struct kedge_handle handle;
};

/* With @rc 0 it has two descriptors: the gate's memfd, and the region's. */
struct region_answer {
	uint32_t magic;
	uint32_t version;
	uint32_t seq; /* of the question */
	int32_t rc;
	uint32_t access;
	uint32_t epoch; /* of the region's memfd, as the gate has it */
	uint64_t offset;  /* of the handle's first byte in the region's memfd */
	uint64_t max_len; /* from there on */
	uint64_t page_size;
	char reason[128];
};

/*
 * A question about all regions of the process, on the same socket: it is for the owner's user and
 * root, and gives no right to any of them. Each is answered by one packet with the next regions,
 * so one peer waits for no more than that; the first begins the list. An owner of before knows no
 * such question, and refuses it with -EPROTO as struct region_answer.
 */
#define LIST_MAGIC   0x6b6c7374u
#define LIST_VERSION 1u
#define LIST_ITEMS   64u

struct list_ask {
	uint32_t magic;
	uint32_t version;
	uint32_t seq;
	uint32_t zero;
};

/*
 * A region in a list; struct kedge_region_entry has what the fields mean. New ones come last.
 * @serial: greater for one that was made later
 * @to:     where it is, if it has left
 */
struct list_item {
	uint64_t serial;
	uint64_t addr;
	uint64_t len;
	uint64_t max_len;
	uint64_t page_size;
	uint64_t revoked;
	uint64_t served;
	uint64_t served_bytes;
	uint64_t suspensions;
	uint64_t missing;
	uint32_t state;
	uint32_t suspended;
	uint32_t handles;
	uint32_t expired;
	uint32_t mapped;
	uint32_t local;
	uint32_t tcp;
	uint32_t inside;
	uint32_t moves;
	uint32_t migrations;
	struct owner_place to;
};

/*
 * @seq:      of the question
 * @cnt:      items that follow, each of @item_len bytes: a later version may have more fields
 * @more:     there are regions behind these, or may be
 * @limit:    the budget of the process's regions, UINT64_MAX without one; @used: of it
 */
struct list_head {
	uint32_t magic;
	uint32_t version;
	uint32_t seq;
	uint32_t cnt;
	uint32_t item_len;
	uint32_t more;
	uint64_t limit;
	uint64_t used;
};

#endif /* REGION_WIRE_H */
