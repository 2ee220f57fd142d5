// SPDX-License-Identifier: BSD-2-Clause
/* Lists of segments, and grants, where askers or owners do not behave. */
#include <sys/un.h>

#include "base/base.h"
#include "clock.h"
#include "lists.h"

/* ---- askers ---- */

static bool holds(const void *bytes, size_t len, uint64_t word)
{
	size_t i;

	for (i = 0; i + sizeof(word) <= len; i++)
		if (!memcmp((const char *)bytes + i, &word, sizeof(word)))
			return true;
	return false;
}

static void a_list_has_no_word_of_an_id(void **state)
{
	char *p = new_pages(1);
	struct kedge_segment *s = make_as(p, page_len(), 0, KEDGE_SEGMENT_COPY);
	struct kedge_segment_id id;
	struct seg_page page;
	struct listed l = { .cnt = 0 };
	int fd = stranger(name_of(s));
	ssize_t n;

	kedge_segment_id(s, &id);
	assert_int_equal(send(fd, &all, sizeof(all), 0), sizeof(all));
	n = recv(fd, &page, sizeof(page), 0);
	assert_int_equal(n, offsetof(struct seg_page, item) + sizeof(struct seg_item));
	assert_false(holds(&page, (size_t)n, id.word[0]));
	assert_false(holds(&page, (size_t)n, id.word[1]));
	close(fd);
	list_now(getpid(), &l);
	assert_int_equal(l.cnt, 1);
	assert_false(holds(&l, sizeof(l), id.word[0]));
	assert_false(holds(&l, sizeof(l), id.word[1]));
	kedge_segment_remove(s);
}

static void what_is_no_question_for_a_list_ends_the_connection(void **state)
{
	char *p = new_pages(1), raw[256];
	struct kedge_segment *s = make_as(p, page_len(), 0, KEDGE_SEGMENT_COPY);
	struct listed l;
	size_t len, i;
	int fd;

	srand(7);
	for (i = 0; i < 200; i++) {
		fd = stranger(name_of(s));
		assert_true(fd >= 0);
		memset(raw, 0, sizeof(raw));
		memcpy(raw, &all, sizeof(all));
		len = sizeof(all);
		if (i < 100)
			raw[i % 8] ^= (char)(8 << i % 4); /* which makes no ACK */
		else
			len += (size_t)rand() % 100 + 1;
		send(fd, raw, i == 150 ? sizeof(all) - 1 : len, MSG_NOSIGNAL);
		assert_true(is_cut_off(fd));
		close(fd);
	}
	list_now(getpid(), &l);
	assert_int_equal(l.cnt, 1);
	kedge_segment_remove(s);
}

/* Askers that never read, and some that read and ask without end: the owner goes on. */
static void askers_that_flood_are_cut_off_and_others_answered(void **state)
{
	char *p = new_pages(MANY);
	struct kedge_segment *s[MANY];
	struct kedge_segment_id id;
	struct kedge_grant *g;
	struct listed l;
	int fd[50], i, n;

	for (i = 0; i < MANY; i++)
		s[i] = make_as(p + (size_t)i * page_len(), page_len(), 0, KEDGE_SEGMENT_COPY);
	for (i = 0; i < 50; i++) {
		fd[i] = stranger(name_of(s[0]));
		assert_true(fd[i] >= 0);
		/* Until both queues are full, or it is cut off. */
		for (n = 0; n < 10000; n++)
			if (send(fd[i], &all, sizeof(all), MSG_NOSIGNAL | MSG_DONTWAIT) !=
			    sizeof(all) && errno != EAGAIN)
				break;
		if (i % 10)
			continue;
		list_now(getpid(), &l);
		assert_int_equal(l.cnt, MANY);
		assert_int_equal(kedge_segment_id(s[0], &id), 0);
		assert_int_equal(kedge_segment_get(&id, KEDGE_SEGMENT_READ, &g), 0);
		kedge_segment_release(g);
	}
	for (i = 0; i < 50; i++) {
		assert_true(is_cut_off(fd[i]));
		close(fd[i]);
	}
	for (i = 0; i < MANY; i++)
		kedge_segment_remove(s[i]);
}

/* ---- owners ---- */

/* The answer to each question by a process that listens under such a name. */
struct lie {
	struct seg_page page;
	size_t len;
	int pages;    /* then it ends; 0: never */
	bool too_long; /* as it should be, but for more segments than an owner may have */
	bool hangs_up;
	bool silent;
	bool file;    /* with a descriptor */
	bool to_all;  /* not to the process that started it alone */
};

