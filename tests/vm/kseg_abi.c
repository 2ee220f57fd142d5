// SPDX-License-Identifier: BSD-2-Clause
/*
 * /dev/kedge-segment, the calls: sizes, what each takes and refuses, limits.
 */
#include "kseg_lib.h"

#define PARAMS "/sys/module/kedge_segment/parameters/"
#define GENERATION ((off_t)KEDGE_SEGMENT_GENERATION_OFFSET)

_Static_assert(sizeof(struct kedge_segment_make) == 48, "");
_Static_assert(sizeof(struct kedge_segment_remove) == 24, "");
_Static_assert(sizeof(struct kedge_segment_get) == 48, "");
_Static_assert(sizeof(struct kedge_segment_query) == 88, "");
_Static_assert(sizeof(struct kedge_segment_list) == 24, "");

static const struct {
	unsigned long cmd;
	uint32_t size;
} requests[] = {
	{ KEDGE_SEGMENT_MAKE, sizeof(struct kedge_segment_make) },
	{ KEDGE_SEGMENT_REMOVE, sizeof(struct kedge_segment_remove) },
	{ KEDGE_SEGMENT_GET, sizeof(struct kedge_segment_get) },
	{ KEDGE_SEGMENT_QUERY, sizeof(struct kedge_segment_query) },
	{ KEDGE_SEGMENT_LIST, sizeof(struct kedge_segment_list) },
};

static int call(int fd, unsigned long cmd, void *arg)
{
	return vm_errno(ioctl(fd, cmd, arg));
}

static void sizes_and_flags_are_checked(void **state)
{
	uint32_t arg[2048], *edge;
	char *two = vm_memory(2);
	size_t i;

	munmap(two + PAGE, PAGE);
	for (i = 0; i < VM_COUNT(requests); i++) {
		const unsigned long cmd = requests[i].cmd;
		const uint32_t size = requests[i].size;

		memset(arg, 0, sizeof(arg));
		assert_int_equal(call(mine, cmd, arg), -EINVAL);
		arg[0] = size - 1;
		assert_int_equal(call(mine, cmd, arg), -EINVAL);
		arg[0] = UINT32_MAX;
		assert_int_equal(call(mine, cmd, arg), -E2BIG);
		arg[0] = PAGE + 1;
		assert_int_equal(call(mine, cmd, arg), -E2BIG);
		/* Of a newer version. */
		arg[0] = size + 8;
		arg[size / 4 + 1] = 1;
		assert_int_equal(call(mine, cmd, arg), -E2BIG);
		arg[0] = size;
		arg[1] = 2;
		assert_int_equal(call(mine, cmd, arg), -EINVAL);
		arg[1] = 1u << 31;
		assert_int_equal(call(mine, cmd, arg), -EINVAL);
		if (cmd != KEDGE_SEGMENT_MAKE) {
			arg[1] = 1;
			assert_int_equal(call(mine, cmd, arg), -EINVAL);
		}
		assert_int_equal(call(mine, cmd, NULL), -EFAULT);
		assert_int_equal(call(mine, cmd, (void *)-8l), -EFAULT);
		edge = (void *)(two + PAGE - 8);
		edge[0] = size;
		edge[1] = 0;
		assert_int_equal(call(mine, cmd, edge), -EFAULT);
	}
	assert_int_equal(call(mine, _IO(KEDGE_SEGMENT_MAGIC, 9), arg), -ENOTTY);
	assert_int_equal(call(mine, TIOCGWINSZ, arg), -ENOTTY);
	munmap(two, PAGE);
}

static void newer_structs_with_zeros_are_taken(void **state)
{
	struct {
		struct kedge_segment_make r;
		uint64_t more[4];
	} r = { .r = { .size = sizeof(r), .len = PAGE, .mode = 0600 } };
	char *m = vm_memory(1);

	r.r.addr = (uintptr_t)m;
	assert_int_equal(call(mine, KEDGE_SEGMENT_MAKE, &r), 0);
	assert_true(r.r.id[0] && r.r.id[1]);
	assert_int_equal(r.r.id[0] >> 63, 0);
}

