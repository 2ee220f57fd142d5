/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A system call of our own, for the time before libc's is known. It does not touch
 * the stack.
 *
 * x86-64: a number in rdi, arguments in rsi, rdx, rcx, r8, r9 and above the
 * return address; the kernel takes rax and rdi, rsi, rdx, r10, r8, r9.
 * aarch64: x0 and x1 to x6; the kernel takes x8 and x0 to x5.
 */
#if defined(__x86_64__) && defined(__LP64__)
#ifdef __CET__
#include <cet.h>
#else
#define _CET_ENDBR
#endif

	.hidden	kedge__syscall_errno
	.hidden	kedge__raw_syscall

	.text
	.globl	kedge__raw_syscall
	.type	kedge__raw_syscall, @function
	.p2align 4
kedge__raw_syscall:
	.cfi_startproc
	_CET_ENDBR
	movq	%rdi, %rax
	movq	%rsi, %rdi
	movq	%rdx, %rsi
	movq	%rcx, %rdx
	movq	%r8, %r10
	movq	%r9, %r8
	movq	8(%rsp), %r9
	syscall
	cmpq	$-4095, %rax
	jae	1f
	ret
1:	movq	%rax, %rdi
	jmp	kedge__syscall_errno
	.cfi_endproc
	.size	kedge__raw_syscall, . - kedge__raw_syscall

#elif defined(__aarch64__) && defined(__LP64__)

	.hidden	kedge__syscall_errno
	.hidden	kedge__raw_syscall

	.text
	.globl	kedge__raw_syscall
	.type	kedge__raw_syscall, %function
	.p2align 4
kedge__raw_syscall:
	.cfi_startproc
	hint	#34
	mov	x8, x0
	mov	x0, x1
	mov	x1, x2
	mov	x2, x3
	mov	x3, x4
	mov	x4, x5
	mov	x5, x6
	svc	#0
	cmn	x0, #4095
	b.cs	1f
	ret
1:	b	kedge__syscall_errno
	.cfi_endproc
	.size	kedge__raw_syscall, . - kedge__raw_syscall
#endif

	.section .note.GNU-stack, "", %progbits
