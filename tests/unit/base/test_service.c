// SPDX-License-Identifier: BSD-2-Clause
/*
 * A process ends with the last of its own threads, whatever kedge has running:
 * with status 0, and with what it had still to write.
 */
#include "base/process/service.h"
#include "cases.h"
#include "clock.h"

#define LOOKS_MS 200 /* of the keeper, each */

static struct kedge_cache *cache;
static struct kedge_notifier *nf;
static char *page;

static void say_goodbye(void)
{
	printf("goodbye\n"); /* to a pipe: written when stdio is flushed */
}

/* A cache with a thread of its own, and a notifier more. */
static void open_all(void)
{
	struct kedge_cache_opts o = { .size = sizeof(o),
				      .flags = KEDGE_CACHE_RESYNC };
	struct nodev *d = nodev_new();
	const struct kedge_mr *mr;

	page = new_pages(1);
	CHILD_CHECK(!kedge_notifier_open(NULL, &nf));
	CHILD_CHECK(!kedge_cache_open(d->dev, NULL, &o, &cache));
	CHILD_CHECK(!kedge_cache_get(cache, page, 1, 1, &mr));
	kedge_cache_put(cache, mr);
	atexit(say_goodbye);
}

static void *wait_for_byte(void *arg)
{
	char c;

	CHILD_CHECK(read(*(int *)arg, &c, 1) == 1);
	/* Watched memory goes as it always did. */
	CHILD_CHECK(!munmap(page, page_len()));
	return NULL;
}

static void *open_in_thread(void *arg)
{
	open_all();
	return NULL;
}

static void by_main_alone(int fd)
{
	open_all();
	pthread_exit(NULL);
}

static void by_a_thread_that_never_called(int fd)
{
	static int byte_fd;
	pthread_t t;

	byte_fd = fd;
	open_all();
	CHILD_CHECK(!pthread_create(&t, NULL, wait_for_byte, &byte_fd));
	pthread_exit(NULL);
}

static void by_main_after_the_opener(int fd)
{
	pthread_t t;

	CHILD_CHECK(!pthread_create(&t, NULL, open_in_thread, NULL));
	pthread_join(t, NULL);
	pthread_exit(NULL);
}

/* Closed in between: the keeper, if there is one, has nothing to keep. */
static void by_return_after_a_close(int fd)
{
	pthread_t t;

	CHILD_CHECK(!pthread_create(&t, NULL, open_in_thread, NULL));
	pthread_join(t, NULL);
	kedge_cache_close(cache);
	kedge_notifier_close(nf);
	pthread_exit(NULL);
}

static void close_at_exit(void)
{
	kedge_cache_close(cache);
	kedge_notifier_close(nf);
}

static void with_closes_at_exit(int fd)
{
	open_all();
	atexit(close_at_exit);
	pthread_exit(NULL);
}

/* Its status is 0, and what it had to say is there. */
static void ends(void (*how)(int fd))
{
	int byte[2], text[2], status;
	char got[64] = "";
	pid_t pid;

	need_threads_after_fork();
	assert_int_equal(pipe(byte), 0);
	assert_int_equal(pipe(text), 0);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		alarm(CHILD_TIMEOUT);
		dup2(text[1], 1);
		close(text[0]);
		close(text[1]);
		how(byte[0]);
		_exit(1);
	}
	assert_true(pid > 0);
	close(text[1]);
	assert_int_equal(write(byte[1], "", 1), 1);
	MOVE_UNTIL(LOOKS_MS, waitpid(pid, &status, WNOHANG));
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail_msg("wait status %#x", (unsigned int)status);
	assert_true(read(text[0], got, sizeof(got) - 1) > 0);
	assert_string_equal(got, "goodbye\n");
	close(text[0]);
	close(byte[0]);
	close(byte[1]);
}

static void a_process_ends_with_its_only_thread(void **state)
{
	ends(by_main_alone);
}

static void a_process_ends_with_a_thread_that_never_called(void **state)
{
	ends(by_a_thread_that_never_called);
}

static void a_process_ends_with_main_after_the_opener(void **state)
{
	ends(by_main_after_the_opener);
}

static void a_process_ends_where_all_is_closed(void **state)
{
	ends(by_return_after_a_close);
}

static void a_process_ends_with_closes_at_exit(void **state)
{
	ends(with_closes_at_exit);
}

static _Atomic bool ended;

static void note_end(struct service *s)
{
	ended = true;
}

/* The keeper looks five times a second, once the thread that opened all has ended. */
static int start_slowly(void *arg)
{
	struct service s = { .end = note_end };
	pthread_t t;
	int i;

	CHILD_CHECK(!pthread_create(&t, NULL, open_in_thread, NULL));
	pthread_join(t, NULL);
	CHILD_CHECK(!service_begin(&s));
	for (i = 0; i < 5; i++) {
		test_clock_move_ms(LOOKS_MS);
		usleep(20000);
	}
	CHILD_CHECK(!ended);
	CHILD_CHECK(service_end(&s));
	return 0;
}

/* One whose thread is not there yet was counted for a thread of the program's. */
static void a_service_that_starts_slowly_is_not_ended(void **state)
{
	need_threads_after_fork();
	assert_int_equal(in_child(start_slowly, NULL), 0);
}

#define LISTED PLAIN
#include "test_service.cases.h"

int main(void)
{
	int rc = need_uffd();

	test_clock_begin();
	return rc ? rc : RUN(cases);
}
