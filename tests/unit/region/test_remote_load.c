// SPDX-License-Identifier: BSD-2-Clause
/*
 * Peers in processes of their own put, get and add without a pause, while the owner suspends,
 * moves, trims and revokes, and some of them are stopped or killed: no bytes are torn or lost, what
 * was acknowledged is there, what was trimmed is not, and nothing waits for ever.
 */
#include "remote.h"
#include "suites.h"

#define PEERS	3
#define COPIES	12288 /* of a number, in each block: more than one piece */
#define BLOCK	(COPIES * sizeof(uint64_t))
#define SUM_AT	((size_t)PEERS * BLOCK) /* a number that all add to, behind the blocks */
#define ALL_LEN ((size_t)1 << 20)
/* It is trimmed. In its first half peers read only, in the last bytes they store. */
#define TAIL_AT (ALL_LEN - ((size_t)128 << 10))
#define SOME	64

/*
 * @handle: of the peer
 * @acked:  the number that it has put last
 * @by_way: accesses at which it saw that it has the way that is looked at
 * @tried, @added: additions
 * @rc:     what has ended it, or 0
 */
struct mine {
	struct kedge_handle handle;
	_Atomic uint64_t acked;
	_Atomic uint64_t by_way;
	_Atomic uint64_t tried;
	_Atomic uint64_t added;
	_Atomic int rc;
};

static struct {
	struct mine peer[PEERS];
	_Atomic bool stop;
} *all;

static pid_t pids[PEERS];
static bool torn_may_be[PEERS];

/* ---- a peer ---- */

static struct kedge_remote *open_mine(const struct mine *m)
{
	struct kedge_remote *r = NULL;
	int rc = -1;

	while (rc) {
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

/* In a part that may not be there. */
static int at_the_tail(struct kedge_remote *r)
{
	char some[SOME] = "tail";
	int rc = kedge_remote_get(r, TAIL_AT, some, SOME, SOON_MS);

	if (rc && rc != -EFAULT)
		return rc;
	rc = kedge_remote_put(r, ALL_LEN - SOME, some, SOME, SOON_MS);
	return rc == -EFAULT ? 0 : rc;
}

/* 0; or its handle is no more. */
static int once(struct kedge_remote *r, struct mine *m, size_t at, uint64_t n)
{
	static uint64_t block[COPIES], got[COPIES];
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
	atomic_fetch_add(&m->by_way, !way->leased || way_of(r) == KEDGE_REMOTE_RDMA);
	atomic_fetch_add(&m->tried, 1);
	rc = kedge_remote_fetch_add(r, SUM_AT, 1, NULL, SOON_MS);
	if (rc)
		return rc;
	atomic_fetch_add(&m->added, 1);
	return at_the_tail(r);
}

static void peer(int which)
{
	struct mine *m = &all->peer[which];
	uint64_t n = atomic_load(&m->acked) + 2;
	struct kedge_remote *r = open_mine(m);
	int rc = 0;

	while (!atomic_load(&all->stop) && !rc) {
		rc = once(r, m, (size_t)which * BLOCK, n);
		n += !rc;
		if (rc != -EKEYREVOKED)
			continue;
		kedge_remote_close(r);
		r = open_mine(m);
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
	torn_may_be[which] = true;
}

/* ---- the owner ---- */

static void invite(int which)
{
	advertise(NULL);
	all->peer[which].handle = handle;
}

static void goes_on(int which)
{
	struct mine *m = &all->peer[which];
	const uint64_t acked = atomic_load(&m->acked), by_way = atomic_load(&m->by_way);

	WAIT_FOR(atomic_load(&m->acked) > acked + 1 || atomic_load(&m->rc));
	WAIT_FOR(atomic_load(&m->by_way) > by_way || atomic_load(&m->rc));
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

/* The owner has the memory for itself: it changes all of it, and back. */
static void suspended(void)
{
	static char saved[SUM_AT + sizeof(uint64_t)];
	volatile char *at = region_at();
	size_t i;

	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	look_at_blocks();
	memcpy(saved, region_at(), sizeof(saved));
	memset(region_at(), 0x5a, sizeof(saved));
	for (i = 0; i < sizeof(saved); i += 64)
		assert_int_equal(at[i], 0x5a);
	memcpy(region_at(), saved, sizeof(saved));
	assert_int_equal(kedge_region_resume(region), 0);
}

static void moved(void)
{
	int rc = kedge_region_move(region, NULL, SOON_MS, NULL);

	if (rc)
		fail_msg("%s", kedge_strerror(rc));
}

static void trimmed(void)
{
	assert_int_equal(kedge_region_trim(region, TAIL_AT), 0);
	grow_to(ALL_LEN);
	assert_int_equal(region_at()[TAIL_AT], 0);
	memset(region_at() + TAIL_AT, 't', ALL_LEN - TAIL_AT - SOME);
}

static void revoked(int which)
{
	struct kedge_handle own = all->peer[which].handle;

	own.bytes[16] ^= way->node ? 1 : 0;
	assert_int_equal(kedge_region_revoke(region, &own), 0);
	invite(which);
}

/* The owner waits for it no longer than it says, and takes the memory from under it. */
static void stopped(int which)
{
	int rc;

	kill(pids[which], SIGSTOP);
	assert_int_equal(waitpid(pids[which], NULL, WUNTRACED), pids[which]);
	rc = kedge_region_suspend(region, 10);
	assert_true(!rc || rc == -ETIMEDOUT);
	if (!rc)
		assert_int_equal(kedge_region_resume(region), 0);
	/* It may have the pages in its table, and be inside: then they come again behind it. */
	if (!way->served)
		kill(pids[which], SIGCONT);
	trimmed();
	kill(pids[which], SIGCONT);
}

static void killed(int which)
{
	kill_child(pids[which]);
	torn_may_be[which] = true;
	suspended();
	start_peer(which);
}

static void do_one(int n)
{
	switch (n % 5) {
	case 0:
		moved();
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

static void end_peers(void)
{
	uint64_t sum, tried = 0, added = 0;
	int i;

	atomic_store(&all->stop, true);
	for (i = 0; i < PEERS; i++) {
		reap(pids[i]);
		tried += atomic_load(&all->peer[i].tried);
		added += atomic_load(&all->peer[i].added);
	}
	memcpy(&sum, region_at() + SUM_AT, sizeof(sum));
	assert_in_range(sum, added, tried);
	munmap(all, sizeof(*all));
}

static void whatever_the_owner_does(void **state)
{
	size_t at;
	int i, n;

	need_threads_after_fork();
	all = shared_memory(sizeof(*all));
	assert_int_equal(kedge_region_create(ALL_LEN, NULL, &region), 0);
	for (i = 0; i < PEERS; i++) {
		invite(i);
		start_peer(i);
	}
	for (n = 0; n < test_rounds(10, 300); n++) {
		goes_on(n % PEERS);
		suspended();
		do_one(n);
	}
	for (i = 0; i < PEERS; i++)
		goes_on(i);
	suspended();
	end_peers();
	/* What they have stored in the part that goes does not come again. */
	assert_int_equal(kedge_region_trim(region, TAIL_AT), 0);
	grow_to(ALL_LEN);
	for (at = TAIL_AT; at < ALL_LEN; at++)
		assert_int_equal(region_at()[at], 0);
	kedge_region_close(region);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(whatever_the_owner_does),
};

const struct suite suite_remote_load = {
	.name = "remote_load", SUITE_OF(tests), .by = "mapped",
};
