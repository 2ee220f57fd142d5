// SPDX-License-Identifier: BSD-2-Clause
/* Segments as one uses them: make, get, attach, load, store, copy, and who may. */
#include "lists.h"
#include "look.h"
#include "shared.h"

#define LEN  ((size_t)3 << 20)

static void make_for(void *at, size_t len, uint32_t mode)
{
	make(at, len, &(struct kedge_segment_opts){ .size = sizeof(struct kedge_segment_opts),
						    .mode = mode });
}

/* ---- cases ---- */

static void both_see_what_either_stores(void **state)
{
	uint64_t *w = words(LEN);
	size_t i;

	share(w, LEN);
	for (i = 0; i < LEN / sizeof(*w); i += 5000)
		assert_int_equal(loaded(i * sizeof(*w)), i);
	w[7] = 70;
	assert_int_equal(loaded(7 * sizeof(*w)), 70);
	assert_int_equal(peer_store(&peer, 100000 * sizeof(*w), 5), 0);
	assert_int_equal(w[100000], 5);
	assert_true(peer_valid(&peer));
	end();
	assert_int_equal(w[100000], 5);
	assert_int_equal(w[100001], 100001);
}

/* Neither whole pages, nor from the first on. */
static void a_part_is_attached(void **state)
{
	uint64_t *w = words(LEN);
	struct kedge_segment_info i = { .size = sizeof(i) };

	need_convert();
	peer_start(&peer, 0);
	make(w + 100, LEN / 2, NULL);
	assert_int_equal(peer_get(&peer, &id, R), 0);
	assert_int_equal(peer_info(&peer, &i), 0);
	assert_int_equal(i.len, LEN / 2);
	assert_int_equal(i.addr, addr_of(w + 100));
	assert_int_equal(i.pid, getpid());
	assert_int_equal(i.backend, KEDGE_SEGMENT_CONVERT);
	assert_int_equal(peer_attach(&peer, 8000, 20000), 0);
	assert_int_equal(loaded(0), 1100);
	assert_int_equal(loaded(19992), 1100 + 2499);
	assert_int_equal(kedge_segment_info(segment, &i), 0);
	assert_int_equal(i.grants, 1);
	assert_int_equal(i.mode, 0600);
	assert_int_equal(peer_attach(&peer, LEN / 2, 1), -EINVAL);
	assert_int_equal(peer_attach(&peer, LEN / 2 - 1, 2), -EINVAL);
	assert_int_equal(peer_attach(&peer, 0, 0), -EINVAL);
	assert_int_equal(peer_attach_with(&peer, 0, 1, 2), -EINVAL);
	end();
}

static void a_process_attaches_its_own(void **state)
{
	uint64_t *w = words(LEN), *there;
	struct kedge_grant *g;
	struct kedge_attachment *a;

	need_convert();
	make(w, LEN, NULL);
	assert_int_equal(kedge_segment_get(&id, RW, &g), 0);
	assert_int_equal(kedge_segment_attach(g, 0, LEN, 0, &a), 0);
	there = kedge_segment_addr(a);
	assert_ptr_not_equal(there, w);
	there[9] = 90;
	assert_int_equal(w[9], 90);
	assert_true(kedge_segment_valid(a));
	kedge_segment_detach(a);
	kedge_segment_release(g);
	kedge_segment_remove(segment);
	assert_int_equal(w[9], 90);
}

/* ---- kinds of memory ---- */

/* The stack of the thread that calls, with all its frames below. */
static void *on_its_stack(void *unused)
{
	volatile uint64_t mine[2000];
	size_t i;

	for (i = 0; i < 2000; i++)
		mine[i] = i;
	make((void *)(uintptr_t)mine, sizeof(mine), NULL);
	peer_has(&peer, segment, RW);
	assert_int_equal(loaded(8 * 1999), 1999);
	mine[1] = 11;
	assert_int_equal(loaded(8), 11);
	assert_int_equal(peer_store(&peer, 16, 22), 0);
	assert_int_equal(mine[2], 22);
	kedge_segment_remove(segment);
	assert_int_equal(mine[2], 22);
	mine[2] = 2;
	for (i = 2; i < 2000; i++)
		assert_int_equal(mine[i], i);
	return unused;
}

static void a_thread_shares_its_stack(void **state)
{
	need_convert();
	peer_start(&peer, 0);
	in_thread(on_its_stack, NULL);
	peer_end(&peer);
}

