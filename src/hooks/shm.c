// SPDX-License-Identifier: BSD-2-Clause
/*
 * System V segments: put over something, and taken away.
 */
#include <sys/shm.h>

#include "hooks/hooks.h"

/*
 * A process that may attach a segment may read its size. If that is refused all
 * the same, all that lies above is announced.
 */
void kedge__on_shmat(struct change *c, int id, const void *addr, int flags)
{
	uintptr_t start = (uintptr_t)addr;
	struct shmid_ds ds;
	int saved = errno;
	size_t len;

	if (!(flags & SHM_REMAP) || !addr)
		return;
	if (flags & SHM_RND)
		start -= start % (uintptr_t)SHMLBA;
	if (!shmctl(id, IPC_STAT, &ds))
		len = up_to(ds.shm_segsz, kedge__hooks_page());
	else if (errno == EINVAL || errno == EIDRM)
		len = 0;
	else
		len = EVERYTHING_LEN - start;
	errno = saved;
	change_add(c, KEDGE_EVENT_UNMAP, (void *)start, len);
}

void *kedge__attached(void *at, int id)
{
	struct shmid_ds ds;
	int saved = errno;

	if (at != (void *)-1 && !shmctl(id, IPC_STAT, &ds))
		kedge_hook_mapped(at, ds.shm_segsz);
	errno = saved;
	return at;
}

KEDGE_API void *shmat(int id, const void *addr, int flags)
{
	struct change c;
	void *at;

	change_init(&c);
	kedge__on_shmat(&c, id, addr, flags);
	at = kedge__real.shmat(id, addr, flags);
	change_end(&c);
	return kedge__attached(at, id);
}

void kedge__on_shmdt(struct change *c, const void *addr)
{
	int saved = errno;
	size_t len = kedge__shm_len((uintptr_t)addr);

	errno = saved;
	change_add(c, KEDGE_EVENT_UNMAP, addr, len);
}

KEDGE_API int shmdt(const void *addr)
{
	struct change c;
	int rc;

	change_init(&c);
	kedge__on_shmdt(&c, addr);
	rc = kedge__real.shmdt(addr);
	change_end(&c);
	return rc;
}
