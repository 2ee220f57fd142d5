// SPDX-License-Identifier: BSD-2-Clause
/* Lists of regions where askers or owners do not behave. */
#include <sys/prctl.h>
#include <sys/un.h>

#include "listed.h"

#define ASKERS 80 /* more than there is room for before they show a handle */
#define FLOOD  20000
#define TOO_LONG 1100 /* packets, which are more regions than a process may have */

static void works(void)
{
	handle_works();
	assert_int_equal(only().len, LEN);
}

/* ---- askers ---- */

static bool holds(const void *bytes, size_t len, const void *what, size_t what_len)
{
	return memmem(bytes, len, what, what_len);
}

static void a_list_has_no_word_of_a_handle(void **state)
{
	static struct packet p;
	struct handle_words w;
	ssize_t n;
	int fd;

	assert_true(handle_read(&handle, &w));
	fd = stranger(&handle);
	n = ask_once(fd, &p);
	assert_int_equal(n, sizeof(p.head) + sizeof(p.item[0]));
	assert_false(holds(&p, (size_t)n, w.key, sizeof(w.key)));
	assert_false(holds(&p, (size_t)n, &w.region, sizeof(w.region)));
	close(fd);
}

static void what_is_no_question_ends_the_connection(void **state)
{
	struct list_ask q = list_question;
	char big[sizeof(q) + 1] = { 0 };

	assert_int_equal(answer_to_packet(&q, sizeof(q)), 0);
	assert_int_equal(answer_to_packet(&q, sizeof(q) - 1), -EPROTO);
	memcpy(big, &q, sizeof(q));
	assert_int_equal(answer_to_packet(big, sizeof(big)), -EPROTO);
	q.version++;
	assert_int_equal(answer_to_packet(&q, sizeof(q)), -EPROTO);
	q = list_question;
	q.magic++;
	assert_int_equal(answer_to_packet(&q, sizeof(q)), -EPROTO);
	works();
}

/* Those that never read, and those that ask for the first page alone: others are answered. */
static void askers_that_flood_are_cut_off_and_others_answered(void **state)
{
	int fd[ASKERS], i, n;

	for (i = 0; i < ASKERS; i++) {
		fd[i] = stranger(&handle);
		assert_true(fd[i] >= 0);
		ask_list(fd[i], MSG_DONTWAIT);
		for (n = 0; !(i % 16) && n < FLOOD; n++)
			if (!ask_list(fd[i], 0))
				break;
		assert_true(n < FLOOD);
		if (!(i % 16))
			works();
	}
	/* Those that read all and ask for no more are the ones to make room. */
	for (i = 0; i < ASKERS - 64; i++)
		assert_true(is_cut_off(fd[i]));
	for (; i < ASKERS; i++)
		close(fd[i]);
	works();
}

/* A question behind the handle is answered as well, and none takes the peer's place. */
static void a_peer_may_ask_for_a_list(void **state)
{
	const struct region_ask mine = { REGION_MAGIC, REGION_VERSION, 1, 0, handle };
	static struct packet p;
	struct region_answer a;
	int fd;

	fd = stranger(&handle);
	assert_int_equal(ask_once(fd, &p), sizeof(p.head) + sizeof(p.item[0]));
	assert_int_equal(p.item[0].mapped, 1);
	assert_int_equal(send(fd, &mine, sizeof(mine), 0), sizeof(mine));
	assert_int_equal(recv(fd, &a, sizeof(a), 0), sizeof(a));
	assert_int_equal(a.rc, 0);
	assert_int_equal(ask_once(fd, &p), sizeof(p.head) + sizeof(p.item[0]));
	assert_int_equal(p.item[0].mapped, 2);
	close(fd);
	WAIT_FOR(only().mapped == 1);
}

/* ---- owners ---- */

/* The answer to each question by a process that listens under such a name. */
struct lie {
	struct packet page;
	struct region_answer refusal;
	size_t len;
	bool refuses;
	uint32_t goes_on; /* with further serial numbers, for so many packets */
	bool silent;
	bool hangs_up;
	bool file; /* with a descriptor */
};

static void say(int fd, const struct lie *l)
{
	char space[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { (void *)(uintptr_t)&l->page, l->len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;

	if (l->file) {
		m.msg_control = space;
		m.msg_controllen = sizeof(space);
		c = CMSG_FIRSTHDR(&m);
		*c = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)),
				       .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	}
	sendmsg(fd, &m, MSG_NOSIGNAL);
}

