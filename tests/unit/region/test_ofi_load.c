// SPDX-License-Identifier: BSD-2-Clause
/*
 * Peers in processes of their own put and get by libfabric without a pause, while the owner
 * suspends, moves, trims and revokes, and some of them are stopped or killed: no bytes are torn,
 * what was acknowledged is there, and nothing waits for ever.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include "remote.h"

#define PEERS  3
#define COPIES 12288 /* of a number, in each block: more than one piece */
#define BLOCK  (COPIES * sizeof(uint64_t))
#define ALL_LEN ((size_t)1 << 20)
#define TAIL   ((size_t)128 << 10) /* which is trimmed, and has no block */
#define ROUNDS 60

/*
 * @handle: of the peer, the @epoch-th
 * @acked:  the number that it has put last
 * @by_ofi: accesses at which it saw a lease
 * @rc:     what has ended it, or 0
 */
struct mine {
	struct kedge_handle handle;
	_Atomic unsigned int epoch;
	_Atomic uint64_t acked;
	_Atomic uint64_t by_ofi;
	_Atomic uint64_t refused;
	_Atomic int rc;
};

static struct {
	struct mine peer[PEERS];
	_Atomic bool stop;
} *all;

static pid_t pids[PEERS];
static bool torn_may_be[PEERS];

/* ---- a peer ---- */

static struct kedge_remote *open_mine(const struct mine *m, unsigned int *epoch)
{
	struct kedge_remote *r = NULL;
	int rc = -1;

	while (rc) {
		*epoch = atomic_load(&m->epoch);
		rc = kedge_remote_open(&m->handle, SOON_MS, &r);
		CHILD_CHECK(!rc || rc == -EKEYREVOKED || rc == -EKEYREJECTED);
	}
	return r;
}

static bool is_whole(const uint64_t *block, uint64_t n)
{
	size_t i;

	for (i = 0; i < COPIES; i++)
		if (block[i] != n)
			return false;
	return true;
}

/* 0; or its handle is no more. */
static int once(struct kedge_remote *r, struct mine *m, size_t at, uint64_t n)
{
	struct kedge_remote_info info = { .size = sizeof(info) };
	static uint64_t block[COPIES], got[COPIES];
	char tail[64];
	size_t i;
	int rc;

	for (i = 0; i < COPIES; i++)
		block[i] = n;
	rc = kedge_remote_put(r, at, block, BLOCK, SOON_MS);
	if (rc)
		return rc;
	atomic_store(&m->acked, n);
	rc = kedge_remote_get(r, at, got, BLOCK, SOON_MS);
	if (rc)
		return rc;
	CHILD_CHECK(is_whole(got, n));
	rc = kedge_remote_get(r, ALL_LEN - sizeof(tail), tail, sizeof(tail), SOON_MS);
	if (rc == -EFAULT)
		atomic_fetch_add(&m->refused, 1);
	CHILD_CHECK(!kedge_remote_query(r, &info));
	atomic_fetch_add(&m->by_ofi, info.way == KEDGE_REMOTE_RDMA);
	return rc == -EFAULT ? 0 : rc;
}

static void peer(int which)
{
	struct mine *m = &all->peer[which];
	uint64_t n = atomic_load(&m->acked) + 2;
	struct kedge_remote *r;
	unsigned int epoch;
	int rc = 0;

	r = open_mine(m, &epoch);
	while (!atomic_load(&all->stop) && !rc) {
		rc = once(r, m, (size_t)which * BLOCK, n);
		if (!rc)
			n++;
		if (rc != -EKEYREVOKED)
			continue;
		kedge_remote_close(r);
		r = open_mine(m, &epoch);
		rc = 0;
	}
	atomic_store(&m->rc, rc);
	if (rc)
		fprintf(stderr, "# peer %d: %s\n", which, kedge_strerror(rc));
	kedge_remote_close(r);
	_exit(rc != 0);
}

static void start_peer(int which)
{
	pids[which] = fork_child();
	if (!pids[which])
		peer(which);
}

