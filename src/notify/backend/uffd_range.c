// SPDX-License-Identifier: BSD-2-Clause
/*
 * Ranges are registered for write-protect faults and never protected, so that
 * no access ever faults.
 */
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "notify/backend/uffd_range.h"
#include "notify/inflight.h"

#define SWAP_NAP_NS 50000
#define SWAP_NAPS   4000

int uffd_unregister(int fd, uint64_t start, uint64_t end)
{
	struct uffdio_range r = { .start = start, .len = end - start };

	return ioctl(fd, UFFDIO_UNREGISTER, &r) ? -errno : 0;
}

int uffd_register(int fd, uint64_t start, uint64_t end)
{
	struct uffdio_register r = {
		.range = { .start = start, .len = end - start },
		.mode = UFFDIO_REGISTER_MODE_WP,
	};

	/* Not by ioctl(), which libkedge-hooks takes for another's. */
	return syscall(SYS_ioctl, fd, UFFDIO_REGISTER, &r) ? -errno : 0;
}

/* A page swap of our own may have the mapping: not for long. */
static int try_patiently(uffd_attempt_fn attempt, void *arg, uint64_t start,
			 uint64_t end)
{
	const struct timespec nap = { 0, SWAP_NAP_NS };
	unsigned int naps;
	uint32_t ended;
	int rc;

	for (naps = 0;; naps++) {
		ended = inflight_ended(&kedge__swaps);
		inflight_begin(&kedge__watches);
		rc = attempt(arg, start, end);
		inflight_end(&kedge__watches);
		if (rc != -EBUSY || naps == SWAP_NAPS ||
		    !inflight_since(&kedge__swaps, ended))
			return rc;
		/* No library's: those are cancellation points. */
		syscall(SYS_nanosleep, &nap, NULL);
	}
}

int uffd_register_patiently(uffd_attempt_fn attempt, void *arg, uint64_t start,
			    uint64_t end)
{
	int rc = try_patiently(attempt, arg, start, end);

	switch (rc) {
	case 0:
	case -EAGAIN:
		return rc;
	case -EBUSY:
		return kedge_reason(rc, "another userfaultfd owns the memory");
	case -ENOMEM:
		return kedge_reason(-ENOSPC, "the process is at its limit of "
				    "mappings: raise vm.max_map_count");
	}
	return kedge_reason(-EOPNOTSUPP, "userfaultfd refuses to watch that "
			    "memory (%s)", strerrordesc_np(-rc));
}
