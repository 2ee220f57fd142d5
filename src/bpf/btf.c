// SPDX-License-Identifier: BSD-2-Clause
/*
 * Reading BTF. One pass finds where each type begins and refuses what does not
 * fit; what follows relies on that: every type from 1 to cnt - 1 lies within
 * the section with all that belongs to it.
 */
#include <fcntl.h>
#include <linux/btf.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "bpf/btf.h"

#define LEN_MAX	    ((size_t)1 << 30)
#define NESTING_MAX 8

/* For headers that are older than the kernel. */
#define KIND_FLOAT    16
#define KIND_DECL_TAG 17
#define KIND_TYPE_TAG 18
#define KIND_ENUM64   19

static uint32_t kind_of(const struct btf_type *t)
{
	return (t->info >> 24) & 0x1f;
}

static uint32_t vlen_of(const struct btf_type *t)
{
	return t->info & 0xffff;
}

/* Bytes that follow struct btf_type, or SIZE_MAX for a kind not known. */
static size_t tail_len(const struct btf_type *t)
{
	switch (kind_of(t)) {
	case BTF_KIND_INT:
	case BTF_KIND_VAR:
	case KIND_DECL_TAG:
		return sizeof(uint32_t);
	case BTF_KIND_ARRAY:
		return sizeof(struct btf_array);
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		return vlen_of(t) * sizeof(struct btf_member);
	case BTF_KIND_ENUM:
		return vlen_of(t) * sizeof(struct btf_enum);
	case BTF_KIND_FUNC_PROTO:
		return vlen_of(t) * sizeof(struct btf_param);
	case BTF_KIND_DATASEC:
		return vlen_of(t) * sizeof(struct btf_var_secinfo);
	case KIND_ENUM64:
		return vlen_of(t) * 3 * sizeof(uint32_t);
	case BTF_KIND_PTR:
	case BTF_KIND_FWD:
	case BTF_KIND_TYPEDEF:
	case BTF_KIND_VOLATILE:
	case BTF_KIND_CONST:
	case BTF_KIND_RESTRICT:
	case BTF_KIND_FUNC:
	case KIND_FLOAT:
	case KIND_TYPE_TAG:
		return 0;
	default:
		return SIZE_MAX;
	}
}

static const struct btf_type *type_at(const struct btf *b, uint32_t id)
{
	return id && id < b->cnt
		       ? (const struct btf_type *)(const void *)(b->types +
								 b->at[id])
		       : NULL;
}

static const char *name_at(const struct btf *b, uint32_t off)
{
	return off < b->strs_len ? b->strs + off : "";
}

/* The type of a type, past const, volatile, typedef and tags. */
static uint32_t bare(const struct btf *b, uint32_t id)
{
	const struct btf_type *t;
	int depth;

	for (depth = 0; depth < NESTING_MAX; depth++) {
		t = type_at(b, id);
		if (!t)
			return 0;
		switch (kind_of(t)) {
		case BTF_KIND_TYPEDEF:
		case BTF_KIND_VOLATILE:
		case BTF_KIND_CONST:
		case BTF_KIND_RESTRICT:
		case KIND_TYPE_TAG:
			id = t->type;
			break;
		default:
			return id;
		}
	}
	return 0;
}

static bool is_record(const struct btf_type *t)
{
	return kind_of(t) == BTF_KIND_STRUCT || kind_of(t) == BTF_KIND_UNION;
}

/* Find the sections. */
static bool find_sections(struct btf *b)
{
	const struct btf_header *h = (const void *)b->data;
	uint64_t types, strs;

	if (b->len < sizeof(*h) || h->magic != BTF_MAGIC ||
	    h->version != BTF_VERSION || h->hdr_len < sizeof(*h))
		return false;
	types = (uint64_t)h->hdr_len + h->type_off;
	strs = (uint64_t)h->hdr_len + h->str_off;
	if (types % sizeof(uint32_t) || types + h->type_len > b->len ||
	    strs + h->str_len > b->len || !h->str_len)
		return false;
	b->types = b->data + types;
	b->types_len = h->type_len;
	b->strs = (const char *)b->data + strs;
	b->strs_len = h->str_len;
	return !b->strs[b->strs_len - 1];
}

static bool index_types(struct btf *b)
{
	size_t off = 0, tail;

	for (b->cnt = 1; off < b->types_len; b->cnt++) {
		const struct btf_type *t = (const void *)(b->types + off);

		if (b->types_len - off < sizeof(*t))
			return false;
		tail = tail_len(t);
		if (tail > b->types_len - off - sizeof(*t))
			return false;
		b->at[b->cnt] = (uint32_t)off;
		off += sizeof(*t) + tail;
	}
	return true;
}

