// SPDX-License-Identifier: BSD-2-Clause
/* See elf.h. What is read is anybody's file: each offset is checked. */
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tools/run/elf.h"

static int open_in_path(const char *program)
{
	const char *dir = getenv("PATH"), *end;
	char path[PATH_MAX];
	int fd = -1;

	if (strchr(program, '/'))
		return open(program, O_RDONLY | O_CLOEXEC);
	for (; dir && fd < 0; dir = *end ? end + 1 : NULL) {
		int n;

		end = strchrnul(dir, ':');
		n = snprintf(path, sizeof(path), "%.*s%s%s", (int)(end - dir),
			     dir, end > dir ? "/" : "", program);
		if (n < (int)sizeof(path) && !access(path, X_OK))
			fd = open(path, O_RDONLY | O_CLOEXEC);
	}
	return fd;
}

/* True unless it is an ELF program of our kind that has no interpreter. */
static bool has_interpreter(int fd)
{
	ElfW(Ehdr) eh;
	ElfW(Phdr) ph;
	unsigned int i;

	if (pread(fd, &eh, sizeof(eh), 0) != sizeof(eh) ||
	    memcmp(eh.e_ident, ELFMAG, SELFMAG) ||
	    eh.e_phentsize != sizeof(ph))
		return true;
	for (i = 0; i < eh.e_phnum; i++) {
		off_t at = (off_t)(eh.e_phoff + i * sizeof(ph));

		if (at < 0 || pread(fd, &ph, sizeof(ph), at) != sizeof(ph) ||
		    ph.p_type == PT_INTERP)
			return true;
	}
	return false;
}

/* The kernel gives it rights that the caller has not; then the dynamic linker preloads nothing. */
static bool gains(int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return false;
	return (st.st_mode & S_ISUID && geteuid() != st.st_uid) ||
	       (st.st_mode & S_ISGID && st.st_mode & S_IXGRP && getegid() != st.st_gid) ||
	       (geteuid() && fgetxattr(fd, "security.capability", NULL, 0) > 0);
}

const char *run_no_preload(const char *program)
{
	int fd = open_in_path(program);
	const char *why = NULL;

	if (fd < 0)
		return NULL;
	if (gains(fd))
		why = "it runs as another user or group, or with capabilities of its "
		      "own, so the dynamic linker preloads nothing: run it as that user";
	else if (!has_interpreter(fd))
		why = "it is linked statically, so there is no dynamic linker "
		      "to preload anything: use libkedge-verbs in the program";
	close(fd);
	return why;
}
