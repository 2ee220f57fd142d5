/* SPDX-License-Identifier: BSD-2-Clause */
/* Libraries that register memory, by an address in their code, and what is said of them. */
#ifndef PRELOAD_LIBRARY_H
#define PRELOAD_LIBRARY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Registrations that outlived their pages, and what had gone of the first of them. */
struct loss {
	uint64_t cnt;
	uint64_t start;
	uint64_t end;
	const char *kind; /* unmapped, dropped, moved, changed */
	uint32_t change;  /* kedge doctor's number of it, or 0 */
};

/* A library, or the program itself. Never freed but by a fork. */
struct library {
	struct library *next;
	struct loss stale;
	bool coherent; /* libkedge-fi or libkedge-ucx watches for its cache */
	char name[];
};

/*
 * All with @lock, which guards them, and which library_of() lets go of meanwhile where the caller
 * is a new one: dladdr() takes a lock that a thread has which loads a library, and registers in its
 * constructor. NULL: no memory.
 */
struct library *library_of(const void *caller, pthread_mutex_t *lock);
/* In a forked child. */
void library_forget(void);
/* True: it is the first. */
bool library_lost(struct loss *l, uint64_t start, uint64_t end, const char *kind,
		  uint32_t change);
/* The lines of tools/run/checked.h. */
void library_report(FILE *f);

/* Makes a name fit for a line: files and programs have any. */
void library_clean(char *name);

/* A sentence on its first one, behind @text, which is freed; or @text: no memory. */
char *library_text(char *text, const struct library *l);
/* Without the lock, as its reader may be slow. Frees it; NULL says nothing. */
void library_say(char *text);

#endif /* PRELOAD_LIBRARY_H */