int btf_init(struct btf *b, const void *data, size_t len)
{
	const char *odd = "the kernel's description of its types (BTF) is in a "
			  "format unknown here";

	*b = (struct btf){ .data = data, .len = len };
	if (!find_sections(b))
		return kedge_reason(-EOPNOTSUPP, "%s", odd);
	/* Mapped, not allocated: it is large and soon gone. */
	b->at_len =
		(b->types_len / sizeof(struct btf_type) + 2) * sizeof(*b->at);
	b->at = mmap(NULL, b->at_len, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b->at == MAP_FAILED)
		return -ENOMEM;
	if (index_types(b))
		return 0;
	btf_fini(b);
	return kedge_reason(-EOPNOTSUPP, "%s", odd);
}

void btf_fini(struct btf *b)
{
	munmap(b->at, b->at_len);
}

/* All of it, since few kernels let that file be mapped. */
static int read_all(int fd, uint8_t *to, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = read(fd, to + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		done += (size_t)n;
	}
	return 0;
}

int btf_open(struct btf *b, const char *path)
{
	int rc, fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *data;

	if (fd < 0)
		return kedge_reason(-errno,
				    "%s can't be read: the kernel is "
				    "built without BTF, or /sys is not there",
				    path);
	rc = -EIO;
	if (fstat(fd, &st) || st.st_size <= 0 || (uint64_t)st.st_size > LEN_MAX)
		goto close_fd;
	data = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	rc = -ENOMEM;
	if (data == MAP_FAILED)
		goto close_fd;
	rc = read_all(fd, data, (size_t)st.st_size);
	if (!rc)
		rc = btf_init(b, data, (size_t)st.st_size);
	if (rc)
		munmap(data, (size_t)st.st_size);
close_fd:
	close(fd);
	return rc;
}

void btf_close(struct btf *b)
{
	btf_fini(b);
	munmap((void *)(uintptr_t)b->data, b->len);
}

uint32_t btf_find(const struct btf *b, uint32_t kind, const char *name)
{
	uint32_t id;

	for (id = 1; id < b->cnt; id++) {
		const struct btf_type *t = type_at(b, id);

		if (kind_of(t) == kind &&
		    !strcmp(name_at(b, t->name_off), name))
			return id;
	}
	return 0;
}

static const struct btf_type *proto_of(const struct btf *b, uint32_t func)
{
	const struct btf_type *t = type_at(b, func);

	if (!t || kind_of(t) != BTF_KIND_FUNC)
		return NULL;
	t = type_at(b, t->type);
	return t && kind_of(t) == BTF_KIND_FUNC_PROTO ? t : NULL;
}

int btf_argument(const struct btf *b, uint32_t func, const char *name)
{
	const struct btf_type *t = proto_of(b, func);
	const struct btf_param *p = t ? (const void *)(t + 1) : NULL;
	uint32_t i;

	for (i = 0; t && i < vlen_of(t); i++)
		if (!strcmp(name_at(b, p[i].name_off), name))
			return (int)i;
	return -1;
}

uint32_t btf_argument_struct(const struct btf *b, uint32_t func, int arg)
{
	const struct btf_type *t = proto_of(b, func);
	const struct btf_param *p = t ? (const void *)(t + 1) : NULL;

	if (!t || arg < 0 || (uint32_t)arg >= vlen_of(t))
		return 0;
	t = type_at(b, bare(b, p[arg].type));
	if (!t || kind_of(t) != BTF_KIND_PTR)
		return 0;
	arg = (int)bare(b, t->type);
	t = type_at(b, (uint32_t)arg);
	return t && kind_of(t) == BTF_KIND_STRUCT ? (uint32_t)arg : 0;
}

/*
 * Members without a name are looked into, as C does. No struct is met twice on
 * that way, so @left members are all that there can be to look at: without it,
 * types that hold each other many times over would take for ever.
 */
static int member_within(const struct btf *b, uint32_t id, const char *name,
			 int depth, size_t *left)
{
	const struct btf_type *t = type_at(b, bare(b, id));
	const struct btf_member *m;
	uint32_t i, bits;
	int inner;

	if (!t || !is_record(t) || !depth)
		return -1;
	m = (const void *)(t + 1);
	for (i = 0; i < vlen_of(t) && *left; i++) {
		--*left;
		/* A struct with bit-fields keeps their width above bit 24. */
		bits = t->info >> 31 ? m[i].offset & 0xffffff : m[i].offset;
		if (!strcmp(name_at(b, m[i].name_off), name))
			return bits % 8 ? -1 : (int)(bits / 8);
		if (*name_at(b, m[i].name_off))
			continue;
		inner = member_within(b, m[i].type, name, depth - 1, left);
		if (inner >= 0)
			return __builtin_add_overflow((int)(bits / 8), inner,
						      &inner) ? -1 : inner;
	}
	return -1;
}

int btf_member(const struct btf *b, uint32_t id, const char *name)
{
	size_t left = b->types_len / sizeof(struct btf_member);

	return member_within(b, id, name, NESTING_MAX, &left);
}
