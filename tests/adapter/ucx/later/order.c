// SPDX-License-Identifier: BSD-2-Clause
/*
 * order UCS UCP refused|promised: libucs is loaded before libucp, so that its options are set while
 * UCX's version is not known yet; then another library asks for UCX's events of memory.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* By the jumps that there are: UCX itself never refuses that. */
#define UNMAPPED (1 << 17 | 1 << 24)

int main(int argc, char **argv)
{
	int (*handler)(int events, int priority, void *fn, void *arg) = NULL;
	void *at;
	int rc;

	if (argc != 4 || !dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) ||
	    !dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL)) {
		fprintf(stderr, "order: %s\n", argc == 4 ? dlerror() : "usage");
		return 3;
	}
	at = dlsym(RTLD_DEFAULT, "ucm_set_event_handler");
	memcpy(&handler, &at, sizeof(handler));
	rc = handler ? (signed char)handler(UNMAPPED, 0, NULL, NULL) : 1;
	printf("%d\n", rc);
	return rc != (strcmp(argv[3], "refused") ? 0 : -22);
}
