// SPDX-License-Identifier: BSD-2-Clause
/*
 * Memory whose pages the application drops and touches again is cached again
 * once it has stopped dropping. The drops are system calls of the program's own,
 * so only the kernel tells of them.
 */
#include "alone.h"
#include "proc.h"

#define BUFS	64
#define ROUNDS	4
#define TOUCH_MS 5
#define PAUSE_MS 10
/* Passes until a buffer that is not cached counts as never cached again. */
#define PASSES 500

static char *buf[BUFS];

static int make_bufs(struct rig *r, size_t apart)
{
	char *at = map_anon(NULL, BUFS * apart);
	int i, rc;

	if (!at)
		return proc_fail("mmap: %s", strerror(errno));
	for (i = 0; i < BUFS; i++) {
		buf[i] = at + (size_t)i * apart;
		/* With room between them each is a mapping of its own. */
		if (apart > RIG_LEN &&
		    munmap(buf[i] + RIG_LEN, apart - RIG_LEN))
			return proc_fail("munmap: %s", strerror(errno));
		rc = rig_check(r, buf[i], RIG_LEN);
		if (rc)
			return proc_fail("buffer %d: %s", i,
					 rc > 0 ? "stale" : strerror(-rc));
	}
	return 0;
}

/* A get of each: how many were not cached, or a failure, negative. */
static int pass(struct rig *r)
{
	uint64_t before = rig_uncached(r);
	int i, rc;

	for (i = 0; i < BUFS; i++) {
		rc = rig_check(r, buf[i], RIG_LEN);
		if (rc) {
			proc_fail("buffer %d: %s", i,
				  rc > 0 ? "stale" : strerror(-rc));
			return -1;
		}
	}
	return (int)(rig_uncached(r) - before);
}

struct drop {
	int advice;
	size_t apart;
	bool gets; /* before the touch */
};

static void drop_and_touch(const struct drop *d, struct rig *r)
{
	int i;

	for (i = 0; i < BUFS; i++)
		raw_madvise(buf[i], RIG_LEN, d->advice);
	if (d->gets)
		pass(r);
	sleep_ms(TOUCH_MS);
	for (i = 0; i < BUFS; i++)
		memset(buf[i], i, RIG_LEN);
}

/*
 * At most 10 % of the gets are not cached 10 ms after the drops; on a machine
 * that is slow, later, but at some time.
 */
static int cached_again(const void *variant)
{
	const struct drop *d = variant;
	int round, n, cnt = 0, most = 0, rc;
	struct rig r;

	rc = rig_open(&r);
	rc = rc ? rc : make_bufs(&r, d->apart);
	if (rc)
		return rc;
	for (round = 0; round < ROUNDS; round++) {
		drop_and_touch(d, &r);
		for (n = 0; n < PASSES; n++) {
			sleep_ms(PAUSE_MS);
			cnt = pass(&r);
			if (cnt < 0)
				return 1;
			if (cnt <= BUFS / 10)
				break;
		}
		if (n == PASSES)
			return proc_fail("round %d: %d of %d buffers are never "
					 "cached again", round, cnt, BUFS);
		most = n > most ? n : most;
	}
	printf("# cached again within %d ms\n", (most + 1) * PAUSE_MS);
	rig_close(&r);
	return 0;
}

#define DROP(name, ...) { name, NULL, 0, cached_again, &(const struct drop){ __VA_ARGS__ } }

static const struct proc_case cases[] = {
	DROP("MADV_DONTNEED in one mapping", MADV_DONTNEED, RIG_LEN, false),
	DROP("MADV_DONTNEED in mappings apart", MADV_DONTNEED, 2 * RIG_LEN, false),
	DROP("MADV_DONTNEED, and gets before the touch", MADV_DONTNEED, 2 * RIG_LEN, true),
	DROP("MADV_FREE in one mapping", MADV_FREE, RIG_LEN, false),
	DROP("MADV_FREE in mappings apart", MADV_FREE, 2 * RIG_LEN, false),
};

int main(int argc, char **argv)
{
	pin_alone();
	return proc_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
