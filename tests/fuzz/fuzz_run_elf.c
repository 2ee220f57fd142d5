// SPDX-License-Identifier: BSD-2-Clause
/*
 * A program's file as "kedge run" reads it: anybody's file does no harm, and a
 * program without an interpreter is told from one with.
 */
#include <elf.h>
#include <link.h>
#include <stdbool.h>

#include "calls.h"
#include "feed.h"
#include "tools/run/elf.h"

static struct {
	const uint8_t *data;
	size_t len;
	mode_t mode;
	uid_t uid;
	bool torn;
	uint8_t misses; /* in the path */
	const char *path;
} file;

ssize_t fuzz_pread(int fd, void *to, size_t len, off_t at)
{
	CHECK(!feed_is_closed() && at >= 0);
	if ((size_t)at >= file.len)
		return 0;
	if (len > file.len - (size_t)at)
		len = file.len - (size_t)at;
	if (file.torn && len)
		len--;
	memcpy(to, file.data + at, len);
	return (ssize_t)len;
}

int fuzz_fstat(int fd, struct stat *st)
{
	CHECK(!feed_is_closed());
	memset(st, 0, sizeof(*st));
	st->st_mode = file.mode;
	st->st_uid = file.uid;
	return 0;
}

int fuzz_access(const char *path, int mode)
{
	CHECK(strlen(path) < 4096 && mode == X_OK);
	if (file.misses) {
		file.misses--;
		return -1;
	}
	return 0;
}

char *fuzz_getenv(const char *name)
{
	return (char *)(uintptr_t)file.path;
}

static bool fits(uint64_t at, uint64_t len)
{
	return at <= file.len && len <= file.len - at;
}

/* It has headers that can be read, all of them, and none names one. */
static bool has_none(void)
{
	ElfW(Ehdr) eh;
	ElfW(Phdr) ph;
	uint64_t at;

	if (file.torn || !fits(0, sizeof(eh)))
		return false;
	memcpy(&eh, file.data, sizeof(eh));
	if (memcmp(eh.e_ident, "\177ELF", 4) || eh.e_phentsize != sizeof(ph))
		return false;
	for (at = eh.e_phoff; eh.e_phnum; eh.e_phnum--, at += sizeof(ph)) {
		if (!fits(at, sizeof(ph)))
			return false;
		memcpy(&ph, file.data + at, sizeof(ph));
		if (ph.p_type == PT_INTERP)
			return false;
	}
	return true;
}

/* In the environment @path; true if anything in it is found. */
static bool set_path(uint8_t which)
{
	static const char *const paths[] = { "", ":", "/bin", "/a:/b:", "::",
					     "/a::/b" };
	static const uint8_t parts[] = { 1, 2, 1, 3, 3, 3 };

	which %= 7;
	file.path = which < 6 ? paths[which] : NULL;
	return which < 6 && file.misses < parts[which];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct bytes control = { data, len };
	bool slash, found;
	uint8_t how;
	const char *why;

	if (len < 4)
		return 0;
	how = take(&control);
	file.mode = how & 1 ? 0104755 : 0100755;
	file.uid = how & 2 ? geteuid() : geteuid() + 1;
	file.torn = how & 4;
	slash = how & 8;
	file.misses = take(&control) & 7;
	take(&control);
	found = set_path(take(&control)) || slash;
	file.data = data + 4;
	file.len = len - 4;
	feed_set(file.data, file.len, 0, 0);
	why = run_no_preload(slash ? "/bin/program" : "program");
	CHECK(feed_is_closed());
	if (!found)
		CHECK(!why);
	else if (file.mode & S_ISUID && file.uid != geteuid())
		CHECK(why && strstr(why, "another user"));
	else
		CHECK(has_none() ? why && strstr(why, "statically") : !why);
	return 0;
}
