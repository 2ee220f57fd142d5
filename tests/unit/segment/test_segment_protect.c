// SPDX-License-Identifier: BSD-2-Clause
/* Pages that an owner makes read-only, or guards, in memory that others have attached. */
#include "shared.h"

#define LEN ((size_t)1 << 20)

static uint64_t *w;

static void begin(void)
{
	w = words(LEN);
	share(w, LEN);
}

static bool can_read(const void *at)
{
	int fd[2];
	bool can;

	if (pipe(fd))
		abort();
	can = write(fd[1], at, 1) == 1;
	close(fd[0]);
	close(fd[1]);
	return can;
}

static bool can_write(void *at)
{
	int fd[2];
	bool can;

	if (pipe(fd) || write(fd[1], "x", 1) != 1)
		abort();
	can = read(fd[0], at, 1) == 1;
	close(fd[0]);
	close(fd[1]);
	return can;
}

/* A guard page, one that is read-only, and the others. */
static bool is_protected(void)
{
	char *p = (char *)w;
	const size_t page = page_len();

	return !can_read(p + 8 * page) && can_read(p + 16 * page) && !can_write(p + 16 * page) &&
	       can_read(p) && can_write(p + 9 * page) && can_write(p + 17 * page) &&
	       w[16 * page / 8 + 1] == 16 * page / 8 + 1;
}

static void what_is_protected_stays_so(void **state)
{
	char *p;
	pid_t pid;

	begin();
	p = (char *)w;
	assert_int_equal(mprotect(p + 8 * page_len(), page_len(), PROT_NONE), 0);
	assert_int_equal(mprotect(p + 16 * page_len(), page_len(), PROT_READ), 0);
	assert_true(is_protected());
	pid = fork();
	if (!pid)
		_exit(!is_protected());
	ended_well(pid);
	assert_true(is_protected());
	end();
	munmap(w, LEN);
	/* And without a fork. */
	begin();
	p = (char *)w;
	assert_int_equal(mprotect(p + 8 * page_len(), page_len(), PROT_NONE), 0);
	assert_int_equal(mprotect(p + 16 * page_len(), page_len(), PROT_READ), 0);
	end();
	assert_true(is_protected());
	munmap(w, LEN);
}

#define LISTED PLAIN
#include "test_segment_protect.cases.h"

int main(int argc, char **argv)
{
	peer_main(argc, argv);
	return RUN(cases);
}
