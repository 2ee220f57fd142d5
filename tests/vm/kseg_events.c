// SPDX-License-Identifier: BSD-2-Clause
/*
 * /dev/kedge-segment: what the kernel does to the owner's memory, as an attacher
 * in another process sees it. After each event the attacher has the owner's page
 * of now, or is refused; never one of before.
 */
#include "kseg_lib.h"

#define PAGES 8
#define HUGE (2ul << 20)

struct both {
	char *m;
	size_t len;
	int fd;
	struct ks_id id;
	struct peer peer;
};

static struct both b;

static void share(char *m, size_t len)
{
	b.m = m;
	b.len = len;
	b.fd = ks_open(O_RDWR);
	assert_true(b.fd >= 0);
	assert_int_equal(ks_make(b.fd, m, len, 0600, &b.id), 0);
	peer_start(&b.peer, b.id, KS_RW, len);
	assert_int_equal(b.peer.failed, 0);
}

static int share_some(void **state)
{
	share(vm_memory(PAGES), PAGES * PAGE);
	return 0;
}

static int unshare_all(void **state)
{
	peer_stop(&b.peer);
	close(b.fd);
	munmap(b.m, b.len);
	return 0;
}

static char seen(size_t offset)
{
	char v = 0;

	assert_int_equal(peer_load(&b.peer, offset, &v), KS_OK);
	return v;
}

static void both_see_stores(void **state)
{
	b.m[5] = 42;
	assert_int_equal(seen(5), 42);
	assert_int_equal(peer_store(&b.peer, 3 * PAGE, 43), KS_OK);
	assert_int_equal(b.m[3 * PAGE], 43);
	b.m[3 * PAGE] = 44;
	assert_int_equal(seen(3 * PAGE), 44);
}

