// SPDX-License-Identifier: BSD-2-Clause
/* Names that a library binds: those of this program, and of tables that are made up. */
#include "cases.h"
#include "imports.h"

#define COUNT(x) (sizeof(x) / sizeof((x)[0]))

static const char strings[] = "\0called\0pointed_to\0defined";
static ElfW(Sym) symbols[] = { { 0 }, { .st_name = 1 }, { .st_name = 8 }, { .st_name = 19 } };
static ElfW(Rela) calls[1], data[2]; /* the second of @data has no symbol */

#if UINTPTR_MAX > UINT32_MAX
#define INFO(symbol) ELF64_R_INFO((uint64_t)(symbol), 1)
#else
#define INFO(symbol) ELF32_R_INFO(symbol, 1)
#endif

static int is_bound_here(struct dl_phdr_info *info, size_t size, void *name)
{
	return !*info->dlpi_name && imports(info, name);
}

static void a_program_binds_the_functions_that_it_calls(void **state)
{
	assert_true(dl_iterate_phdr(is_bound_here, (void *)"dl_iterate_phdr"));
	assert_false(dl_iterate_phdr(is_bound_here, (void *)"dl_iterate"));
	assert_false(dl_iterate_phdr(is_bound_here, (void *)"ucs_pgtable_lookup"));
}

/* A library of these tables, at @base, with addresses or offsets; without entry @lacks. */
static bool has(const char *name, uintptr_t base, bool offsets, ElfW(Sxword) lacks,
		ElfW(Sxword) kind)
{
	const uintptr_t less = offsets ? base : 0;
	ElfW(Dyn) dyn[] = {
		{ DT_SYMTAB, { .d_ptr = (uintptr_t)symbols - less } },
		{ DT_STRTAB, { .d_ptr = (uintptr_t)strings - less } },
		{ DT_RELA, { .d_ptr = (uintptr_t)data - less } },
		{ DT_RELASZ, { .d_val = sizeof(data) } },
		{ DT_JMPREL, { .d_ptr = (uintptr_t)calls - less } },
		{ DT_PLTRELSZ, { .d_val = sizeof(calls) } },
		{ DT_PLTREL, { .d_val = (ElfW(Xword))kind } },
		{ DT_NULL, { 0 } },
	};
	ElfW(Phdr) phdr = { .p_type = PT_DYNAMIC, .p_vaddr = (uintptr_t)dyn - base };
	struct dl_phdr_info info = { .dlpi_addr = base, .dlpi_phdr = &phdr, .dlpi_phnum = 1 };
	size_t i;

	calls[0].r_info = INFO(1);
	data[0].r_info = INFO(2);
	for (i = 0; i < COUNT(dyn); i++)
		if (lacks && dyn[i].d_tag == lacks)
			dyn[i].d_tag = DT_DEBUG;
	return imports(&info, name);
}

static void each_kind_of_table_is_looked_through(void **state)
{
	const uintptr_t bases[] = { 0, 0x1000 };
	size_t i;

	for (i = 0; i < COUNT(bases); i++) {
		assert_true(has("called", bases[i], false, 0, DT_RELA));
		assert_true(has("pointed_to", bases[i], false, 0, DT_RELA));
		assert_false(has("defined", bases[i], false, 0, DT_RELA));
		assert_true(has("pointed_to", bases[i], false, DT_JMPREL, DT_RELA));
		assert_true(has("called", bases[i], false, DT_RELA, DT_RELA));
	}
}

/* As C libraries leave them that relocate no such entry. */
static void offsets_are_addresses_from_the_base_on(void **state)
{
	/* Above the offsets, and not above the tables. */
	const uintptr_t base = (uintptr_t)symbols / 4 * 3;

	assert_true(has("called", base, true, 0, DT_RELA));
	assert_true(has("pointed_to", base, true, 0, DT_RELA));
	assert_false(has("defined", base, true, 0, DT_RELA));
}

static void a_library_without_tables_binds_none(void **state)
{
	const ElfW(Phdr) load = { .p_type = PT_LOAD };
	const struct dl_phdr_info bare = { .dlpi_phdr = &load, .dlpi_phnum = 1 };

	assert_false(imports(&bare, "called"));
	assert_false(has("called", 0, false, DT_SYMTAB, DT_RELA));
	assert_false(has("called", 0, false, DT_STRTAB, DT_RELA));
	assert_false(has("called", 0, false, DT_JMPREL, DT_RELA));
	assert_false(has("pointed_to", 0, false, DT_RELA, DT_RELA));
	assert_false(has("called", 0, false, 0, DT_REL));
}

#define LISTED PLAIN
#include "test_ucx_imports.cases.h"