static void make_refuses_bad_ranges(void **state)
{
	const uint64_t m = (uintptr_t)vm_memory(2);
	const struct kedge_segment_make bad[] = {
		{ .addr = m, .len = 0, .mode = 0600 },
		{ .addr = m, .len = PAGE, .mode = 0700 },
		{ .addr = m, .len = PAGE, .mode = 01600 },
		{ .addr = m, .len = PAGE, .mode = 0600, .pad = 1 },
		{ .addr = m, .len = -m, .mode = 0600 },
		{ .addr = m, .len = UINT64_MAX & ~(PAGE - 1), .mode = 0600 },
		{ .addr = -PAGE, .len = PAGE, .mode = 0600 },
		{ .addr = 0xffff888000000000ull, .len = PAGE, .mode = 0600 },
		{ .addr = 1ull << 62, .len = PAGE, .mode = 0600 },
		{ .addr = m, .len = PAGE, .flags = KEDGE_SEGMENT_WHOLE },
		{ .addr = m, .flags = KEDGE_SEGMENT_WHOLE },
		{ .len = PAGE, .flags = KEDGE_SEGMENT_WHOLE },
	};
	struct kedge_segment_list l = { .size = sizeof(l) };
	struct kedge_segment_make r;
	size_t i;

	for (i = 0; i < VM_COUNT(bad); i++) {
		r = bad[i];
		r.size = sizeof(r);
		assert_int_equal(call(mine, KEDGE_SEGMENT_MAKE, &r), -EINVAL);
	}
	assert_int_equal(call(mine, KEDGE_SEGMENT_LIST, &l), 0);
	assert_int_equal(l.cnt, 0);
	/* Not mapped, the last page, one that overlaps: these are fine. */
	assert_int_equal(ks_make(mine, NULL, PAGE, 0, &shared), 0);
	assert_int_equal(ks_make(mine, (void *)0x7fffffffe000, PAGE, 0, &shared), 0);
	assert_int_equal(ks_make(mine, (void *)m, PAGE, 0, &shared), 0);
	assert_int_equal(ks_make(mine, (void *)m, 2 * PAGE, 0, &shared), 0);
}

/* The owner's range is handed on as it is; whole pages are attached. */
static void a_segment_is_the_pages_that_hold_the_range(void **state)
{
	struct kedge_segment_get r = { .size = sizeof(r),
				       .access = KEDGE_SEGMENT_READ };
	char *m = vm_memory(3), *p, c = 0;

	m[PAGE - 1] = 7;
	ks_share(m + PAGE - 1, PAGE + 2);
	memcpy(r.id, &shared, sizeof(shared));
	assert_int_equal(call(other, KEDGE_SEGMENT_GET, &r), 0);
	assert_int_equal(r.addr, (uintptr_t)m + PAGE - 1);
	assert_int_equal(r.len, PAGE + 2);
	assert_int_equal(r.pid, getpid());
	assert_int_equal(vm_map_errno(other, 4 * PAGE, PROT_READ, MAP_SHARED, 0), -EINVAL);
	p = ks_mapped(other, 3 * PAGE, PROT_READ, 0);
	assert_int_equal(ks_load(p + PAGE - 1, &c), KS_OK);
	assert_int_equal(c, 7);
	munmap(p, 3 * PAGE);
}

static void half_of_an_id_finds_its_segment(void **state)
{
	ks_share(vm_memory(1), PAGE);
	shared.word[1] = 0;
	assert_int_equal(ks_get(other, shared, KEDGE_SEGMENT_READ), 0);
	close(other);
	other = ks_open(O_RDWR);
	shared.word[0] ^= 1;
	assert_int_equal(ks_get(other, shared, KEDGE_SEGMENT_READ), -ENOENT);
}

/* The generation has moved before the zeros are there. */
static void who_keeps_finds_zeros_where_the_owner_has_nothing(void **state)
{
	char *m = vm_memory(3), *p, *q, c = 1;
	const uint64_t *generation;
	uint64_t before;

	memset(m, 5, 3 * PAGE);
	ks_grant(m, 3 * PAGE);
	generation = ks_generation(other);
	p = ks_mapped(other, 3 * PAGE, PROT_READ | PROT_WRITE, 1l << 61);
	q = ks_mapped(other, PAGE, PROT_READ, (1l << 61) + (long)PAGE);
	assert_int_equal(ks_load(p + PAGE, &c), KS_OK);
	assert_int_equal(c, 5);
	assert_int_equal(munmap(m + PAGE, PAGE), 0);
	before = *generation;
	assert_int_equal(before % 2, 0);
	assert_int_equal(ks_load(p + PAGE, &c), KS_OK);
	assert_int_equal(c, 0);
	assert_true(*generation > before && *generation % 2 == 0);
	assert_int_equal(ks_store(p + PAGE, 9), KS_OK);
	assert_int_equal(ks_load(q, &c), KS_OK);
	assert_int_equal(c, 0);
	assert_int_equal(ks_load(p + 2 * PAGE, &c), KS_OK);
	assert_int_equal(c, 5);
	assert_int_equal(ks_remove(mine, shared), 0);
	assert_int_equal(ks_load(q, &c), KS_OK);
	assert_int_equal(c, 0);
	assert_int_equal(ks_store(p, 9), KS_OK);
	assert_int_equal(m[0], 5);
	assert_int_equal(*generation % 2, 1);
	munmap(p, 3 * PAGE);
	munmap(q, PAGE);
}

