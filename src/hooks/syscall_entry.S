/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * syscall(): a compare for each number that matters, then a jump. It does not touch
 * the stack (see syscall.c). Its arguments are as raw_syscall.S has them.
 */
#include <asm/unistd.h>

	.macro	announce_all
	announce __NR_munmap
	announce __NR_mmap
	announce __NR_mremap
	announce __NR_madvise
	announce __NR_brk
	announce __NR_shmat
	announce __NR_shmdt
	announce __NR_remap_file_pages
#ifdef __NR_process_madvise
	announce __NR_process_madvise
#endif
	.endm

#if defined(__x86_64__) && defined(__LP64__)
#ifdef __CET__
#include <cet.h>
#else
#define _CET_ENDBR
#endif

	.macro	announce nr
	cmpq	$\nr, %rdi
	je	kedge__syscall_announced
	.endm

	.hidden	kedge__syscall_announced
	.hidden	kedge__real_syscall

	.text
	.globl	syscall
	.type	syscall, @function
	.p2align 4
syscall:
	.cfi_startproc
	_CET_ENDBR
	announce_all
	movq	kedge__real_syscall(%rip), %rax
	jmp	*%rax
	.cfi_endproc
	.size	syscall, . - syscall

#elif defined(__aarch64__) && defined(__LP64__)

	.macro	announce nr
	cmp	x0, #\nr
	b.ne	1f
	b	kedge__syscall_announced
1:
	.endm

	.hidden	kedge__syscall_announced
	.hidden	kedge__real_syscall

	.text
	.globl	syscall
	.type	syscall, %function
	.p2align 4
syscall:
	.cfi_startproc
	hint	#34		/* bti c */
	announce_all
	adrp	x16, kedge__real_syscall
	ldr	x16, [x16, #:lo12:kedge__real_syscall]
	br	x16
	.cfi_endproc
	.size	syscall, . - syscall

#endif

	.section .note.GNU-stack, "", %progbits
