/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The libraries of others whose caches of registrations kedge demo --mpi shows over a stand-in for
 * an adapter. Each is loaded when it is shown.
 */
#ifndef TOOLS_DEMO_CACHES_CACHES_H
#define TOOLS_DEMO_CACHES_CACHES_H

#include <stddef.h>
#include <stdint.h>

/* As the kedge command has them. */
#define CACHES_CANNOT 3

/**
 * struct caches_ops - a library that registers memory, and may keep that
 * @name:    as the command line takes it
 * @open:    ready for registrations with the stand-in; 0, or -1 after caches_say()
 * @version: its own, to print
 * @get:     a registration of [@at, @at + @len), and the index of its fixed buffer in *@index;
 *           NULL after caches_say()
 * @put:     the transfer is done
 */
struct caches_ops {
	const char *name;
	int (*open)(void);
	const char *(*version)(void);
	void *(*get)(void *at, size_t len, unsigned int *index);
	void (*put)(void *mr);
};

extern const struct caches_ops caches_libfabric, caches_ucx;

/* A line on stderr: what is missing, and what to do. */
void caches_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The function of @lib by that name into *@to, a pointer to one. 0, or -1 after caches_say(). */
int caches_find(void *lib, const char *name, void *to);

#endif /* TOOLS_DEMO_CACHES_CACHES_H */