/* A segment whose id could not be handed back is not left behind. */
static void make_undoes_what_it_cannot_tell(void **state)
{
	struct kedge_segment_list l = { .size = sizeof(l) };
	char *m = vm_memory(1);
	struct kedge_segment_make *r = (void *)m;

	*r = (struct kedge_segment_make){ .size = sizeof(*r), .len = PAGE };
	r->addr = (uintptr_t)m;
	mprotect(m, PAGE, PROT_READ);
	assert_int_equal(call(mine, KEDGE_SEGMENT_MAKE, r), -EFAULT);
	assert_int_equal(call(mine, KEDGE_SEGMENT_LIST, &l), 0);
	assert_int_equal(l.cnt, 0);
	munmap(m, PAGE);
}

static void get_makes_a_file_a_grant_once(void **state)
{
	int ro = ks_open(O_RDONLY);
	struct kedge_segment_get r = { .size = sizeof(r) };
	struct ks_id none = { { 1, 2 } };
	char *m = vm_memory(3), *ro_arg = vm_memory(1);

	ks_share(m, 3 * PAGE);
	memcpy(r.id, &shared, sizeof(shared));
	assert_int_equal(call(other, KEDGE_SEGMENT_GET, &r), -EINVAL);
	r.access = KEDGE_SEGMENT_WRITE;
	assert_int_equal(call(other, KEDGE_SEGMENT_GET, &r), -EINVAL);
	r.access = KS_RW | 4;
	assert_int_equal(call(other, KEDGE_SEGMENT_GET, &r), -EINVAL);
	r.access = KS_RW;
	assert_int_equal(ks_get(other, none, KS_RW), -ENOENT);
	none = shared;
	none.word[1] ^= 1;
	assert_int_equal(ks_get(other, none, KS_RW), -ENOENT);
	assert_int_equal(ks_get(mine, shared, KS_RW), -EBUSY);
	assert_int_equal(ks_get(ro, shared, KS_RW), -EACCES);
	/* One that cannot be answered has no effect. */
	memcpy(ro_arg, &r, sizeof(r));
	mprotect(ro_arg, PAGE, PROT_READ);
	assert_int_equal(call(other, KEDGE_SEGMENT_GET, ro_arg), -EFAULT);
	assert_int_equal(call(other, KEDGE_SEGMENT_GET, &r), 0);
	assert_int_equal(r.len, 3 * PAGE);
	assert_int_equal(call(other, KEDGE_SEGMENT_GET, &r), -EBUSY);
	assert_int_equal(ks_get(ro, shared, KEDGE_SEGMENT_READ), 0);
	close(ro);
}

static void mmap_is_within_the_grant(void **state)
{
	int none = ks_open(O_RDWR), r = ks_open(O_RDWR), ro = ks_open(O_RDONLY);
	const int both = PROT_READ | PROT_WRITE;
	char *m = vm_memory(3), *p;

	ks_grant(m, 3 * PAGE);
	assert_int_equal(ks_get(r, shared, KEDGE_SEGMENT_READ), 0);
	assert_int_equal(ks_get(ro, shared, KEDGE_SEGMENT_READ), 0);
	assert_int_equal(vm_map_errno(none, PAGE, PROT_READ, MAP_SHARED, 0), -EINVAL);
	assert_int_equal(vm_map_errno(mine, PAGE, PROT_READ, MAP_SHARED, 0), -EINVAL);
	assert_int_equal(vm_map_errno(other, PAGE, both, MAP_PRIVATE, 0), -EINVAL);
	assert_int_equal(vm_map_errno(other, 4 * PAGE, both, MAP_SHARED, 0), -EINVAL);
	assert_int_equal(vm_map_errno(other, PAGE, both, MAP_SHARED, 3 * PAGE), -EINVAL);
	assert_int_equal(vm_map_errno(other, 2 * PAGE, both, MAP_SHARED, 2 * PAGE), -EINVAL);
	assert_int_equal(vm_map_errno(other, PAGE, both, MAP_SHARED, 1l << 60), -EINVAL);
	assert_int_equal(vm_map_errno(other, PAGE, both, MAP_SHARED, (1l << 61) + 3 * (long)PAGE),
			 -EINVAL);
	assert_int_equal(vm_map_errno(other, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, 0),
			 -EPERM);
	assert_int_equal(vm_map_errno(r, PAGE, both, MAP_SHARED, 0), -EACCES);
	assert_int_equal(vm_map_errno(ro, PAGE, both, MAP_SHARED, 0), -EACCES);
	assert_int_equal(vm_map_errno(ro, PAGE, PROT_READ, MAP_SHARED, 0), 0);
	assert_int_equal(vm_map_errno(other, 2 * PAGE, both, MAP_SHARED | MAP_POPULATE,
				   PAGE), 0);
	/* No way around it later. */
	p = ks_mapped(r, PAGE, PROT_READ, 0);
	assert_int_equal(mprotect(p, PAGE, both), -1);
	assert_int_equal(mprotect(p, PAGE, PROT_READ | PROT_EXEC), -1);
	munmap(p, PAGE);
	assert_int_equal(ks_remove(mine, shared), 0);
	assert_int_equal(vm_map_errno(other, PAGE, both, MAP_SHARED, 0), -EIDRM);
	close(none);
	close(r);
	close(ro);
}

