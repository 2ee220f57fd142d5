// SPDX-License-Identifier: BSD-2-Clause
/*
 * Checks if libkedge finds that libc's calls are announced. Not linked with
 * libkedge-hooks. hooked WANT [local|global|deep LIBRARY]: open it late.
 */
#include <dlfcn.h>

#include <kedge/kedge.h>

#include "check.h"

static int mode_of(const char *name)
{
	if (!strcmp(name, "deep"))
		return RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
	return RTLD_NOW | (strcmp(name, "local") ? RTLD_GLOBAL : RTLD_LOCAL);
}

int main(int argc, char **argv)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };
	struct kedge_notifier_opts o = { .size = sizeof(o), .backend = "none" };
	struct kedge_notifier *nf;

	CHECK(argc > 1);
	if (argc > 3)
		CHECK(dlopen(argv[3], mode_of(argv[2])));
	CHECK(!kedge_notifier_open(&o, &nf));
	CHECK(!kedge_notifier_info(nf, &info));
	kedge_notifier_close(nf);
	if (info.hooked != (uint32_t)atoi(argv[1]))
		fprintf(stderr, "hooked is %u\n", info.hooked);
	return info.hooked != (uint32_t)atoi(argv[1]);
}
