/* SPDX-License-Identifier: BSD-2-Clause */
/* Other processes in words: names that they chose reach no terminal as they are. */
#ifndef TOOLS_COMMON_WHO_H
#define TOOLS_COMMON_WHO_H

#include <stddef.h>
#include <stdint.h>

#define WHO_LEN 64

/* The process's name, "?" if it cannot be told. */
void who_command(int pid, char *name, size_t room);
/* A user's name, or the number; "?" for UINT32_MAX. */
void who_user(uint32_t uid, char *name, size_t room);
/* Letters of other languages stay, in UTF-8; what a terminal acts on does not. Returns @to. */
const char *who_plain(char *to, size_t room, const char *from);
/* @one where @n is 1, else @more. */
const char *who_plural(size_t n, const char *one, const char *more);

#endif /* TOOLS_COMMON_WHO_H */