static void the_generation_is_one_page_to_read(void **state)
{
	const uint64_t *p;

	ks_grant(vm_memory(1), PAGE);
	assert_int_equal(vm_map_errno(other, 2 * PAGE, PROT_READ, MAP_SHARED, GENERATION),
			 -EINVAL);
	assert_int_equal(vm_map_errno(other, PAGE, PROT_READ, MAP_PRIVATE, GENERATION),
			 -EINVAL);
	assert_int_equal(vm_map_errno(other, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED,
				   GENERATION), -EACCES);
	assert_int_equal(vm_map_errno(other, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED,
				   GENERATION), -EPERM);
	p = ks_generation(other);
	assert_int_equal(ks_errno(p), 0);
	assert_int_equal(*p % 2, 0);
	assert_int_equal(mprotect((void *)p, PAGE, PROT_READ | PROT_WRITE), -1);
	/* It stays when all files are closed. */
	close(other);
	close(mine);
	assert_int_equal(*p % 2, 1);
	munmap((void *)p, PAGE);
}

static void list_tells_how_many(void **state)
{
	struct kedge_segment_list l = { .size = sizeof(l) };
	int fd = ks_open(O_RDWR), i, j;
	struct ks_id made[5], got[5];
	char *m = vm_memory(1);

	for (i = 0; i < 5; i++)
		assert_int_equal(ks_make(fd, m, PAGE, 0600, &made[i]), 0);
	assert_int_equal(call(fd, KEDGE_SEGMENT_LIST, &l), 0);
	assert_int_equal(l.cnt, 5);
	l.room = 3;
	l.ids = 1;
	assert_int_equal(call(fd, KEDGE_SEGMENT_LIST, &l), -EFAULT);
	l.ids = (uintptr_t)got;
	memset(got, 0, sizeof(got));
	assert_int_equal(call(fd, KEDGE_SEGMENT_LIST, &l), 0);
	assert_int_equal(l.cnt, 5);
	assert_true(got[2].word[0] && !got[3].word[0]);
	l.room = UINT32_MAX;
	assert_int_equal(call(fd, KEDGE_SEGMENT_LIST, &l), 0);
	for (i = 0; i < 5; i++) {
		for (j = 0; j < 5 && memcmp(&made[i], &got[j], sizeof(made[0])); j++)
			;
		assert_true(j < 5);
	}
	close(fd);
	fd = ks_open(O_RDWR);
	assert_int_equal(call(fd, KEDGE_SEGMENT_LIST, &l), 0);
	assert_int_equal(l.cnt, 0);
	close(fd);
}

/* ---- limits ---- */

static void segments_are_limited(void **state)
{
	const uint64_t was = vm_number(PARAMS "max_segments_per_user");
	char *m = vm_memory(1);
	int i;

	vm_set(PARAMS "max_segments_per_user", 4);
	for (i = 0; i < 4; i++)
		assert_int_equal(ks_make(i % 2 ? mine : other, m, PAGE, 0600, &shared), 0);
	assert_int_equal(ks_make(mine, m, PAGE, 0600, &shared), -ENOSPC);
	close(other);
	ks_share(m, PAGE);
	vm_set(PARAMS "max_segments_per_user", was);
}

