// SPDX-License-Identifier: BSD-2-Clause
/* Lists of segments: what they show, and to whom. */
#include "lists.h"
#include "shared.h"

/* ---- what is listed ---- */

static const struct kedge_segment_entry *entry_at(const struct listed *l, const void *at)
{
	size_t i;

	for (i = 0; i < l->cnt; i++)
		if (l->e[i].addr == addr_of(at))
			return &l->e[i];
	fail_msg("not in the list");
	return NULL;
}

static void each_segment_is_there_as_it_is(void **state)
{
	uint64_t *a = words(1 << 16), *b = words(1 << 16), *c = words(1 << 16);
	const struct kedge_segment_entry *e;
	struct kedge_segment *s[3];
	struct peer two[2];
	struct listed l;

	need_convert();
	/* A fork afterwards would be a change. */
	peer_start(&two[0], 0);
	peer_start(&two[1], 0);
	s[0] = make_as(a, 1 << 16, 0, KEDGE_SEGMENT_CONVERT);
	s[1] = make_as((char *)b + 5, 1000, 0644, KEDGE_SEGMENT_CONVERT);
	s[2] = make_as(c, 100, 0400, KEDGE_SEGMENT_COPY);
	peer_has(&two[0], s[0], RW);
	peer_has(&two[1], s[0], KEDGE_SEGMENT_READ);
	list_now(getpid(), &l);
	assert_int_equal(l.cnt, 3);
	e = entry_at(&l, a);
	assert_int_equal(e->status, 0);
	assert_int_equal(e->pid, getpid());
	assert_int_equal(e->uid, geteuid());
	assert_int_equal(e->gid, getegid());
	assert_int_equal(e->len, 1 << 16);
	assert_int_equal(e->mode, 0600);
	assert_int_equal(e->backend, KEDGE_SEGMENT_CONVERT);
	assert_int_equal(e->grants, 2);
	assert_int_equal(e->attachments, KEDGE_SEGMENT_UNKNOWN);
	assert_int_equal(e->changes, 0);
	assert_int_equal(e->flags, 0);
	assert_string_equal(e->reason, "");
	e = entry_at(&l, (char *)b + 5);
	assert_int_equal(e->len, 1000);
	assert_int_equal(e->mode, 0644);
	assert_int_equal(e->grants, 0);
	e = entry_at(&l, c);
	assert_int_equal(e->backend, KEDGE_SEGMENT_COPY);
	assert_int_equal(e->mode, 0400);
	assert_int_equal(e->len, 100);
	/* A change shows; a segment that is made later has not seen it. */
	madvise(a, page_len(), MADV_DONTNEED);
	peer_end(&two[1]);
	kedge_segment_remove(s[2]);
	s[2] = make_as((char *)a + 2 * page_len(), page_len(), 0, KEDGE_SEGMENT_CONVERT);
	WAIT_FOR(!list_of(getpid(), LONG_MS, &l) && entry_at(&l, a)->grants == 1);
	assert_int_equal(l.cnt, 3);
	assert_int_equal(entry_at(&l, a)->changes, 1);
	assert_int_equal(entry_at(&l, (char *)a + 2 * page_len())->changes, 0);
	peer_end(&two[0]);
	while (l.cnt)
		kedge_segment_remove(s[--l.cnt]);
	list_now(getpid(), &l);
	assert_int_equal(l.cnt, 0);
}

