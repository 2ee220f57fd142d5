// SPDX-License-Identifier: BSD-2-Clause
/*
 * The program that a hostile peer executes, or whose caller is hostile; the test
 * may give it the set-user-ID bit.
 *
 *	hold          a page at HOLD_AT, to be looked at until standard input
 *	              ends: 0 if nobody wrote there
 *	listen PATH   until standard input ends: 0 if nobody was let in
 *	connect PATH  0 if that is refused
 */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "channel_other.h"

static bool goes_on(void)
{
	struct pollfd p = { .fd = 0, .events = POLLIN };

	return !poll(&p, 1, 10);
}

static int ready(void)
{
	return write(1, "r", 1) == 1;
}

static int hold(void)
{
	char *p = mmap(HOLD_AT, HOLD_LEN, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	size_t i;

	if (p != HOLD_AT)
		return 2;
	memset(p, 'h', HOLD_LEN);
	if (!ready())
		return 2;
	while (goes_on())
		;
	for (i = 0; i < HOLD_LEN; i++)
		if (p[i] != 'h')
			return 1;
	return 0;
}

static int let_nobody_in(const char *path)
{
	struct kedge_listener *l;
	struct kedge_channel *ch;
	int rc = kedge_listener_open_shm(path, NULL, &l);

	if (rc || !ready()) {
		fprintf(stderr, "listen: %s\n", kedge_strerror(rc));
		return 2;
	}
	while (goes_on())
		if (!kedge_listener_accept(l, 0, &ch))
			return 1;
	kedge_listener_close(l);
	return 0;
}

int main(int argc, char **argv)
{
	struct kedge_channel *ch;

	if (argc == 2 && !strcmp(argv[1], "hold"))
		return hold();
	if (argc == 3 && !strcmp(argv[1], "listen"))
		return let_nobody_in(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "connect"))
		return kedge_channel_open_shm(argv[2], NULL, 5000, &ch) ==
				       -EACCES ? 0 : 1;
	return 2;
}
