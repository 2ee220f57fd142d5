// SPDX-License-Identifier: BSD-2-Clause
/*
 * Errors in words. Each thread keeps the reason of its last failure, so that
 * kedge_strerror() can say more than an errno: what happened and the remedy.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/base.h"

static __thread struct {
	int rc;
	char text[256];
} last __attribute__((tls_model("global-dynamic")));

static const struct {
	int err;
	const char *text;
} general[] = {
	{ EINVAL, "invalid argument: a NULL pointer, a length of 0, a range "
		  "that wraps, a size that is too small, or an unknown flag" },
	{ E2BIG, "too large: beyond a limit, or options of a newer version "
		 "that set a field this library does not know" },
	{ ENOMEM, "no memory, no mapping (vm.max_map_count, RLIMIT_AS), or RLIMIT_MEMLOCK "
		  "is used up: raise it with ulimit -l or LimitMEMLOCK=" },
	{ EFAULT, "part of the range is not mapped, or not writable where the "
		  "device writes" },
	{ EOPNOTSUPP, "not supported by this kernel, device or kind of memory" },
	{ ENOSPC, "no room: the device's table or the limit is full and "
		  "everything in it is in use" },
	{ ECHILD, "belongs to the parent process: a forked child opens its "
		  "own" },
	{ EBUSY, "in use by somebody else" },
	{ EBADF, "the ring or device is closed" },
	{ EEXIST, "exists already" },
	{ ENOENT, "no such thing" },
	{ EPERM, "not permitted: see kedge info" },
	{ EAGAIN, "no thread, process or memory for one is to be had now (ulimit -u, "
		  "ulimit -v, vm.max_map_count): try again" },
	{ EMFILE, "this process has no file descriptor left: raise ulimit -n" },
	{ ENFILE, "this system has no file descriptor left: raise fs.file-max" },
};

const char *kedge_version(void)
{
	return KEDGE_VERSION;
}

int kedge_reason(int rc, const char *fmt, ...)
{
	int saved = errno;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(last.text, sizeof(last.text), fmt, ap);
	va_end(ap);
	last.rc = rc;
	errno = saved;
	return rc;
}

int error_no_fd(int err)
{
	if (err != EMFILE && err != ENFILE)
		return 0;
	/* An older reason of the same error does not stand for this one. */
	if (last.rc == -err)
		last.rc = 0;
	return -err;
}

int error_no_addresses(uint64_t len, const char *what)
{
	const bool large = len >> 20;

	return kedge_reason(-ENOMEM, "no %" PRIu64 " %s of addresses in a row %s: RLIMIT_AS "
			    "(ulimit -v) may be lower, or the process has as many mappings as it "
			    "may: raise vm.max_map_count", len >> (large ? 20 : 10),
			    large ? "MiB" : "KiB", what);
}

void error_forget(void)
{
	last.rc = 0;
}

void error_ready(void)
{
	*(volatile int *)&last.rc = last.rc;
}

const char *kedge_strerror(int rc)
{
	size_t i;

	if (rc > 0)
		rc = -rc;
	if (!rc)
		return "success";
	if (rc < -4095) /* no errno, and INT_MIN has no negative */
		return "not an error of kedge's";
	if (last.rc == rc)
		return last.text;
	for (i = 0; i < ARRAY_SIZE(general); i++)
		if (general[i].err == -rc)
			return general[i].text;
	last.rc = rc;
	/* GNU strerror_r: the text may be static or in our buffer. */
	snprintf(last.text, sizeof(last.text), "%s",
		 strerror_r(-rc, (char[128]){ 0 }, 128));
	return last.text;
}

size_t kedge__page_size(void)
{
	static size_t size;
	size_t s = __atomic_load_n(&size, __ATOMIC_RELAXED);

	if (!s) {
		s = (size_t)sysconf(_SC_PAGESIZE);
		__atomic_store_n(&size, s, __ATOMIC_RELAXED);
	}
	return s;
}

int kedge__opts_copy(void *dst, size_t size, size_t min, const void *user)
{
	const unsigned char *tail = user;
	uint32_t have;
	size_t i;

	memset(dst, 0, size);
	if (!user)
		return 0;
	memcpy(&have, user, sizeof(have));
	if (have < min)
		return kedge_reason(-EINVAL,
				    "options of %u bytes: set .size to sizeof",
				    have);
	for (i = size; i < have; i++)
		if (tail[i])
			return kedge_reason(-E2BIG,
					    "options set byte %zu of a newer "
					    "version; libkedge %s knows %zu",
					    i, KEDGE_VERSION, size);
	memcpy(dst, user, have < size ? have : size);
	return 0;
}

int kedge__info_copy(void *user, size_t min, const void *src, size_t size)
{
	uint32_t have;

	if (!user)
		return kedge_reason(-EINVAL, "the result pointer is NULL");
	memcpy(&have, user, sizeof(have));
	if (have < min)
		return kedge_reason(-EINVAL,
				    "result of %u bytes: set .size to sizeof",
				    have);
	if (have > size)
		memset((char *)user + size, 0, have - size);
	memcpy((char *)user + sizeof(have), (const char *)src + sizeof(have),
	       (have < size ? have : size) - sizeof(have));
	return 0;
}
