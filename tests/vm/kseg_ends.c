// SPDX-License-Identifier: BSD-2-Clause
/*
 * /dev/kedge-segment: owners that end in each way, one that attaches its own
 * memory, one that shares all of its address space.
 */
#include "kseg_lib.h"

#define PAGES 8

enum end { END_EXIT, END_KILL, END_EXEC, END_CLOSE };

struct shown {
	struct ks_id id;
	int err;
};

static void own_and_end(int out, int in, enum end end)
{
	char *m = vm_memory(PAGES), c;
	int fd = ks_open(O_RDWR);
	struct shown s;

	m[0] = 17;
	s.err = ks_make(fd, m, PAGES * PAGE, 0600, &s.id);
	if (write(out, &s, sizeof(s)) != sizeof(s) || read(in, &c, 1) != 1)
		_exit(1);
	if (end == END_KILL)
		kill(getpid(), SIGKILL);
	if (end == END_EXEC)
		execl("/bin/sleep", "sleep", "5", NULL);
	if (end == END_CLOSE) {
		close(fd);
		if (write(out, &s, sizeof(s)) != sizeof(s))
			_exit(1);
		sleep(5);
	}
	_exit(0);
}

static void what_was_attached_is_gone(void **state)
{
	const enum end end = (enum end)(uintptr_t)*state;
	int up[2], down[2], i;
	struct peer p;
	struct shown s;
	pid_t owner;
	char v = 0;

	assert_int_equal(pipe(up), 0);
	assert_int_equal(pipe(down), 0);
	owner = fork();
	if (!owner)
		own_and_end(up[1], down[0], end);
	assert_int_equal(read(up[0], &s, sizeof(s)), sizeof(s));
	assert_int_equal(s.err, 0);
	peer_start(&p, s.id, KS_RW, PAGES * PAGE);
	assert_int_equal(p.failed, 0);
	assert_int_equal(peer_load(&p, 0, &v), KS_OK);
	assert_int_equal(v, 17);
	assert_int_equal(write(down[1], "", 1), 1);
	if (end == END_CLOSE)
		assert_int_equal(read(up[0], &s, sizeof(s)), sizeof(s));
	else if (end == END_EXEC)
		for (i = 0; i < 100 && !(peer_generation(&p) & 1); i++)
			usleep(20000);
	else
		waitpid(owner, NULL, 0);
	assert_int_equal(peer_load(&p, 0, &v), KS_SIGBUS);
	assert_int_equal(peer_store(&p, PAGE, 1), KS_SIGBUS);
	assert_int_equal(peer_generation(&p) % 2, 1);
	peer_stop(&p);
	kill(owner, SIGKILL);
	waitpid(owner, NULL, 0);
	close(up[0]);
	close(up[1]);
	close(down[0]);
	close(down[1]);
}

static void the_owner_attaches_its_own(void **state)
{
	char *m = vm_memory(PAGES), *a, *b, v;

	ks_grant(m, PAGES * PAGE);
	a = ks_mapped(other, PAGES * PAGE, PROT_READ | PROT_WRITE, 0);
	a[PAGE] = 3;
	assert_int_equal(m[PAGE], 3);
	/* Moved and cut, it is still the owner's. */
	b = mremap(a, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
		   vm_memory(4));
	assert_true(b != MAP_FAILED);
	assert_int_equal(b[PAGE], 3);
	assert_int_equal(ks_store(a + 5 * PAGE, 6), KS_OK);
	assert_int_equal(m[5 * PAGE], 6);
	assert_true(mremap(b, 4 * PAGE, 5 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED);
	assert_int_equal(madvise(b, PAGE, MADV_DOFORK), -1);
	madvise(m, PAGES * PAGE, MADV_DONTNEED);
	assert_int_equal(b[PAGE], 0);
	/* Its pages of the segment are gone with the owner's. */
	munmap(m, PAGES * PAGE);
	assert_int_equal(ks_load(b, &v), KS_SIGBUS);
	assert_int_equal(ks_load(a + 5 * PAGE, &v), KS_SIGBUS);
	munmap(b, 4 * PAGE);
	munmap(a + 4 * PAGE, 4 * PAGE);
}

static void all_of_an_address_space(void **state)
{
	char *a, *late, *m = vm_memory(1), v;
	struct kedge_segment_query q;

	ks_grant(NULL, 0);
	a = ks_mapped(other, PAGE, PROT_READ | PROT_WRITE, (off_t)(uintptr_t)m);
	*a = 12;
	assert_int_equal(*m, 12);
	/* Attachments are no part of it: no attachment of an attachment. */
	late = ks_mapped(other, PAGE, PROT_READ | PROT_WRITE, (off_t)(uintptr_t)a);
	assert_int_equal(ks_load(late, &v), KS_SIGBUS);
	munmap(late, PAGE);
	assert_int_equal(ks_query(mine, shared, &q), 0);
	assert_int_equal(q.addr, 0);
	munmap(m, PAGE);
	assert_int_equal(ks_load(a, &v), KS_SIGBUS);
	munmap(a, PAGE);
}

#define END(name, how) \
	{ name, what_was_attached_is_gone, NULL, NULL, (void *)(uintptr_t)(how) }

int main(void)
{
	const struct CMUnitTest tests[] = {
		END("exit of the owner", END_EXIT),
		END("kill of the owner", END_KILL),
		END("exec of the owner", END_EXEC),
		END("close of the owner's file", END_CLOSE),
		KS_CASE(the_owner_attaches_its_own),
		KS_CASE(all_of_an_address_space),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
