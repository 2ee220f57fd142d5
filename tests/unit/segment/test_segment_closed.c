// SPDX-License-Identifier: BSD-2-Clause
/* Programs that close what they have not opened, as daemons do: segments and grants go on. */
#include <sys/un.h>

#include "demand.h"
#include "lists.h"

#define TIMES 3

static uint64_t *w;

static struct peer second;

static void close_between(int after, int before)
{
	if (after + 1 < before)
		syscall(SYS_close_range, after + 1, before - 1, 0);
}

/* All but what the peers are asked by. */
static void close_all(void)
{
	int low = peer.sock, high = peer.sock;

	if (second.sock > high)
		high = second.sock;
	else if (second.sock)
		low = second.sock;
	close_between(2, low);
	close_between(low, high);
	syscall(SYS_close_range, high + 1, ~0u, 0);
}

static void begin_whole(void)
{
	w = words(LEN);
	share(w, LEN);
}

static void end_whole(void)
{
	end();
	free_pages(w, LEN / page_len());
}

static void get_anew(void)
{
	peer_detach(&peer);
	peer_release(&peer);
	peer_has(&peer, segment, RW);
}

static void segments_go_on(void **state)
{
	struct kedge_segment *other;
	uint64_t *more, v;
	int i;

	/* It is forked: with a segment there peers would have to get it anew. */
	peer_start(&second, 0);
	begin_whole();
	for (i = 0; i < TIMES; i++) {
		close_all();
		w[3] = 300 + (uint64_t)i;
		assert_int_equal(loaded(24), 300 + i);
		assert_true(peer_valid(&peer));
		more = words(LEN);
		assert_int_equal(kedge_segment_make(more, LEN, NULL, &other), 0);
		close_all();
		peer_has(&second, other, RW);
		assert_int_equal(peer_store(&second, 8, 11), 0);
		assert_int_equal(more[1], 11);
		/* Its end is told, which takes the way that was closed. */
		kedge_segment_remove(other);
		assert_int_equal(more[1], 11);
		assert_int_equal(more[2], 2);
		WAIT_FOR(peer_load(&second, 8, &v) == -EFAULT);
		peer_detach(&second);
		peer_release(&second);
		free_pages(more, LEN / page_len());
	}
	peer_end(&second);
	second.sock = 0;
	end_whole();
}

static int has_its_copy(uint64_t first)
{
	CHILD_CHECK(w[1] == first && w[LEN / sizeof(*w) - 1] == LEN / sizeof(*w) - 1);
	w[1] = 1000;
	CHILD_CHECK(w[1] == 1000);
	return 0;
}

static void a_forked_child_has_the_memory(void **state)
{
	int i;
	pid_t pid;

	begin_whole();
	for (i = 0; i < TIMES; i++) {
		w[1] = 50 + (uint64_t)i;
		close_all();
		pid = fork();
		if (!pid)
			_exit(has_its_copy(50 + (uint64_t)i));
		ended_well(pid);
		assert_int_equal(w[1], 50 + i);
		assert_false(peer_valid(&peer));
		get_anew();
		assert_int_equal(loaded(8), 50 + i);
		w[1] = 1;
		assert_int_equal(loaded(8), 1);
	}
	end_whole();
}

static void parts_are_attached(void **state)
{
	int i;

	w = words(LEN);
	begin(w, LEN, &later);
	/* It may be private again, or not yet: in the midst of that, now and then. */
	for (i = 0; i < 10 * TIMES; i++) {
		close_all();
		assert_int_equal(peer_attach(&peer, 0, LEN / 2), 0);
		assert_int_equal(loaded(8), 1);
		w[2] = 20 + (uint64_t)i;
		assert_int_equal(loaded(16), 20 + i);
		assert_int_equal(peer_store(&peer, 8, 1), 0);
		peer_detach(&peer);
		peer_release(&peer);
		assert_int_equal(peer_get(&peer, &id, RW), 0);
	}
	end();
	assert_int_equal(w[3], 3);
}