/* Neighbours are whatever the allocator has there, what kedge allocates, too. */
static void small_chunks_of_the_heap_are_attached(void **state)
{
	char *chunk[40];
	size_t i, len;

	need_convert();
	peer_start(&peer, 0);
	for (i = 0; i < 40; i++) {
		len = 104 + i * 776;
		chunk[i] = malloc(len);
		memset(chunk[i], (int)i, len);
		make(chunk[i], len, NULL);
		peer_has(&peer, segment, RW);
		assert_int_equal(loaded(len - 8) >> 56, i);
		assert_int_equal(peer_store(&peer, 0, i * 3), 0);
		assert_int_equal(*(uint64_t *)(void *)chunk[i], i * 3);
		kedge_segment_remove(segment);
		assert_int_equal(*(uint64_t *)(void *)chunk[i], i * 3);
		peer_detach(&peer);
		peer_release(&peer);
		if (i % 2) {
			free(chunk[i / 2]);
			chunk[i / 2] = NULL;
		}
	}
	for (i = 0; i < 40; i++)
		free(chunk[i]);
	peer_end(&peer);
}

static uint64_t given[3000] = { 1, 2, 3 };
static uint64_t empty[200000];

static void a_programs_arrays_are_attached(void **state)
{
	skip_if(UNDER_SANITIZER, "a sanitizer looks at variables there, or has a thread");
	need_convert();
	empty[0] = 4;
	peer_start(&peer, 0);
	make(given, sizeof(given), NULL);
	peer_has(&peer, segment, RW);
	assert_int_equal(loaded(16), 3);
	given[2] = 33;
	assert_int_equal(loaded(16), 33);
	kedge_segment_remove(segment);
	assert_int_equal(given[2], 33);
	assert_int_equal(given[1], 2);
	peer_detach(&peer);
	peer_release(&peer);
	make(empty, sizeof(empty), NULL);
	peer_has(&peer, segment, RW);
	assert_int_equal(loaded(0), 4);
	end();
}

static uint64_t more[8192] = { 7 };
static _Atomic bool counted_enough;

static void *counts_in_data(void *at)
{
	volatile uint64_t *w = at;
	uint64_t n = 0;

	while (!atomic_load(&counted_enough)) {
		*w = ++n;
		if (*w != n)
			break;
	}
	return (void *)(uintptr_t)(*w == n);
}

/* Threads that store there are stopped for that moment; where they cannot be, it is copied. */
static void with_threads_initialised_data_is_shared(void **state)
{
	struct kedge_segment_info i = { .size = sizeof(i) };
	uint64_t *w = more + 2000, was;
	pthread_t thread;
	void *right;

	need_convert();
	peer_start(&peer, 0);
	assert_int_equal(pthread_create(&thread, NULL, counts_in_data, w), 0);
	make(more + 1024, 4 * page_len(), NULL);
	assert_int_equal(kedge_segment_info(segment, &i), 0);
#ifdef __SANITIZE_THREAD__
	assert_int_equal(i.backend, KEDGE_SEGMENT_COPY);
	assert_non_null(strstr(i.reason, "stopped"));
#else
	assert_int_equal(i.backend, KEDGE_SEGMENT_CONVERT);
	peer_has(&peer, segment, RW);
	was = loaded((2000 - 1024) * 8);
	WAIT_FOR(loaded((2000 - 1024) * 8) > was);
#endif
	atomic_store(&counted_enough, true);
	pthread_join(thread, &right);
	assert_non_null(right);
	peer_end(&peer);
	was = *w;
	kedge_segment_remove(segment);
	assert_int_equal(*w, was);
	assert_int_equal(more[0], 7);
}

static void many_segments_have_the_same_memory(void **state)
{
	struct kedge_segment *s[20];
	uint64_t *w = words(LEN);
	int i;

	need_convert();
	peer_start(&peer, 0);
	make(w, LEN, NULL);
	for (i = 0; i < 20; i++)
		assert_int_equal(kedge_segment_make(w + i * 1000, 80000, NULL, &s[i]), 0);
	peer_has(&peer, s[19], RW);
	assert_int_equal(loaded(0), 19000);
	kedge_segment_remove(segment);
	w[19000] = 1;
	assert_int_equal(loaded(0), 1);
	for (i = 0; i < 20; i++)
		kedge_segment_remove(s[i]);
	peer_end(&peer);
}

static void a_grant_to_read_is_no_way_to_write(void **state)
{
	uint64_t *w = words(LEN), v = 5;

	need_convert();
	peer_start(&peer, 0);
	make(w, LEN, NULL);
	peer_has(&peer, segment, R);
	assert_int_equal(loaded(80), 10);
	assert_int_equal(peer_store(&peer, 80, 5), -EFAULT);
	assert_int_equal(peer_make_writable(&peer), -EACCES);
	assert_int_equal(peer_copy(&peer, 80, &v, KEDGE_SEGMENT_WRITE), -EACCES);
	assert_int_equal(w[10], 10);
	end();
}

