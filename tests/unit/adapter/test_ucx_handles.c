// SPDX-License-Identifier: BSD-2-Clause
/* Registrations that end with a handle. */
#include "cases.h"
#include "handles.h"

#define MANY	1000
#define THREADS 4

static md_t md(uintptr_t n)
{
	return (md_t)(n << 6);
}

static struct handle *add(uintptr_t m, uintptr_t memh)
{
	struct handle *h = handle_new();

	assert_non_null(h);
	handles_add(h, md(m), (memh_t)memh);
	return h;
}

/* Those that end are freed. */
static size_t ends(uintptr_t m, uintptr_t memh, bool wanted)
{
	struct handle *h, *next;
	bool known = !wanted;
	size_t n = 0;

	for (h = handles_remove(md(m), (memh_t)memh, &known); h; h = next, n++) {
		next = h->next;
		free(h);
	}
	assert_int_equal(known, wanted);
	return n;
}

/* First: before the table has grown, which a child leaves, too. */
static void a_child_begins_with_none(void **state)
{
	struct handle *all[8];
	uintptr_t i;

	for (i = 0; i < 8; i++)
		all[i] = add(1, i * 32);
	handles_anew();
	assert_int_equal(handles_cnt(), 0);
	assert_int_equal(ends(1, 32, false), 0);
	add(1, 32);
	assert_int_equal(ends(1, 32, true), 1);
	/* It leaves its parent's where they are. */
	for (i = 0; i < 8; i++)
		free(all[i]);
}

static void a_handle_is_found_by_its_domain_and_name(void **state)
{
	add(1, 64);
	add(2, 64);
	assert_int_equal(ends(1, 65, false), 0);
	assert_int_equal(ends(3, 64, false), 0);
	assert_int_equal(ends(1, 64, true), 1);
	assert_int_equal(ends(1, 64, false), 0);
	assert_int_equal(ends(2, 64, true), 1);
	assert_int_equal(handles_cnt(), 0);
}

static void those_of_one_name_stay_until_the_last_has_ended(void **state)
{
	add(1, 64);
	add(1, 64);
	add(1, 64);
	assert_int_equal(ends(1, 64, true), 0);
	assert_int_equal(ends(1, 64, true), 0);
	add(1, 64);
	assert_int_equal(ends(1, 64, true), 0);
	assert_int_equal(handles_cnt(), 4);
	assert_int_equal(ends(1, 64, true), 4);
	assert_int_equal(ends(1, 64, false), 0);
	assert_int_equal(handles_cnt(), 0);
}

/* A name's registrations are one entry: each is added and ends at the same cost. */
static void a_name_of_many_takes_one_place(void **state)
{
	size_t i;

	add(2, 64);
	for (i = 0; i < MANY; i++)
		add(1, 64);
	add(2, 96);
	assert_int_equal(handles_cnt(), MANY + 2);
	for (i = 1; i < MANY; i++)
		assert_int_equal(ends(1, 64, true), 0);
	assert_int_equal(ends(2, 64, true), 1);
	assert_int_equal(ends(1, 64, true), MANY);
	assert_int_equal(ends(1, 64, false), 0);
	assert_int_equal(ends(2, 96, true), 1);
	assert_int_equal(handles_cnt(), 0);
}

static void more_than_the_first_table_has_room_for(void **state)
{
	uintptr_t i;

	for (i = 0; i < MANY; i++)
		add(i % 3, i * 32);
	assert_int_equal(handles_cnt(), MANY);
	for (i = 0; i < MANY; i++)
		assert_int_equal(ends(i % 3, i * 32, true), 1);
	assert_int_equal(handles_cnt(), 0);
}

static void *work(void *arg)
{
	const uintptr_t m = (uintptr_t)arg;
	struct handle *h;
	bool known;
	uintptr_t i, k, bad = 0;

	for (i = 0; i < MANY; i++) {
		for (k = 0; k < 8; k++) {
			h = handle_new();
			if (h)
				handles_add(h, md(m), (memh_t)(i * 8 + k));
		}
		for (k = 0; k < 8; k++) {
			h = handles_remove(md(m), (memh_t)(i * 8 + k), &known);
			bad += !h || h->next;
			free(h);
		}
	}
	return (void *)bad;
}

static void threads_find_their_own(void **state)
{
	pthread_t all[THREADS];
	uintptr_t i;

	for (i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&all[i], NULL, work, (void *)(i + 1)), 0);
	join_threads(all, THREADS);
	assert_int_equal(handles_cnt(), 0);
}

#define LISTED PLAIN
#include "test_ucx_handles.cases.h"