/* ---- the owner ---- */

static void invite(int which)
{
	advertise(NULL);
	all->peer[which].handle = handle;
	atomic_fetch_add(&all->peer[which].epoch, 1);
}

static void goes_on(int which)
{
	struct mine *m = &all->peer[which];
	const uint64_t acked = atomic_load(&m->acked), by_ofi = atomic_load(&m->by_ofi);

	WAIT_FOR(atomic_load(&m->acked) > acked + 1 || atomic_load(&m->rc));
	WAIT_FOR(atomic_load(&m->by_ofi) > by_ofi || atomic_load(&m->rc));
	assert_int_equal(atomic_load(&m->rc), 0);
	torn_may_be[which] = false;
}

/* While no access is under way. */
static void look_at_blocks(void)
{
	const uint64_t *block;
	uint64_t acked;
	int i;

	for (i = 0; i < PEERS; i++) {
		if (torn_may_be[i])
			continue;
		acked = atomic_load(&all->peer[i].acked);
		block = (const uint64_t *)(void *)(region_at() + (size_t)i * BLOCK);
		assert_in_range(block[0], acked, acked + 1);
		assert_true(is_whole(block, block[0]));
	}
}

static void suspended(void)
{
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	look_at_blocks();
	assert_int_equal(kedge_region_resume(region), 0);
}

static void trimmed(void)
{
	assert_int_equal(kedge_region_trim(region, ALL_LEN - TAIL), 0);
	assert_int_equal(kedge_region_grow(region, ALL_LEN), 0);
	assert_int_equal(region_at()[ALL_LEN - 1], 0);
	memset(region_at() + ALL_LEN - TAIL, 't', TAIL);
}

static void revoked(int which)
{
	struct kedge_handle own = all->peer[which].handle;

	own.bytes[16] ^= 1;
	assert_int_equal(kedge_region_revoke(region, &own), 0);
	invite(which);
}

/* The owner waits for it no longer than it says, and takes the memory from under it. */
static void stopped(int which)
{
	int status, rc;

	kill(pids[which], SIGSTOP);
	assert_int_equal(waitpid(pids[which], &status, WUNTRACED), pids[which]);
	assert_true(WIFSTOPPED(status));
	rc = kedge_region_suspend(region, 10);
	assert_true(!rc || rc == -ETIMEDOUT);
	if (!rc)
		assert_int_equal(kedge_region_resume(region), 0);
	trimmed();
	kill(pids[which], SIGCONT);
}

static void killed(int which)
{
	int status;

	kill(pids[which], SIGKILL);
	assert_int_equal(waitpid(pids[which], &status, 0), pids[which]);
	torn_may_be[which] = true;
	suspended();
	start_peer(which);
}

static void whatever_the_owner_does(void **state)
{
	int i, n;

	need_threads_after_fork();
	all = shared_memory(sizeof(*all));
	assert_int_equal(kedge_region_create(ALL_LEN, NULL, &region), 0);
	for (i = 0; i < PEERS; i++) {
		invite(i);
		start_peer(i);
		torn_may_be[i] = true;
	}
	for (n = 0; n < test_rounds(10, ROUNDS); n++) {
		goes_on(n % PEERS);
		suspended();
		switch (n % 5) {
		case 0:
			assert_int_equal(kedge_region_move(region, NULL, SOON_MS, NULL), 0);
			break;
		case 1:
			trimmed();
			break;
		case 2:
			revoked(n % PEERS);
			break;
		case 3:
			stopped(n % PEERS);
			break;
		case 4:
			killed(n % PEERS);
			break;
		}
	}
	for (i = 0; i < PEERS; i++)
		goes_on(i);
	suspended();
	atomic_store(&all->stop, true);
	for (i = 0; i < PEERS; i++)
		reap(pids[i]);
	kedge_region_close(region);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(whatever_the_owner_does),
};

int main(void)
{
	const struct suite s = { "ofi_load", SUITE_OF(tests), .by = "ofi" };

	return suite_run(&s, NULL);
}