static void say(int fd, struct lie *l)
{
	char space[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { &l->page, l->len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;
	uint32_t i;

	if (l->file) {
		m.msg_control = space;
		m.msg_controllen = sizeof(space);
		c = CMSG_FIRSTHDR(&m);
		*c = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)),
				       .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	}
	sendmsg(fd, &m, MSG_NOSIGNAL);
	for (i = 0; l->too_long && i < SEG_ITEMS; i++)
		l->page.item[i].serial -= SEG_ITEMS;
}

static void lie_to(int fd, struct lie l)
{
	struct seg_list q;
	int pages = 0;

	while (!l.hangs_up && recv(fd, &q, sizeof(q), 0) > 0) {
		if (l.silent)
			continue;
		if (l.pages && pages++ == l.pages)
			_exit(0);
		if (l.too_long && pages++ == 100) {
			l.page.cnt = 0;
			l.len = offsetof(struct seg_page, item);
		}
		say(fd, &l);
	}
	close(fd);
}

/* Lists that tests beside this one ask for would have it end before its time. @asker: 0 for
 * anyone. */
static int accept_from(int listener, pid_t asker)
{
	struct ucred peer = { 0 };
	socklen_t len = sizeof(peer);
	int fd;

	while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len);
		if (!asker || peer.pid == asker)
			break;
		close(fd);
	}
	return fd;
}

static pid_t liar_start(const struct lie *l)
{
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), ready[2];
	struct sockaddr_un a;
	pid_t pid, asker = l->to_all ? 0 : getpid();
	char c = 0;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		socklen_t len = list_address((uint32_t)getpid() & 0x3fffff, &a);

		CHILD_CHECK(!bind(sock, (struct sockaddr *)&a, len) && !listen(sock, 5));
		CHILD_CHECK(write(ready[1], &c, 1) == 1);
		alarm(CHILD_TIMEOUT);
		for (;;)
			lie_to(accept_from(sock, asker), *l);
	}
	close(sock);
	close(ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
	return pid;
}

static void liar_end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* The only entry's status, or 1 for none. */
static int told(const struct lie *l, uint32_t timeout_ms, struct listed *out)
{
	pid_t pid = liar_start(l);
	unsigned int fds = open_fds();
	int rc = list_of(pid, timeout_ms, out);

	liar_end(pid);
	assert_int_equal(open_fds(), fds);
	assert_int_equal(rc, 0);
	if (!out->cnt)
		return 1;
	assert_int_equal(out->e[0].pid, pid);
	return out->e[0].status;
}

static void honest(struct lie *l, uint32_t cnt)
{
	uint32_t i;

	*l = (struct lie){ .page = { .head = seg_head(SEG_PAGE), .cnt = cnt } };
	for (i = 0; i < SEG_ITEMS; i++)
		l->page.item[i] = (struct seg_item){
			.serial = 1000000 - i, .addr = 4096 * (i + 1), .len = 5, .mode = 0600,
			.backend = KEDGE_SEGMENT_COPY };
	l->len = offsetof(struct seg_page, item) + cnt * sizeof(l->page.item[0]);
}

