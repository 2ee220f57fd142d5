// SPDX-License-Identifier: BSD-2-Clause
/* Segments whose owner goes on with its memory as if it were its own, forks or dies. */
#include "shared.h"

#define LEN ((size_t)2 << 20)

static uint64_t *w;

static int begin(void **state)
{
	w = words(LEN);
	share(w, LEN);
	return 0;
}

/* A change is told; what is touched then is no memory, in its own time. */
static void taken(size_t at)
{
	assert_false(peer_valid(&peer));
	WAIT_FOR(faults(at));
}

/* ---- the owner's calls ---- */

static void an_unmapped_part_is_recalled(void **state)
{
	char *p = (char *)w;

	begin(state);
	p = (char *)w;
	assert_true(peer_valid(&peer));
	assert_int_equal(munmap(p + LEN / 2, LEN / 4), 0);
	taken(LEN / 2);
	taken(LEN / 2 + LEN / 4 - 8);
	assert_int_equal(loaded(LEN / 2 - 8), LEN / 16 - 1);
	assert_int_equal(loaded(LEN / 2 + LEN / 4), 3 * LEN / 32);
	/* Of the rest, and of that part. */
	peer_detach(&peer);
	assert_int_equal(peer_attach(&peer, LEN / 2, 8), -ESTALE);
	assert_int_equal(peer_attach(&peer, 0, LEN / 2), 0);
	assert_true(peer_valid(&peer));
	end();
}

/* A mapping over it is not the peer's. */
static void what_is_mapped_over_it_is_not_seen(void **state)
{
	begin(state);
	assert_ptr_equal(mmap(w, LEN, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), w);
	w[0] = 77;
	taken(0);
	end();
	assert_int_equal(w[0], 77);
	munmap(w, LEN);
}

static void emptied_memory_is_zeros(void **state)
{
	size_t i;

	begin(state);
	for (i = 0; i < 10; i++) {
		assert_int_equal(madvise((char *)w + i * 3 * page_len(), 2 * page_len(),
					 MADV_DONTNEED), 0);
		assert_int_equal(w[i * 3 * page_len() / 8], 0);
		assert_int_equal(w[(i * 3 + 2) * page_len() / 8 - 1], 0);
		w[i * 3 * page_len() / 8] = 4;
	}
	taken(0);
	assert_int_equal(w[2 * page_len() / 8], 2 * page_len() / 8);
	assert_int_equal(loaded(2 * page_len()), 2 * page_len() / 8);
	end();
	assert_int_equal(w[0], 4);
	assert_int_equal(w[1], 0);
	assert_int_equal(w[2 * page_len() / 8], 2 * page_len() / 8);
	munmap(w, LEN);
}

