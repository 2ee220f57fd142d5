// SPDX-License-Identifier: BSD-2-Clause
/*
 * Odd requests. Any answer of the stack is right, if it is the same with kedge:
 * it is written down.
 */

#include "verbs_program.h"

static FILE *notes;

bool notes_open(const char *path)
{
	notes = fopen(path, "w");
	if (!notes)
		perror(path);
	return notes;
}

bool notes_close(void)
{
	return !fclose(notes);
}

void note(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(notes, fmt, ap);
	va_end(ap);
}

static void try_reg(const char *what, void *addr, size_t len, unsigned int acc)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = ibv_reg_mr_iova2(e.pd, addr, len, at(addr), acc);
	note("%s, access %#x: %d\n", what, acc, mr ? 0 : errno);
	if (!mr)
		return;
	assert_ptr_equal(mr->addr, addr);
	assert_int_equal(mr->length, len);
	dereg(mr);
}

void rights_are_given_and_refused_as_ever(void **state)
{
	const unsigned int relaxed = IBV_ACCESS_RELAXED_ORDERING;
	unsigned char *p = map(AREA);
	unsigned int acc;

	/* The last bits: windows, zero-based, on demand, huge pages. */
	for (acc = 0; acc < 1 << 10; acc++)
		try_reg("a page", p, PAGE, acc);
	for (acc = 0; acc < 1 << 8; acc++)
		try_reg("a page", p, PAGE, acc | relaxed);
	for (acc = 11; acc < 32; acc++)
		try_reg("a page", p, PAGE, 1u << acc);
	errno = 0;
	assert_null(ibv_reg_mr(e.pd, p, PAGE, RW));
	assert_int_equal(errno, EINVAL);
	munmap(p, AREA);
}

void bad_memory_is_refused_as_ever(void **state)
{
	static const unsigned int access[] = { 0, LW, RR, LW | RW | RR };
	unsigned char *p = map(AREA), *ro = map(PAGE), *none = map(PAGE);
	size_t i;

	munmap(p + 3 * PAGE, PAGE);
	memset(ro, 'r', PAGE);
	mprotect(ro, PAGE, PROT_READ);
	mprotect(none, PAGE, PROT_NONE);
	for (i = 0; i < sizeof(access) / sizeof(access[0]); i++) {
		try_reg("a hole", p, AREA, access[i]);
		try_reg("before a hole", p + 1, 3 * PAGE - 1, access[i]);
		try_reg("nothing", p, 0, access[i]);
		try_reg("address 0", NULL, PAGE, access[i]);
		try_reg("read only", ro, PAGE, access[i]);
		try_reg("no access", none, PAGE, access[i]);
		try_reg("all there is", p, SIZE_MAX, access[i]);
		try_reg("half of it", NULL, SIZE_MAX / 2, access[i]);
	}
	munmap(p, 3 * PAGE);
	munmap(p + 4 * PAGE, AREA - 4 * PAGE);
	munmap(ro, PAGE);
	munmap(none, PAGE);
}