/* Why it can only be copied, in words. */
static void a_segment_that_is_only_copied_says_why(void **state)
{
	int fd = memfd_create("file", MFD_CLOEXEC);
	struct kedge_segment *s;
	struct listed l;
	char *p;

	need_convert();
	assert_int_equal(ftruncate(fd, (off_t)page_len()), 0);
	p = mmap(NULL, page_len(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	*p = 1;
	assert_int_equal(kedge_segment_make(p, page_len(), NULL, &s), 0);
	list_now(getpid(), &l);
	assert_int_equal(l.cnt, 1);
	if (l.e[0].backend == KEDGE_SEGMENT_COPY)
		assert_true(strlen(l.e[0].reason) > 10);
	kedge_segment_remove(s);
	munmap(p, page_len());
	close(fd);
}

/* By address, no matter when each was made, and whatever page of messages it is in. */
static void many_segments_are_in_order(void **state)
{
	char *p = new_pages(MANY);
	struct kedge_segment *s[MANY];
	struct listed l;
	size_t i, at;

	for (i = 0; i < MANY; i++) {
		at = i * 7 % MANY;
		s[at] = make_as(p + at * page_len(), at + 1, 0, KEDGE_SEGMENT_COPY);
	}
	for (i = 0; i < MANY; i += 3) {
		kedge_segment_remove(s[i]);
		s[i] = make_as(p + i * page_len(), i + 1, 0, KEDGE_SEGMENT_COPY);
	}
	list_now(getpid(), &l);
	assert_int_equal(l.cnt, MANY);
	for (i = 0; i < MANY; i++) {
		assert_int_equal(l.e[i].addr, addr_of(p + i * page_len()));
		assert_int_equal(l.e[i].len, i + 1);
	}
	for (i = 0; i < MANY - 32; i++)
		kedge_segment_remove(s[i]);
	list_now(getpid(), &l);
	assert_int_equal(l.cnt, 32); /* two pages that are full, and an empty one */
	for (; i < MANY; i++)
		kedge_segment_remove(s[i]);
}

static void what_cannot_be_listed_is_refused(void **state)
{
	struct kedge_segments_opts o = { .size = sizeof(o) };
	struct kedge_segments *const before = (void *)&o, *s = before;
	struct kedge_segment_entry e = { .size = 8 };

	assert_int_equal(kedge_segments_open(&o, NULL), -EINVAL);
	o.flags = 1;
	assert_int_equal(kedge_segments_open(&o, &s), -EINVAL);
	o = (struct kedge_segments_opts){ .size = sizeof(o), .pid = -1 };
	assert_int_equal(kedge_segments_open(&o, &s), -EINVAL);
	o = (struct kedge_segments_opts){ .size = 8 };
	assert_int_equal(kedge_segments_open(&o, &s), -EINVAL);
	assert_ptr_equal(s, before);
	o = (struct kedge_segments_opts){ .size = sizeof(o), .pid = getpid() };
	assert_int_equal(kedge_segments_open(&o, &s), 0);
	assert_int_equal(kedge_segments_next(NULL, &e), -EINVAL);
	assert_int_equal(kedge_segments_next(s, NULL), -EINVAL);
	e.size = sizeof(e);
	assert_int_equal(kedge_segments_next(s, &e), 0);
	kedge_segments_close(s);
	kedge_segments_close(NULL);
}

/* ---- owners ---- */

static void a_stopped_owner_is_said_to_be(void **state)
{
	struct owner o;
	struct listed l;

	owner_start(&o, "0", "0");
	list_now(o.pid, &l);
	assert_int_equal(l.cnt, 1);
	assert_int_equal(l.e[0].status, 0);
	kill(o.pid, SIGSTOP);
	waitpid(o.pid, NULL, WUNTRACED);
	assert_int_equal(list_of(o.pid, SHORT_MS, &l), 0);
	assert_int_equal(l.cnt, 1);
	assert_int_equal(l.e[0].status, -ETIMEDOUT);
	assert_int_equal(l.e[0].pid, o.pid);
	assert_int_equal(l.e[0].uid, geteuid());
	kill(o.pid, SIGCONT);
	list_now(o.pid, &l);
	assert_int_equal(l.e[0].status, 0);
	kill(o.pid, SIGKILL);
	waitpid(o.pid, NULL, 0);
	list_now(o.pid, &l);
	assert_int_equal(l.cnt, 0);
	close(o.in);
}

/* ---- other users ---- */

static int lists_nothing(void *pid)
{
	static struct listed l;

	become_nobody();
	CHILD_CHECK(!list_of(*(pid_t *)pid, LONG_MS, &l));
	CHILD_CHECK(l.cnt == 1 && l.e[0].status == -EACCES && l.e[0].pid == *(pid_t *)pid);
	CHILD_CHECK(!l.e[0].addr && !l.e[0].len && !l.e[0].mode && !l.e[0].uid);
	return 0;
}

/* By hand, as it need not be kedge that asks. */
static int is_told_nothing(void *name)
{
	struct seg_page p = { .cnt = 9 };
	int fd;

	become_nobody();
	fd = stranger(*(uint32_t *)name);
	CHILD_CHECK(fd >= 0 && send(fd, &all, sizeof(all), 0) == sizeof(all));
	CHILD_CHECK(recv(fd, &p, sizeof(p), 0) == offsetof(struct seg_page, item));
	CHILD_CHECK(p.rc == -EACCES && !p.cnt);
	CHILD_CHECK(!recv(fd, &p, sizeof(p), 0));
	return 0;
}

static void another_user_is_told_nothing(void **state)
{
	char *p = new_pages(1);
	struct kedge_segment *s;
	pid_t pid = getpid();
	uint32_t name;

	need_root();
	/* Though its mode lets others have it. */
	s = make_as(p, page_len(), 0666, KEDGE_SEGMENT_COPY);
	name = name_of(s);
	assert_int_equal(in_child(lists_nothing, &pid), 0);
	assert_int_equal(in_child(is_told_nothing, &name), 0);
	kedge_segment_remove(s);
}

static void root_is_told_of_all_users(void **state)
{
	struct owner o;
	struct listed l;

	need_root();
	owner_start(&o, "65534", "65534");
	list_now(o.pid, &l);
	assert_int_equal(l.cnt, 1);
	assert_int_equal(l.e[0].status, 0);
	assert_int_equal(l.e[0].uid, NOBODY);
	assert_int_equal(l.e[0].len, page_len());
	owner_end(&o);
}

/* The name of the one socket that listens in @pid; by its entry in /proc. */
static uint32_t name_in(pid_t pid)
{
	struct ucred cred;
	socklen_t len;
	char line[512];
	uint32_t name, found = UINT32_MAX;
	FILE *f = fopen("/proc/net/unix", "re");
	int fd;

	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*s %*s %*s %*s %*s 01 %*s @kedge-segment-%x", &name) != 1)
			continue;
		fd = stranger(name);
		len = sizeof(cred);
		if (fd >= 0 && !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) &&
		    cred.pid == pid)
			found = name;
		close(fd);
	}
	fclose(f);
	return found;
}

