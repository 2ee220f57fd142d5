// SPDX-License-Identifier: BSD-2-Clause
/*
 * A page with the counters of changes: this process writes it, peers map it read-only and
 * load them, and it is sealed so that no other process writes it by that descriptor.
 *
 * Why a peer that finds the generation unmoved has read nothing stale. An owner's munmap()
 * waits in the kernel until its event is read, and read() lets it go before it returns
 * here; so the generation is made odd before the read. What the owner does after its
 * munmap() comes after that store in every processor's eye (both pass through the
 * kernel's lock). A peer loads data, fences, and then loads the generation: if that
 * is the number that it had, its loads came before the store, so before the munmap()
 * returned. The proof is uffd.c's; see also kedge_segment_valid() for the other side.
 * A peer that stores data, fences, and finds the number that it had has stored before
 * the memory was copied to become private: there is a full fence behind the store here.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process/own.h"
#include "segment/internal.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)

static uint64_t before; /* the generation before check_begin() */

int check_make(void)
{
	size_t len = kedge__page_size() * (1 + (sizeof(*seg->check) - 1) / kedge__page_size());
	int fd = (int)syscall(SYS_memfd_create, "kedge-segment-check",
			      MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int rc = -ENOMEM;

	if (fd < 0)
		return -errno;
	if (!ftruncate(fd, (off_t)len))
		seg->check = own_map_file(len, fd, 0);
	if (seg->check) {
		madvise(seg->check, len, MADV_DONTFORK);
		rc = fcntl(fd, F_ADD_SEALS, SEALS) ? -errno : fds_read_only(fd);
	}
	fds_close(fd);
	if (rc < 0)
		return rc;
	seg->check_fd = rc;
	return 0;
}

void check_begin(void)
{
	place_forget();
	before = atomic_load_explicit(&seg->check->generation, memory_order_relaxed);
	/* seq_cst: before the read() of events in every eye. */
	atomic_store_explicit(&seg->check->generation, before | 1, memory_order_seq_cst);
	full_fence();
}

void check_end(bool changed)
{
	/* release: a load that gives it is followed by the counters that were moved. */
	atomic_store_explicit(&seg->check->generation, changed ? before + 2 : before,
			      memory_order_release);
}
