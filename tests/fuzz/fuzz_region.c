// SPDX-License-Identifier: BSD-2-Clause
/*
 * Handles of regions as text and as bytes, and what an owner says of its region: no text is a
 * handle but that which is printed, no bytes open a slot but the handle's, and no answer maps
 * anything but a range that has the handle's first byte in it.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "feed.h"

#include "region/peer/state.h"
#include "region/share/share.h"

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
	static int file = -1; /* for all: the feed has a close() of its own */
	struct kedge_remote r = { .pid = getpid() };
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct bytes in = { data, len };

	switch (take(&in) % 3) {
	case 0:
		text(&in);
		break;
	case 1:
		slots(&in);
		break;
	default:
		answer(&in);
	}
	return 0;
}