/* Another process: it would be handed the memory. */
static int says_it_is_the_owner(void)
{
	const struct seg_head self = seg_head(SEG_SELF);
	const struct seg_ask q = { .head = seg_head(SEG_ASK), .access = KEDGE_SEGMENT_READ,
				   .id = id.word[0] };
	_Alignas(8) char room[512];
	int fd = stranger((uint32_t)(id.word[0] >> 41));

	CHILD_CHECK(fd >= 0);
	CHILD_CHECK(send(fd, &self, sizeof(self), MSG_NOSIGNAL) == sizeof(self));
	send(fd, &q, sizeof(q), MSG_NOSIGNAL);
	while (recv(fd, room, sizeof(room), 0) > 0)
		CHILD_CHECK(!seg_is((const struct seg_head *)room, SEG_SELF));
	return 0;
}

static void only_the_owner_is_the_owner(void **state)
{
	int n;
	pid_t pid;

	begin_whole();
	for (n = 0; n < 20; n++) {
		pid = fork();
		if (!pid)
			_exit(says_it_is_the_owner());
		ended_well(pid);
		get_anew();
		assert_int_equal(loaded(16), 2);
	}
	end_whole();
}

/* ---- the other side ---- */

static int own_and_wait(int to)
{
	uint64_t *mem = words(LEN);

	CHILD_CHECK(!kedge_segment_make(mem, LEN, NULL, &segment));
	CHILD_CHECK(!kedge_segment_id(segment, &id));
	CHILD_CHECK(write(to, &id, sizeof(id)) == sizeof(id));
	pause();
	return 1;
}

static void attach_and_look(struct kedge_grant *g)
{
	struct kedge_attachment *a;

	assert_int_equal(kedge_segment_attach(g, 0, LEN, 0, &a), 0);
	assert_int_equal(((uint64_t *)kedge_segment_addr(a))[7], 7);
	assert_true(kedge_segment_valid(a));
	kedge_segment_detach(a);
}

/* A kernel before 6.9 has no name for a process that it could be known by again. */
static void copy_and_look(struct kedge_grant *g)
{
	uint64_t v = 0;
	ssize_t n = kedge_segment_copy(g, 56, &v, sizeof(v), KEDGE_SEGMENT_READ);

	if (n != -EBADF) {
		assert_int_equal(n, sizeof(v));
		assert_int_equal(v, 7);
	}
}

static void grants_go_on(void **state)
{
	struct kedge_grant *g, *more;
	struct kedge_attachment *a;
	int fd[2], i;
	uint64_t v;
	pid_t pid;

	need_convert();
	need_threads_after_fork();
	assert_int_equal(pipe(fd), 0);
	pid = fork();
	if (!pid)
		_exit(own_and_wait(fd[1]));
	assert_int_equal(read(fd[0], &id, sizeof(id)), sizeof(id));
	assert_int_equal(kedge_segment_get(&id, RW, &g), 0);
	assert_int_equal(kedge_segment_attach(g, 0, LEN, KEDGE_ATTACH_KEEP, &a), 0);
	for (i = 0; i < TIMES; i++) {
		syscall(SYS_close_range, 3, ~0u, 0);
		assert_true(kedge_segment_valid(a));
		attach_and_look(g);
		copy_and_look(g);
		assert_int_equal(kedge_segment_get(&id, RW, &more), 0);
		attach_and_look(more);
		syscall(SYS_close_range, 3, ~0u, 0);
		kedge_segment_release(more);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	WAIT_FOR(!kedge_segment_valid(a));
	assert_int_equal(kedge_segment_copy(g, 0, &v, sizeof(v), KEDGE_SEGMENT_READ), -ESTALE);
	kedge_segment_detach(a);
	kedge_segment_release(g);
}

static int makes_one(void *arg)
{
	struct kedge_segment_info i = { .size = sizeof(i) };
	struct kedge_segment *s;

	CHILD_CHECK(refuse_call(SYS_unshare));
	CHILD_CHECK(!kedge_segment_make(w, LEN, NULL, &s));
	CHILD_CHECK(!kedge_segment_info(s, &i) && i.backend != KEDGE_SEGMENT_COPY);
	kedge_segment_remove(s);
	return 0;
}

/* As those of containers do. */
static void a_filter_may_forbid_unshare(void **state)
{
	need_convert();
	w = words(LEN);
	assert_int_equal(in_child(makes_one, NULL), 0);
}

#define LISTED PLAIN
#include "test_segment_closed.cases.h"

int main(int argc, char **argv)
{
	peer_main(argc, argv);
	return RUN(cases);
}
