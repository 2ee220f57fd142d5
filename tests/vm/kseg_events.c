// SPDX-License-Identifier: BSD-2-Clause
/*
 * /dev/kedge-segment: what the kernel does to the owner's memory, as an attacher
 * in another process sees it. After each event the attacher has the owner's page
 * of now, or is refused; never one of before.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "kseg_lib.h"

#define PAGES 8
#define HUGE (2ul << 20)

struct both {
	char *m;
	size_t len;
	int fd;
	struct ks_id id;
	struct peer peer;
};

static void share(struct both *b, char *m, size_t len)
{
	b->m = m;
	b->len = len;
	b->fd = ks_open(O_RDWR);
	assert_true(b->fd >= 0);
	assert_int_equal(ks_make(b->fd, m, len, 0600, &b->id), 0);
	peer_start(&b->peer, b->id, KS_RW, len);
	assert_int_equal(b->peer.failed, 0);
}

static void unshare_all(struct both *b)
{
	peer_stop(&b->peer);
	close(b->fd);
	munmap(b->m, b->len);
}

static char seen(struct both *b, size_t offset)
{
	char v = 0;

	assert_int_equal(peer_load(&b->peer, offset, &v), KS_OK);
	return v;
}

static void both_see_stores(void **state)
{
	struct both b;

	share(&b, ks_memory(PAGES), PAGES * PAGE);
	b.m[5] = 42;
	assert_int_equal(seen(&b, 5), 42);
	assert_int_equal(peer_store(&b.peer, 3 * PAGE, 43), KS_OK);
	assert_int_equal(b.m[3 * PAGE], 43);
	b.m[3 * PAGE] = 44;
	assert_int_equal(seen(&b, 3 * PAGE), 44);
	unshare_all(&b);
}

static void munmap_takes_the_pages(void **state)
{
	struct both b;
	char v;

	share(&b, ks_memory(PAGES), PAGES * PAGE);
	assert_int_equal(peer_store(&b.peer, 0, 7), KS_OK);
	assert_int_equal(peer_store(&b.peer, 2 * PAGE, 7), KS_OK);
	munmap(b.m + 2 * PAGE, PAGE);
	assert_int_equal(peer_load(&b.peer, 2 * PAGE, &v), KS_SIGBUS);
	assert_int_equal(peer_store(&b.peer, 2 * PAGE, 1), KS_SIGBUS);
	assert_int_equal(seen(&b, 0), 7);
	/* What is mapped there next is seen. */
	assert_true(mmap(b.m + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		    b.m + 2 * PAGE);
	b.m[2 * PAGE] = 9;
	assert_int_equal(seen(&b, 2 * PAGE), 9);
	unshare_all(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_see_stores),
		cmocka_unit_test(munmap_takes_the_pages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
