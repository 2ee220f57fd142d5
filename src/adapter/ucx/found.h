/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * UCX's own functions, of the libraries that the process has loaded, and whether kedge can serve
 * them. Programs load UCX in any way, also by libraries between: the search is in the libraries
 * themselves, and not in an order of symbols.
 */
#ifndef ADAPTER_UCX_FOUND_H
#define ADAPTER_UCX_FOUND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As many words as a call of any version has arguments, and more. */
#define WORDS 8
typedef int (*ucx_fn)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
		      uintptr_t);

struct found {
	ucx_fn create, get, destroy, put; /* never NULL */
	void (*vm_munmap)(void *addr, size_t len);
	void (*set_external_event)(int events);
	bool serves; /* all are there, and of a version that was tried */
};

/* The same each time; says once why kedge does not serve. Not while UCX is being loaded. */
const struct found *found(void);

/* For a call that UCX makes while it is loaded: libucm's function of that name, or NULL; and
 * whether libucp is there, of a version that is served. */
void *found_in_ucm(const char *name);
bool found_early(void);

/* A line on standard error, behind the library's name. */
__attribute__((format(printf, 1, 2))) void found_say(const char *format, ...);

#endif /* ADAPTER_UCX_FOUND_H */