static void munmap_takes_the_pages(void **state)
{
	char v;

	assert_int_equal(peer_store(&b.peer, 0, 7), KS_OK);
	assert_int_equal(peer_store(&b.peer, 2 * PAGE, 7), KS_OK);
	munmap(b.m + 2 * PAGE, PAGE);
	assert_int_equal(peer_load(&b.peer, 2 * PAGE, &v), KS_SIGBUS);
	assert_int_equal(peer_store(&b.peer, 2 * PAGE, 1), KS_SIGBUS);
	assert_int_equal(seen(0), 7);
	/* The next mapping there is seen. */
	assert_true(mmap(b.m + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		    b.m + 2 * PAGE);
	b.m[2 * PAGE] = 9;
	assert_int_equal(seen(2 * PAGE), 9);
}

static uint64_t generation(void)
{
	return peer_generation(&b.peer);
}

static void dontneed_is_seen_and_counted(void **state)
{
	struct kedge_segment_query q;
	uint64_t g;

	g = generation();
	assert_int_equal(g % 2, 0);
	/* No attacher has them: not told. */
	madvise(b.m, PAGES * PAGE, MADV_DONTNEED);
	assert_int_equal(generation(), g);
	b.m[PAGE] = 3;
	assert_int_equal(seen(PAGE), 3);
	madvise(b.m + PAGE, PAGE, MADV_DONTNEED);
	assert_int_equal(generation(), g + 2);
	assert_int_equal(seen(PAGE), 0);
	/* The zero page goes with the owner's first store. */
	b.m[PAGE] = 4;
	assert_int_equal(generation(), g + 4);
	assert_int_equal(seen(PAGE), 4);
	assert_int_equal(ks_query(b.fd, b.id, &q), 0);
	assert_int_equal(q.generation, g + 4);
	assert_int_equal(q.invalidations, 2);
	assert_int_equal(q.pid, getpid());
	assert_int_equal(q.attachments, 1);
	assert_int_equal(q.grants, 1);
	assert_true(q.pages >= 1 && q.pages <= PAGES);
}

static void what_moves_is_followed(void **state)
{
	char *away = vm_memory(1), v;

	memset(away, 77, PAGE);
	b.m[PAGE] = 5;
	assert_int_equal(peer_store(&b.peer, PAGE + 1, 6), KS_OK);
	/* Another page comes to its address. */
	assert_true(mremap(away, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
			   b.m + PAGE) == b.m + PAGE);
	assert_int_equal(seen(PAGE), 77);
	assert_int_equal(peer_store(&b.peer, PAGE, 78), KS_OK);
	assert_int_equal(b.m[PAGE], 78);
	/* It goes. */
	away = mremap(b.m + PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
		       vm_memory(1));
	assert_true(away != MAP_FAILED);
	assert_int_equal(peer_load(&b.peer, PAGE, &v), KS_SIGBUS);
	assert_int_equal(*away, 78);
	munmap(away, PAGE);
}

static void map_fixed_over_it_is_seen(void **state)
{
	assert_int_equal(peer_store(&b.peer, 0, 9), KS_OK);
	assert_true(mmap(b.m, 2 * PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == b.m);
	assert_int_equal(seen(0), 0);
	b.m[0] = 10;
	assert_int_equal(seen(0), 10);
}

static void mprotect_of_the_owner_binds(void **state)
{
	char v;

	assert_int_equal(peer_store(&b.peer, 0, 2), KS_OK);
	mprotect(b.m, PAGE, PROT_READ);
	assert_int_equal(seen(0), 2);
	assert_int_equal(peer_store(&b.peer, 0, 3), KS_SIGBUS);
	assert_int_equal(b.m[0], 2);
	mprotect(b.m, PAGE, PROT_NONE);
	assert_int_equal(peer_load(&b.peer, 0, &v), KS_SIGBUS);
	mprotect(b.m, PAGE, PROT_READ | PROT_WRITE);
	assert_int_equal(peer_store(&b.peer, 0, 4), KS_OK);
	assert_int_equal(b.m[0], 4);
}

/* In the child of the owner: what it has is not the segment's. */
struct kin {
	int ask, answer;
	pid_t pid;
};

static void kin_start(struct kin *k, char *m)
{
	int ask[2], answer[2];
	char v;

	assert_int_equal(pipe(ask), 0);
	assert_int_equal(pipe(answer), 0);
	k->pid = fork();
	if (!k->pid) {
		close(ask[1]);
		while (read(ask[0], &v, 1) == 1) {
			if (v)		/* 0: only tell */
				*m = v;
			if (write(answer[1], m, 1) != 1)
				break;
		}
		_exit(0);
	}
	close(ask[0]);
	close(answer[1]);
	k->ask = ask[1];
	k->answer = answer[0];
}

static char kin_does(struct kin *k, char v)
{
	assert_int_equal(write(k->ask, &v, 1), 1);
	assert_int_equal(read(k->answer, &v, 1), 1);
	return v;
}

static void kin_stop(struct kin *k)
{
	close(k->ask);
	close(k->answer);
	waitpid(k->pid, NULL, 0);
}

static void copy_on_write_parts_parent_and_child(void **state)
{
	struct kin k;

	/* A page that the attacher may store to already. */
	assert_int_equal(peer_store(&b.peer, 0, 10), KS_OK);
	assert_int_equal(seen(PAGE), 1);
	kin_start(&k, b.m);
	assert_int_equal(peer_store(&b.peer, 0, 11), KS_OK);
	assert_int_equal(b.m[0], 11);
	assert_int_equal(kin_does(&k, 0), 10);
	assert_int_equal(kin_does(&k, 12), 12);
	assert_int_equal(seen(0), 11);
	kin_stop(&k);

	kin_start(&k, b.m + PAGE);
	assert_int_equal(seen(PAGE), 1);
	b.m[PAGE] = 20;
	assert_int_equal(seen(PAGE), 20);
	assert_int_equal(kin_does(&k, 0), 1);
	kin_stop(&k);

	/* The child copies first. */
	kin_start(&k, b.m + 2 * PAGE);
	assert_int_equal(seen(2 * PAGE), 1);
	assert_int_equal(kin_does(&k, 30), 30);
	assert_int_equal(peer_store(&b.peer, 2 * PAGE, 31), KS_OK);
	assert_int_equal(b.m[2 * PAGE], 31);
	assert_int_equal(kin_does(&k, 0), 30);
	kin_stop(&k);
}

/* 1: swapped; 2: present. */
static int where(const char *p)
{
	uint64_t e = 0;
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && pread(fd, &e, sizeof(e), (uintptr_t)p / PAGE * 8) != 8)
		e = 0;
	close(fd);
	return (e >> 62) & 3;
}

/* Pages that the attacher's CPU allocated are in a list of its own at first. */
static void page_out(char *m, size_t len)
{
	vm_write("/proc/sys/vm/compact_memory", "1");
	madvise(m, len, MADV_PAGEOUT);
}

static void swap_takes_and_brings(void **state)
{
	int i;

	for (i = 0; i < PAGES; i++)
		assert_int_equal(peer_store(&b.peer, i * PAGE, (char)(50 + i)),
				 KS_OK);
	page_out(b.m, PAGES * PAGE);
	if (where(b.m) != 1) {
		print_message("SKIP: no swap\n");
		skip();
	}
	assert_int_equal(generation() % 2, 0);
	for (i = 0; i < PAGES; i++)
		assert_int_equal(seen(i * PAGE), 50 + i);
	assert_int_equal(where(b.m), 2);
	/* Clean in the swap cache now: a store must not be lost there. */
	assert_int_equal(peer_store(&b.peer, 0, 99), KS_OK);
	page_out(b.m, PAGES * PAGE);
	assert_int_equal(b.m[0], 99);
}

static void compaction_keeps_them_equal(void **state)
{
	int i, round;

	share(vm_memory(64), 64 * PAGE);
	for (round = 0; round < 3; round++) {
		for (i = 0; i < 64; i++)
			assert_int_equal(peer_store(&b.peer, i * PAGE,
						    (char)(i + round)), KS_OK);
		if (vm_write("/proc/sys/vm/compact_memory", "1"))
			break;
		for (i = 0; i < 64; i++) {
			assert_int_equal(b.m[i * PAGE], i + round);
			b.m[i * PAGE + 1] = (char)(i ^ round);
			assert_int_equal(seen(i * PAGE + 1), i ^ round);
		}
	}
}

static void huge_pages_split_and_collapse(void **state)
{
	char *raw = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *m = (char *)(((uintptr_t)raw + HUGE - 1) & ~(HUGE - 1));
	size_t i;

	madvise(m, HUGE, MADV_HUGEPAGE);
	memset(m, 1, HUGE);
	share(m, HUGE);
	for (i = 0; i < HUGE; i += 16 * PAGE)
		assert_int_equal(peer_store(&b.peer, i, (char)(i >> 16)), KS_OK);
	for (i = 0; i < HUGE; i += 16 * PAGE)
		assert_int_equal(m[i], (char)(i >> 16));
	/* Split by a change of a part. */
	madvise(m + 16 * PAGE, PAGE, MADV_DONTNEED);
	assert_int_equal(seen(16 * PAGE), 0);
	assert_int_equal(seen(32 * PAGE), 2);
	mprotect(m + 48 * PAGE, PAGE, PROT_READ);
	assert_int_equal(peer_store(&b.peer, 48 * PAGE, 1), KS_SIGBUS);
	mprotect(m + 48 * PAGE, PAGE, PROT_READ | PROT_WRITE);
	m[16 * PAGE] = 1;
	madvise(m, HUGE, MADV_COLLAPSE);
	for (i = 32 * PAGE; i < HUGE; i += 16 * PAGE)
		assert_int_equal(seen(i), (char)(i >> 16));
	assert_int_equal(peer_store(&b.peer, 7 * PAGE, 66), KS_OK);
	assert_int_equal(m[7 * PAGE], 66);
}

static void hugetlb_pages_are_attached(void **state)
{
	char *m = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE |
		       MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	char v;

	if (m == MAP_FAILED) {
		share_some(state);
		print_message("SKIP: no hugetlb pages\n");
		skip();
	}
	share(m, HUGE);
	assert_int_equal(peer_store(&b.peer, 300 * PAGE, 5), KS_OK);
	assert_int_equal(m[300 * PAGE], 5);
	madvise(m, HUGE, MADV_DONTNEED);
	assert_int_equal(seen(300 * PAGE), 0);
	assert_int_equal(peer_store(&b.peer, 300 * PAGE, 6), KS_OK);
	munmap(m, HUGE);
	assert_int_equal(peer_load(&b.peer, 300 * PAGE, &v), KS_SIGBUS);
}

static void ksm_may_merge_them(void **state)
{
	int i;

	if (!vm_ksm()) {
		print_message("SKIP: no KSM\n");
		skip();
	}
	for (i = 0; i < PAGES; i++)
		assert_int_equal(peer_store(&b.peer, i * PAGE, 8), KS_OK);
	for (i = 0; i < PAGES; i++)
		assert_int_equal(peer_store(&b.peer, i * PAGE, 1), KS_OK);
	madvise(b.m, PAGES * PAGE, MADV_MERGEABLE);
	for (i = 0; i < 50; i++) {
		usleep(100000);
		if (vm_number("/sys/kernel/mm/ksm/pages_sharing") >= PAGES - 1)
			break;
	}
	assert_true(i < 50);
	assert_int_equal(seen(0), 1);
	assert_int_equal(peer_store(&b.peer, 0, 2), KS_OK);
	assert_int_equal(b.m[0], 2);
	for (i = 1; i < PAGES; i++)
		assert_int_equal(b.m[i * PAGE], 1);
	vm_write("/sys/kernel/mm/ksm/run", "0");
}

static void truncation_takes_pages_of_a_file(void **state)
{
	char path[] = "/run/kseg-XXXXXX", v, *m;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	unlink(path);
	assert_int_equal(ftruncate(fd, PAGES * PAGE), 0);
	m = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	share(m, PAGES * PAGE);
	assert_int_equal(peer_store(&b.peer, 5 * PAGE, 3), KS_OK);
	assert_int_equal(pread(fd, &v, 1, 5 * PAGE), 1);
	assert_int_equal(v, 3);
	assert_int_equal(ftruncate(fd, 4 * PAGE), 0);
	assert_int_equal(peer_load(&b.peer, 5 * PAGE, &v), KS_SIGBUS);
	assert_int_equal(peer_store(&b.peer, 3 * PAGE, 4), KS_OK);
	assert_int_equal(ftruncate(fd, PAGES * PAGE), 0);
	assert_int_equal(seen(5 * PAGE), 0);
	assert_int_equal(fallocate(fd, 3 /* punch, keep size */, 3 * PAGE, PAGE), 0);
	assert_int_equal(seen(3 * PAGE), 0);
	close(fd);
}

static void an_attacher_cuts_its_mapping(void **state)
{
	char v;

	assert_int_equal(peer_store(&b.peer, 0, 1), KS_OK);
	assert_int_equal(peer_munmap(&b.peer, 3 * PAGE, PAGE), 0);
	assert_int_equal(peer_load(&b.peer, 3 * PAGE, &v), KS_SIGSEGV);
	b.m[0] = 40;
	b.m[4 * PAGE] = 41;
	assert_int_equal(seen(0), 40);
	assert_int_equal(seen(4 * PAGE), 41);
	/* Each of the parts is still taken from. */
	munmap(b.m, PAGE);
	munmap(b.m + 4 * PAGE, PAGE);
	assert_int_equal(peer_load(&b.peer, 0, &v), KS_SIGBUS);
	assert_int_equal(peer_load(&b.peer, 4 * PAGE, &v), KS_SIGBUS);
	assert_int_equal(seen(5 * PAGE), 1);
	assert_int_equal(peer_mprotect(&b.peer, 5 * PAGE, PAGE, PROT_NONE), 0);
	assert_int_equal(peer_load(&b.peer, 5 * PAGE, &v), KS_SIGSEGV);
	assert_int_equal(peer_mprotect(&b.peer, 5 * PAGE, PAGE, PROT_READ), 0);
	munmap(b.m + 5 * PAGE, PAGE);
	assert_int_equal(peer_load(&b.peer, 5 * PAGE, &v), KS_SIGBUS);
}

static void remove_takes_all(void **state)
{
	char v;

	assert_int_equal(peer_store(&b.peer, 0, 1), KS_OK);
	assert_int_equal(ks_remove(b.fd, b.id), 0);
	assert_int_equal(ks_remove(b.fd, b.id), -ENOENT);
	assert_int_equal(peer_load(&b.peer, 0, &v), KS_SIGBUS);
	assert_int_equal(generation() % 2, 1);
}

/* Pages are shared before the case, or by it. */
#define TEST(f) cmocka_unit_test_setup_teardown(f, share_some, unshare_all)
#define MADE(f) cmocka_unit_test_teardown(f, unshare_all)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(both_see_stores),
		TEST(munmap_takes_the_pages),
		TEST(dontneed_is_seen_and_counted),
		TEST(what_moves_is_followed),
		TEST(map_fixed_over_it_is_seen),
		TEST(mprotect_of_the_owner_binds),
		TEST(copy_on_write_parts_parent_and_child),
		TEST(swap_takes_and_brings),
		MADE(compaction_keeps_them_equal),
		MADE(huge_pages_split_and_collapse),
		MADE(hugetlb_pages_are_attached),
		TEST(ksm_may_merge_them),
		MADE(truncation_takes_pages_of_a_file),
		TEST(an_attacher_cuts_its_mapping),
		TEST(remove_takes_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