static void lie_to(int fd, struct lie *l)
{
	struct list_ask q;
	uint32_t i, sent;

	for (i = 0; i < LIST_ITEMS && l->goes_on; i++)
		l->page.item[i].serial = i + 1;
	for (sent = 0; !l->hangs_up && recv(fd, &q, sizeof(q), 0) > 0; sent++) {
		l->page.head.seq += q.seq;
		if (l->goes_on)
			l->page.head.more = sent < l->goes_on;
		if (l->refuses)
			send(fd, &l->refusal, sizeof(l->refusal), MSG_NOSIGNAL);
		else if (!l->silent)
			say(fd, l);
		l->page.head.seq -= q.seq;
		for (i = 0; i < LIST_ITEMS && l->goes_on; i++)
			l->page.item[i].serial += LIST_ITEMS;
	}
	close(fd);
}

static void lies(void *arg)
{
	static uint64_t name = UINT64_C(0xfeed000000000000);
	struct sockaddr_un a;
	socklen_t len = handle_address(name + (uint64_t)getpid(), false, &a);
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), fd;

	CHILD_CHECK(!bind(listener, (struct sockaddr *)&a, len) && !listen(listener, 8));
	if (fork())
		return;
	/* By a process of its own, so that the one that is named here says that it is there. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		fd = accept(listener, NULL, NULL);
		CHILD_CHECK(fd >= 0);
		lie_to(fd, arg);
	}
}

static struct lie sound(void)
{
	struct lie l = { .len = sizeof(l.page.head) + 2 * sizeof(l.page.item[0]) };

	l.page.head = (struct list_head){ .magic = LIST_MAGIC, .version = LIST_VERSION, .cnt = 2,
					  .item_len = sizeof(l.page.item[0]) };
	l.page.item[0] = (struct list_item){ .serial = 1, .addr = 4096, .len = 4096,
					     .max_len = 8192, .page_size = 4096 };
	l.page.item[1] = l.page.item[0];
	l.page.item[1].serial = 2;
	return l;
}

/* Its status; and how many regions it has, if that is 0. Others beside it are there. */
static int status_of(struct lie *l, uint32_t timeout_ms, size_t *cnt)
{
	struct listed_regions found = { NULL, 0 };
	pid_t pid = child(lies, l);
	int status;

	assert_int_equal(list_within(pid, timeout_ms, &found), 0);
	assert_true(found.cnt >= 1);
	status = found.e[0].status;
	assert_int_equal(found.e[0].pid, pid);
	assert_true(!status || found.cnt == 1);
	*cnt = status ? 0 : found.cnt;
	free(found.e);
	kill_child(pid);
	return status;
}

static void what_is_sound_is_taken(void **state)
{
	struct lie l = sound();
	size_t cnt;

	assert_int_equal(status_of(&l, SOON_MS, &cnt), 0);
	assert_int_equal(cnt, 2);
	l.file = true;
	assert_int_equal(status_of(&l, SOON_MS, &cnt), 0);
	l = sound();
	l.page.head.cnt = 0;
	l.len = sizeof(l.page.head);
	l.page.head.more = 1; /* for ever, and never any */
	assert_int_equal(status_of(&l, SHORT_MS, &cnt), -ETIMEDOUT);
}

#define SET(field, value) { #field, offsetof(struct lie, field), sizeof(((struct lie *)0)->field), \
			    value }

/* One number of a sound page is another. */
static const struct {
	const char *name;
	size_t at, len;
	uint64_t value;
} wrong[] = {
	SET(len, sizeof(struct list_head) + 2 * sizeof(struct list_item) - 1),
	SET(len, 1),
	SET(len, sizeof(struct packet)),
	SET(page.head.cnt, UINT32_MAX),
	SET(page.head.item_len, 0),
	SET(page.head.item_len, UINT32_MAX - 7),
	SET(page.head.seq, 1),
	SET(page.head.magic, LIST_MAGIC + 1),
	SET(page.head.version, LIST_VERSION + 1),
	SET(page.item[1].serial, 1), /* twice */
	SET(page.item[0].serial, 0),
	SET(page.item[1].addr, UINT64_MAX - 100),
	SET(page.item[1].len, 8193),
	SET(page.item[1].page_size, 0),
	SET(page.item[1].page_size, 3),
	SET(page.item[1].state, KEDGE_REGION_LEFT + 1),
};

static void each_number_is_checked(void **state)
{
	struct lie l;
	uint32_t value;
	size_t i, cnt;

	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		l = sound();
		value = (uint32_t)wrong[i].value;
		memcpy((char *)&l + wrong[i].at, wrong[i].len == sizeof(value)
				? (const void *)&value : &wrong[i].value, wrong[i].len);
		if (status_of(&l, SOON_MS, &cnt) != -EPROTO)
			fail_msg("%s may be %llu", wrong[i].name,
				 (unsigned long long)wrong[i].value);
	}
}

