// SPDX-License-Identifier: BSD-2-Clause
/*
 * Leases of one handle, which share a registration of the memory: how many there are, and that one
 * which ends, or is of another handle, has no use of it.
 */
#include "clock.h"
#include "leased.h"

static unsigned int loans(void)
{
	return atomic_load(&fake_fabric()->loans);
}

static unsigned int lent(void)
{
	return atomic_load(&fake_fabric()->lent);
}

#define SHARERS 5

static void they_share_a_registration(void **state)
{
	const unsigned int before = lent();
	struct kedge_remote *r[SHARERS];
	char c;
	int i;

	make_region(LEN, NULL);
	for (i = 0; i < SHARERS; i++) {
		r[i] = open_it();
		wait_for_lease(r[i]);
	}
	assert_int_equal(lent(), before + 1);
	assert_int_equal(loans(), 1);
	assert_int_equal(atomic_load(&fake_fabric()->live), SHARERS);
	/* The one that made it ends, and others go on. */
	kedge_remote_close(r[0]);
	WAIT_FOR(atomic_load(&fake_fabric()->live) == SHARERS - 1);
	assert_int_equal(loans(), 1);
	for (i = 1; i < SHARERS; i++) {
		puts_byte(r[i], (uint64_t)i, 'p');
		assert_int_equal(kedge_remote_get(r[i], 0, &c, 1, SOON_MS), 0);
		assert_int_equal(way_of(r[i]), KEDGE_REMOTE_RDMA);
	}
	/* Of a suspended region there is none. */
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	assert_int_equal(loans(), 0);
	assert_int_equal(atomic_load(&fake_fabric()->live), 0);
	assert_int_equal(kedge_region_resume(region), 0);
	for (i = 1; i < SHARERS; i++)
		wait_for_lease(r[i]);
	assert_int_equal(loans(), 1);
	for (i = 1; i < SHARERS; i++)
		kedge_remote_close(r[i]);
	WAIT_FOR(!loans());
	kedge_region_close(region);
}

static void two_handles_have_two(void **state)
{
	struct kedge_handle_opts o = { .size = sizeof(o), .access = KEDGE_HANDLE_READ };
	struct kedge_remote *reads;

	begin_remote(NULL);
	advertise(&o);
	reads = open_it();
	wait_for_lease(reads);
	assert_int_equal(loans(), 2);
	/* The end of one is not the other's. */
	assert_int_equal(kedge_region_revoke(region, &handle), 0);
	assert_int_equal(loans(), 1);
	assert_true(put_is_leased(0));
	kedge_remote_close(reads);
	end_remote();
	WAIT_FOR(!loans());
}

static void what_grows_has_another(void **state)
{
	struct kedge_region_opts o = { .size = sizeof(o), .max_len = LEN * 2 };
	struct kedge_remote *later;

	assert_int_equal(kedge_region_create(LEN, &o, &region), 0);
	advertise(NULL);
	remote = open_it();
	wait_for_lease(remote);
	assert_int_equal(kedge_region_grow(region, LEN * 2), 0);
	later = open_it();
	wait_for_lease(later);
	assert_int_equal(loans(), 2);
	puts_byte(later, LEN * 2 - 1, 'l');
	/* One that wants all of it has that of the other. */
	WAIT_FOR(put_is_leased(LEN * 2 - 1));
	WAIT_FOR(loans() == 1);
	kedge_remote_close(later);
	end_remote();
	WAIT_FOR(!loans());
}

struct lease_of {
	int fd;
	struct fabric_line *line;
	struct fabric_range range;
};

/* As a peer does it that does not keep to anything. */
static struct lease_of take_lease(void)
{
	struct lease_of l = { .fd = dial_by_tcp() };
	const unsigned char place[16] = { 0 };
	struct fabric_end end;
	struct stream_lease got;

	assert_int_equal(fabric()->open(place, NULL, &l.line, &end), 0);
	assert_int_equal(lease_said(l.fd, &got), 0);
	assert_int_equal(fabric()->join(l.line, &got.end), 0);
	l.range = (struct fabric_range){ le64toh(got.at), le64toh(got.len), le32toh(got.key) };
	return l;
}

static int put_by(struct lease_of *l, const struct fabric_range *range, uint64_t at)
{
	static const _Atomic bool over;

	return fabric()->put(l->line, range, at, "k", 1, &over, UINT64_MAX);
}

static void a_key_that_is_known_still_opens_nothing(void **state)
{
	struct stream_req q = { .op = STREAM_LEASE_OVER, .seq = 2, .first = 2 };
	struct kedge_handle_opts o = { .size = sizeof(o), .access = KEDGE_HANDLE_READ };
	struct lease_of a, b, reads;

	make_region(LEN, NULL);
	a = take_lease();
	b = take_lease();
	assert_int_equal(a.range.key, b.range.key);
	assert_int_equal(put_by(&a, &a.range, 0), 0);
	assert_int_equal(ask(a.fd, q), 0);
	assert_int_equal(put_by(&a, &b.range, 1), -EIO);
	assert_int_equal(put_by(&b, &b.range, 2), 0);
	/* Nor does that of a handle to write for one to read. */
	advertise(&o);
	reads = take_lease();
	assert_int_equal(put_by(&reads, &reads.range, 3), -EIO);
	assert_int_equal(put_by(&reads, &b.range, 3), -EIO);
	/* Nor one that is cut. */
	close(reads.fd);
	test_clock_hurry(100);
	assert_int_equal(kedge_region_suspend(region, 100), -ETIMEDOUT);
	assert_int_equal(kedge_region_trim(region, LEN / 2), 0);
	test_clock_rest();
	assert_int_equal(put_by(&b, &b.range, 4), -EIO);
	assert_memory_equal(region_at(), "k\0k\0\0", 5);
	close(a.fd);
	close(b.fd);
	fabric()->close(a.line);
	fabric()->close(b.line);
	fabric()->close(reads.line);
	kedge_region_close(region);
}

/* As one that was taken out of the machine, and another has the address. */
static void a_device_that_is_gone_is_not_shared(void **state)
{
	struct kedge_remote *other;

	begin_remote(NULL);
	atomic_store(&fake_fabric()->loses, atomic_load(&fake_fabric()->last));
	other = open_it();
	wait_for_lease(other);
	assert_int_equal(loans(), 2);
	puts_byte(other, 5, 'o');
	atomic_store(&fake_fabric()->loses, 0);
	kedge_remote_close(other);
	end_remote();
	WAIT_FOR(!loans());
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(they_share_a_registration),
	cmocka_unit_test(two_handles_have_two),
	cmocka_unit_test(what_grows_has_another),
	cmocka_unit_test(a_key_that_is_known_still_opens_nothing),
	cmocka_unit_test(a_device_that_is_gone_is_not_shared),
};

const struct suite suite = { "lease_shared", SUITE_OF(tests), .by = "lease",
			     .first = test_clock_begin };