static void an_owner_that_lies_is_not_believed(void **state)
{
	struct listed out;
	struct lie l;

#define LIE(items, change, want)                                \
	do {                                                     \
		honest(&l, items);                               \
		change;                                          \
		assert_int_equal(told(&l, LONG_MS, &out), want);       \
		assert_int_equal(out.cnt, want != 1);            \
	} while (0)
	LIE(1, , 0);
	LIE(0, , 1);
	LIE(1, l.page.head.version++, -EPROTO);
	LIE(1, l.page.head.magic++, -EPROTO);
	LIE(1, l.page.head.kind = SEG_ANSWER, -EPROTO);
	LIE(1, l.len--, -EPROTO);
	LIE(1, l.len++, -EPROTO);
	LIE(1, l.len = 3, -EPROTO);
	LIE(1, l.len = sizeof(l.page), -EPROTO);
	LIE(1, l.page.cnt = 2, -EPROTO);
	LIE(1, l.page.cnt = UINT32_MAX, -EPROTO);
	LIE(1, l.page.cnt = SEG_ITEMS + 1, -EPROTO);
	LIE(1, l.page.rc = 5, -EPROTO);
	LIE(1, l.page.rc = -EACCES, -EPROTO);
	LIE(0, l.page.rc = -EACCES, -EACCES);
	LIE(1, l.page.item[0].backend = KEDGE_SEGMENT_MODULE, -EPROTO);
	LIE(1, l.page.item[0].mode = 01000, -EPROTO);
	LIE(1, l.page.item[0].addr = UINT64_MAX - 3, -EPROTO);
	LIE(1, l.page.item[0].serial = UINT64_MAX, -EPROTO);
	LIE(2, l.page.item[1].serial++, -EPROTO);
	LIE(SEG_ITEMS, , -EPROTO); /* the same once more */
	LIE(SEG_ITEMS, l.too_long = true, -EPROTO);
	LIE(1, l.hangs_up = true, -EPROTO);
	LIE(1, l.len = 0, -EPROTO);
	LIE(1, l.file = true, 0);
	LIE(SEG_ITEMS, l.pages = 1, 1); /* killed amid it */
	LIE(1, memset(l.page.item[0].reason, 'x', sizeof(l.page.item[0].reason)), 0);
	assert_int_equal(strlen(out.e[0].reason), sizeof(out.e[0].reason) - 1);
	honest(&l, 1);
	l.silent = true;
	assert_int_equal(told(&l, SHORT_MS, &out), -ETIMEDOUT);
}

/* Each of those is in the list as it is; where one was too slow for that, it is not. */
static int seen_of(const pid_t *liar, const struct owner *owner)
{
	const struct kedge_segments_opts o = { .size = sizeof(o), .timeout_ms = 1000 };
	struct kedge_segment_entry e = { .size = sizeof(e) };
	struct kedge_segments *s;
	int i, seen = 0;

	assert_int_equal(kedge_segments_open(&o, &s), 0);
	while (kedge_segments_next(s, &e) > 0) {
		seen += e.pid == owner->pid && !e.status && e.len == page_len();
		for (i = 0; i < 4; i++)
			if (e.pid == liar[i])
				seen += e.status == (i % 2 ? -ETIMEDOUT : -EPROTO);
	}
	kedge_segments_close(s);
	return seen;
}

static int asks_no_other_user(void *pid)
{
	static struct listed l;

	become_nobody();
	CHILD_CHECK(!list_of(*(pid_t *)pid, LONG_MS, &l));
	CHILD_CHECK(l.cnt == 1 && l.e[0].status == -EACCES && !l.e[0].len);
	return 0;
}

/* It would tell, and is not believed to be what it says. */
static void an_owner_of_another_user_is_not_asked(void **state)
{
	struct lie l;
	pid_t liar;

	need_root();
	honest(&l, 1);
	l.to_all = true;
	liar = liar_start(&l);
	assert_int_equal(in_child(asks_no_other_user, &liar), 0);
	liar_end(liar);
}

static void liars_do_not_hide_other_owners(void **state)
{
	struct lie silent = { .silent = true }, hangs_up = { .hangs_up = true };
	struct owner owner;
	pid_t liar[4];
	int i;

	for (i = 0; i < 4; i++)
		liar[i] = liar_start(i % 2 ? &silent : &hangs_up);
	owner_start(&owner, "0", "0");
	/* The silent ones are waited for. */
	test_clock_hurry(20);
	WAIT_FOR(seen_of(liar, &owner) == 5);
	test_clock_rest();
	owner_end(&owner);
	for (i = 0; i < 4; i++)
		liar_end(liar[i]);
}

/* For what it says of the segment, up to the end of its ten seconds. */
static void an_owner_that_is_silent_is_let_go(void **state)
{
	struct lie silent = { .silent = true };
	struct kedge_segment_id id = { { 1 } };
	struct kedge_grant *g = NULL;
	const pid_t liar = liar_start(&silent);
	uint64_t until;
	int rc;

	id.word[0] |= (uint64_t)((uint32_t)liar & 0x3fffff) << 41;
	until = clock_after_ms(10000);
	test_clock_hurry(500);
	rc = kedge_segment_get(&id, KEDGE_SEGMENT_READ, &g);
	assert_true(clock_ns() >= until);
	test_clock_rest();
	assert_int_equal(rc, -ETIMEDOUT);
	assert_true(reason_says(rc, "has not answered"));
	assert_null(g);
	liar_end(liar);
}

#define LISTED PLAIN
#include "test_segment_list_hostile.cases.h"

int main(int argc, char **argv)
{
	owner_main(argc, argv);
	test_clock_begin();
	return RUN(cases);
}
