// SPDX-License-Identifier: BSD-2-Clause
/*
 * region_owner [regions REGIONS | advertised REGIONS | old | silent | nonsense]: a process with
 * regions for the tests of kedge regions, with a handle of the first, or without; or one that has
 * a socket of an owner's name, and answers as one of before, never, or with no sense. It says
 * "ready", and ends with its standard input.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "region/wire.h"

static void make(int cnt, int advertised)
{
	const struct kedge_region_opts o = { .size = sizeof(o), .max_len = 65536 };
	struct kedge_region *r, *first = NULL;
	struct kedge_handle h;
	int rc = 0;

	kedge_region_budget_set((uint64_t)64 << 20);
	while (!rc && cnt--) {
		rc = kedge_region_create(4096, &o, &r);
		first = first ? first : r;
	}
	if (!rc && advertised) {
		rc = kedge_region_suspend(first, 0);
		if (!rc)
			rc = kedge_region_advertise(first, NULL, &h);
	}
	if (!rc)
		return;
	fprintf(stderr, "region_owner: %s\n", kedge_strerror(rc));
	exit(1);
}

static int listens(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int n = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "kedge-region-%016llx",
			 (unsigned long long)getpid());
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (bind(fd, (const void *)&a,
		 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) ||
	    listen(fd, 8)) {
		perror("region_owner");
		exit(1);
	}
	return fd;
}

static void answer(int listener, const char *how)
{
	const struct region_answer a = { .magic = REGION_MAGIC, .version = REGION_VERSION,
					 .rc = !strcmp(how, "old") ? -EPROTO : 1 };
	struct list_ask q;
	int fd = accept(listener, NULL, NULL);

	if (recv(fd, &q, sizeof(q), 0) > 0)
		send(fd, &a, sizeof(a), MSG_NOSIGNAL);
	close(fd);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "regions";
	const int cnt = argc > 2 ? atoi(argv[2]) : 1;
	const int own = !strcmp(how, "regions") || !strcmp(how, "advertised");
	int listener = -1;

	/* A name that a terminal would take for a colour. */
	prctl(PR_SET_NAME, "evil\033[31m");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (own)
		make(cnt, !strcmp(how, "advertised"));
	else
		listener = listens();
	puts("ready");
	fflush(stdout);
	while (!own && strcmp(how, "silent") != 0)
		answer(listener, how);
	while (getchar() != EOF)
		;
	return 0;
}
