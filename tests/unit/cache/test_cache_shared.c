// SPDX-License-Identifier: BSD-2-Clause
/*
 * Shared memory: kept where a memfd's seals forbid all processes to take pages away, or where the
 * program vouches for it; else registered for each get.
 */
#include <fcntl.h>
#include <sys/mman.h>

#include "cache/internal.h"
#include "cache_pages.h"

#define CNT 32 /* pages */
#define FULL (F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE)

static int fd;
static char *shm;

static char *map_fd(int flags)
{
	char *p = mmap(NULL, CNT * page, PROT_READ | PROT_WRITE, flags, fd, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	memset(p, 1, CNT * page);
	return p;
}

static void new_memfd(int seals)
{
	fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)(CNT * page)), 0);
	shm = map_fd(MAP_SHARED);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
}

static int end(void **state)
{
	if (fd >= 0)
		close(fd);
	fd = -1;
	munmap(shm, CNT * page);
	return teardown(state);
}

static bool shm_hit(size_t first, size_t cnt)
{
	uint64_t regs = dev->regs;

	put(get_at(shm + first * page, cnt * page, WRITE));
	return dev->regs == regs;
}

static void with_seals_it_is_kept(void **state)
{
	new_memfd(FULL);
	assert_false(shm_hit(0, CNT));
	assert_true(shm_hit(0, CNT));
	assert_true(shm_hit(3, 2));
	assert_int_equal(stats().uncached, 0);
	assert_int_equal(stats().vouched, 0);
}

static void with_fewer_seals_it_is_not(void **state)
{
	const int seals[] = { F_SEAL_GROW, F_SEAL_SHRINK, F_SEAL_SHRINK | F_SEAL_GROW,
			      F_SEAL_FUTURE_WRITE | F_SEAL_GROW };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(seals); i++) {
		new_memfd(seals[i]);
		shm_hit(0, CNT);
		assert_false(shm_hit(0, CNT));
		close(fd);
		munmap(shm, CNT * page);
	}
	new_memfd(FULL);
	assert_int_equal(stats().uncached_why[KEDGE_UNCACHED_KIND], 2 * ARRAY_SIZE(seals));
}

/* A write of the program's gives it another page there. */
static void a_private_mapping_is_not(void **state)
{
	char *p, *first;

	new_memfd(FULL);
	first = shm;
	p = mmap(NULL, CNT * page, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	shm = p;
	shm_hit(0, CNT);
	assert_false(shm_hit(0, CNT));
	munmap(p, CNT * page);
	shm = first;
}

static void this_process_s_changes_are_seen(void **state)
{
	char *p;

	new_memfd(FULL);
	shm_hit(0, CNT);
	assert_int_equal(madvise(shm, page, MADV_DONTNEED), 0);
	assert_false(shm_hit(0, CNT));
	/* This thread may have to be seen outside of the drop, as with private memory. */
	WAIT_FOR(shm_hit(0, CNT));
	p = mmap(shm, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		 0);
	assert_ptr_equal(p, shm);
	assert_false(shm_hit(0, CNT));
	assert_int_equal(munmap(shm, CNT * page), 0);
	p = mmap(shm, CNT * page, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	assert_ptr_equal(p, shm);
	assert_false(shm_hit(0, CNT));
}

static int take_pages_away(void *unused)
{
	return !(ftruncate(fd, 0) < 0 && errno == EPERM) ||
	       !(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)page) < 0 &&
		 errno == EPERM) ||
	       !(madvise(shm, page, MADV_REMOVE) < 0 && errno == EPERM);
}

static void other_processes_cannot_take_pages_away(void **state)
{
	new_memfd(FULL);
	shm_hit(0, CNT);
	shm[0] = 7;
	assert_int_equal(in_child(take_pages_away, NULL), 0);
	assert_true(shm_hit(0, CNT));
	assert_int_equal(shm[0], 7);
}

static void its_descriptor_may_be_any(void **state)
{
	int many[40], other;
	size_t i;

	new_memfd(FULL);
	for (i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = dup(0);
	other = fcntl(fd, F_DUPFD_CLOEXEC, 200);
	close(fd);
	fd = other;
	shm_hit(0, CNT);
	assert_true(shm_hit(0, CNT));
	for (i = 0; i < ARRAY_SIZE(many); i++)
		close(many[i]);
}

static int other_fd = -1;

/* The library calls an empty function where it has found a descriptor of the file. */
void seals_found(int found)
{
	if (other_fd >= 0)
		dup2(other_fd, found);
}

/* The seals that are read have to be of the file that was found. */
static void its_number_may_become_another_s(void **state)
{
	int sealed, more[4];
	size_t i;

	new_memfd(FULL);
	sealed = fd;
	munmap(shm, CNT * page);
	new_memfd(F_SEAL_GROW);
	/* It is looked for before the memory is watched, and after. */
	for (i = 0; i < 4; i++)
		more[i] = dup(fd);
	other_fd = sealed;
	shm_hit(0, CNT);
	other_fd = -1;
	assert_false(shm_hit(0, CNT));
	for (i = 0; i < 4; i++)
		close(more[i]);
	close(sealed);
}

/* Without one, by /proc/self/map_files, for those who may open that. */
static void its_descriptor_may_be_closed(void **state)
{
	char path[64];
	int map;

	new_memfd(FULL);
	close(fd);
	fd = -1;
	snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", (unsigned long)addr_of(shm),
		 (unsigned long)(addr_of(shm) + CNT * page));
	map = open(path, O_RDONLY | O_CLOEXEC);
	close(map);
	shm_hit(0, CNT);
	assert_int_equal(shm_hit(0, CNT), map >= 0);
}

