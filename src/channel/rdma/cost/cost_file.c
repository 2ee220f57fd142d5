// SPDX-License-Identifier: BSD-2-Clause
/*
 * Measured costs in a file, where the user names a folder for them (KEDGE_COSTS): by
 * device and kernel, as either decides them. A file that is another user's, that others
 * may write, or that does not say what it should, is as good as none.
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "channel/rdma/cost/costs.h"
#include "channel/rdma/internal.h"

#define HEAD	 "kedge-costs 1"
#define FILE_MAX 4096

static bool path_of(const char *device, const char *end, char path[FILE_MAX])
{
	const char *dir = kedge__env("KEDGE_COSTS");
	struct utsname u;
	int n;

	if (!dir || !*dir || strchr(device, '/') || uname(&u))
		return false;
	n = snprintf(path, FILE_MAX, "%s/rdma-%s-%s%s", dir, device, u.release,
		     end);
	return n > 0 && n < FILE_MAX;
}

/* It is this user's alone to write. */
static bool trusted(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISREG(st.st_mode) &&
	       st.st_uid == geteuid() && !(st.st_mode & (S_IWGRP | S_IWOTH));
}

bool kedge__rdma_costs_parse(const char *text, struct curve curves[CURVES])
{
	const char *p = text;
	char *end;
	int i, j;

	if (strncmp(p, HEAD "\n", sizeof(HEAD)))
		return false;
	p += sizeof(HEAD);
	for (i = 0; i < CURVES; i++)
		for (j = 0; j < POINTS; j++) {
			curves[i].ns[j] = strtod(p, &end);
			if (end == p || !isfinite(curves[i].ns[j]) ||
			    curves[i].ns[j] <= 0 || curves[i].ns[j] > NS_MAX)
				return false;
			p = end;
		}
	return !strcmp(p, "\n");
}

bool kedge__rdma_costs_load(const char *device, struct curve curves[CURVES])
{
	char path[FILE_MAX], text[FILE_MAX];
	ssize_t n = -1;
	int fd;

	if (!path_of(device, "", path))
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return false;
	if (trusted(fd))
		n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n < 0)
		return false;
	text[n] = '\0';
	return kedge__rdma_costs_parse(text, curves);
}

static bool write_all(int fd, const struct curve curves[CURVES])
{
	int i, ok = dprintf(fd, "%s\n", HEAD) > 0;

	for (i = 0; i < CURVES && ok; i++)
		ok = dprintf(fd, "%s%.0f %.0f %.0f", i ? " " : "",
			     curves[i].ns[0], curves[i].ns[1],
			     curves[i].ns[2]) > 0;
	return ok && dprintf(fd, "\n") > 0;
}

/* Whole, or not at all: others may read it meanwhile. */
void kedge__rdma_costs_save(const char *device,
			    const struct curve curves[CURVES])
{
	char path[FILE_MAX], end[32], temp[FILE_MAX];
	bool ok;
	int fd;

	snprintf(end, sizeof(end), ".%ld", (long)getpid());
	if (!path_of(device, "", path) || !path_of(device, end, temp))
		return;
	fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
		  0600);
	if (fd < 0) {
		kedge__log(KEDGE_LOG_WARN, "KEDGE_COSTS: %s cannot be written: "
			   "error %d", temp, errno);
		return;
	}
	ok = write_all(fd, curves);
	close(fd);
	if (!ok || rename(temp, path))
		unlink(temp);
}