/* Items of a later version are longer, and are read as far as they are known. */
static void a_later_version_may_say_more(void **state)
{
	struct lie l = sound();
	const size_t more = sizeof(struct list_item) + 64;
	struct list_item second = l.page.item[1];
	size_t cnt;

	second.serial = 9;
	l.page.head.item_len = (uint32_t)more;
	memcpy((char *)l.page.item + more, &second, sizeof(second));
	l.len = sizeof(l.page.head) + 2 * more;
	assert_int_equal(status_of(&l, SOON_MS, &cnt), 0);
	assert_int_equal(cnt, 2);
}

/* One of before refuses the question as it refuses whatever has no meaning. */
static void an_owner_that_does_not_know_the_question_is_said_not_to(void **state)
{
	struct lie l = { .refuses = true,
			 .refusal = { REGION_MAGIC, REGION_VERSION, 0, -EPROTO } };
	static const int said[] = { -EPROTO, -EMFILE, -EACCES, 1 };
	static const int told[] = { -EOPNOTSUPP, -EBUSY, -EACCES, -EPROTO };
	size_t i, cnt;

	for (i = 0; i < ARRAY_SIZE(said); i++) {
		l.refusal.rc = said[i];
		assert_int_equal(status_of(&l, SOON_MS, &cnt), told[i]);
	}
}

static void a_list_that_is_too_long_is_given_up(void **state)
{
	struct lie l = sound();
	uint32_t i;
	size_t cnt;

	for (i = 1; i < LIST_ITEMS; i++)
		l.page.item[i] = l.page.item[0];
	l.goes_on = TOO_LONG;
	l.page.head.cnt = LIST_ITEMS;
	l.len = sizeof(l.page);
	assert_int_equal(status_of(&l, SOON_MS, &cnt), -EFBIG);
}

/* A place is the owner's word, and gives no text but that of an address. */
static void a_place_is_printed_as_an_address(void **state)
{
	struct listed_regions found = { NULL, 0 };
	struct lie l = sound();
	pid_t pid;

	l.page.item[0].state = KEDGE_REGION_LEFT;
	memset(&l.page.item[0].to, 0x1b, sizeof(l.page.item[0].to));
	pid = child(lies, &l);
	list_of(pid, &found);
	assert_int_equal(found.cnt, 2);
	assert_string_equal(found.e[0].to, "[1b1b:1b1b:1b1b:1b1b:1b1b:1b1b:1b1b:1b1b]:6939");
	assert_int_equal(found.e[0].to_pid, 0);
	kill_child(pid);
	free(found.e);
}

/* True: this process's region is listed beside others. */
static bool mine_is_there(uint32_t timeout_ms)
{
	struct listed_regions found = { NULL, 0 };
	size_t i, n = 0;

	assert_int_equal(list_within(0, timeout_ms, &found), 0);
	for (i = 0; i < found.cnt; i++)
		n += found.e[i].pid == getpid() && !found.e[i].status;
	free(found.e);
	return n == 1;
}

static void those_that_never_answer_keep_no_other_waiting(void **state)
{
	struct lie l = { .silent = true }, ends = { .hangs_up = true };
	uint32_t ms = SHORT_MS;
	pid_t pid[8];
	size_t i, cnt;

	for (i = 0; i < ARRAY_SIZE(pid); i++)
		pid[i] = child(lies, &l);
	/* As long as the machine takes. */
	while (!mine_is_there(ms))
		ms *= 2;
	for (i = 0; i < ARRAY_SIZE(pid); i++)
		kill_child(pid[i]);
	assert_int_equal(status_of(&ends, SOON_MS, &cnt), -EBUSY);
}

static const struct CMUnitTest tests[] = {
	remote_case(a_list_has_no_word_of_a_handle),
	remote_case(what_is_no_question_ends_the_connection),
	remote_case(askers_that_flood_are_cut_off_and_others_answered),
	remote_case(a_peer_may_ask_for_a_list),
	cmocka_unit_test(what_is_sound_is_taken),
	cmocka_unit_test(each_number_is_checked),
	cmocka_unit_test(a_later_version_may_say_more),
	cmocka_unit_test(an_owner_that_does_not_know_the_question_is_said_not_to),
	cmocka_unit_test(a_list_that_is_too_long_is_given_up),
	cmocka_unit_test(a_place_is_printed_as_an_address),
	remote_case(those_that_never_answer_keep_no_other_waiting),
};

const struct suite suite = { "region_list_hostile", SUITE_OF(tests), .by = "mapped" };