static void mappings_are_limited(void **state)
{
	const uint64_t was = vm_number(PARAMS "max_attachments_per_segment");
	struct kedge_segment_query q;
	char *m = vm_memory(8), *a, *b;

	vm_set(PARAMS "max_attachments_per_segment", 2);
	ks_grant(m, 8 * PAGE);
	a = ks_mapped(other, 8 * PAGE, PROT_READ, 0);
	b = ks_mapped(other, PAGE, PROT_READ, 0);
	assert_int_equal(ks_errno(ks_map(other, PAGE, PROT_READ, 0)), -ENOSPC);
	/* A hole would make three of two; a page at an end makes no more. */
	assert_int_equal(vm_errno(munmap(a + PAGE, PAGE)), -ENOSPC);
	munmap(b, PAGE);
	assert_int_equal(munmap(a + PAGE, PAGE), 0);
	assert_int_equal(ks_query(mine, shared, &q), 0);
	assert_int_equal(q.attachments, 2);
	munmap(a, 8 * PAGE);
	assert_int_equal(ks_query(mine, shared, &q), 0);
	assert_int_equal(q.attachments, 0);
	vm_set(PARAMS "max_attachments_per_segment", was);
}

static void memory_is_limited(void **state)
{
	const uint64_t was = vm_number(PARAMS "max_kib_per_user");
	char *m = vm_memory(1), *a, v;
	int i;

	ks_grant(m, PAGE);
	a = ks_mapped(other, PAGE, PROT_READ, 0);
	vm_set(PARAMS "max_kib_per_user", 1);
	assert_int_equal(ks_open(O_RDWR), -EDQUOT);
	assert_int_equal(ks_make(mine, m, PAGE, 0600, &shared), -EDQUOT);
	/* A touch needs memory, too. */
	assert_int_equal(ks_load(a, &v), KS_SIGBUS);
	vm_set(PARAMS "max_kib_per_user", was);
	assert_int_equal(ks_load(a, &v), KS_OK);
	/* All is given back. */
	vm_set(PARAMS "max_kib_per_user", 64);
	for (i = 0; i < 100; i++)
		assert_int_equal(ks_make(mine, m, PAGE, 0600, &shared) ?:
				 ks_remove(mine, shared), 0);
	vm_set(PARAMS "max_kib_per_user", was);
	munmap(a, PAGE);
}

static int rmmod_fails(void *arg)
{
	return system("rmmod kedge_segment 2>/dev/null") ? 0 : 1;
}

static void the_module_stays_while_a_file_is_open(void **state)
{
	int fd = ks_open(O_RDONLY);

	assert_int_equal(vm_child(rmmod_fails, NULL), 0);
	close(fd);
}

static void system_calls_use_attached_memory(void **state)
{
	char *m = vm_memory(4), *a;
	int p[2];

	assert_int_equal(pipe(p), 0);
	ks_grant(m, 4 * PAGE);
	a = ks_mapped(other, 4 * PAGE, PROT_READ | PROT_WRITE, 0);
	assert_int_equal(write(p[1], "hello", 6), 6);
	/* Neither has the page in its tables. */
	madvise(m, 4 * PAGE, MADV_DONTNEED);
	assert_int_equal(read(p[0], a + 2 * PAGE - 3, 6), 6);
	assert_string_equal(m + 2 * PAGE - 3, "hello");
	munmap(m + 3 * PAGE, PAGE);
	assert_int_equal(vm_errno(write(p[1], a + 3 * PAGE, 6)), -EFAULT);
	munmap(a, 4 * PAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		KS_CASE(sizes_and_flags_are_checked),
		KS_CASE(newer_structs_with_zeros_are_taken),
		KS_CASE(make_refuses_bad_ranges),
		KS_CASE(a_segment_is_the_pages_that_hold_the_range),
		KS_CASE(half_of_an_id_finds_its_segment),
		KS_CASE(who_keeps_finds_zeros_where_the_owner_has_nothing),
		KS_CASE(make_undoes_what_it_cannot_tell),
		KS_CASE(get_makes_a_file_a_grant_once),
		KS_CASE(mmap_is_within_the_grant),
		KS_CASE(the_generation_is_one_page_to_read),
		cmocka_unit_test(list_tells_how_many),
		KS_CASE(segments_are_limited),
		KS_CASE(mappings_are_limited),
		KS_CASE(memory_is_limited),
		cmocka_unit_test(the_module_stays_while_a_file_is_open),
		KS_CASE(system_calls_use_attached_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
