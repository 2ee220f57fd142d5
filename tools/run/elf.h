/* SPDX-License-Identifier: BSD-2-Clause */
/* A look at a program: it may or may not take a library that it was not linked with. */
#ifndef TOOLS_RUN_ELF_H
#define TOOLS_RUN_ELF_H

/*
 * Why the dynamic linker would preload nothing into @program, which is looked
 * for as execvp() does, in words; or NULL where it would, or where the program
 * cannot be read. A script's interpreter is not looked at.
 */
const char *run_no_preload(const char *program);

#endif /* TOOLS_RUN_ELF_H */
