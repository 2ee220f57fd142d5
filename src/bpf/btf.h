/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The little of BTF, the kernel's description of its own types, that it takes
 * to attach a program to a function of the kernel: ids by name, the place of an
 * argument, the offset of a member. Every reference is checked against the
 * bounds of what was read; a description that is not understood is refused.
 */
#ifndef BPF_BTF_H
#define BPF_BTF_H

#include <stddef.h>
#include <stdint.h>

struct btf {
	const uint8_t *data; /* as read */
	size_t len;
	const uint8_t *types;
	size_t types_len;
	const char *strs; /* ends in a zero byte */
	size_t strs_len;
	uint32_t *at; /* type id -> offset in types; at[0] is not used */
	size_t at_len;
	uint32_t cnt; /* ids are [1, cnt) */
};

/* The running kernel's. 0 or a negative errno with its reason. */
int btf_open(struct btf *b, const char *path);
void btf_close(struct btf *b);

/* The same for bytes at hand, which stay the caller's: end with btf_fini(). */
int btf_init(struct btf *b, const void *data, size_t len);
void btf_fini(struct btf *b);

/* A type's id by its name and BTF_KIND_*, or 0. */
uint32_t btf_find(const struct btf *b, uint32_t kind, const char *name);

/* The argument of a function that is called @name, or -1. */
int btf_argument(const struct btf *b, uint32_t func, const char *name);

/* The byte offset of member @name of a struct, or -1. */
int btf_member(const struct btf *b, uint32_t id, const char *name);

/* The struct that argument @arg of a function points to, or 0. */
uint32_t btf_argument_struct(const struct btf *b, uint32_t func, int arg);

#endif /* BPF_BTF_H */
