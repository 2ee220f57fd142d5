/* SPDX-License-Identifier: BSD-2-Clause */
/* Counters as a reader finds them: texts, of files and of sockets. */
#ifndef TESTS_PUBLISHED_H
#define TESTS_PUBLISHED_H

#include "cases.h"

extern char folder[]; /* of this test's own, empty at first */
void folder_begin(void);
void folder_end(void);
/* "FOLDER/NAME", as printf() makes it of its arguments; the last eight stay. */
const char *path_of(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#define TEXT_LEN (1 << 20)
/* The text, or NULL where there is none. Of a socket: to its end. The last one stays. */
const char *text_of_file(const char *path);
const char *text_of_socket(const char *path);

/* The value of the line that begins with "kedge_NAME{" and has all of @labels, ended by a NULL;
 * -1 where there is no such line. */
double value_of(const char *text, const char *name, ...);

#endif /* TESTS_PUBLISHED_H */