static void moved_memory_has_its_contents(void **state)
{
	uint64_t *to;

	begin(state);
	to = mremap(w, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED,
		    mmap(NULL, LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	assert_ptr_not_equal(to, MAP_FAILED);
	assert_int_equal(to[1000], 1000);
	taken(0);
	/* It is the owner's, and can be emptied where it is. */
	assert_int_equal(madvise(to, page_len(), MADV_DONTNEED), 0);
	assert_int_equal(to[1], 0);
	to[1000] = 3;
	end();
	assert_int_equal(to[1000], 3);
	assert_int_equal(to[1001], 1001);
	munmap(to, LEN);
}

/* In place, or elsewhere: what is new is zeros. */
static void grown_memory_is_zeros(void **state)
{
	uint64_t *to;

	begin(state);
	to = mremap(w, LEN, 2 * LEN, MREMAP_MAYMOVE);
	assert_ptr_not_equal(to, MAP_FAILED);
	assert_int_equal(to[LEN / 8 - 1], LEN / 8 - 1);
	assert_int_equal(to[LEN / 8], 0);
	assert_int_equal(to[LEN / 4 - 1], 0);
	to[LEN / 4 - 1] = 1;
	end();
	assert_int_equal(to[LEN / 4 - 1], 1);
	munmap(to, 2 * LEN);
}

/* Where it was unmapped before, and the file has had bytes. */
static void what_grows_back_is_zeros(void **state)
{
	uint64_t *to;

	begin(state);
	munmap((char *)w + LEN / 2, LEN / 2);
	to = mremap(w, LEN / 2, LEN, MREMAP_MAYMOVE);
	assert_ptr_not_equal(to, MAP_FAILED);
	assert_int_equal(to[LEN / 16 - 1], LEN / 16 - 1);
	assert_int_equal(to[LEN / 16], 0);
	assert_int_equal(to[LEN / 8 - 1], 0);
	end();
	assert_int_equal(to[LEN / 8 - 1], 0);
	munmap(to, LEN);
}

/* A reader that asks after it has read needs no handler for SIGBUS. */
static void what_is_kept_does_not_fault(void **state)
{
	uint64_t v;

	begin(state);
	peer_detach(&peer);
	assert_int_equal(peer_attach_with(&peer, 0, LEN, KEDGE_ATTACH_KEEP), 0);
	munmap(w, LEN / 2);
	assert_false(peer_valid(&peer));
	assert_int_equal(peer_load(&peer, 8, &v), 0);
	kedge_segment_remove(segment);
	assert_int_equal(peer_load(&peer, LEN - 8, &v), 0);
	assert_false(peer_valid(&peer));
	peer_end(&peer);
	munmap(w, LEN);
}

/* ---- the end of a segment ---- */

static void a_removed_segment_is_private_again(void **state)
{
	uint64_t v = 0;
	ssize_t rc;

	begin(state);
	assert_int_equal(peer_store(&peer, 800, 12345), 0);
	kedge_segment_remove(segment);
	assert_int_equal(w[100], 12345);
	w[100] = 1;
	assert_false(peer_valid(&peer));
	assert_true(faults(800));
	assert_int_equal(w[100], 1);
	/* Its thread hears of that in its own time. */
	while ((rc = peer_copy(&peer, 800, &v, KEDGE_SEGMENT_READ)) == sizeof(v))
		usleep(1000);
	assert_int_equal(rc, -ESTALE);
	peer_detach(&peer);
	assert_int_equal(peer_attach(&peer, 0, 8), -ESTALE);
	peer_release(&peer);
	assert_int_equal(peer_get(&peer, &id, RW), -ENOENT);
	peer_end(&peer);
	free_pages(w, LEN / page_len());
}

/* The peer stores all the time: what it has stored when it hears of it is there. */
static void no_store_of_a_peers_is_lost(void **state)
{
	int i;

	for (i = 0; i < 8; i++) {
		uint64_t stored;

		begin(state);
		w[512] = 0;
		peer_count_begin(&peer, 4096);
		while (__atomic_load_n(&w[512], __ATOMIC_RELAXED) < 1000)
			;
		kedge_segment_remove(segment);
		stored = peer_count_end(&peer);
		assert_int_equal(w[512], stored);
		peer_end(&peer);
		free_pages(w, LEN / page_len());
	}
}

/* ---- deaths ---- */

static void a_peer_that_is_killed_leaves_nothing(void **state)
{
	struct kedge_segment_info i = { .size = sizeof(i) };

	begin(state);
	peer_kill(&peer);
	WAIT_FOR(!kedge_segment_info(segment, &i) && !i.grants);
	w[3] = 33;
	peer_start(&peer, 0);
	peer_has(&peer, segment, RW);
	assert_int_equal(loaded(24), 33);
	end();
}

/* It is stopped: a second, and what it does later is not seen. */
static void a_stopped_peer_holds_nobody_up(void **state)
{
	begin(state);
	kill(peer.pid, SIGSTOP);
	kedge_segment_remove(segment);
	w[0] = 9;
	kill(peer.pid, SIGCONT);
	assert_int_equal(w[0], 9);
	taken(0);
	peer_end(&peer);
	free_pages(w, LEN / page_len());
}

static int own_and_wait(void *arg)
{
	int *fd = arg;
	struct kedge_segment *s;
	uint64_t *mem = words(LEN);

	CHILD_CHECK(!kedge_segment_make(mem, LEN, NULL, &s));
	CHILD_CHECK(!kedge_segment_id(s, &id));
	CHILD_CHECK(write(fd[1], &id, sizeof(id)) == sizeof(id));
	pause();
	return 1;
}

static void an_owner_that_is_killed_is_noticed(void **state)
{
	struct kedge_attachment *a;
	struct kedge_grant *g;
	uint64_t v;
	int fd[2];
	pid_t pid;

	need_convert();
	need_threads_after_fork();
	assert_int_equal(pipe(fd), 0);
	pid = fork();
	if (!pid)
		_exit(own_and_wait(fd));
	assert_int_equal(read(fd[0], &id, sizeof(id)), sizeof(id));
	assert_int_equal(kedge_segment_get(&id, RW, &g), 0);
	assert_int_equal(kedge_segment_attach(g, 0, LEN, 0, &a), 0);
	assert_int_equal(*((uint64_t *)kedge_segment_addr(a) + 5), 5);
	assert_true(kedge_segment_valid(a));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	WAIT_FOR(!kedge_segment_valid(a));
	assert_int_equal(kedge_segment_copy(g, 0, &v, 8, KEDGE_SEGMENT_READ), -ESTALE);
	kedge_segment_detach(a);
	assert_int_equal(kedge_segment_attach(g, 0, LEN, 0, &a), -ESTALE);
	kedge_segment_release(g);
	assert_int_equal(kedge_segment_get(&id, RW, &g), -ENOENT);
	close(fd[0]);
	close(fd[1]);
}

/* ---- fork ---- */

static int parents_end, childs_end;

static void tell(int fd)
{
	if (write(fd, "x", 1) != 1)
		abort();
}

static void hear(int fd)
{
	char c;

	if (read(fd, &c, 1) != 1)
		abort();
}

static int has_its_own_copy(void)
{
	CHILD_CHECK(w[1] == 1 && w[LEN / 8 - 1] == LEN / 8 - 1);
	w[1] = 111;
	/* The parent's stores meanwhile do not show. */
	hear(childs_end);
	CHILD_CHECK(w[2] == 2);
	kedge_segment_remove(segment);
	CHILD_CHECK(w[1] == 111);
	return 0;
}

static void a_child_has_a_copy(void **state)
{
	int ends[2];
	pid_t pid;

	begin(state);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	parents_end = ends[0];
	childs_end = ends[1];
	pid = fork();
	if (!pid)
		_exit(has_its_own_copy());
	w[2] = 222;
	tell(parents_end);
	ended_well(pid);
	close(parents_end);
	close(childs_end);
	assert_int_equal(w[1], 1);
	/* And the segment is there once more. */
	assert_false(peer_valid(&peer));
	peer_detach(&peer);
	peer_release(&peer);
	peer_has(&peer, segment, RW);
	assert_int_equal(loaded(16), 222);
	w[2] = 3;
	assert_int_equal(loaded(16), 3);
	end();
}

/* A part is gone: after a fork the rest is private, and can be copied. */
static void what_is_not_whole_is_copied_after_a_fork(void **state)
{
	struct kedge_segment_info i = { .size = sizeof(i) };
	uint64_t v = 0;
	pid_t pid;

	begin(state);
	munmap((char *)w + LEN / 2, LEN / 4);
	pid = fork();
	if (!pid)
		_exit(w[1] != 1 || w[LEN / 8 - 1] != LEN / 8 - 1);
	ended_well(pid);
	peer_detach(&peer);
	peer_release(&peer);
	assert_int_equal(peer_get(&peer, &id, RW), 0);
	assert_int_equal(peer_info(&peer, &i), 0);
	assert_int_equal(i.backend, KEDGE_SEGMENT_COPY);
	assert_int_equal(peer_attach(&peer, 0, 8), -EOPNOTSUPP);
	assert_int_equal(peer_copy(&peer, 80, &v, KEDGE_SEGMENT_READ), 8);
	assert_int_equal(v, 10);
	end();
}

static bool replaces;

/* Runs when kedge has made the memory private, as another thread's calls could. */
static void replace_it(void)
{
	if (!replaces)
		return;
	munmap(w, LEN);
	if (mmap(w, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		 0) == MAP_FAILED)
		abort();
	w[1] = 999;
}

static void fork_once(void)
{
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	ended_well(pid);
}

static void what_is_mapped_there_amid_a_fork_is_not_shared(void **state)
{

	begin(state);
	replaces = true;
	fork_once();
	replaces = false;
	peer_detach(&peer);
	peer_release(&peer);
	assert_int_equal(peer_get(&peer, &id, RW), 0);
	assert_int_equal(peer_attach(&peer, 0, LEN), -EOPNOTSUPP);
	assert_int_equal(w[1], 999);
	end();
}

static atomic_bool forked;

static void *fork_beside(void *arg)
{
	(void)arg;
	fork_once();
	atomic_store(&forked, true);
	return NULL;
}

/* Until the fork is over, or the attachment is not valid any more: true if there still is one. */
static bool attached_through_fork(struct peer *p)
{
	if (peer_attach(p, 0, LEN))
		return false;
	while (!atomic_load(&forked))
		if (!peer_valid(p)) {
			peer_detach(p);
			return false;
		}
	return true;
}

/* The fork waits for a second for a peer that is stopped: another one comes meanwhile. */
static void one_that_comes_amid_a_fork_is_not_told_wrong(void **state)
{
	struct peer late;
	pthread_t t;
	uint64_t v;

	need_threads_after_fork();
	begin(state);
	atomic_store(&forked, false);
	peer_start(&late, 0);
	kill(peer.pid, SIGSTOP);
	assert_int_equal(pthread_create(&t, NULL, fork_beside, NULL), 0);
	for (;;) {
		assert_int_equal(peer_get(&late, &id, RW), 0);
		if (attached_through_fork(&late))
			break;
		peer_release(&late);
	}
	pthread_join(t, NULL);
	kill(peer.pid, SIGCONT);
	w[1] = 777;
	/* It loads first, and asks then. */
	v = 777;
	peer_load(&late, 8, &v);
	if (peer_valid(&late))
		assert_int_equal(v, 777);
	peer_end(&late);
	end();
}

static void a_child_made_around_libc_faults(void **state)
{
	pid_t pid;
	int status;

	begin(state);
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		_exit((int)w[0]);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSEGV);
	assert_true(peer_valid(&peer));
	end();
}

#define LISTED PLAIN
#include "test_segment_change.cases.h"

int main(int argc, char **argv)
{
	peer_main(argc, argv);
	/* Before kedge's, so it runs after those. */
	pthread_atfork(replace_it, NULL, NULL);
	return RUN(cases);
}