static int is_told_of_none(void *name)
{
	struct seg_page p = { .cnt = 9 };
	int fd;

	become_nobody();
	fd = stranger(*(uint32_t *)name);
	CHILD_CHECK(fd >= 0 && send(fd, &all, sizeof(all), 0) == sizeof(all));
	CHILD_CHECK(recv(fd, &p, sizeof(p), 0) == offsetof(struct seg_page, item));
	CHILD_CHECK(!p.rc && !p.cnt);
	return 0;
}

/* A segment that root made is root's, though the process is that user's now. */
static void segments_stay_those_of_the_user_that_made_them(void **state)
{
	struct owner o;
	struct listed l;
	uint32_t name;

	need_root();
	owner_start(&o, "0", "65534");
	name = name_in(o.pid);
	assert_int_not_equal(name, UINT32_MAX);
	assert_int_equal(in_child(is_told_of_none, &name), 0);
	list_now(o.pid, &l);
	assert_int_equal(l.cnt, 1);
	owner_end(&o);
	/* And one that is root's now does not answer the user that it was. */
	owner_start(&o, "65534", "0");
	name = name_in(o.pid);
	assert_int_equal(in_child(is_told_nothing, &name), 0);
	owner_end(&o);
}

#define LISTED PLAIN
#include "test_segment_list.cases.h"

int main(int argc, char **argv)
{
	peer_main(argc, argv);
	owner_main(argc, argv);
	return RUN(cases);
}
