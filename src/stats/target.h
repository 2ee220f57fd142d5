/* SPDX-License-Identifier: BSD-2-Clause */
/* The place where KEDGE_STATS wants the counters. */
#ifndef STATS_TARGET_H
#define STATS_TARGET_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct target {
	bool socket;
	bool own_name; /* in the folder that was named */
	char path[PATH_MAX]; /* absolute */
};

/* True: @value names a place, which is not looked at yet. False: it is empty, 0 or 1. */
bool target_named(const char *value);
/* True, and *@value is the path behind "unix:". */
bool target_is_socket(const char **value);
/* Append @from to @to, with %p and %% as they stand for something. False: there is no room. */
bool target_expand(char *to, size_t room, const char *from, int pid);
/* 0, -EINVAL without a path, -ENAMETOOLONG, or what getcwd() fails with. @file: how a file's own
 * name in a folder ends. */
int target_parse(struct target *t, const char *value, const char *file);

#endif /* STATS_TARGET_H */
