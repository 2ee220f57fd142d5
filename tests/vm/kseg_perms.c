// SPDX-License-Identifier: BSD-2-Clause
/*
 * /dev/kedge-segment: who may do what. A matrix of the owner's pages (private,
 * of a file, read-only, never touched), of grants, and of what an attacher tries;
 * users and modes; descriptors in other processes.
 */
#include "kseg_lib.h"

/* ---- the matrix ---- */

enum kind { ANON, UNTOUCHED, PRIVATE_FILE, SHARED_FILE, SHMEM, KINDS };

static int file_of(char byte)
{
	char path[] = "/run/kseg-XXXXXX", page[PAGE];
	int fd = mkstemp(path), again;

	assert_true(fd >= 0);
	memset(page, byte, sizeof(page));
	assert_int_equal(write(fd, page, sizeof(page)), sizeof(page));
	/* As a program has the file that it may but read. */
	again = open(path, O_RDWR | O_CLOEXEC);
	unlink(path);
	close(fd);
	return again;
}

static char *memory(enum kind kind, int prot, int file)
{
	const int anon = kind != PRIVATE_FILE && kind != SHARED_FILE;
	const int flags = kind == ANON || kind == UNTOUCHED ?
				  MAP_PRIVATE | MAP_ANONYMOUS :
			  kind == PRIVATE_FILE ? MAP_PRIVATE :
			  kind == SHARED_FILE  ? MAP_SHARED :
						 MAP_SHARED | MAP_ANONYMOUS;
	char *m = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, flags,
		       anon ? -1 : file, 0);

	assert_true(m != MAP_FAILED);
	if (kind == ANON || kind == SHMEM)
		memset(m, 'a', PAGE);
	if (prot != (PROT_READ | PROT_WRITE))
		mprotect(m, PAGE, prot);
	return m;
}

static void in_file(int file, char want)
{
	char c = 0;

	assert_int_equal(pread(file, &c, 1, 0), 1);
	assert_int_equal(c, want);
}

/* Every way to store, after a load or not, with two mprotect() or without. */
static void try_stores(enum kind kind, int prot, unsigned int access, int how)
{
	const bool may = prot == (PROT_READ | PROT_WRITE) && access == KS_RW;
	int file = file_of('a'), fd = ks_open(O_RDWR);
	char *m = memory(kind, prot, file), v;
	const char before = kind == UNTOUCHED ? 0 : 'a';
	struct ks_id id;
	struct peer p;
	int rc;

	assert_int_equal(ks_make(fd, m, PAGE, 0600, &id), 0);
	peer_start(&p, id, access, PAGE);
	assert_int_equal(p.failed, 0);
	if (how & 1) {
		assert_int_equal(peer_load(&p, 0, &v), KS_OK);
		assert_int_equal(v, before);
	}
	if (how & 2) {
		assert_int_equal(peer_mprotect(&p, 0, PAGE, PROT_READ), 0);
		assert_int_equal(peer_load(&p, 0, &v), KS_OK);
		rc = peer_mprotect(&p, 0, PAGE, PROT_READ | PROT_WRITE);
		assert_int_equal(rc, access == KS_RW ? 0 : -EACCES);
	}
	rc = peer_store(&p, 0, 'b');
	if (may)
		assert_int_equal(rc, KS_OK);
	else
		assert_int_equal(rc, access == KS_RW ? KS_SIGBUS : KS_SIGSEGV);
	assert_int_equal(m[0], may ? 'b' : before);
	assert_int_equal(peer_load(&p, 0, &v), KS_OK);
	assert_int_equal(v, may ? 'b' : before);
	in_file(file, may && kind == SHARED_FILE ? 'b' : 'a');
	peer_stop(&p);
	close(fd);
	munmap(m, PAGE);
	close(file);
}

static void stores_go_where_the_owners_would(void **state)
{
	static const int prots[] = { PROT_READ, PROT_READ | PROT_WRITE };
	static const unsigned int accesses[] = { KEDGE_SEGMENT_READ, KS_RW };
	int kind, i, j, how;

	for (kind = 0; kind < KINDS; kind++)
		for (i = 0; i < 2; i++)
			for (j = 0; j < 2; j++)
				for (how = 0; how < 4; how++)
					try_stores(kind, prots[i], accesses[j],
						   how);
}

