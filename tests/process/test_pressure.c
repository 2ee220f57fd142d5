// SPDX-License-Identifier: BSD-2-Clause
/*
 * Buffers of a heap, of which every second is freed: a process may have 65,530
 * mappings (vm.max_map_count), and kedge must not use them up.
 *
 *   process_pressure [CASE...]  2,000 buffers, and the mappings are counted
 *   PRESSURE=80000 ...          so many; the application's own mmap() fails if
 *                               they are used up
 */
#include <malloc.h>

#include "alone.h"
#include "proc.h"

#define BUFS	 2000
#define LEN	 ((size_t)70000)
#define GET	 ((size_t)4096)
#define MORE	 100 /* mappings of the application's own */
#define SPARE	 16  /* mappings of kedge's own */
#define PER_MILLE 50 /* mappings for each thousand buffers freed */

static size_t how_many(void)
{
	const char *text = getenv("PRESSURE");

	return text ? strtoull(text, NULL, 10) : BUFS;
}

/* All from the heap, none a mapping of its own. */
static int alloc(char **buf, size_t cnt)
{
	size_t i;

	mallopt(M_MMAP_THRESHOLD, 1 << 20);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	for (i = 0; i < cnt; i++) {
		buf[i] = malloc(LEN);
		if (!buf[i])
			return proc_fail("malloc() of buffer %zu fails", i);
	}
	return 0;
}

static int get_each(struct rig *r, char **buf, size_t cnt)
{
	const struct kedge_mr *mr;
	size_t i;
	int rc;

	for (i = 0; i < cnt; i++) {
		rc = kedge_cache_get(r->cache, buf[i], LEN,
				     KEDGE_ACCESS_LOCAL_WRITE, &mr);
		if (rc)
			return proc_fail("buffer %zu: %s", i,
					 kedge_strerror(rc));
		kedge_cache_put(r->cache, mr);
	}
	return 0;
}

/* Mappings of the application's own. */
static int map_more(void)
{
	char *at;
	int i;

	for (i = 0; i < MORE; i++) {
		/* Every second one another kind, or they are one mapping. */
		at = mmap(NULL, GET, PROT_READ | (i & 1 ? PROT_WRITE : 0),
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (at == MAP_FAILED)
			return proc_fail("mmap() fails (%s) with %zu mappings",
					 strerror(errno), count_mappings());
	}
	return 0;
}

static int check_each(struct rig *r, char **buf, size_t cnt)
{
	size_t i;
	int rc;

	for (i = 0; i < cnt; i++) {
		rc = buf[i] ? rig_check(r, buf[i], GET) : 0;
		if (rc)
			return proc_fail("buffer %zu: %s", i,
					 rc > 0 ? "stale" : strerror(-rc));
	}
	return 0;
}

static int compare(const char *when, size_t before, size_t now, size_t freed)
{
	printf("# %zu mappings before, %zu %s\n", before, now, when);
	if (now <= before + SPARE + freed * PER_MILLE / 1000)
		return 0;
	return proc_fail("%zu mappings before, %zu %s: %zu buffers were freed",
			 before, now, when, freed);
}

static int every_second_freed(void)
{
	size_t cnt = how_many(), before, i;
	char **buf = calloc(cnt, sizeof(*buf));
	struct rig r;
	int rc = rig_open(&r);

	rc = rc ? rc : alloc(buf, cnt);
	before = count_mappings();
	rc = rc ? rc : get_each(&r, buf, cnt);
	if (rc)
		return rc;
	for (i = 0; i < cnt; i += 2) {
		free(buf[i]);
		buf[i] = NULL;
	}
	rc = map_more();
	rc = rc ? rc : compare("after the frees", before + MORE,
			       count_mappings(), cnt / 2);
	rc = rc ? rc : check_each(&r, buf, cnt);
	rc = rc ? rc : compare("after more gets", before + MORE,
			       count_mappings(), cnt / 2);
	rig_close(&r);
	return rc;
}

int main(int argc, char **argv)
{
	static const struct proc_case cases[] = {
		{ "every second buffer of a heap is freed", every_second_freed,
		  300 },
	};

	pin_alone();
	return proc_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
