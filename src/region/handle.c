// SPDX-License-Identifier: BSD-2-Clause
/*
 * Handles as bytes and as text. The text is base64 of the kind that is whole in a URL, in a
 * shell and in a file name.
 */
#include <ctype.h>
#include <endian.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

#include "base/base.h"
#include "region/wire.h"

#define PREFIX	   "kedge1:"
#define PREFIX_LEN (sizeof(PREFIX) - 1)
#define VARIANT	   sodium_base64_VARIANT_URLSAFE_NO_PADDING
#define TEXT_LEN   (sodium_base64_ENCODED_LEN(sizeof(struct kedge_handle), VARIANT) - 1)
#define LETTERS	   "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
#define BOOT_ID	   "/proc/sys/kernel/random/boot_id"

_Static_assert(PREFIX_LEN + sodium_base64_ENCODED_LEN(sizeof(struct kedge_handle), VARIANT) <=
	       KEDGE_HANDLE_TEXT, "it is printed into that");

static const char magic[4] = { 'k', 'd', 'g', '1' };

/* Between hosts numbers are little-endian. */
static void swap(struct handle_words *w)
{
	w->slot = htole32(w->slot);
	w->generation = htole32(w->generation);
	w->port = htole16(w->port);
}

bool handle_read(const struct kedge_handle *h, struct handle_words *w)
{
	memcpy(w, h, sizeof(*w));
	swap(w);
	return !memcmp(w->magic, magic, sizeof(magic)) && !w->zero &&
	       (w->port != 0) == !sodium_is_zero(w->place, sizeof(w->place));
}

void handle_write(const struct handle_words *w, struct kedge_handle *h)
{
	struct handle_words out = *w;

	memcpy(out.magic, magic, sizeof(magic));
	swap(&out);
	memcpy(h, &out, sizeof(*h));
}

void handle_place(const struct handle_words *w, struct owner_place *p)
{
	*p = (struct owner_place){ .host = w->host, .name = w->name, .port = htole16(w->port) };
	memcpy(p->place, w->place, sizeof(p->place));
}

void place_write(const struct owner_place *p, struct kedge_place *out)
{
	memset(out, 0, sizeof(*out));
	memcpy(out->bytes, magic, sizeof(magic));
	memcpy(out->bytes + sizeof(out->bytes) - sizeof(*p), p, sizeof(*p));
}

bool place_read(const struct kedge_place *in, struct owner_place *p)
{
	memcpy(p, in->bytes + sizeof(in->bytes) - sizeof(*p), sizeof(*p));
	return !memcmp(in->bytes, magic, sizeof(magic));
}

static int no_host(int err)
{
	if (error_no_fd(err))
		return error_no_fd(err);
	if (err == ENOMEM)
		return kedge_reason(-ENOMEM, "no memory to read " BOOT_ID);
	return kedge_reason(-EOPNOTSUPP, BOOT_ID " cannot be read (%s): mount /proc",
			    strerrordesc_np(err));
}

/* The id of the machine since it was started is the same in each container. */
int handle_host(uint64_t *host)
{
	static _Atomic uint64_t known;
	unsigned char id[64];
	ssize_t n;
	int fd;

	*host = atomic_load_explicit(&known, memory_order_relaxed);
	if (*host)
		return 0;
	fd = open(BOOT_ID, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return no_host(errno);
	n = read(fd, id, sizeof(id));
	close(fd);
	if (n < 36)
		return kedge_reason(-EIO, BOOT_ID " has no id");
	crypto_shorthash((unsigned char *)host, id, 36,
			 (const unsigned char *)"kedge: the host.");
	atomic_store_explicit(&known, *host, memory_order_relaxed);
	return 0;
}

socklen_t handle_address(uint64_t name, bool stream, struct sockaddr_un *a)
{
	int n;

	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	n = snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "kedge-%s-%016llx",
		     stream ? "stream" : "region", (unsigned long long)name);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

KEDGE_API int kedge_handle_print(const struct kedge_handle *h, char *text, size_t len)
{
	if (!h || !text)
		return kedge_reason(-EINVAL, "an argument is NULL");
	if (len < KEDGE_HANDLE_TEXT)
		return kedge_reason(-ENOBUFS, "a handle takes %d bytes of text",
				    KEDGE_HANDLE_TEXT);
	memcpy(text, PREFIX, PREFIX_LEN);
	sodium_bin2base64(text + PREFIX_LEN, len - PREFIX_LEN, h->bytes, sizeof(h->bytes),
			  VARIANT);
	return 0;
}

KEDGE_API int kedge_handle_parse(const char *text, struct kedge_handle *out)
{
	struct kedge_handle h;
	struct handle_words w;
	const char *end;
	size_t len, n = 0;

	if (!text || !out)
		return kedge_reason(-EINVAL, "an argument is NULL");
	while (isspace((unsigned char)*text))
		text++;
	if (strncmp(text, PREFIX, PREFIX_LEN) != 0)
		return kedge_reason(-EINVAL, "it does not begin with \"" PREFIX "\"");
	text += PREFIX_LEN;
	/* libsodium takes some bytes beyond ASCII for letters. */
	len = strspn(text, LETTERS);
	if (len != TEXT_LEN || sodium_base642bin(h.bytes, sizeof(h.bytes), text, len, NULL, &n,
						 NULL, VARIANT) || n != sizeof(h.bytes))
		return kedge_reason(-EINVAL, "it was cut, or has letters that a handle has not");
	end = text + len;
	while (isspace((unsigned char)*end))
		end++;
	if (*end || !handle_read(&h, &w))
		return kedge_reason(-EINVAL, "it is no handle of this version");
	*out = h;
	return 0;
}
