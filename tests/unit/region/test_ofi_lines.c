// SPDX-License-Identifier: BSD-2-Clause
/*
 * Lines by libfabric (region/ofi/), both ends in this process: what a line that is open may reach,
 * that one that is closed, or of another loan, reaches nothing, and that none waits for ever.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "core.h"
#include "region/fabric/fabric.h"

#include <kedge/ofi.h>

#define LEN	((size_t)3 << 20)
#define LARGE	((size_t)16 << 20) /* more than sockets take */
#define FOREVER UINT64_MAX

static const char *provider = "tcp";
static const struct fabric *f;
static const _Atomic bool over;
/* As IPv4 addresses are mapped. */
static const unsigned char here[16] = { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 };
static const struct fabric_range unused;

/* An owner's end, and a peer's. */
struct pair {
	struct fabric_line *owner;
	struct fabric_line *peer;
	struct fabric_end owner_end;
};

/* @other: whose memory it is told that it reaches, or NULL: its owner's. */
static struct pair pair_of(struct fabric_loan *loan, const struct pair *other)
{
	struct fabric_end peer, told;
	struct pair p;

	assert_int_equal(f->open(here, loan, &p.owner, &p.owner_end), 0);
	assert_int_equal(f->open(here, NULL, &p.peer, &peer), 0);
	assert_int_equal(f->join(p.owner, &peer), 0);
	told = p.owner_end;
	if (other) {
		told.ofi.at = other->owner_end.ofi.at;
		told.ofi.key = other->owner_end.ofi.key;
	}
	assert_int_equal(f->join(p.peer, &told), 0);
	return p;
}

static void close_pair(struct pair *p)
{
	f->close(p->owner);
	f->close(p->peer);
}

static struct fabric_loan *lend_some(char *at, size_t len, bool writes)
{
	struct fabric_loan *loan = NULL;
	uint32_t key;

	assert_int_equal(f->lend(here, at, len, writes, &loan, &key), 0);
	return loan;
}

static struct fabric_loan *lend(char *at, bool writes)
{
	return lend_some(at, LEN, writes);
}

static int put(const struct pair *p, uint64_t at, char c)
{
	return f->put(p->peer, &unused, at, &c, 1, &over, FOREVER);
}

/* What takes it says nothing any more. */
static int put_in_vain(const struct pair *p, uint64_t at, char c)
{
	int rc;

	test_clock_hurry(100);
	rc = put(p, at, c);
	test_clock_rest();
	return rc;
}

static int get(const struct pair *p, uint64_t at, char *c)
{
	return f->get(p->peer, &unused, at, c, 1, &over, FOREVER);
}

static char *memory_of(size_t len)
{
	char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(at != MAP_FAILED);
	return at;
}

static char *memory(void)
{
	return memory_of(LEN);
}

static void lines_of_a_loan_end_one_by_one(void **state)
{
	char *at = memory(), c;
	struct fabric_loan *loan = lend(at, true);
	struct pair a = pair_of(loan, NULL), b = pair_of(loan, NULL);

	assert_int_equal(put(&a, 0, 'a'), 0);
	assert_int_equal(at[0], 'a');
	assert_int_equal(put(&b, 1, 'b'), 0);
	assert_int_equal(at[1], 'b');
	f->close(a.owner);
	assert_int_equal(put_in_vain(&a, 2, 'a'), -EIO);
	assert_int_equal(at[2], 0);
	assert_int_equal(get(&a, 1, &c), -EIO);
	assert_int_equal(put(&b, 2, 'b'), 0);
	assert_int_equal(at[2], 'b');
	assert_int_equal(get(&b, 0, &c), 0);
	assert_int_equal(c, 'a');
	f->close(b.owner);
	f->unlend(loan);
	assert_int_equal(put_in_vain(&b, 3, 'b'), -EIO);
	assert_int_equal(at[3], 0);
	f->close(a.peer);
	f->close(b.peer);
	munmap(at, LEN);
}

static void keys_are_of_no_use_to_lines_of_others(void **state)
{
	char *at = memory(), *other = memory(), c = 0;
	struct fabric_loan *one = lend(at, true), *two = lend(other, true);
	struct pair a = pair_of(one, NULL), b = pair_of(two, &a), d = pair_of(one, &a);

	/* Of another loan, and of another line of the same. */
	assert_int_equal(put(&b, 0, 'x'), -EIO);
	assert_int_equal(get(&d, 0, &c), -EIO);
	assert_int_equal(at[0] + other[0] + c, 0);
	assert_int_equal(put(&a, 0, 'a'), 0);
	close_pair(&a);
	close_pair(&b);
	close_pair(&d);
	f->unlend(one);
	f->unlend(two);
	munmap(at, LEN);
	munmap(other, LEN);
}

