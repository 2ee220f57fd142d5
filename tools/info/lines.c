// SPDX-License-Identifier: BSD-2-Clause
/* The lines that info prints, as the parts find them. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/info/info.h"

struct info_line *info_add(struct info *info, enum info_section section,
			   const char *name, enum info_state state)
{
	struct info_line *l = &info->line[info->cnt];

	/* The lines are listed in this program: more is our own mistake. */
	if (info->cnt == INFO_MAX_LINES)
		abort();
	info->cnt++;
	*l = (struct info_line){
		.section = section,
		.name = name,
		.state = state,
		.data = json_object(),
	};
	return l;
}

void info_text(struct info_line *l, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(l->text, sizeof(l->text), fmt, ap);
	va_end(ap);
}

void info_todo(struct info_line *l, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(l->todo, sizeof(l->todo), fmt, ap);
	va_end(ap);
}

void info_fini(struct info *info)
{
	uint32_t i;

	for (i = 0; i < info->cnt; i++)
		json_decref(info->line[i].data);
}
