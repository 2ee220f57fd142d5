// SPDX-License-Identifier: BSD-2-Clause
/*
 * Lines by libfabric (region/ofi/), both ends in this process: what holds by each adapter
 * (lines.h), that a process that ends, stops or forks keeps none waiting, and that no program knows
 * of them.
 */
#include <sys/prctl.h>

#include "clock.h"
#include "lines.h"

#include <kedge/ofi.h>

#define LARGE ((size_t)16 << 20) /* more than sockets take */

static const char *provider = "tcp";
static const _Atomic bool over;

/* What takes it says nothing any more. */
static int put_in_vain(const struct pair *p, uint64_t offset, char c)
{
	int rc;

	test_clock_hurry(100);
	rc = put(p, offset, c);
	test_clock_rest();
	return rc;
}

/* The memory of a loan by another line of the same; and no bytes at all. */
static void a_line_is_told_its_own_memory(void **state)
{
	struct pair d = pair_of(&loan, &a);
	char c = 0;

	assert_int_equal(get(&d, 0, &c), -EIO);
	assert_int_equal(lines.f->put(a.peer, &a.range, LINE_LEN, data, 0, &over, FOREVER), 0);
	assert_int_equal(lines.f->get(a.peer, &a.range, LINE_LEN, data, 0, &over, FOREVER), 0);
	close_pair(&d);
}

static void runs_go_where_they_belong(void **state)
{
	struct fabric_run run[FABRIC_RUNS];
	size_t i, n;

	for (i = 0; i < LINE_LEN; i++)
		data[i] = (char)(i * 13 + (i >> 9) + 1);
	for (n = 0; n < 3; n++) {
		memset(at, 0, LINE_LEN);
		for (i = 0; i < FABRIC_RUNS; i++)
			run[i] = (struct fabric_run){ i * 12288 + n * 100, 4096 - i };
		assert_int_equal(lines.f->put_runs(a.peer, &a.range, data, run, FABRIC_RUNS, &over,
					     FOREVER), 0);
		for (i = 0; i < FABRIC_RUNS; i++) {
			assert_memory_equal(at + run[i].offset, data + run[i].offset, run[i].len);
			assert_int_equal(at[run[i].offset + run[i].len], 0);
		}
	}
}

static void the_memory_may_be_unmapped_meanwhile(void **state)
{
	char *again = mremap(at, 0, LINE_LEN, MREMAP_MAYMOVE);

	assert_true(again != MAP_FAILED);
	munmap(at, LINE_LEN);
	at = again;
	assert_int_equal(put(&a, 5, 'u'), 0);
	assert_int_equal(again[5], 'u');
}

static void one_that_is_given_up_carries_no_more(void **state)
{
	const _Atomic bool yes = true;
	struct pair b = pair_of(&loan, NULL);
	int rc = lines.f->put(a.peer, &a.range, 0, data, LINE_LEN, &yes, FOREVER);
	char c;

	/* It may have been faster. */
	if (rc) {
		assert_int_equal(rc, -ECANCELED);
		assert_int_equal(put(&a, 0, 'x'), -EIO);
	}
	rc = lines.f->get(b.peer, &a.range, 0, data, LINE_LEN, &over, 1);
	if (rc) {
		assert_int_equal(rc, -ECANCELED);
		assert_int_equal(get(&b, 0, &c), -EIO);
	}
	close_pair(&b);
}

static void ends_of_others_are_refused(void **state)
{
	struct fabric_end end[4] = { a.owner_end, a.owner_end, a.owner_end, a.owner_end };
	size_t i;

	end[0].kind = htole32(FABRIC_VERBS);
	end[1].ofi.provider ^= 1;
	end[2].ofi.name_len = htole32(FABRIC_NAME_LEN + 1);
	memset(end[3].ofi.name, 0xff, sizeof(end[3].ofi.name));
	for (i = 0; i < 4; i++)
		assert_int_equal(lines.f->join(a.peer, &end[i]), -EPROTO);
}

static void an_address_of_nobodys_is_no_adapter(void **state)
{
	static const unsigned char there[16] = { [10] = 0xff, [11] = 0xff, [12] = 192, [14] = 2,
						 [15] = 77 };
	struct fabric_line *l = NULL;
	struct fabric_end end;

	assert_int_equal(lines.f->open(there, NULL, &l, &end), -ENODEV);
	assert_null(l);
}

/* ---- other processes ---- */