static void text_of_the_owner_is_read_alone(void **state)
{
	const uintptr_t at = (uintptr_t)&stores_go_where_the_owners_would;
	char *page = (char *)(at & ~(PAGE - 1)), v, before = *page;
	struct peer p;

	ks_share(page, PAGE);
	peer_start(&p, shared, KS_RW, PAGE);
	assert_int_equal(peer_load(&p, 0, &v), KS_OK);
	assert_int_equal(v, before);
	assert_int_equal(peer_store(&p, 0, (char)~before), KS_SIGBUS);
	assert_int_equal(*page, before);
	peer_stop(&p);
}

static void prot_none_is_not_read(void **state)
{
	char *m = memory(ANON, PROT_NONE, -1), v;
	struct peer p;

	ks_share(m, PAGE);
	peer_start(&p, shared, KS_RW, PAGE);
	assert_int_equal(peer_load(&p, 0, &v), KS_SIGBUS);
	assert_int_equal(peer_store(&p, 0, 1), KS_SIGBUS);
	peer_stop(&p);
}

static void devices_and_vdso_do_no_harm(void **state)
{
	unsigned long from, to;
	char line[256], *a, v;
	FILE *maps = fopen("/proc/self/maps", "re");

	ks_grant(NULL, 0);
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx", &from, &to) != 2 ||
		    from >= 1ul << 47)
			continue;
		a = ks_map(other, PAGE, PROT_READ | PROT_WRITE, (off_t)from);
		assert_int_equal(ks_errno(a), 0);
		ks_load(a, &v);
		if (!strstr(line, " rw") && !strstr(line, "kedge"))
			ks_store(a, v);
		munmap(a, PAGE);
	}
	fclose(maps);
}

/* ---- users and modes ---- */

struct user_case {
	struct ks_id id;
	uid_t uid;
	gid_t gid;
	unsigned int access;
	int want;
};

static int get_as(void *arg)
{
	struct user_case *c = arg;
	int fd = ks_open(O_RDWR), rc;

	if (setresgid(c->gid, c->gid, c->gid) || setresuid(c->uid, c->uid, c->uid))
		return 2;
	rc = ks_get(fd, c->id, c->access);
	if (rc == c->want)
		return 0;
	print_message("uid %d access %u: %d, not %d\n", (int)c->uid, c->access,
		      rc, c->want);
	return 1;
}

/* The segment is made by user 1000 of group 2000. */
static int modes_hold(void *arg)
{
	static const struct {
		unsigned int mode;
		uid_t uid;
		gid_t gid;
		unsigned int access;
		int want;
	} cases[] = {
		{ 0600, 1000, 2000, KS_RW, 0 },
		{ 0400, 1000, 2000, KS_RW, -EACCES },
		{ 0400, 1000, 2000, KEDGE_SEGMENT_READ, 0 },
		{ 0200, 1000, 2000, KEDGE_SEGMENT_READ, -EACCES },
		{ 0200, 1000, 2000, KS_RW, -EACCES },
		{ 0000, 1000, 2000, KEDGE_SEGMENT_READ, -EACCES },
		{ 0600, 1001, 2000, KEDGE_SEGMENT_READ, -EACCES },
		{ 0640, 1001, 2000, KEDGE_SEGMENT_READ, 0 },
		{ 0640, 1001, 2000, KS_RW, -EACCES },
		{ 0660, 1001, 2000, KS_RW, 0 },
		{ 0660, 1001, 2001, KEDGE_SEGMENT_READ, -EACCES },
		{ 0604, 1001, 2001, KEDGE_SEGMENT_READ, 0 },
		{ 0604, 1001, 2000, KEDGE_SEGMENT_READ, -EACCES },
		{ 0606, 1001, 2001, KS_RW, 0 },
		{ 0066, 1000, 2000, KEDGE_SEGMENT_READ, -EACCES },
		{ 0000, 0, 0, KS_RW, 0 },
	};
	char *m = vm_memory(1);
	struct user_case c;
	int fd = ks_open(O_RDWR);
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (setresgid(-1, 2000, -1) || setresuid(-1, 1000, -1) ||
		    ks_make(fd, m, PAGE, cases[i].mode, &c.id))
			return 10;
		if (setresuid(-1, 0, -1) || setresgid(-1, 0, -1))
			return 11;
		c.uid = cases[i].uid;
		c.gid = cases[i].gid;
		c.access = cases[i].access;
		c.want = cases[i].want;
		if (vm_child(get_as, &c))
			return 20 + (int)i;
	}
	return 0;
}

