// SPDX-License-Identifier: BSD-2-Clause
/*
 * A user of the installed library, in C11 and in C++17. Its one argument says
 * whether libkedge-hooks is expected to serve the process.
 */
#include <kedge/kedge.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	struct kedge_notifier_info info;
	struct kedge_notifier *nf = NULL;
	int want = argc > 1 ? atoi(argv[1]) : 0;
	int rc = kedge_notifier_open(NULL, &nf);

	memset(&info, 0, sizeof(info));
	info.size = sizeof(info);
	if (!rc)
		rc = kedge_notifier_info(nf, &info);
	kedge_notifier_close(nf);
	if (rc) {
		fprintf(stderr, "%s\n", kedge_strerror(rc));
		return 1;
	}
	printf("%s, hooked %u\n", info.backend, info.hooked);
	return info.hooked != (unsigned int)want;
}