static void rights_and_ends_hold(void **state)
{
	char *at = memory(), c = 1;
	struct fabric_loan *loan = lend(at, false);
	struct pair a = pair_of(loan, NULL), b = pair_of(loan, NULL), d = pair_of(loan, NULL);

	assert_int_equal(get(&a, LEN - 1, &c), 0);
	assert_int_equal(c, 0);
	assert_int_equal(get(&a, LEN, &c), -EIO);
	assert_int_equal(put(&b, 0, 'x'), -EIO);
	assert_int_equal(at[0], 0);
	/* That of the others has not suffered. */
	assert_int_equal(get(&d, 0, &c), 0);
	close_pair(&a);
	close_pair(&b);
	close_pair(&d);
	f->unlend(loan);
	munmap(at, LEN);
}

/* Of whatever length, and where pieces come again to a room. */
static void whatever_is_put_is_got(void **state)
{
	static const size_t lens[] = { 0, 1, 63, 65535, 65536, 65537, 1048576, 1048577, 3145727,
				       LEN };
	char *at = memory(), *data = memory(), *got = memory();
	struct fabric_loan *loan = lend(at, true);
	struct pair a = pair_of(loan, NULL);
	size_t i, n;

	for (n = 0; n < sizeof(lens) / sizeof(*lens); n++) {
		for (i = 0; i < LEN; i++)
			data[i] = (char)(i * 7 + (i >> 12) + n);
		memset(got, 0, LEN);
		assert_int_equal(f->put(a.peer, &unused, LEN - lens[n], data, lens[n], &over,
					FOREVER), 0);
		assert_memory_equal(at + LEN - lens[n], data, lens[n]);
		assert_int_equal(f->get(a.peer, &unused, LEN - lens[n], got, lens[n], &over,
					FOREVER), 0);
		assert_memory_equal(got, data, lens[n]);
	}
	close_pair(&a);
	f->unlend(loan);
	munmap(at, LEN);
	munmap(data, LEN);
	munmap(got, LEN);
}

static void runs_go_where_they_belong(void **state)
{
	char *at = memory(), *data = memory();
	struct fabric_loan *loan = lend(at, true);
	struct pair a = pair_of(loan, NULL);
	struct fabric_run run[FABRIC_RUNS];
	size_t i, n;

	for (i = 0; i < LEN; i++)
		data[i] = (char)(i * 13 + (i >> 9) + 1);
	for (n = 0; n < 3; n++) {
		memset(at, 0, LEN);
		for (i = 0; i < FABRIC_RUNS; i++)
			run[i] = (struct fabric_run){ i * 12288 + n * 100, 4096 - i };
		assert_int_equal(f->put_runs(a.peer, &unused, data, run, FABRIC_RUNS, &over,
					     FOREVER), 0);
		for (i = 0; i < FABRIC_RUNS; i++) {
			assert_memory_equal(at + run[i].offset, data + run[i].offset, run[i].len);
			assert_int_equal(at[run[i].offset + run[i].len], 0);
		}
	}
	close_pair(&a);
	f->unlend(loan);
	munmap(at, LEN);
	munmap(data, LEN);
}

static void the_memory_may_be_unmapped_meanwhile(void **state)
{
	char *at = memory(), *again = mremap(at, 0, LEN, MREMAP_MAYMOVE);
	struct fabric_loan *loan = lend(at, true);
	struct pair a = pair_of(loan, NULL);

	assert_true(again != MAP_FAILED);
	munmap(at, LEN);
	assert_int_equal(put(&a, 5, 'u'), 0);
	assert_int_equal(again[5], 'u');
	close_pair(&a);
	f->unlend(loan);
	munmap(again, LEN);
}

static void one_that_is_given_up_carries_no_more(void **state)
{
	const _Atomic bool yes = true;
	char *at = memory(), *data = memory(), c;
	struct fabric_loan *loan = lend(at, true);
	struct pair a = pair_of(loan, NULL), b = pair_of(loan, NULL);
	int rc = f->put(a.peer, &unused, 0, data, LEN, &yes, FOREVER);

	/* It may have been faster. */
	if (rc) {
		assert_int_equal(rc, -ECANCELED);
		assert_int_equal(put(&a, 0, 'x'), -EIO);
	}
	rc = f->get(b.peer, &unused, 0, data, LEN, &over, 1);
	if (rc) {
		assert_int_equal(rc, -ECANCELED);
		assert_int_equal(get(&b, 0, &c), -EIO);
	}
	close_pair(&a);
	close_pair(&b);
	f->unlend(loan);
	munmap(at, LEN);
	munmap(data, LEN);
}