/* ---- on the program's word ---- */

static void new_shared(void)
{
	fd = -1;
	shm = map_fd(MAP_SHARED | MAP_ANONYMOUS);
}

static int vouch(size_t first, size_t cnt)
{
	return kedge_cache_vouch(cache, shm + first * page, cnt * page);
}

static int unvouch(size_t first, size_t cnt)
{
	return kedge_cache_unvouch(cache, shm + first * page, cnt * page);
}

static void vouched_memory_is_kept(void **state)
{
	new_shared();
	assert_false(shm_hit(0, 8) || shm_hit(0, 8));
	assert_int_equal(vouch(0, 8), 0);
	assert_false(shm_hit(0, 8));
	assert_true(shm_hit(0, 8));
	assert_true(shm_hit(2, 4));
	assert_int_equal(stats().vouched, 1);
	/* Not beyond. */
	assert_false(shm_hit(4, 8) || shm_hit(4, 8));
	assert_int_equal(unvouch(0, 8), 0);
	assert_int_equal(dev->live, 0);
	assert_false(shm_hit(0, 8) || shm_hit(0, 8));
}

static void promises_are_counted(void **state)
{
	new_shared();
	assert_int_equal(unvouch(0, 8), -ENOENT);
	assert_int_equal(vouch(0, 8), 0);
	assert_int_equal(vouch(0, 8), 0);
	assert_int_equal(vouch(4, 8), 0);
	assert_int_equal(unvouch(0, 9), -ENOENT);
	assert_int_equal(unvouch(0, 8), 0);
	assert_false(shm_hit(0, 8));
	assert_true(shm_hit(0, 8));
	assert_int_equal(unvouch(0, 8), 0);
	assert_int_equal(unvouch(0, 8), -ENOENT);
	assert_false(shm_hit(0, 8) || shm_hit(0, 8));
	/* What is left of it is the close's. */
	assert_int_equal(kedge_cache_vouch(NULL, shm, 1), -EINVAL);
	assert_int_equal(kedge_cache_vouch(cache, shm, 0), -EINVAL);
	assert_int_equal(kedge_cache_unvouch(NULL, shm, 1), -EINVAL);
}

static void what_is_held_ends_with_its_put(void **state)
{
	const struct kedge_mr *mr;

	new_shared();
	vouch(0, 8);
	mr = get_at(shm, 8 * page, WRITE);
	assert_int_equal(unvouch(0, 8), 0);
	assert_int_equal(dev->live, 1);
	put(mr);
	assert_int_equal(dev->live, 0);
}

static void what_can_be_watched_is(void **state)
{
	new_shared();
	assert_int_equal(kedge_cache_vouch(cache, at(0), 8 * page), 0);
	get_put(0, 8, WRITE);
	assert_int_equal(stats().vouched, 0);
	pages_at(at(1), 1);
	assert_false(is_hit(0, 8, WRITE));
}

static void announced_changes_count(void **state)
{
	struct kedge_hook ch;

	new_shared();
	vouch(0, CNT);
	shm_hit(0, CNT);
	assert_true(shm_hit(0, CNT));
	kedge_hook_begin(&ch, KEDGE_EVENT_UNMAP, shm, page);
	kedge_hook_end(&ch);
	assert_false(shm_hit(0, CNT));
	assert_true(shm_hit(0, CNT));
}

static void end_the_promise(struct nodev *d, void *addr, size_t len)
{
	d->on_reg = NULL;
	assert_int_equal(unvouch(0, 8), 0);
}

static void a_promise_ends_while_it_registers(void **state)
{
	new_shared();
	vouch(0, 8);
	dev->on_reg = end_the_promise;
	assert_false(shm_hit(0, 8));
	assert_int_equal(dev->live, 0);
	assert_int_equal(stats().vouched, 0);
}

#define SHARED(f) cmocka_unit_test_setup_teardown(f, setup_open, end)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		SHARED(with_seals_it_is_kept),
		SHARED(with_fewer_seals_it_is_not),
		SHARED(a_private_mapping_is_not),
		SHARED(this_process_s_changes_are_seen),
		SHARED(other_processes_cannot_take_pages_away),
		SHARED(its_descriptor_may_be_any),
		SHARED(its_number_may_become_another_s),
		SHARED(its_descriptor_may_be_closed),
		SHARED(vouched_memory_is_kept),
		SHARED(promises_are_counted),
		SHARED(what_is_held_ends_with_its_put),
		SHARED(what_can_be_watched_is),
		SHARED(announced_changes_count),
		SHARED(a_promise_ends_while_it_registers),
	};

	return RUN_CASES(tests, argc, argv);
}
