// SPDX-License-Identifier: BSD-2-Clause
/* A library's relocations name the symbols that it binds, at its loading or at the first call. */
#include <stdint.h>
#include <string.h>

#include "imports.h"

#if UINTPTR_MAX > UINT32_MAX
#define SYMBOL(info) ELF64_R_SYM(info)
#else
#define SYMBOL(info) ELF32_R_SYM(info)
#endif

struct tables {
	const ElfW(Sym) *symbols;
	const char *strings;
	const ElfW(Rela) *data, *calls;
	size_t data_bytes, calls_bytes;
};

/* glibc has made these addresses of offsets, other C libraries leave them. */
static const void *at(const struct dl_phdr_info *library, ElfW(Addr) p)
{
	return (const void *)(p < library->dlpi_addr ? p + library->dlpi_addr : p);
}

/* False: it has no such tables, or of the other kind (DT_REL, on 32-bit machines). */
static bool read_tables(const struct dl_phdr_info *library, const ElfW(Dyn) *d, struct tables *t)
{
	bool rela = true;

	for (; d->d_tag != DT_NULL; d++) {
		switch (d->d_tag) {
		case DT_SYMTAB:
			t->symbols = at(library, d->d_un.d_ptr);
			break;
		case DT_STRTAB:
			t->strings = at(library, d->d_un.d_ptr);
			break;
		case DT_RELA:
			t->data = at(library, d->d_un.d_ptr);
			break;
		case DT_RELASZ:
			t->data_bytes = d->d_un.d_val;
			break;
		case DT_JMPREL:
			t->calls = at(library, d->d_un.d_ptr);
			break;
		case DT_PLTRELSZ:
			t->calls_bytes = d->d_un.d_val;
			break;
		case DT_PLTREL:
			rela = d->d_un.d_val == DT_RELA;
			break;
		}
	}
	return rela && t->symbols && t->strings;
}

static bool is_in(const struct tables *t, const ElfW(Rela) *r, size_t bytes, const char *name)
{
	const ElfW(Rela) *end = r ? r + bytes / sizeof(*r) : NULL;
	const ElfW(Sym) *s;

	for (; r < end; r++) {
		s = &t->symbols[SYMBOL(r->r_info)];
		if (!strcmp(t->strings + s->st_name, name))
			return true;
	}
	return false;
}

bool imports(const struct dl_phdr_info *library, const char *name)
{
	struct tables t = { 0 };
	ElfW(Half) i;

	for (i = 0; i < library->dlpi_phnum; i++)
		if (library->dlpi_phdr[i].p_type == PT_DYNAMIC)
			break;
	if (i == library->dlpi_phnum ||
	    !read_tables(library,
			 (const ElfW(Dyn) *)(library->dlpi_addr + library->dlpi_phdr[i].p_vaddr),
			 &t))
		return false;
	return is_in(&t, t.calls, t.calls_bytes, name) || is_in(&t, t.data, t.data_bytes, name);
}
