// SPDX-License-Identifier: BSD-2-Clause
/*
 * What a runtime with system calls of its own is known by, and nothing else of it:
 * the symbol FAKE, or, without that, the note that Go's linker writes.
 */
#ifdef FAKE
void FAKE(void);

__attribute__((visibility("default"))) void FAKE(void)
{
}
#else
/* Behind another note, as it is where the compiler writes one, too. */
__asm__(".pushsection .note.go.buildid, \"a\", %note\n"
	".balign 4\n"
	".long 6, 5, 1\n"
	".asciz \"other\"\n"
	".balign 4\n"
	".ascii \"12345\"\n"
	".balign 4\n"
	".long 4, 3, 4\n"
	".ascii \"Go\\0\\0\"\n"
	".ascii \"id\\0\"\n"
	".balign 4\n"
	".popsection\n");
#endif
