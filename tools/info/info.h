/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kedge info: what kedge finds on this machine. Each part adds its lines to one
 * list, which is printed as text or as JSON in the end.
 */
#ifndef TOOLS_INFO_INFO_H
#define TOOLS_INFO_INFO_H

#include <stdbool.h>
#include <stdint.h>

#include <kedge/kedge.h>

#include "tools/common/util.h"

enum info_state {
	INFO_OK,
	INFO_LIMITED, /* works, but not as well as it could */
	INFO_MISSING,
};

enum info_section {
	INFO_NOTIFIERS,
	INFO_DEVICES,
	INFO_MESSAGES,
	INFO_LIMITS,
	INFO_SECTIONS,
};

/**
 * struct info_line - one thing that was looked at
 * @text: what there is
 * @todo: what would make it better; empty if nothing
 * @data: its figures, for JSON; owned
 */
struct info_line {
	enum info_section section;
	const char *name;
	enum info_state state;
	char text[400];
	char todo[400];
	json_t *data;
};

#define INFO_MAX_LINES 32

/**
 * struct info - all of them
 * @notifier: what a program gets that asks for nothing; NULL if none opens
 * @level:    its level
 */
struct info {
	struct info_line line[INFO_MAX_LINES];
	uint32_t cnt;
	const char *notifier;
	uint32_t level;
	uint32_t check; /* enum kedge_check */
	bool hooked;
};

/* A new line. @name is borrowed. There is room for all that is ever added. */
struct info_line *info_add(struct info *info, enum info_section section,
			   const char *name, enum info_state state);
void info_text(struct info_line *l, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void info_todo(struct info_line *l, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void info_fini(struct info *info);

void info_notifiers(struct info *info);
void info_devices(struct info *info);
void info_verbs(struct info *info);
void info_messages(struct info *info);
void info_segments(struct info *info);
void info_ofi(struct info *info);
void info_ucx(struct info *info);
void info_limits(struct info *info);

/* ---- any device: register.c ---- */

/*
 * Register @buf with @dev through a cache, have @use work with it, and
 * deregister. @use may be NULL; it returns 0 or a negative errno, as this does.
 */
int info_register(struct kedge_device *dev, void *buf, size_t len,
		  int (*use)(void *arg, const struct kedge_mr *mr), void *arg);
/* Add the limits of its registrations to the JSON. */
void info_device_data(struct info_line *l, const struct kedge_device_attr *a);

/* 0, or the exit status of a failure. */
int info_print(const struct info *info);

/* kedge info --env: CMD_OK, or CMD_FINDING where a variable is unknown or has
 * a value that means nothing. */
int info_env(void);

#endif /* TOOLS_INFO_INFO_H */
