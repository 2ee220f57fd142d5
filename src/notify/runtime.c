// SPDX-License-Identifier: BSD-2-Clause
/*
 * Whether a runtime is in this process that gives memory back by system calls of
 * its own, which libkedge-hooks does not see:
 *
 *  - Go's. Its linker puts a note with a build ID into each executable, plug-in
 *    and C shared library, which strip(1) leaves there, and a C program that an
 *    archive of Go's is linked into gets it, too. It is found in objects that
 *    were opened with RTLD_LOCAL as well. Who has it left out (-buildid=) is
 *    known by crosscall2, which cgo exports.
 *  - the allocators of AddressSanitizer and its kin. They are there from the
 *    start or not at all, so a weak reference finds them.
 *
 * dlsym() would take the dynamic linker's lock, which a thread holds that runs
 * constructors and may be waiting for this one, and leave its message where the
 * program looks for that of a call of its own (dlerror(3)). dl_iterate_phdr()
 * takes a lock that is held while the list of objects is changed, no longer.
 *
 * A runtime that is loaded later is not found. The first unannounced change of
 * watched memory shows it: see notify_must_ask().
 */
#include <link.h>
#include <string.h>

#include "notify/announce.h"
#include "notify/internal.h"

#define GO_BUILD_ID 4 /* the note's type; its name is "Go", with two zeros */

#define WEAK __attribute__((weak, visibility("default")))

extern void crosscall2(void) WEAK;
extern void __asan_init(void) WEAK;
extern void __hwasan_init(void) WEAK;
extern void __msan_init(void) WEAK;
extern void __tsan_init(void) WEAK;

static size_t note_pad(size_t len, size_t align)
{
	return (len + align - 1) & ~(align - 1);
}

/* Whether one of the notes in [p, p + len) is Go's. */
static bool has_go_note(const char *p, size_t len, size_t align)
{
	ElfW(Nhdr) note;
	size_t name, desc;

	while (len >= sizeof(note)) {
		memcpy(&note, p, sizeof(note));
		name = sizeof(note) + note.n_namesz;
		desc = note_pad(name, align) + note.n_descsz;
		if (name > len || desc > len)
			return false;
		if (note.n_type == GO_BUILD_ID && note.n_namesz == 4 &&
		    !memcmp(p + sizeof(note), "Go\0", 4))
			return true;
		desc = note_pad(desc, align);
		if (desc >= len)
			return false;
		p += desc;
		len -= desc;
	}
	return false;
}

/* Notes need not be loaded. */
static bool is_loaded(const struct dl_phdr_info *info, const ElfW(Phdr) *seg)
{
	const ElfW(Phdr) *p = info->dlpi_phdr, *end = p + info->dlpi_phnum;

	for (; p < end; p++)
		if (p->p_type == PT_LOAD && p->p_flags & PF_R &&
		    seg->p_vaddr >= p->p_vaddr &&
		    seg->p_memsz <= p->p_filesz &&
		    seg->p_vaddr - p->p_vaddr <= p->p_filesz - seg->p_memsz)
			return true;
	return false;
}

static int look_for_go(struct dl_phdr_info *info, size_t size, void *unused)
{
	const ElfW(Phdr) *p = info->dlpi_phdr, *end = p + info->dlpi_phnum;

	for (; p < end; p++)
		if (p->p_type == PT_NOTE && is_loaded(info, p) &&
		    has_go_note((const char *)(info->dlpi_addr + p->p_vaddr),
				p->p_memsz, p->p_align == 8 ? 8 : 4))
			return 1;
	return 0;
}

bool announce_own_calls(void)
{
	if (crosscall2 || __asan_init || __hwasan_init || __msan_init ||
	    __tsan_init)
		return true;
	return dl_iterate_phdr(look_for_go, NULL);
}
