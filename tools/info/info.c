// SPDX-License-Identifier: BSD-2-Clause
/* kedge info: the doctor. */
#include <stdlib.h>

#include <kedge/kedge.h>

#include "base/base.h"
#include "tools/info/info.h"

static const char help_text[] =
	"Tries each notifier, each device and messages for real and looks at "
	"the limits that\nmatter. Each line says ok, limited or missing, and "
	"what to do about it.\n\n"
	"Exit status: 0 if a cache is coherent and really caches here (a "
	"notifier of\nlevel ordered or better opens), 3 if not. With --env: 1 "
	"if a KEDGE_* variable\nis unknown or has a value that means "
	"nothing, else 0.\n";

static int run(void)
{
	struct info *info = calloc(1, sizeof(*info));
	int rc;

	if (!info)
		return util_fail(-ENOMEM, "cannot keep what it finds");
	info_notifiers(info);
	info_devices(info);
	info_messages(info);
	info_limits(info);
	rc = info_print(info);
	if (!rc && info->level < KEDGE_LEVEL_ORDERED)
		rc = CMD_CANNOT;
	info_fini(info);
	free(info);
	return rc;
}

int cmd_info(int argc, char **argv)
{
	int env = 0;
	struct poptOption opts[] = {
		{ "env", 'e', POPT_ARG_NONE, &env, 0,
		  "Show the environment variables that kedge reads", NULL },
		POPT_TABLEEND
	};
	struct util_cmd cmd = {
		.synopsis = "[OPTION...]",
		.help = help_text,
		.opts = opts,
	};
	struct util_args args;
	int rc;

	rc = util_options(&cmd, argc, argv, &args);
	if (rc != UTIL_GO_ON)
		return rc;
	util_args_fini(&args);
	return env ? info_env() : run();
}