static void another_user_has_what_the_mode_gives(void **state)
{
	static const struct { uint32_t mode; int read, write; } as[] = {
		{ 0600, -EACCES, -EACCES }, { 0604, 0, -EACCES }, { 0606, 0, 0 },
		{ 0640, -EACCES, -EACCES }, { 0602, -EACCES, -EACCES },
		{ 0006, 0, 0 },
	};
	uint64_t *w = words(LEN);
	size_t i;

	need_root();
	for (i = 0; i < sizeof(as) / sizeof(as[0]); i++) {
		peer_start(&peer, NOBODY);
		make_for(w, LEN, as[i].mode);
		assert_int_equal(peer_get(&peer, &id, R), as[i].read);
		assert_int_equal(peer_get(&peer, &id, RW), as[i].write);
		peer_end(&peer);
		kedge_segment_remove(segment);
	}
}

static void a_group_has_what_the_mode_gives(void **state)
{
	static const struct { uint32_t mode; int read, write; } as[] = {
		{ 0640, 0, -EACCES }, { 0660, 0, 0 }, { 0606, -EACCES, -EACCES },
		{ 0600, -EACCES, -EACCES },
	};
	uint64_t *w = words(LEN);
	size_t i;

	need_root();
	for (i = 0; i < 2 * sizeof(as) / sizeof(as[0]); i++) {
		/* Its own group first, then one that it is in besides. */
		peer_start_as(&peer, NOBODY, i & 1 ? NOBODY : getegid(),
			      i & 1 ? getegid() : NOBODY);
		make_for(w, LEN, as[i / 2].mode);
		assert_int_equal(peer_get(&peer, &id, R), as[i / 2].read);
		assert_int_equal(peer_get(&peer, &id, RW), as[i / 2].write);
		peer_end(&peer);
		kedge_segment_remove(segment);
	}
}

/* More than it was given lies in the same memfd: only copies are to be had. */
static void another_user_gets_no_neighbours(void **state)
{
	struct kedge_segment *outer;
	uint64_t *w = words(LEN);
	struct kedge_segment_info i = { .size = sizeof(i) };

	need_convert();
	need_root();
	peer_start(&peer, NOBODY);
	make(w, LEN, NULL);
	outer = segment;
	make_for(w + 4096, 4096, 0606);
	assert_int_equal(peer_get(&peer, &id, R), 0);
	assert_int_equal(peer_info(&peer, &i), 0);
	assert_int_equal(i.backend, KEDGE_SEGMENT_COPY);
	assert_int_equal(peer_attach(&peer, 0, 1), -EOPNOTSUPP);
	end();
	kedge_segment_remove(outer);
}

static void what_cannot_be_shared_is_copied(void **state)
{
	const struct kedge_segment_opts o = { .size = sizeof(o),
					      .backend = KEDGE_SEGMENT_CONVERT };
	uint64_t *w = words(LEN), v = 0;
	struct kedge_segment_info i = { .size = sizeof(i) };

	peer_start(&peer, 0);
	assert_int_equal(mprotect(w, LEN, PROT_READ), 0);
	assert_int_equal(kedge_segment_make(w, LEN, &o, &segment), -EOPNOTSUPP);
	make(w, LEN, NULL);
	assert_int_equal(peer_get(&peer, &id, RW), 0);
	assert_int_equal(peer_info(&peer, &i), 0);
	assert_int_equal(i.backend, KEDGE_SEGMENT_COPY);
	assert_int_not_equal(i.reason[0], 0);
	assert_int_equal(peer_attach(&peer, 0, 8), -EOPNOTSUPP);
	assert_int_equal(peer_copy(&peer, 800, &v, KEDGE_SEGMENT_READ), 8);
	assert_int_equal(v, 100);
	/* Its owner may only read it. */
	assert_int_equal(peer_copy(&peer, 800, &v, KEDGE_SEGMENT_WRITE), -EFAULT);
	assert_int_equal(mprotect(w, LEN, PROT_READ | PROT_WRITE), 0);
	v = 17;
	assert_int_equal(peer_copy(&peer, 800, &v, KEDGE_SEGMENT_WRITE), 8);
	assert_int_equal(w[100], 17);
	end();
}

/* The one that joins waits in the stack of the other, by what is mapped there. */
static _Atomic bool may_end;

static void *waits_to_end(void *arg)
{
	while (!atomic_load(&may_end))
		usleep(1000);
	return arg;
}

static _Atomic pid_t joining;

static void *joins(void *arg)
{
	atomic_store(&joining, gettid());
	pthread_join(*(pthread_t *)arg, NULL);
	return NULL;
}

