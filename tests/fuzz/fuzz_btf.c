// SPDX-License-Identifier: BSD-2-Clause
/*
 * The reader of the kernel's type description: hostile BTF is refused or
 * answered from within its bounds, in bounded time. Memory of known length
 * stands in for mappings, so that a byte too far is seen.
 */
#include <linux/btf.h>

#include "bpf/btf.h"
#include "calls.h"
#include "feed.h"

#define TRIES_MAX 64

static int64_t file_len; /* as the file system says */
static int mapped;

void *fuzz_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
	void *p = len ? calloc(1, len) : NULL;

	CHECK(!at && fd == -1 && !offset);
	mapped += !!p;
	return p ? p : MAP_FAILED;
}

int fuzz_munmap(void *addr, size_t len)
{
	mapped--;
	free(addr);
	return 0;
}

int fuzz_fstat(int fd, struct stat *st)
{
	st->st_size = file_len;
	return 0;
}

static uint32_t kind_of(const struct btf *b, uint32_t id)
{
	const struct btf_type *t = (const void *)(b->types + b->at[id]);

	return (t->info >> 24) & 0x1f;
}

static void ask_name(const struct btf *b, const char *name)
{
	uint32_t kind, id;

	for (kind = 0; kind < 32; kind++) {
		id = btf_find(b, kind, name);
		CHECK(id < b->cnt);
		CHECK(!id || kind_of(b, id) == kind);
	}
}

static void ask_type(const struct btf *b, uint32_t id, const char *name)
{
	int arg = btf_argument(b, id, name);
	uint32_t s;

	CHECK(arg >= -1 && arg <= UINT16_MAX);
	s = btf_argument_struct(b, id, arg);
	CHECK(s < b->cnt);
	CHECK(!s || kind_of(b, s) == BTF_KIND_STRUCT);
	CHECK(!btf_argument_struct(b, id, UINT16_MAX));
	CHECK(btf_member(b, id, name) >= -1);
}

static void ask(const struct btf *b)
{
	static const char *const names[] = { "vma", "deep", "other", "" };
	uint32_t i, id;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		ask_name(b, names[i]);
		for (id = 0; id <= b->cnt && id < TRIES_MAX; id++)
			ask_type(b, id, names[i]);
		ask_type(b, UINT32_MAX, names[i]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct bytes in = { data, len };
	struct btf b;
	int rc;

	if (len < 4)
		return 0;
	feed_set(data + 4, len - 4, (size_t)take_number(&in, 2), take(&in) & 1);
	/* Files of the kernel may be shorter or longer than they say. */
	file_len = (int64_t)(len - 4) + (int8_t)take(&in);
	rc = btf_open(&b, "/sys/kernel/btf/vmlinux");
	CHECK(feed_is_closed());
	CHECK(rc == 0 || rc == -EOPNOTSUPP || rc == -EIO || rc == -ENOMEM);
	if (rc) {
		CHECK(!mapped);
		return 0;
	}
	ask(&b);
	btf_close(&b);
	CHECK(!mapped);
	return 0;
}
