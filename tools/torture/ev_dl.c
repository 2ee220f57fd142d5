// SPDX-License-Identifier: BSD-2-Clause
/*
 * dlclose of a library whose data is registered, and the next dlopen in its
 * place. The library is a copy, in a memfd, of one that the command uses
 * anyway; its writable segment is made longer by BSS_LEN, so that it has
 * anonymous pages as well as the file's.
 */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/torture/case.h"

#define BSS_LEN ((size_t)64 << 10)

/* The first library with a path, as long as it isn't one of libc's own. */
static int find_library(struct dl_phdr_info *info, size_t size, void *path)
{
	static const char *const fit[] = { "libpopt.so", "libjansson.so" };
	size_t i;

	for (i = 0; info->dlpi_name && i < ARRAY_SIZE(fit); i++)
		if (strstr(info->dlpi_name, fit[i]))
			return snprintf(path, WHY_MAX, "%s", info->dlpi_name);
	return 0;
}

static int copy_library(struct run *x, const char *path)
{
	struct stat st;
	void *p = MAP_FAILED;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int rc = -EIO;

	if (fd < 0)
		return -errno;
	if (!fstat(fd, &st))
		p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd,
			 0);
	if (p != MAP_FAILED) {
		if (write(x->fd, p, (size_t)st.st_size) == st.st_size)
			rc = 0;
		munmap(p, (size_t)st.st_size);
	}
	close(fd);
	return rc;
}

/* Lengthen the segment that is written to; where the new part is. */
static int lengthen(struct run *x)
{
	ElfW(Ehdr) eh;
	ElfW(Phdr) ph;
	off_t at;
	int i;

	if (pread(x->fd, &eh, sizeof(eh), 0) != sizeof(eh))
		return -EIO;
	for (i = 0; i < eh.e_phnum; i++) {
		at = (off_t)(eh.e_phoff + (size_t)i * sizeof(ph));
		if (pread(x->fd, &ph, sizeof(ph), at) != sizeof(ph))
			return -EIO;
		if (ph.p_type != PT_LOAD || !(ph.p_flags & PF_W))
			continue;
		/* Nothing of the library's own lies behind this. */
		x->state = (long)round_up(ph.p_vaddr + ph.p_memsz, 64);
		ph.p_memsz += BSS_LEN;
		if (pwrite(x->fd, &ph, sizeof(ph), at) != sizeof(ph))
			return -EIO;
		x->len = round_down(ph.p_vaddr + ph.p_memsz, x->unit) -
			 (size_t)x->state;
		return 0;
	}
	return -ENOENT;
}

static int library_up(struct run *x)
{
	struct link_map *map;
	char path[64];
	uintptr_t at;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", x->fd);
	x->ptr = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!x->ptr)
		return why(x, -EOPNOTSUPP, "dlopen: %s", dlerror());
	if (dlinfo(x->ptr, RTLD_DI_LINKMAP, &map))
		return why(x, -EIO, "dlinfo: %s", dlerror());
	at = (uintptr_t)map->l_addr + (uintptr_t)x->state;
	/* Without the file's page, which may be the kind never cached. */
	if (!x->ev->arg)
		at = round_up(at, x->unit);
	x->addr = (uint8_t *)at;
	return 0;
}

static int setup_library(struct run *x)
{
	char path[WHY_MAX];
	int rc;

	x->fd = memfd_create("kedge-torture", MFD_CLOEXEC);
	if (x->fd < 0)
		return why(x, -errno, "memfd: %s", strerror(errno));
	if (!dl_iterate_phdr(find_library, path))
		return why(x, -EOPNOTSUPP, "no library to copy");
	rc = copy_library(x, path);
	if (!rc)
		rc = lengthen(x);
	if (rc)
		return why(x, -EOPNOTSUPP, "%s: %s", path, strerror(-rc));
	if (!x->ev->arg)
		x->len = round_down(x->len, x->unit);
	return library_up(x);
}

static void fini_library(struct run *x)
{
	if (x->ptr)
		dlclose(x->ptr);
	if (x->fd >= 0)
		close(x->fd);
}

static int fire_dlclose(struct run *x)
{
	int rc = dlclose(x->ptr);

	x->ptr = NULL;
	if (rc)
		return why(x, -EIO, "dlclose: %s", dlerror());
	return library_up(x);
}

const struct event ev_dl[] = {
	{ .name = "dlclose-bss",
	  .routes = R(LIBC),
	  .pages = P(4K),
	  .flags = EV_STALE | EV_RECYCLE,
	  .arg = 0,
	  .setup = setup_library,
	  .fire = fire_dlclose,
	  .fini = fini_library },
	{ .name = "dlclose-data",
	  .routes = R(LIBC),
	  .pages = P(4K),
	  .flags = EV_STALE | EV_RECYCLE,
	  .arg = 1,
	  .setup = setup_library,
	  .fire = fire_dlclose,
	  .fini = fini_library },
	{ .name = NULL },
};
