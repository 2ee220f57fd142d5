// SPDX-License-Identifier: BSD-2-Clause
/*
 * The reader of the kernel's types: a small description of our own, and that
 * one with every byte damaged and every tail cut off.
 */
#include <linux/btf.h>

#include "bpf/btf.h"
#include "cases.h"

#define INFO(kind, vlen) ((uint32_t)(kind) << 24 | (vlen))

/*
 * struct inner { int deep; };
 * struct outer { int first; struct inner; long *last; };
 * int work(int plain, const struct outer *o);
 */
enum { INT = 1, INNER, OUTER, CONST, PTR, PROTO, WORK };

static const char strs[] = "\0int\0inner\0deep\0outer\0first\0last\0plain\0o\0"
			   "work";

#define S_INT	1
#define S_INNER 5
#define S_DEEP	11
#define S_OUTER 16
#define S_FIRST 22
#define S_LAST	28
#define S_PLAIN 33
#define S_O	39
#define S_WORK	41

static const uint32_t types[] = {
	S_INT,
	INFO(BTF_KIND_INT, 0),
	4,
	0x01000020,
	S_INNER,
	INFO(BTF_KIND_STRUCT, 1),
	4,
	S_DEEP,
	INT,
	0,
	S_OUTER,
	INFO(BTF_KIND_STRUCT, 3),
	16,
	S_FIRST,
	INT,
	0,
	0,
	INNER,
	32,
	S_LAST,
	PTR,
	64,
	0,
	INFO(BTF_KIND_CONST, 0),
	OUTER,
	0,
	INFO(BTF_KIND_PTR, 0),
	CONST,
	0,
	INFO(BTF_KIND_FUNC_PROTO, 2),
	INT,
	S_PLAIN,
	INT,
	S_O,
	PTR,
	S_WORK,
	INFO(BTF_KIND_FUNC, 0),
	PROTO,
};

static struct {
	struct btf_header head;
	uint32_t types[sizeof(types) / sizeof(types[0])];
	char strs[sizeof(strs)];
} blob;

static void make_blob(void)
{
	memset(&blob, 0, sizeof(blob));
	blob.head.magic = BTF_MAGIC;
	blob.head.version = BTF_VERSION;
	blob.head.hdr_len = sizeof(blob.head);
	blob.head.type_len = sizeof(types);
	blob.head.str_off = sizeof(types);
	blob.head.str_len = sizeof(strs);
	memcpy(blob.types, types, sizeof(types));
	memcpy(blob.strs, strs, sizeof(strs));
}

static void finds_what_is_there(void **state)
{
	struct btf b;

	make_blob();
	assert_int_equal(btf_init(&b, &blob, sizeof(blob)), 0);
	assert_int_equal(b.cnt, WORK + 1);
	assert_int_equal(btf_find(&b, BTF_KIND_FUNC, "work"), WORK);
	assert_int_equal(btf_find(&b, BTF_KIND_STRUCT, "outer"), OUTER);
	assert_int_equal(btf_find(&b, BTF_KIND_STRUCT, "work"), 0);
	assert_int_equal(btf_argument(&b, WORK, "plain"), 0);
	assert_int_equal(btf_argument(&b, WORK, "o"), 1);
	assert_int_equal(btf_argument(&b, WORK, "p"), -1);
	assert_int_equal(btf_argument(&b, OUTER, "o"), -1);
	assert_int_equal(btf_argument_struct(&b, WORK, 0), 0);
	assert_int_equal(btf_argument_struct(&b, WORK, 1), OUTER);
	assert_int_equal(btf_argument_struct(&b, WORK, 2), 0);
	assert_int_equal(btf_member(&b, OUTER, "first"), 0);
	assert_int_equal(btf_member(&b, OUTER, "deep"), 4);
	assert_int_equal(btf_member(&b, OUTER, "last"), 8);
	assert_int_equal(btf_member(&b, OUTER, "none"), -1);
	assert_int_equal(btf_member(&b, 1000, "first"), -1);
	btf_fini(&b);
}

/* Asks for any answer: it must not read outside @data. */
static void ask(const void *data, size_t len)
{
	struct btf b;
	uint32_t id;

	if (btf_init(&b, data, len))
		return;
	btf_find(&b, BTF_KIND_FUNC, "nothing");
	for (id = 0; id <= b.cnt; id++) {
		btf_argument(&b, id, "o");
		btf_argument_struct(&b, id, 1);
		btf_member(&b, id, "deep");
	}
	btf_fini(&b);
}

static void any_byte_that_is_wrong_does_no_harm(void **state)
{
	static const uint8_t bad[] = { 0x00, 0x01, 0x7f, 0x80, 0xff };
	size_t i, j;

	for (i = 0; i < sizeof(blob); i++) {
		for (j = 0; j < sizeof(bad); j++) {
			uint8_t *copy = malloc(sizeof(blob));

			assert_non_null(copy);
			make_blob();
			memcpy(copy, &blob, sizeof(blob));
			copy[i] = bad[j];
			ask(copy, sizeof(blob));
			free(copy);
		}
	}
}

static void a_type_description_cut_anywhere_does_no_harm(void **state)
{
	size_t len;

	for (len = 0; len < offsetof(typeof(blob), strs) + sizeof(strs);
	     len++) {
		uint8_t *copy = malloc(len ? len : 1);
		struct btf b;

		assert_non_null(copy);
		make_blob();
		memcpy(copy, &blob, len);
		assert_true(btf_init(&b, copy, len) < 0);
		free(copy);
	}
}

static void reads_the_kernels(void **state)
{
	struct btf b;
	uint32_t task;

	if (access("/sys/kernel/btf/vmlinux", R_OK))
		skip();
	assert_int_equal(btf_open(&b, "/sys/kernel/btf/vmlinux"), 0);
	task = btf_find(&b, BTF_KIND_STRUCT, "task_struct");
	assert_true(task);
	assert_true(btf_member(&b, task, "mm") > 0);
	btf_close(&b);
	assert_true(btf_open(&b, "/dev/null") < 0);
	assert_true(btf_open(&b, "/nothing/there") < 0);
	assert_true(btf_open(&b, "/proc/self/exe") < 0);
}

#define LISTED PLAIN
#include "test_btf.cases.h"