static void ends_of_others_are_refused(void **state)
{
	char *at = memory();
	struct fabric_loan *loan = lend(at, true);
	struct pair a = pair_of(loan, NULL);
	struct fabric_end end = a.owner_end;

	end.kind = htole32(FABRIC_VERBS);
	assert_int_equal(f->join(a.peer, &end), -EPROTO);
	end = a.owner_end;
	end.ofi.provider ^= 1;
	assert_int_equal(f->join(a.peer, &end), -EPROTO);
	end = a.owner_end;
	end.ofi.name_len = htole32(FABRIC_NAME_LEN + 1);
	assert_int_equal(f->join(a.peer, &end), -EPROTO);
	end = a.owner_end;
	memset(end.ofi.name, 0xff, sizeof(end.ofi.name));
	assert_int_equal(f->join(a.peer, &end), -EPROTO);
	close_pair(&a);
	f->unlend(loan);
	munmap(at, LEN);
}

static void an_address_of_nobodys_is_no_adapter(void **state)
{
	static const unsigned char there[16] = { [10] = 0xff, [11] = 0xff, [12] = 192, [14] = 2,
						 [15] = 77 };
	struct fabric_line *l = NULL;
	struct fabric_end end;

	assert_int_equal(f->open(there, NULL, &l, &end), -ENODEV);
	assert_null(l);
}

/* ---- other processes ---- */

/* An owner in a child that stops, or is killed, when it has told of its end. */
static struct pair owner_in_child(char *at, size_t len, int sig, pid_t *pid)
{
	struct fabric_end peer;
	struct pair p = { .owner = NULL };
	int pipes[2], status;