/* An owner in a child that stops, or is killed, when it has told of its end. */
static struct pair owner_in_child(char *mem, size_t len, int sig, pid_t *pid)
{
	struct fabric_end peer;
	struct pair p = { .owner = NULL };
	int pipes[2];

	need_threads_after_fork();
	assert_int_equal(pipe(pipes), 0);
	*pid = fork();
	if (!*pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		CHILD_CHECK(!lines.f->open(lines.here, line_lend(mem, len, true).loan, &p.owner,
					   &p.owner_end));
		CHILD_CHECK(write(pipes[1], &p.owner_end, sizeof(p.owner_end)) ==
			    sizeof(p.owner_end));
		if (sig == SIGSTOP)
			raise(sig);
		for (;;)
			pause();
	}
	assert_int_equal(read(pipes[0], &p.owner_end, sizeof(p.owner_end)), sizeof(p.owner_end));
	close(pipes[0]);
	close(pipes[1]);
	if (sig == SIGSTOP)
		assert_int_equal(waitpid(*pid, NULL, WUNTRACED), *pid);
	assert_int_equal(lines.f->open(lines.here, NULL, &p.peer, &peer), 0);
	assert_int_equal(lines.f->join(p.peer, &p.owner_end), 0);
	return p;
}

static void end_owner(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void an_owner_that_is_killed_fails_it(void **state)
{
	pid_t pid;
	struct pair p = owner_in_child(at, LINE_LEN, SIGKILL, &pid);

	assert_int_equal(put(&p, 0, 'k'), 0);
	assert_int_equal(at[0], 'k');
	end_owner(pid);
	assert_int_equal(put_in_vain(&p, 1, 'x'), -EIO);
	lines.f->close(p.peer);
}

static void an_owner_that_is_stopped_is_not_waited_for(void **state)
{
	pid_t pid;
	struct pair p = owner_in_child(at, LINE_LEN, SIGSTOP, &pid);

	assert_int_equal(put_in_vain(&p, 0, 's'), -EIO);
	lines.f->close(p.peer);
	end_owner(pid);
}

static void *continue_it(void *pid)
{
	usleep(100000);
	kill(*(pid_t *)pid, SIGCONT);
	return NULL;
}

static int put_to_stopped(const struct pair *p, pid_t pid, const char *from)
{
	pthread_t t;
	int rc;

	assert_int_equal(put(p, 0, 'x'), 0);
	kill(pid, SIGSTOP);
	assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
	assert_int_equal(pthread_create(&t, NULL, continue_it, &pid), 0);
	rc = lines.f->put(p->peer, &a.range, 0, from, LARGE, &over, FOREVER);
	pthread_join(t, NULL);
	return rc;
}

/* Its sockets are full, and pieces wait in their rooms. */
static void pieces_stay_until_they_are_there(void **state)
{
	char *to = line_memory(LARGE), *from = line_memory(LARGE);
	struct pair p;
	pid_t pid;
	size_t i;
	int rc;

	for (i = 0; i < LARGE; i++)
		from[i] = (char)(i * 11 + (i >> 16) * 3);
	/* It may be taken for gone, on a machine with much to do. */
	do {
		p = owner_in_child(to, LARGE, SIGKILL, &pid);
		rc = put_to_stopped(&p, pid, from);
		end_owner(pid);
		lines.f->close(p.peer);
	} while (rc == -EIO);
	assert_int_equal(rc, 0);
	assert_memory_equal(to, from, LARGE);
	munmap(to, LARGE);
	munmap(from, LARGE);
}

/* ---- a program that does not know ---- */

static void closed_descriptors_are_none_of_its(void **state)
{
	char byte = 0;
	int pipes[2], fd;

	assert_int_equal(put(&a, 0, 'a'), 0);
	for (fd = 3; fd < 256; fd++)
		close(fd);
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(put(&a, 1, 'b'), 0);
	assert_int_equal(get(&a, 0, &byte), 0);
	assert_int_equal(byte, 'a');
	assert_int_equal(at[1], 'b');
	close(pipes[0]);
	close(pipes[1]);
}

static void lines_have_no_threads_of_their_own(void **state)
{
	const unsigned int threads = threads_now();

	begin_line(state);
	assert_int_equal(put(&a, 0, 'a'), 0);
	assert_int_equal(threads_now(), threads);
	end_line(state);
}

static void it_has_no_descriptor_of_the_programs(void **state)
{
	int pipes[2];
	char c;

	assert_int_equal(pipe(pipes), 0);
	begin_line(state);
	close(pipes[1]);
	assert_int_equal(read(pipes[0], &c, 1), 0);
	close(pipes[0]);
	end_line(state);
}

static struct {
	_Atomic bool stop;
	_Atomic uint64_t done;
	_Atomic int rc;
} load;

static void *put_on(void *none)
{
	int rc = 0;

	while (!rc && !atomic_load(&load.stop)) {
		rc = put(&a, 0, 'f');
		atomic_fetch_add(&load.done, 1);
	}
	atomic_store(&load.rc, rc);
	return none;
}

static void have_own_lines(void)
{
	const struct loan own = line_lend(data, LINE_LEN, true);
	struct pair p = { .peer = a.peer };

	CHILD_CHECK(!lines.f->open(lines.here, own.loan, &p.owner, &p.owner_end));
	CHILD_CHECK(put(&p, 1, 'p') == -EIO);
	close_pair(&a);
	CHILD_CHECK(!lines.f->open(lines.here, NULL, &p.peer, &(struct fabric_end){ 0 }));
	CHILD_CHECK(!lines.f->join(p.peer, &p.owner_end));
	CHILD_CHECK(!put(&p, 2, 'c'));
	CHILD_CHECK(data[2] == 'c');
	_exit(0);
}

/* A child's libfabric is whole, whatever its parent did as it forked. */
static void children_have_lines_of_their_own(void **state)
{
	uint64_t before;
	pthread_t t;
	pid_t pid;
	int i, status;

	need_threads_after_fork();
	assert_int_equal(pthread_create(&t, NULL, put_on, NULL), 0);
	for (i = 0; i < 20; i++) {
		before = atomic_load(&load.done);
		WAIT_FOR(atomic_load(&load.done) > before);
		pid = fork();
		if (!pid)
			have_own_lines();
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	atomic_store(&load.stop, true);
	pthread_join(t, NULL);
	assert_int_equal(atomic_load(&load.rc), 0);
}

static int begin(void **state)
{
	const struct kedge_region_ofi_opts o = { .size = sizeof(o),
						 .flags = KEDGE_REGION_OFI_WEAK_KEYS };
	int rc = kedge_region_use_ofi(provider, &o);

	if (rc)
		print_error("%s\n", kedge_strerror(rc));
	lines.f = fabric();
	return rc;
}

static void the_call_says_what_is_wrong(void **state)
{
	struct kedge_region_ofi_opts o = { .size = sizeof(o), .flags = 2 };

	assert_int_equal(kedge_region_use_ofi(NULL, NULL), -EINVAL);
	assert_int_equal(kedge_region_use_ofi("", NULL), -EINVAL);
	assert_int_equal(kedge_region_use_ofi("tcp", &o), -EINVAL);
	o.size = 4;
	assert_int_equal(kedge_region_use_ofi("tcp", &o), -EINVAL);
	assert_int_equal(kedge_region_use_ofi("no such", NULL), -ENODEV);
	assert_int_equal(kedge_region_use_ofi("shm", NULL), -EOPNOTSUPP);
	assert_non_null(strstr(kedge_strerror(-EOPNOTSUPP), "\"shm\""));
	assert_ptr_equal(fabric(), lines.f);
	/* Lines are closed by the library that has opened them. */
	assert_int_equal(kedge__region_fabric(&(const struct fabric){ .open = NULL }), -EBUSY);
	assert_ptr_equal(fabric(), lines.f);
	assert_int_equal(begin(state), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_call_says_what_is_wrong),
		line_case(an_owner_that_is_killed_fails_it),
		line_case(an_owner_that_is_stopped_is_not_waited_for),
		cmocka_unit_test(pieces_stay_until_they_are_there),
		line_case(a_line_is_told_its_own_memory),
		line_case(runs_go_where_they_belong),
		line_case(the_memory_may_be_unmapped_meanwhile),
		line_case(one_that_is_given_up_carries_no_more),
		line_case(ends_of_others_are_refused),
		cmocka_unit_test(an_address_of_nobodys_is_no_adapter),
		cmocka_unit_test(lines_have_no_threads_of_their_own),
		cmocka_unit_test(it_has_no_descriptor_of_the_programs),
		line_case(children_have_lines_of_their_own),
		line_case(closed_descriptors_are_none_of_its),
	};

	if (argc > 1)
		provider = argv[1];
	lines.here[10] = lines.here[11] = 0xff; /* as IPv4 addresses are mapped */
	lines.here[12] = 127;
	lines.here[15] = 1;
	lines.put_in_vain = put_in_vain;
	test_clock_begin();
	return cmocka_run_group_tests(tests, begin, NULL) + lines_run();
}
