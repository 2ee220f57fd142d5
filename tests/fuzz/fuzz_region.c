// SPDX-License-Identifier: BSD-2-Clause
/*
 * Handles of regions as text and as bytes, and what an owner says of its region: no text is a
 * handle but that which is printed, no bytes open a slot but the handle's, no answer maps
 * anything but a range that has the handle's first byte in it, no request over a connection
 * reaches what the handle does not give, and an owner that brings a region writes in that alone.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "feed.h"

#include "region/migrate/wire.h"
#include "region/peer/state.h"
#include "region/share/share.h"
#include "region/stream.h"

#define SERVED_LEN 8192u

static void text(struct bytes *in)
{
	char line[2 * KEDGE_HANDLE_TEXT], back[KEDGE_HANDLE_TEXT], *begin = line;
	struct kedge_handle h;
	size_t n = 0;

	while (in->left && n < sizeof(line) - 1)
		line[n++] = (char)take(in);
	line[n] = '\0';
	if (kedge_handle_parse(line, &h))
		return;
	CHECK(!kedge_handle_print(&h, back, sizeof(back)));
	while (*begin == ' ' || (*begin >= '\t' && *begin <= '\r'))
		begin++;
	CHECK(!strncmp(begin, back, strlen(back)));
}

static void take_words(struct bytes *in, void *to, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		((unsigned char *)to)[i] = take(in);
}

static void slots(struct bytes *in)
{
	struct kedge_region r = { .max_len = 4096 };
	struct handle_words w;
	struct slot *s, *found;
	int rc;

	list_init(&r.slots);
	s = slot_make(&r, &rc);
	CHECK(s && !rc);
	take_words(in, &w, sizeof(w));
	rc = slot_find(&w, &found);
	CHECK(rc == -EKEYREJECTED || rc == -EKEYREVOKED);
	w.slot = s->index;
	w.generation = s->generation;
	memcpy(w.key, s->key, sizeof(w.key));
	CHECK(!slot_find(&w, &found) && found == s);
	w.key[take(in) % KEY_LEN] ^= 1;
	CHECK(slot_find(&w, &found) == -EKEYREJECTED);
	slot_free(s);
}

static void answer(struct bytes *in)
{
	static int file = -1; /* for all */
	struct link r = { .sure = 0 };
	struct region_answer a;

	take_words(in, &a, sizeof(a));
	if (file < 0) {
		file = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		CHECK(file >= 0 && !ftruncate(file, 1 << 20) &&
		      !fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK));
	}
	r.file.fd = file;
	fd_note(r.file.fd, &r.file.id);
	if (!remote_map(&r, &a)) {
		CHECK(r.base <= r.at && r.at + r.max_len <= r.base + r.base_len);
		CHECK(r.max_len && (uintptr_t)r.at % 8 == 0);
		(void)remote_size(&r);
	}
	if (r.base)
		munmap(r.base, r.base_len);
}

/* The handshake of a peer that has the handle, unless the input says otherwise. */
static void shake(int fd, const struct slot *s, bool knows)
{
	struct stream_ask q = { .magic = STREAM_MAGIC, .version = STREAM_VERSION,
				.slot = s->index, .generation = s->generation };
	struct stream_hello h;

	CHECK(recv(fd, &h, sizeof(h), 0) == sizeof(h));
	stream_ask_tag(s->key, &h, &q, q.tag);
	if (knows)
		CHECK(send(fd, &q, sizeof(q), 0) == sizeof(q));
}