	assert_int_equal(pipe(pipes), 0);
	*pid = fork();
	if (!*pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		p.owner = NULL;
		CHILD_CHECK(!f->open(here, lend_some(at, len, true), &p.owner, &p.owner_end));
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
	if (sig == SIGSTOP) {
		assert_int_equal(waitpid(*pid, &status, WUNTRACED), *pid);
		assert_true(WIFSTOPPED(status));
	}
	assert_int_equal(f->open(here, NULL, &p.peer, &peer), 0);
	assert_int_equal(f->join(p.peer, &p.owner_end), 0);
	return p;
}

static void an_owner_that_is_killed_fails_it(void **state)
{
	char *at = memory();
	struct pair p;
	pid_t pid;
	int status;

	need_threads_after_fork();
	p = owner_in_child(at, LEN, SIGKILL, &pid);
	assert_int_equal(put(&p, 0, 'k'), 0);
	assert_int_equal(at[0], 'k');
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(put_in_vain(&p, 1, 'x'), -EIO);
	f->close(p.peer);
	munmap(at, LEN);
}

static void an_owner_that_is_stopped_is_not_waited_for(void **state)
{
	char *at = memory();
	struct pair p;
	pid_t pid;
	int status;

	need_threads_after_fork();
	p = owner_in_child(at, LEN, SIGSTOP, &pid);
	assert_int_equal(put_in_vain(&p, 0, 's'), -EIO);
	f->close(p.peer);
	kill(pid, SIGKILL);
	kill(pid, SIGCONT);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	munmap(at, LEN);
}

static void *continue_it(void *pid)
{
	usleep(100000);
	kill(*(pid_t *)pid, SIGCONT);
	return NULL;
}

static int put_to_stopped(const struct pair *p, pid_t pid, const char *data)
{
	pthread_t t;
	int status, rc;

	assert_int_equal(put(p, 0, 'x'), 0);
	kill(pid, SIGSTOP);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_int_equal(pthread_create(&t, NULL, continue_it, &pid), 0);
	rc = f->put(p->peer, &unused, 0, data, LARGE, &over, FOREVER);
	pthread_join(t, NULL);
	return rc;
}

/* Its sockets are full, and pieces wait in their rooms. */
static void pieces_stay_until_they_are_there(void **state)
{
	char *at = memory_of(LARGE), *data = memory_of(LARGE);
	struct pair p;
	pid_t pid;
	size_t i;
	int status, rc;

	need_threads_after_fork();
	for (i = 0; i < LARGE; i++)
		data[i] = (char)(i * 11 + (i >> 16) * 3);
	/* It may be taken for gone, on a machine with much to do. */
	do {
		p = owner_in_child(at, LARGE, SIGKILL, &pid);
		rc = put_to_stopped(&p, pid, data);
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		f->close(p.peer);
	} while (rc == -EIO);
	assert_int_equal(rc, 0);
	assert_memory_equal(at, data, LARGE);
	munmap(at, LARGE);
	munmap(data, LARGE);
}

/* ---- a program that does not know ---- */

static void closed_descriptors_are_none_of_its(void **state)
{
	char *at = memory(), byte = 0;
	struct fabric_loan *loan = lend(at, true);
	struct pair a = pair_of(loan, NULL);
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
	close_pair(&a);
	f->unlend(loan);
	munmap(at, LEN);
}

static void lines_have_no_threads_of_their_own(void **state)
{
	const unsigned int threads = threads_now();
	char *at = memory();
	struct fabric_loan *loan = lend(at, true);
	struct pair a = pair_of(loan, NULL);

	assert_int_equal(put(&a, 0, 'a'), 0);
	assert_int_equal(threads_now(), threads);
	close_pair(&a);
	f->unlend(loan);
	munmap(at, LEN);
}

static void it_has_no_descriptor_of_the_programs(void **state)
{
	char *at = memory(), c;
	struct fabric_loan *loan;
	int pipes[2];

	assert_int_equal(pipe(pipes), 0);
	loan = lend(at, true);
	close(pipes[1]);
	assert_int_equal(read(pipes[0], &c, 1), 0);
	close(pipes[0]);
	f->unlend(loan);
	munmap(at, LEN);
}

static struct {
	struct pair p;
	_Atomic bool stop;
	_Atomic uint64_t done;
	_Atomic int rc;
} load;

static void *put_on(void *unused_arg)
{
	int rc = 0;

	(void)unused_arg;
	while (!rc && !atomic_load(&load.stop)) {
		rc = put(&load.p, 0, 'f');
		atomic_fetch_add(&load.done, 1);
	}
	atomic_store(&load.rc, rc);
	return NULL;
}

/* A child's libfabric is whole, whatever its parent did as it forked. */
static void children_have_lines_of_their_own(void **state)
{
	char *at = memory(), *theirs = memory();
	struct fabric_loan *loan;
	pthread_t t;
	pid_t pid;
	int i, status;

	need_threads_after_fork();
	loan = lend(at, true);
	load.p = pair_of(loan, NULL);
	assert_int_equal(pthread_create(&t, NULL, put_on, NULL), 0);
	for (i = 0; i < 20; i++) {
		const uint64_t before = atomic_load(&load.done);
		struct fabric_loan *own;
		struct pair p;

		WAIT_FOR(atomic_load(&load.done) > before);
		pid = fork();
		if (!pid) {
			own = lend(theirs, true);
			CHILD_CHECK(!f->open(here, own, &p.owner, &p.owner_end));
			p.peer = load.p.peer;
			CHILD_CHECK(put(&p, 1, 'p') == -EIO);
			f->close(load.p.owner);
			f->close(load.p.peer);
			CHILD_CHECK(!f->open(here, NULL, &p.peer, &(struct fabric_end){ 0 }));
			CHILD_CHECK(!f->join(p.peer, &p.owner_end));
			CHILD_CHECK(!put(&p, 2, 'c'));
			CHILD_CHECK(theirs[2] == 'c');
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	atomic_store(&load.stop, true);
	pthread_join(t, NULL);
	assert_int_equal(atomic_load(&load.rc), 0);
	close_pair(&load.p);
	f->unlend(loan);
	munmap(at, LEN);
	munmap(theirs, LEN);
}

static int begin(void **state)
{
	const struct kedge_region_ofi_opts o = { .size = sizeof(o),
						 .flags = KEDGE_REGION_OFI_WEAK_KEYS };
	int rc = kedge_region_use_ofi(provider, &o);

	if (rc)
		print_error("%s\n", kedge_strerror(rc));
	f = fabric();
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
	assert_ptr_equal(fabric(), f);
	/* Lines are closed by the library that has opened them. */
	assert_int_equal(kedge__region_fabric(&(const struct fabric){ .open = NULL }), -EBUSY);
	assert_ptr_equal(fabric(), f);
	assert_int_equal(begin(state), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_call_says_what_is_wrong),
		cmocka_unit_test(an_owner_that_is_killed_fails_it),
		cmocka_unit_test(an_owner_that_is_stopped_is_not_waited_for),
		cmocka_unit_test(pieces_stay_until_they_are_there),
		cmocka_unit_test(lines_of_a_loan_end_one_by_one),
		cmocka_unit_test(keys_are_of_no_use_to_lines_of_others),
		cmocka_unit_test(rights_and_ends_hold),
		cmocka_unit_test(whatever_is_put_is_got),
		cmocka_unit_test(runs_go_where_they_belong),
		cmocka_unit_test(the_memory_may_be_unmapped_meanwhile),
		cmocka_unit_test(one_that_is_given_up_carries_no_more),
		cmocka_unit_test(ends_of_others_are_refused),
		cmocka_unit_test(an_address_of_nobodys_is_no_adapter),
		cmocka_unit_test(lines_have_no_threads_of_their_own),
		cmocka_unit_test(it_has_no_descriptor_of_the_programs),
		cmocka_unit_test(children_have_lines_of_their_own),
		cmocka_unit_test(closed_descriptors_are_none_of_its),
	};

	if (argc > 1)
		provider = argv[1];
	test_clock_begin();
	return cmocka_run_group_tests(tests, begin, NULL);
}
