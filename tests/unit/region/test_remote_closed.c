// SPDX-License-Identifier: BSD-2-Clause
/* A region that is closed while a peer of another process puts, by three threads. */
#include "remote.h"
#include "suites.h"

#define ROUNDS 5
#define BLOCK  ((size_t)64 << 10)

/* The peer has put so often, by the way that is asked for; and an error that it should not have. */
static struct {
	struct kedge_handle handle;
	_Atomic bool go;
	_Atomic unsigned int done;
	_Atomic int wrong;
} *word;

static void *puts_until_told(void *at)
{
	struct kedge_remote_info info = { .size = sizeof(info) };
	static char block[BLOCK];
	int rc;

	while (!(rc = kedge_remote_put(remote, (uintptr_t)at, block, sizeof(block), SOON_MS))) {
		CHILD_CHECK(!kedge_remote_query(remote, &info));
		if (!way->leased || info.way == KEDGE_REMOTE_RDMA)
			atomic_fetch_add(&word->done, 1);
	}
	return (void *)(intptr_t)rc;
}

static void peer(void)
{
	pthread_t t[3];
	void *rc;
	int i;

	while (!atomic_load(&word->go))
		usleep(100);
	CHILD_CHECK(!kedge_remote_open(&word->handle, SOON_MS, &remote));
	for (i = 0; i < 3; i++)
		CHILD_CHECK(!pthread_create(&t[i], NULL, puts_until_told,
					    (void *)(uintptr_t)((size_t)i * BLOCK)));
	for (i = 0; i < 3; i++) {
		pthread_join(t[i], &rc);
		if ((intptr_t)rc != -EKEYREVOKED)
			atomic_store(&word->wrong, (int)(intptr_t)rc);
	}
	kedge_remote_close(remote);
	_exit(0);
}

/* That it is closed, and not that an adapter has failed. */
static void what_is_closed_under_puts_is_told(void **state)
{
	int n, status;
	pid_t pid;

	need_threads_after_fork();
	word = shared_memory(sizeof(*word));
	for (n = 0; n < ROUNDS; n++) {
		atomic_store(&word->go, false);
		atomic_store(&word->done, 0);
		/* There is no thread of the owner's yet, which might have a sanitizer's lock. */
		pid = fork_child();
		if (!pid)
			peer();
		make_region(LEN, NULL);
		word->handle = handle;
		atomic_store(&word->go, true);
		while (atomic_load(&word->done) < 20)
			usleep(100);
		kedge_region_close(region);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		assert_int_equal(atomic_load(&word->wrong), 0);
	}
	munmap(word, sizeof(*word));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(what_is_closed_under_puts_is_told),
};

const struct suite suite_remote_closed = {
	.name = "remote_closed", SUITE_OF(tests), .by = "lease",
};
