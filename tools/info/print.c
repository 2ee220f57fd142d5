// SPDX-License-Identifier: BSD-2-Clause
/* The finds: for people, wrapped to the terminal, or as JSON. */
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "base/base.h"
#include "tools/info/info.h"

static const char *const state_name[] = {
	[INFO_OK] = "ok",
	[INFO_LIMITED] = "limited",
	[INFO_MISSING] = "missing",
};

static const enum util_colour state_colour[] = {
	[INFO_OK] = UTIL_GREEN,
	[INFO_LIMITED] = UTIL_YELLOW,
	[INFO_MISSING] = UTIL_RED,
};

static const char *const section_name[] = {
	[INFO_NOTIFIERS] = "notifiers",
	[INFO_DEVICES] = "devices",
	[INFO_MESSAGES] = "messages",
	[INFO_LIMITS] = "limits",
};

static const char *const section_title[] = {
	[INFO_NOTIFIERS] = "Notifiers (who tells that memory has changed)",
	[INFO_DEVICES] = "Devices (who registers memory)",
	[INFO_MESSAGES] = "Messages (how they move between processes)",
	[INFO_LIMITS] = "Limits",
};

#define INDENT 20

static size_t terminal_width(void)
{
	struct winsize ws;

	if (isatty(STDOUT_FILENO) && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) &&
	    ws.ws_col >= 2 * INDENT)
		return ws.ws_col;
	return 80;
}

/* The cursor is in column INDENT; words that do not fit go to the next line,
 * below its start. */
static void print_wrapped(const char *text, size_t width)
{
	size_t room = width - INDENT, at = 0, word;

	while (*text) {
		word = strcspn(text, " ");
		if (at && at + 1 + word > room) {
			printf("\n%*s", INDENT, "");
			at = 0;
		}
		at += (size_t)printf("%s%.*s", at ? " " : "", (int)word, text);
		text += word;
		text += strspn(text, " ");
	}
	putchar('\n');
}

static void print_line(const struct info_line *l, size_t width)
{
	printf("  %-9s %s%-7s%s ", l->name, util_colour(state_colour[l->state]),
	       state_name[l->state], util_colour(UTIL_PLAIN));
	print_wrapped(l->text, width);
	if (!*l->todo)
		return;
	printf("%*s%s->%s ", INDENT - 3, "", util_colour(UTIL_BOLD),
	       util_colour(UTIL_PLAIN));
	print_wrapped(l->todo, width);
}

static void print_verdict(const struct info *info)
{
	if (info->level >= KEDGE_LEVEL_ORDERED)
		printf("\nA registration cache is coherent here: notifier %s, "
		       "level %s.\n",
		       info->notifier, util_level_name(info->level));
	else if (info->notifier)
		printf("\nNo coherent cache here: the notifier is %s, level "
		       "%s.\n",
		       info->notifier, util_level_name(info->level));
	else
		printf("\nNo cache here: no notifier opens.\n");
}

static void print_text(const struct info *info, const struct utsname *un)
{
	size_t width = terminal_width();
	uint32_t s, i;

	printf("kedge %s on %s %s %s\n", kedge_version(), un->sysname,
	       un->release, un->machine);
	for (s = 0; s < INFO_SECTIONS; s++) {
		printf("\n%s%s%s\n", util_colour(UTIL_BOLD), section_title[s],
		       util_colour(UTIL_PLAIN));
		for (i = 0; i < info->cnt; i++)
			if (info->line[i].section == s)
				print_line(&info->line[i], width);
	}
	print_verdict(info);
}

static json_t *line_json(const struct info_line *l)
{
	json_t *o = json_pack("{s:s, s:s, s:o, s:o}", "name", l->name, "state",
			      state_name[l->state], "text",
			      util_json_text(l->text), "todo",
			      *l->todo ? util_json_text(l->todo)
				       : json_null());

	json_object_update(o, l->data);
	return o;
}

static int print_json(const struct info *info, const struct utsname *un)
{
	json_t *root;
	uint32_t s, i;

	root = json_pack("{s:s, s:s, s:s, s:s?, s:s, s:b}", "version",
			 kedge_version(), "kernel", un->release, "arch",
			 un->machine, "notifier", info->notifier, "level",
			 util_level_name(info->level), "coherent",
			 info->level >= KEDGE_LEVEL_ORDERED);
	for (s = 0; s < INFO_SECTIONS; s++) {
		json_t *all = json_array();

		for (i = 0; i < info->cnt; i++)
			if (info->line[i].section == s)
				json_array_append_new(
					all, line_json(&info->line[i]));
		json_object_set_new(root, section_name[s], all);
	}
	return util_json_print(root) ? CMD_CANNOT : 0;
}

int info_print(const struct info *info)
{
	struct utsname un;

	if (uname(&un))
		memset(&un, 0, sizeof(un));
	if (util_flags.json)
		return print_json(info, &un);
	print_text(info, &un);
	return 0;
}