/* A request of several ranges, of which some may be there: as the input has it. */
static size_t several(struct bytes *in, char *out, size_t room)
{
	struct stream_req q = { .op = take(in) & 1u ? STREAM_PUT_PARTS : STREAM_GET_PARTS };
	struct stream_range row;
	size_t n = sizeof(q), i;

	q.value = take(in) % 16;
	q.len = q.value * sizeof(row) + take(in);
	for (i = 0; i < q.value && n + sizeof(row) <= room; i++, n += sizeof(row)) {
		row.offset = take(in) * (SERVED_LEN / 256 + 1u);
		row.len = take(in) & 3u ? take(in) % 64 : 0;
		if (!take(in))
			take_words(in, &row, sizeof(row));
		memcpy(out + n, &row, sizeof(row));
	}
	if (!(take(in) & 7u))
		take_words(in, &q.value, sizeof(q.value));
	memcpy(out, &q, sizeof(q));
	for (i = take(in); i && n < room; i--)
		out[n++] = (char)0xaa;
	return n;
}

/* A peer's bytes over a connection reach its part of the region, and nothing beside it. */
static void served(struct bytes *in)
{
	static struct kedge_region r = { .fd = -1 };
	struct conn c = { .gate_fd = -1 };
	char out[4096];
	struct slot *s;
	int fd[2], rc;
	size_t n;

	if (r.fd < 0) {
		list_init(&r.slots);
		list_init(&r.conns);
		r.max_len = r.open_len = 2 * SERVED_LEN;
		r.fd = memfd_create("fuzz", MFD_CLOEXEC);
		CHECK(r.fd >= 0 && !ftruncate(r.fd, 2 * SERVED_LEN));
	}
	/* Or each access looks at the mapping, which is none. */
	r.noticed = take(in) & 3u;
	s = slot_make(&r, &rc);
	CHECK(s && !rc && !socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd));
	s->access = take(in) & 7u;
	s->offset = 0;
	s->len = SERVED_LEN;
	s->expires = 0;
	c.fd = fd[0];
	rc = stream_begin(&c);
	shake(fd[1], s, take(in) & 7u);
	while (!rc && in->left) {
		if (take(in) & 1u)
			n = several(in, out, sizeof(out));
		else
			for (n = 0; n < sizeof(out) && in->left; n++)
				out[n] = (char)take(in);
		CHECK(send(fd[1], out, n, 0) == (ssize_t)n);
		rc = stream_go_on(&c);
		while (recv(fd[1], out, sizeof(out), 0) > 0)
			;
	}
	for (n = SERVED_LEN; r.view && n < 2 * SERVED_LEN; n++)
		CHECK(!r.view[n]);
	gate_take(&c);
	stream_end(&c);
	slot_free(s);
	close(fd[0]);
	close(fd[1]);
}

/* Messages of an owner that brings a region of SERVED_LEN bytes. */
static void brings(struct bytes *in)
{
	static char memory[3 * SERVED_LEN], rest[4096];
	static struct msg_handle handles[HANDLES_MAX];
	const unsigned char seal[SEAL_LEN] = { 1 };
	struct wire w;
	struct msg m;
	int fd[2], rc = 0;
	size_t n;
	char out;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd));
	for (n = 0; in->left && n < 65536; n++) {
		out = (char)take(in);
		if (send(fd[1], &out, 1, 0) != 1)
			break;
	}
	close(fd[1]);
	wire_begin(&w, fd[0], false, seal);
	while (!rc && !wire_hear(&w, &m, 0)) {
		if (m.op == MSG_DATA)
			rc = wire_read_runs(&w, &m, memory + SERVED_LEN, SERVED_LEN, 0);
		else if (m.op == MSG_HANDLES)
			rc = wire_read_handles(&w, &m, handles, 0);
		else
			rc = m.len > sizeof(rest) ? -EPROTO : wire_read(&w, rest, m.len, 0);
	}
	for (n = 0; n < SERVED_LEN; n++)
		CHECK(!memory[n] && !memory[2 * SERVED_LEN + n]);
	wire_end(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct bytes in = { data, len };

	switch (take(&in) % 5) {
	case 0:
		text(&in);
		break;
	case 1:
		slots(&in);
		break;
	case 2:
		answer(&in);
		break;
	case 3:
		served(&in);
		break;
	default:
		brings(&in);
	}
	return 0;
}