static void who_waits_for_a_thread_is_woken(void **state)
{
	pthread_t one, other;
	pthread_attr_t attr;
	uint64_t *stack;

	need_stopping();
	stack = words(LEN);
	pthread_attr_init(&attr);
	assert_int_equal(pthread_attr_setstack(&attr, stack, LEN), 0);
	assert_int_equal(pthread_create(&one, &attr, waits_to_end, NULL), 0);
	assert_int_equal(pthread_create(&other, NULL, joins, &one), 0);
	look_asleep(&joining);
	make(stack, LEN, NULL);
	atomic_store(&may_end, true);
	pthread_join(other, NULL);
	kedge_segment_remove(segment);
	pthread_attr_destroy(&attr);
}

static void bad_arguments_are_refused(void **state)
{
	struct kedge_segment_opts o = { .size = sizeof(o), .mode = 01000 };
	struct kedge_segment_id other = { { 1, 1 } };
	struct kedge_grant *g;
	uint64_t *w = words(LEN);

	assert_int_equal(kedge_segment_make(NULL, 1, NULL, &segment), -EINVAL);
	assert_int_equal(kedge_segment_make(w, 0, NULL, &segment), -EINVAL);
	assert_int_equal(kedge_segment_make(w, SIZE_MAX, NULL, &segment), -EINVAL);
	assert_int_equal(kedge_segment_make(w, 1, NULL, NULL), -EINVAL);
	assert_int_equal(kedge_segment_make(w, 1, &o, &segment), -EINVAL);
	assert_int_equal(munmap((char *)w + LEN / 2, page_len()), 0);
	o = (struct kedge_segment_opts){ .size = sizeof(o), .backend = KEDGE_SEGMENT_CONVERT };
	assert_int_equal(kedge_segment_make(w, LEN, &o, &segment), -EFAULT);
	assert_int_equal(w[0], 0);
	assert_int_equal(w[1], 1);
	assert_int_equal(kedge_segment_get(&other, R, &g), -ENOENT);
	assert_int_equal(kedge_segment_get(&other, 0, &g), -EINVAL);
	assert_int_equal(kedge_segment_get(&other, 4, &g), -EINVAL);
	assert_int_equal(kedge_segment_get(NULL, R, &g), -EINVAL);
	make(w, 1, NULL);
	other = id;
	other.word[0] ^= 1;
	assert_int_equal(kedge_segment_get(&other, R, &g), -ENOENT);
	other = id;
	other.word[1] ^= 2;
	assert_int_equal(kedge_segment_get(&other, R, &g), -EPROTO);
	other.word[1] = 0;
	assert_int_equal(kedge_segment_get(&other, R, &g), 0);
	kedge_segment_release(g);
	kedge_segment_remove(segment);
}

static void ids_have_a_text(void **state)
{
	struct kedge_segment_id a = { { 0x123456789abcdef, 3 } }, b;
	char text[KEDGE_SEGMENT_ID_TEXT];

	kedge_segment_id_format(&a, text);
	assert_string_equal(text, "0123456789abcdef-0000000000000003");
	assert_int_equal(kedge_segment_id_parse(text, &b), 0);
	assert_memory_equal(&a, &b, sizeof(a));
	assert_int_equal(kedge_segment_id_parse("0123456789abcdef-000000000000000", &b),
			 -EINVAL);
	assert_int_equal(kedge_segment_id_parse("8123456789abcdef-0000000000000003", &b),
			 -EINVAL);
	assert_int_equal(kedge_segment_id_parse("0123456789abcdef+0000000000000003", &b),
			 -EINVAL);
	assert_int_equal(kedge_segment_id_parse("0x23456789abcdef-0000000000000003", &b),
			 -EINVAL);
	assert_int_equal(kedge_segment_id_parse(NULL, &b), -EINVAL);
}

static void nothing_is_left(void **state)
{
	unsigned int fds = open_fds(), threads = threads_now(), lines;
	uint64_t *w = words(LEN);
	int i;

	need_convert();
	peer_start(&peer, 0);
	fds = open_fds();
	lines = map_lines();
	for (i = 0; i < 20; i++) {
		make(w, LEN, NULL);
		peer_has(&peer, segment, RW);
		kedge_segment_remove(segment);
		peer_detach(&peer);
		peer_release(&peer);
	}
	assert_int_equal(open_fds(), fds);
	assert_true(threads_are(threads));
	assert_true(map_lines() <= lines + 8);
	peer_end(&peer);
}

#define LISTED PLAIN
#include "test_segment.cases.h"

int main(int argc, char **argv)
{
	peer_main(argc, argv);
	return RUN(cases);
}
