// SPDX-License-Identifier: BSD-2-Clause
/*
 * A region and its peers on two hosts, as hosts.sh makes them.
 *
 *	hosts own NODE		says its handle; suspends the region at the first line that it
 *				reads, resumes it at the second, and ends with its input
 *	hosts put HANDLE	puts and gets, by TCP
 *	hosts late HANDLE		opens it, though the way there is not there at first
 *	hosts cut HANDLE	says "ready"; once it reads a line its owner's host is gone
 *	hosts wait HANDLE	says "ready", and puts as long as that takes
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "region/stream.h"

#define LEN	((size_t)1 << 20)
#define SOON_MS 600000
#define HOST_MS 2000 /* hosts.sh waits for longer */

static void __attribute__((noreturn)) die(const char *what, int rc)
{
	fprintf(stderr, "hosts: %s: %s\n", what, kedge_strerror(rc));
	exit(1);
}

static void say(const char *text)
{
	puts(text);
	fflush(stdout);
}

static int own(const char *node)
{
	const struct kedge_handle_opts o = { .size = sizeof(o), .node = node };
	char text[KEDGE_HANDLE_TEXT], line[8];
	struct kedge_region *region;
	struct kedge_handle handle;
	int rc = kedge_region_create(LEN, NULL, &region);

	if (!rc)
		rc = kedge_region_advertise(region, &o, &handle);
	if (rc)
		die("advertise", rc);
	kedge_handle_print(&handle, text, sizeof(text));
	say(text);
	if (fgets(line, sizeof(line), stdin)) {
		rc = kedge_region_suspend(region, SOON_MS);
		say(rc ? "failed" : "suspended");
	}
	if (!rc && fgets(line, sizeof(line), stdin))
		rc = kedge_region_resume(region);
	while (fgets(line, sizeof(line), stdin))
		;
	kedge_region_close(region);
	return rc ? 1 : 0;
}

static struct kedge_remote *reach(const char *text)
{
	struct kedge_remote_info info = { .size = sizeof(info) };
	struct kedge_handle handle;
	struct kedge_remote *r;
	int rc = kedge_handle_parse(text, &handle);

	if (!rc)
		rc = kedge_remote_open(&handle, SOON_MS, &r);
	if (!rc)
		rc = kedge_remote_query(r, &info);
	if (rc)
		die("open", rc);
	if (info.way != KEDGE_REMOTE_SERVED || info.len != LEN)
		die("it is mapped", 0);
	return r;
}

static int put_and_get(struct kedge_remote *r)
{
	static char data[LEN], got[LEN];
	uint64_t old = 0;
	int rc;

	memset(data, 0x5a, sizeof(data));
	rc = kedge_remote_put(r, 0, data, sizeof(data), SOON_MS);
	if (!rc)
		rc = kedge_remote_get(r, 0, got, sizeof(got), SOON_MS);
	if (!rc && memcmp(data, got, sizeof(got)) != 0)
		die("what was put is not there", 0);
	if (!rc)
		rc = kedge_remote_fetch_add(r, 8, 1, &old, SOON_MS);
	if (rc)
		die("access", rc);
	if (old != UINT64_C(0x5a5a5a5a5a5a5a5a))
		die("another number was there", 0);
	return 0;
}

static void nothing(int unused)
{
}

/* As a profiler does: no call waits for as long as it would. */
static void disturb(void)
{
	const struct itimerspec often = { { 0, 50000000 }, { 0, 50000000 } };
	struct sigevent how = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	timer_t t;

	signal(SIGUSR1, nothing);
	if (timer_create(CLOCK_MONOTONIC, &how, &t) || timer_settime(t, 0, &often, NULL))
		die("no timer", 0);
}

/* One that has time, and one that has no limit. */
static int cut(struct kedge_remote *r, struct kedge_remote *other)
{
	char line[8], c = 1;
	int rc;

	say("ready");
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	disturb();
	rc = kedge_remote_put(r, 0, &c, 1, 100);
	if (rc != -ECONNRESET)
		die("with a limit", rc);
	rc = kedge_remote_put(other, 0, &c, 1, -1);
	if (rc != -ECONNRESET)
		die("without a limit", rc);
	return 0;
}

int main(int argc, char **argv)
{
	struct kedge_remote *r;
	char c = 1;

	if (argc != 3)
		return 1;
	alarm(200);
	stream_host_ms = HOST_MS;
	if (!strcmp(argv[1], "own"))
		return own(argv[2]);
	if (!strcmp(argv[1], "late"))
		say("ready");
	r = reach(argv[2]);
	if (!strcmp(argv[1], "late"))
		return 0;
	if (!strcmp(argv[1], "put"))
		return put_and_get(r);
	if (!strcmp(argv[1], "cut"))
		return cut(r, reach(argv[2]));
	say("ready");
	return kedge_remote_put(r, 0, &c, 1, -1) ? 1 : 0;
}
