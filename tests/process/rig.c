// SPDX-License-Identifier: BSD-2-Clause
/* A cache over a ring, and what cases do with memory and threads. */
#include <kedge/uring.h>

#include "proc.h"
#include "tools/common/raw.h"

int rig_open_cache(struct rig *r)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };
	int rc = kedge_notifier_open(NULL, &r->nf);

	if (rc)
		return proc_fail("kedge_notifier_open: %s", kedge_strerror(rc));
	kedge_notifier_info(r->nf, &info);
	if (info.level < KEDGE_LEVEL_ORDERED)
		return proc_skip("no notifier here is ordered");
	rc = kedge_cache_open(r->dev, r->nf, NULL, &r->cache);
	return rc ? proc_fail("kedge_cache_open: %s", kedge_strerror(rc)) : 0;
}

int rig_open_device(struct rig *r)
{
	int rc;

	memset(r, 0, sizeof(*r));
	pthread_mutex_init(&r->lock, NULL);
	if (pipe2(r->pipe, O_CLOEXEC))
		return proc_fail("pipe: %s", strerror(errno));
	rc = io_uring_queue_init(8, &r->ring, 0);
	if (rc)
		return proc_skip("io_uring_setup: %s", strerror(-rc));
	rc = kedge_device_open_uring(&r->ring, NULL, &r->dev);
	return rc ? proc_skip("the device: %s", kedge_strerror(rc)) : 0;
}

int rig_open(struct rig *r)
{
	int rc = rig_open_device(r);

	return rc ? rc : rig_open_cache(r);
}

void rig_close_cache(struct rig *r)
{
	kedge_cache_close(r->cache);
	kedge_notifier_close(r->nf);
}

void rig_close(struct rig *r)
{
	rig_close_cache(r);
	kedge_device_close(r->dev);
	io_uring_queue_exit(&r->ring);
	close(r->pipe[0]);
	close(r->pipe[1]);
}

/* The device writes @len bytes at @at: 0 or a negative errno. */
static int transfer(struct rig *r, const struct kedge_mr *mr, char *at,
		    const void *bytes, size_t len)
{
	char *pos = (char *)(uintptr_t)(mr->offset + (uintptr_t)at - mr->addr);
	struct io_uring_cqe *cqe;
	int rc;

	if (write(r->pipe[1], bytes, len) != (ssize_t)len)
		return -EIO;
	io_uring_prep_read_fixed(io_uring_get_sqe(&r->ring), r->pipe[0], pos,
				 (unsigned int)len, (uint64_t)-1,
				 (int)mr->device_handle);
	do
		rc = io_uring_submit_and_wait(&r->ring, 1);
	while (rc == -EINTR || rc == -EAGAIN);
	if (rc < 0)
		return rc;
	do
		rc = io_uring_wait_cqe(&r->ring, &cqe);
	while (rc == -EINTR || rc == -EAGAIN);
	if (rc)
		return rc;
	rc = cqe->res == (int)len ? 0 : cqe->res < 0 ? cqe->res : -EIO;
	io_uring_cqe_seen(&r->ring, cqe);
	return rc;
}

int rig_check(struct rig *r, char *at, size_t len)
{
	static uint64_t bytes[RIG_LEN / sizeof(uint64_t)]; /* r->lock's */
	const struct kedge_mr *mr;
	size_t i;
	int rc = kedge_cache_get(r->cache, at, len, KEDGE_ACCESS_LOCAL_WRITE,
				 &mr);

	if (rc)
		return rc;
	pthread_mutex_lock(&r->lock);
	r->seq += 0x9e3779b97f4a7c15u;
	for (i = 0; i < len / sizeof(bytes[0]); i++)
		bytes[i] = r->seq + i;
	rc = transfer(r, mr, at, bytes, len);
	if (!rc)
		rc = memcmp(at, bytes, len) != 0;
	pthread_mutex_unlock(&r->lock);
	kedge_cache_put(r->cache, mr);
	return rc;
}

int rig_touch(struct rig *r, char *at, size_t len)
{
	struct kedge_cache_stats from = { .size = sizeof(from) }, to = from;
	const struct kedge_mr *mr;
	int rc;

	kedge_cache_stats(r->cache, &from);
	rc = kedge_cache_get(r->cache, at, len, KEDGE_ACCESS_LOCAL_WRITE, &mr);
	if (rc)
		return rc;
	kedge_cache_put(r->cache, mr);
	kedge_cache_stats(r->cache, &to);
	return to.hits != from.hits;
}

uint64_t rig_uncached(struct rig *r)
{
	struct kedge_cache_stats st = { .size = sizeof(st) };

	kedge_cache_stats(r->cache, &st);
	return st.uncached;
}

char *map_anon(void *at, size_t len)
{
	void *p = mmap(at, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1,
		       0);

	return p == MAP_FAILED ? NULL : p;
}

long raw_madvise(void *at, size_t len, int advice)
{
	return raw_syscall6(SYS_madvise, (long)at, (long)len, advice, 0, 0, 0);
}

size_t count_mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	size_t n = 0;
	int c;

	while (f && (c = getc(f)) != EOF)
		n += c == '\n';
	if (f)
		fclose(f);
	return n;
}

void sleep_ms(unsigned int ms)
{
	struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

int pin_to(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set);
}

int usable_cpus(int *cpu, int max)
{
	cpu_set_t set;
	int i, cnt = 0;

	if (sched_getaffinity(0, sizeof(set), &set))
		return 0;
	for (i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &set) && cnt++ < max)
			cpu[cnt - 1] = i;
	return cnt;
}