static void the_mode_says_who(void **state)
{
	assert_int_equal(vm_child(modes_hold, NULL), 0);
}

struct stranger {
	struct ks_id mine, open;
};

static int strange(void *arg)
{
	struct kedge_segment_list l = { .size = sizeof(l), .room = 64 };
	struct stranger *s = arg;
	struct kedge_segment_query q;
	struct ks_id ids[64];
	int fd = ks_open(O_RDWR);

	l.ids = (uintptr_t)ids;
	if (setresuid(1001, 1001, 1001))
		return 1;
	if (ks_query(fd, s->mine, &q) != -EACCES || ks_query(fd, s->open, &q))
		return 2;
	if (ks_remove(fd, s->mine) != -EPERM || ks_remove(fd, s->open) != -EPERM)
		return 3;
	if (ioctl(fd, KEDGE_SEGMENT_LIST, &l) || l.cnt != 1 ||
	    memcmp(ids, &s->open, sizeof(s->open)))
		return 4;
	return 0;
}

static void strangers_see_what_they_may(void **state)
{
	char *m = vm_memory(1);
	struct stranger s;

	assert_int_equal(ks_make(mine, m, PAGE, 0600, &s.mine), 0);
	assert_int_equal(ks_make(mine, m, PAGE, 0644, &s.open), 0);
	assert_int_equal(vm_child(strange, &s), 0);
}

/* ---- descriptors in other processes ---- */

struct passed {
	int owner, grant;
	char *m, *a;
};

static int in_a_child(void *arg)
{
	struct passed *f = arg;
	struct ks_id id;
	char v;

	/* The parent's attachment is not there. */
	if (ks_load(f->a, &v) != KS_SIGSEGV)
		return 1;
	if (ks_errno(ks_map(f->grant, PAGE, PROT_READ, 0)) != -ESRCH)
		return 2;
	if (ks_errno(ks_generation(f->grant)) != -ESRCH)
		return 3;
	if (ks_make(f->owner, f->m, PAGE, 0600, &id) != -ESRCH)
		return 4;
	if (ks_make(f->grant, f->m, PAGE, 0600, &id) != -EBUSY)
		return 5;
	/* Its last close is not the parent's. */
	close(f->owner);
	close(f->grant);
	return 0;
}

static void files_belong_to_an_address_space(void **state)
{
	struct passed f = { ks_open(O_RDWR), ks_open(O_RDWR), vm_memory(1), NULL };
	struct ks_id id;

	assert_int_equal(ks_make(f.owner, f.m, PAGE, 0600, &id), 0);
	assert_int_equal(ks_get(f.grant, id, KS_RW), 0);
	f.a = ks_map(f.grant, PAGE, PROT_READ | PROT_WRITE, 0);
	f.a[0] = 1;
	assert_int_equal(vm_child(in_a_child, &f), 0);
	f.a[0] = 2;
	assert_int_equal(f.m[0], 2);
	munmap(f.a, PAGE);
	close(f.grant);
	close(f.owner);
}

static int gets_and_exits(void *arg)
{
	struct passed *f = arg;
	struct ks_id *id = (void *)f->m;

	return -ks_get(f->grant, *id, KS_RW);
}

static void a_childs_grant_is_no_use_to_the_parent(void **state)
{
	int owner = ks_open(O_RDWR);
	struct passed f = { owner, ks_open(O_RDWR), NULL, NULL };
	struct ks_id id;
	char *m = vm_memory(1);

	assert_int_equal(ks_make(owner, m, PAGE, 0600, &id), 0);
	f.m = (void *)&id;
	assert_int_equal(vm_child(gets_and_exits, &f), 0);
	assert_int_equal(ks_errno(ks_map(f.grant, PAGE, PROT_READ, 0)), -ESRCH);
	assert_int_equal(ks_get(f.grant, id, KS_RW), -EBUSY);
	close(f.grant);
	close(owner);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stores_go_where_the_owners_would),
		KS_CASE(text_of_the_owner_is_read_alone),
		KS_CASE(prot_none_is_not_read),
		KS_CASE(devices_and_vdso_do_no_harm),
		cmocka_unit_test(the_mode_says_who),
		KS_CASE(strangers_see_what_they_may),
		cmocka_unit_test(files_belong_to_an_address_space),
		cmocka_unit_test(a_childs_grant_is_no_use_to_the_parent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
