// SPDX-License-Identifier: BSD-2-Clause
/*
 * Programs that were written for XPMEM: <xpmem.h> alone, as the shared windows of an MPI
 * library and the transports of UCX and Open MPI use it. Every process is a peer that does
 * what its part of a case says; they meet at barriers.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <xpmem.h>

#define PEERS	10
#define WINDOW	((size_t)10000) /* pages of each: 100,000 in all */
#define LIMIT	250		/* seconds, after which a case that hangs has failed */
#define MODE(m) ((void *)(uintptr_t)(m))

#define CHECK(x)                                                                   \
	do {                                                                       \
		if (!(x)) {                                                        \
			fprintf(stderr, "%s:%d: rank %d: %s (%s)\n", __FILE__, __LINE__, \
				rank, #x, strerror(errno));                        \
			_exit(1);                                                  \
		}                                                                  \
	} while (0)

/* The memory that the processes of a case share. */
static struct shared {
	_Atomic int64_t id[PEERS];
	_Atomic unsigned int arrived[16];
} *shared;
static int rank, ranks;
static size_t page;

/* ---- help ---- */

static void barrier(unsigned int i)
{
	atomic_fetch_add(&shared->arrived[i], 1);
	while (atomic_load(&shared->arrived[i]) < (unsigned int)ranks)
		usleep(500);
}

static void run(int cnt, void (*fn)(void))
{
	pid_t pid[PEERS];
	int status, bad = 0;

	memset(shared, 0, sizeof(*shared));
	ranks = cnt;
	for (rank = 0; rank < cnt; rank++) {
		pid[rank] = fork();
		assert_true(pid[rank] >= 0);
		if (!pid[rank]) {
			alarm(LIMIT);
			fn();
			_exit(0);
		}
	}
	for (rank = 0; rank < cnt; rank++) {
		while (wait(&status) < 0 && errno == EINTR)
			;
		if (!status || bad)
			continue;
		/* The others would wait for it for ever. */
		bad = 1;
		for (int i = 0; i < cnt; i++)
			kill(pid[i], SIGKILL);
	}
	assert_int_equal(bad, 0);
}

static bool has_module(void)
{
	return !access("/dev/kedge-segment", R_OK);
}

static uint64_t *memory_at(void *at, size_t pages)
{
	uint64_t *p = mmap(at, pages * page, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
	size_t i;

	CHECK(p != MAP_FAILED);
	for (i = 0; i < pages * page / sizeof(*p); i++)
		p[i] = i;
	return p;
}

static uint64_t *memory(size_t pages)
{
	return memory_at(NULL, pages);
}

static int64_t made(void *at, size_t len, unsigned int mode)
{
	int64_t id = xpmem_make(at, len, XPMEM_PERMIT_MODE, MODE(mode));

	CHECK(id > 0);
	return id;
}

static int64_t got(int64_t id, int flags)
{
	int64_t apid = xpmem_get(id, flags, XPMEM_PERMIT_MODE, NULL);

	CHECK(apid > 0);
	return apid;
}

static void *attached(int64_t apid, off_t offset, size_t len)
{
	void *p = xpmem_attach((struct xpmem_addr){ apid, offset }, len, NULL);

	CHECK(p != (void *)-1);
	return p;
}

static sigjmp_buf fault;

static void on_fault(int sig)
{
	siglongjmp(fault, sig);
}

/* 0, or the signal. */
static int touch(volatile uint64_t *p, bool write)
{
	int sig;

	signal(SIGBUS, on_fault);
	signal(SIGSEGV, on_fault);
	sig = sigsetjmp(fault, 1);
	if (!sig) {
		if (write)
			*p = 1;
		else
			(void)*p;
	}
	return sig;
}

/* ---- windows of ten peers ---- */

static void fill_windows(uint64_t *of[], size_t words)
{
	size_t i;
	int r;

	/* A stripe of each window is this peer's. */
	for (r = 0; r < ranks; r++)
		for (i = (size_t)rank * page / sizeof(**of); i < words;
		     i += (size_t)ranks * page / sizeof(**of))
			of[r][i] = (uint64_t)(100 * rank + r);
}

static void check_window(const uint64_t *window, size_t words)
{
	const size_t in_page = page / sizeof(*window);
	size_t i;

	for (i = 0; i < words; i += in_page)
		CHECK(window[i] == 100 * (i / in_page % (size_t)ranks) + (size_t)rank);
}

static void windows(void)
{
	const size_t len = WINDOW * page;
	uint64_t *of[PEERS], *window = memory(WINDOW);
	int64_t apid[PEERS];
	int r;

	atomic_store(&shared->id[rank], made(window, len, 0600));
	barrier(0);
	for (r = 0; r < ranks; r++) {
		apid[r] = got(atomic_load(&shared->id[r]), XPMEM_RDWR);
		of[r] = attached(apid[r], 0, len);
	}
	fill_windows(of, len / sizeof(*window));
	barrier(1);
	check_window(window, len / sizeof(*window));
	check_window(of[rank], len / sizeof(*window));
	for (r = 0; r < ranks; r++) {
		CHECK(!xpmem_detach(of[r]));
		CHECK(!xpmem_release(apid[r]));
	}
	barrier(2);
	CHECK(!xpmem_remove(atomic_load(&shared->id[rank])));
	check_window(window, len / sizeof(*window));
}

static void ten_peers_share_their_windows(void **state)
{
	run(PEERS, windows);
}

/* ---- the owner's changes ---- */

static void owner_forks(void)
{
	uint64_t *m = memory(4);
	pid_t pid;
	int status;

	atomic_store(&shared->id[0], made(m, 4 * page, 0600));
	barrier(0);
	barrier(1);
	pid = fork();
	if (!pid) {
		alarm(LIMIT);
		/* Its copy: what the peer stored before the fork, nothing later. */
		CHECK(m[1] == 11);
		m[2] = 99;
		barrier(2);
		while (atomic_load(&shared->arrived[4]) < 1)
			usleep(500);
		CHECK(m[3] == 3);
		_exit(0);
	}
	while (atomic_load(&shared->arrived[3]) < 1)
		usleep(500);
	CHECK(m[3] == 33);
	CHECK(m[2] == 2);
	m[2] = 22;
	atomic_fetch_add(&shared->arrived[4], 1);
	CHECK(waitpid(pid, &status, 0) == pid && !status);
	barrier(5);
}

/* Where a fork ends grants, as without the module, it is got anew: as documented. */
static void peer_of_forks(void)
{
	uint64_t *p;
	int64_t apid;

	barrier(0);
	apid = got(atomic_load(&shared->id[0]), XPMEM_RDWR);
	p = attached(apid, 0, 4 * page);
	p[1] = 11;
	barrier(1);
	barrier(2);
	if (!has_module()) {
		CHECK(!xpmem_release(apid));
		apid = got(atomic_load(&shared->id[0]), XPMEM_RDWR);
		p = attached(apid, 0, 4 * page);
	}
	p[3] = 33;
	atomic_fetch_add(&shared->arrived[3], 1);
	while (atomic_load(&shared->arrived[4]) < 1)
		usleep(500);
	CHECK(p[2] == 22);
	CHECK(!xpmem_release(apid));
	barrier(5);
}

static void forks(void)
{
	if (rank)
		peer_of_forks();
	else
		owner_forks();
}

static void a_child_of_the_owner_has_copies(void **state)
{
	run(2, forks);
}

/* The second page is a hole; the fourth comes to be one. */
static void holes(void)
{
	uint64_t *m, *p;
	char *room;

	if (!rank) {
		room = mmap(NULL, 65536 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		m = memory_at(room, 4);
		/* Later mappings go there, not into the hole. */
		munmap(room + 4 * page, 65532 * page);
		munmap((char *)m + page, page);
		atomic_store(&shared->id[0], made(m, 4 * page, 0600));
		barrier(0);
		barrier(1);
		munmap((char *)m + 3 * page, page);
		barrier(2);
		barrier(3);
		return;
	}
	barrier(0);
	p = attached(got(atomic_load(&shared->id[0]), XPMEM_RDWR), 0, 4 * page);
	CHECK(!touch(p, false));
	CHECK(touch(p + page / sizeof(*p), false) == SIGBUS);
	CHECK(!touch(p + 3 * page / sizeof(*p), true));
	barrier(1);
	barrier(2);
	while (touch(p + 3 * page / sizeof(*p), false) != SIGBUS)
		usleep(500);
	CHECK(!touch(p + 2 * page / sizeof(*p), true));
	barrier(3);
}

/* Memory converted as it is attached takes that. */
static void need_stopped_threads(void)
{
#ifdef __SANITIZE_THREAD__
	print_message("skipped: no thread is stopped under ThreadSanitizer\n");
	skip();
#endif
}

static void a_hole_is_a_sigbus(void **state)
{
	need_stopped_threads();
	run(2, holes);
}

static void removes(void)
{
	uint64_t *m, *p;

	if (!rank) {
		m = memory(2);
		atomic_store(&shared->id[0], made(m, 2 * page, 0600));
		barrier(0);
		barrier(1);
		CHECK(!xpmem_remove(atomic_load(&shared->id[0])));
		CHECK(m[1] == 7);
		CHECK(xpmem_remove(atomic_load(&shared->id[0])) < 0 && errno == EINVAL);
		barrier(2);
		return;
	}
	barrier(0);
	p = attached(got(atomic_load(&shared->id[0]), XPMEM_RDWR), 0, 2 * page);
	p[1] = 7;
	barrier(1);
	barrier(2);
	while (touch(p, false) != SIGBUS)
		usleep(500);
	CHECK(xpmem_get(atomic_load(&shared->id[0]), XPMEM_RDWR, XPMEM_PERMIT_MODE, NULL) < 0 &&
	      errno == ENOENT);
	CHECK(!xpmem_detach(p));
}

static void a_removed_segment_is_gone(void **state)
{
	run(2, removes);
}

/* ---- one process ---- */

static void many_on_the_same_memory(void)
{
	uint64_t *m = memory(8), *p[40];
	int64_t id[40], apid[40];
	size_t i;

	for (i = 0; i < 40; i++) {
		id[i] = made(m, 8 * page, 0600);
		apid[i] = got(id[i], i % 2 ? XPMEM_RDWR : XPMEM_RDONLY);
		p[i] = attached(apid[i], (off_t)(i % 8 * page), page);
	}
	m[0] = 5;
	for (i = 0; i < 40; i += 8)
		CHECK(*p[i] == 5);
	*p[9] = 6;
	CHECK(*p[17] == 6);
	CHECK(m[page / sizeof(*m)] == 6);
	for (i = 0; i < 40; i++) {
		CHECK(!xpmem_release(apid[i]));
		CHECK(!xpmem_remove(id[i]));
	}
	CHECK(m[0] == 5);
}

static void many_segments_have_the_same_memory(void **state)
{
	run(1, many_on_the_same_memory);
}

static void parts(void)
{
	uint64_t *m = memory(8);
	int64_t id = made(m, 8 * page, 0600), apid = got(id, XPMEM_RDWR);
	char *p = attached(apid, 0, 8 * page), *q = attached(apid, (off_t)page + 8, 16);

	CHECK(*(uint64_t *)q == page / sizeof(*m) + 1);
	/* Any address of it, or of its first page. */
	CHECK(!xpmem_detach((void *)((uintptr_t)q & ~(page - 1))));
	CHECK(xpmem_detach(q) < 0 && errno == EINVAL);
	CHECK(!munmap(p + 2 * page, 2 * page));
	CHECK(touch((void *)(p + 2 * page), false) == SIGSEGV);
	CHECK(!touch((void *)(p + page), true));
	CHECK(!touch((void *)(p + 4 * page), true));
	CHECK(m[4 * page / sizeof(*m)] == 1);
	CHECK(!xpmem_detach(p + 5 * page));
	CHECK(touch((void *)p, false) == SIGSEGV);
	CHECK(!xpmem_release(apid));
}

static void a_part_is_detached(void **state)
{
	run(1, parts);
}

static void arguments(void)
{
	uint64_t *m = memory(2);
	int64_t id = made(m, 2 * page, 0600), apid = got(id, XPMEM_RDONLY);
	struct xpmem_addr a = { apid, 0 };

	CHECK(xpmem_version() >= 0x00026000);
	CHECK(xpmem_make(m, page, 7, MODE(0600)) < 0 && errno == EINVAL);
	CHECK(xpmem_make(m, 0, XPMEM_PERMIT_MODE, MODE(0600)) < 0 && errno == EINVAL);
	CHECK(xpmem_make(m, page, XPMEM_PERMIT_MODE, MODE(010000)) < 0 && errno == EINVAL);
	CHECK(xpmem_get(id ^ 1, XPMEM_RDWR, XPMEM_PERMIT_MODE, NULL) < 0 && errno == ENOENT);
	CHECK(xpmem_get(-id, XPMEM_RDWR, XPMEM_PERMIT_MODE, NULL) < 0 && errno == EINVAL);
	CHECK(xpmem_get(id, 0, XPMEM_PERMIT_MODE, NULL) < 0 && errno == EINVAL);
	CHECK(xpmem_attach(a, 3 * page, NULL) == (void *)-1 && errno == EINVAL);
	CHECK(xpmem_attach(a, page, m) == (void *)-1 && errno == EINVAL);
	a.offset = -1;
	CHECK(xpmem_attach(a, page, NULL) == (void *)-1 && errno == EINVAL);
	a = (struct xpmem_addr){ apid + 1, 0 };
	CHECK(xpmem_attach(a, page, NULL) == (void *)-1 && errno == EINVAL);
	CHECK(xpmem_detach(m) < 0 && errno == EINVAL);
	CHECK(xpmem_release(apid + 1) < 0 && errno == EINVAL);
	CHECK(!xpmem_release(apid));
	CHECK(xpmem_release(apid) < 0 && errno == EINVAL);
}

static void wrong_arguments_are_refused(void **state)
{
	run(1, arguments);
}

/* As Open MPI and UCX do: once, for all of their memory. Of a program's text and constants the
 * module alone gives more than a copy. */
static void everything(void)
{
	static const uint64_t constant[1024] = { 17 };
	uint64_t *later, *p;
	int64_t apid;

	if (!rank) {
		atomic_store(&shared->id[0], made(NULL, XPMEM_MAXADDR_SIZE, 0666));
		later = memory(3);
		atomic_store(&shared->id[1], (int64_t)(uintptr_t)later);
		barrier(0);
		barrier(1);
		CHECK(later[8] == 80);
		CHECK(constant[0] == 17);
		return;
	}
	barrier(0);
	apid = got(atomic_load(&shared->id[0]), XPMEM_RDWR);
	p = attached(apid, (off_t)atomic_load(&shared->id[1]), 3 * page);
	CHECK(p[9] == 9);
	p[8] = 80;
	/* The same program: the same address. */
	if (has_module()) {
		p = attached(apid, (off_t)(uintptr_t)constant, sizeof(constant));
		CHECK(p[0] == 17);
		CHECK(touch(p, true) == SIGBUS);
	} else {
		CHECK(xpmem_attach((struct xpmem_addr){ apid, (off_t)(uintptr_t)constant }, page,
				   NULL) == (void *)-1 && errno == EOPNOTSUPP);
	}
	barrier(1);
}

static void the_whole_address_space_is_one_segment(void **state)
{
	need_stopped_threads();
	run(2, everything);
}

/* ---- permissions ---- */

/* As the owner's user, in its group alone, or as neither. */
static const struct { uid_t uid; gid_t gid; int shift; } users[] = {
	{ 1000, 1000, 6 }, { 1001, 1000, 3 }, { 1001, 1001, 0 },
};

static void become(uid_t uid, gid_t gid)
{
	CHECK(!setgroups(0, NULL) && !setresgid(gid, gid, gid) &&
	      !setresuid(uid, uid, uid));
	/* Without the module: else /proc/self is still root's. */
	CHECK(!prctl(PR_SET_DUMPABLE, 1));
}

static void try_as(int64_t id, unsigned int mode, int shift)
{
	const bool reads = mode >> shift & 4, writes = (mode >> shift & 6) == 6;
	int64_t apid = xpmem_get(id, XPMEM_RDWR, XPMEM_PERMIT_MODE, NULL);
	uint64_t *p;

	CHECK(writes ? apid > 0 : apid < 0 && errno == EACCES);
	apid = xpmem_get(id, XPMEM_RDONLY, XPMEM_PERMIT_MODE, NULL);
	CHECK(reads ? apid > 0 : apid < 0 && errno == EACCES);
	if (!reads)
		return;
	p = attached(apid, 0, page);
	CHECK(!touch(p, false));
	CHECK(touch(p, true));
	CHECK(mprotect(p, page, PROT_READ | PROT_WRITE) < 0);
	CHECK(!xpmem_release(apid));
}

static const unsigned int modes[] = { 0600, 0400, 0200, 0660, 0640, 0060, 0006, 0644,
				      0666 };

#define MODES (sizeof(modes) / sizeof(modes[0]))

static void permissions(void)
{
	static _Atomic int64_t *ids;
	size_t i;

	ids = (_Atomic int64_t *)(shared + 1);
	if (!rank) {
		become(users[0].uid, users[0].gid);
		for (i = 0; i < MODES; i++)
			atomic_store(&ids[i], made(memory(1), page, modes[i]));
		barrier(0);
		barrier(1);
		return;
	}
	barrier(0);
	become(users[rank - 1].uid, users[rank - 1].gid);
	for (i = 0; i < MODES; i++)
		try_as(atomic_load(&ids[i]), modes[i], users[rank - 1].shift);
	barrier(1);
}

static void modes_are_as_a_files(void **state)
{
	if (geteuid()) {
		print_message("skipped: not root, so there are no other users\n");
		skip();
	}
	run(4, permissions);
}

#define LISTED cmocka_unit_test
#include "test_xpmem.cases.h"

int main(int argc, char **argv)
{
	page = (size_t)sysconf(_SC_PAGESIZE);
	shared = mmap(NULL, sizeof(*shared) + page, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests_name("xpmem", cases, NULL, NULL);
}
