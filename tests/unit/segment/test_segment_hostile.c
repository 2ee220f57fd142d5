// SPDX-License-Identifier: BSD-2-Clause
/* Peers that say what no peer of kedge's says, and owners that are none. */
#include <sys/resource.h>
#include <sys/un.h>

#include "lists.h"
#include "shared.h"

#define LEN ((size_t)1 << 20)
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static uint64_t *w;

/* ---- peers ---- */

static void begin_with(const struct kedge_segment_opts *o)
{
	need_convert();
	w = words(LEN);
	make(w, LEN, o);
}

static void begin(void)
{
	begin_with(NULL);
}

static void over(void)
{
	kedge_segment_remove(segment);
	free_pages(w, LEN / page_len());
}

static int asks(void)
{
	return stranger(name_of(segment));
}

/* The segment is there for those who ask well. */
static void works(void)
{
	struct kedge_attachment *a;
	struct kedge_grant *g;

	assert_int_equal(kedge_segment_get(&id, R, &g), 0);
	assert_int_equal(kedge_segment_attach(g, 0, LEN, 0, &a), 0);
	assert_int_equal(((uint64_t *)kedge_segment_addr(a))[100], 100);
	assert_true(kedge_segment_valid(a));
	kedge_segment_detach(a);
	kedge_segment_release(g);
}

static void what_is_no_question_ends_the_connection(void **state)
{
	struct seg_ask q = { .head = seg_head(SEG_ASK), .access = R };
	char raw[256];
	size_t i, len;
	int fd;

	begin();
	srand(5);
	for (i = 0; i < 200; i++) {
		fd = asks();
		assert_true(fd >= 0);
		len = i < sizeof(q) ? i + 1 : (size_t)rand() % sizeof(raw) + 1;
		memcpy(raw, &q, sizeof(q));
		if (i > 50)
			raw[(size_t)rand() % sizeof(q)] ^= (char)(rand() | 1);
		send(fd, raw, len, MSG_NOSIGNAL);
		assert_true(is_cut_off(fd));
		close(fd);
	}
	works();
	over();
}

/* A second question, answers that nobody asked for, bytes without end. */
static void what_comes_after_the_question_is_looked_at(void **state)
{
	struct seg_ask q = { .head = seg_head(SEG_ASK), .access = R };
	struct seg_ack k = { .head = seg_head(SEG_ACK), .ack = 77 };
	struct kedge_segment_info i = { .size = sizeof(i) };
	int fd, n;

	begin();
	q.id = id.word[0];
	fd = asks();
	assert_int_equal(send(fd, &q, sizeof(q), 0), sizeof(q));
	for (n = 0; n < 1000; n++)
		if (send(fd, &k, sizeof(k), MSG_NOSIGNAL) != sizeof(k))
			break;
	works();
	/* The one that worked ends in its own time. */
	WAIT_FOR(!kedge_segment_info(segment, &i) && i.grants == 1);
	send(fd, &q, sizeof(q), MSG_NOSIGNAL);
	assert_true(is_cut_off(fd));
	close(fd);
	WAIT_FOR(!kedge_segment_info(segment, &i) && !i.grants);
	works();
	over();
}

static bool is_refused(struct seg_part q)
{
	struct seg_answer a = { .rc = 0 };
	int fd = asks();
	bool is;

	send(fd, &q, sizeof(q), MSG_NOSIGNAL);
	is = recv(fd, &a, sizeof(a), 0) == sizeof(a) && a.rc && is_cut_off(fd);
	close(fd);
	return is;
}

/* Parts that are none; and peers that ask and do not wait. */
static void parts_are_looked_at(void **state)
{
	static const struct kedge_segment_opts later = { .size = sizeof(later),
							 .flags = KEDGE_SEGMENT_ON_ATTACH };
	const size_t page = page_len();
	struct seg_part good_part, q;
	int fd, n;

	skip_if(UNDER_TSAN, "no thread is stopped there");
	begin_with(&later);
	good_part = (struct seg_part){ .head = seg_head(SEG_PART), .id = id.word[0], .access = R,
				       .start = addr_of(w), .end = addr_of(w) + LEN };
#define PART(change)                         \
	do {                                 \
		q = good_part;               \
		change;                      \
		assert_true(is_refused(q)); \
	} while (0)
	PART(q.id ^= 1);
	PART(q.start -= page);
	PART(q.start++);
	PART(q.end += page);
	PART(q.end--);
	PART(q.end = q.start);
	PART(q.end = q.start - page);
	PART(q.end = UINT64_MAX - page + 1);
#undef PART
	for (n = 0; n < 100; n++) {
		fd = asks();
		send(fd, &good_part, sizeof(good_part), MSG_NOSIGNAL);
		if (n % 3)
			send(fd, &good_part, sizeof(good_part), MSG_NOSIGNAL);
		close(fd);
	}
	works();
	assert_int_equal(w[99], 99);
	over();
	/* One that is converted as a whole has no parts. */
	begin();
	good_part.id = id.word[0];
	good_part.start = addr_of(w);
	good_part.end = addr_of(w) + LEN;
	assert_true(is_refused(good_part));
	works();
	over();
}

/* It reads nothing of what it is told: it is cut off, the owner goes on. */
static void one_that_does_not_read_is_cut_off(void **state)
{
	struct seg_ask q = { .head = seg_head(SEG_ASK), .access = R };
	struct kedge_segment_info i = { .size = sizeof(i), .grants = 1 };
	size_t n;
	int fd;

	begin();
	q.id = id.word[0];
	fd = asks();
	assert_int_equal(send(fd, &q, sizeof(q), 0), sizeof(q));
	WAIT_FOR(!kedge_segment_info(segment, &i) && i.grants);
	for (n = 0; i.grants && n < 100000; n++) {
		char *p = (char *)w + LEN / 2 + n % 64 * page_len();

		madvise(p, page_len(), MADV_DONTNEED);
		assert_int_equal(*p, 0);
		if (n % 64 == 63) {
			/* Shared once more: what is private is not told of. */
			kedge_segment_remove(segment);
			assert_int_equal(kedge_segment_make(w, LEN, NULL, &segment), 0);
			break;
		}
		assert_int_equal(kedge_segment_info(segment, &i), 0);
	}
	assert_true(is_cut_off(fd));
	close(fd);
	assert_int_equal(kedge_segment_id(segment, &id), 0);
	works();
	over();
}

/* Those that say nothing have no place for ever: others get theirs. */
static void many_that_are_silent_do_not_shut_others_out(void **state)
{
	int fd[1100];
	size_t i;

	begin();
	for (i = 0; i < sizeof(fd) / sizeof(fd[0]); i++)
		fd[i] = asks();
	works();
	for (i = 0; i < sizeof(fd) / sizeof(fd[0]); i++)
		if (fd[i] >= 0)
			close(fd[i]);
	works();
	over();
}

/* Each has an answer to read, or its end. */
static bool none_waits(const int *fd, int cnt)
{
	struct pollfd p = { .events = POLLIN };
	int n;

	for (n = 0; n < cnt; n++) {
		p.fd = fd[n];
		if (poll(&p, 1, 0) != 1)
			return false;
	}
	return true;
}

/* Its own table is full of peers that have asked: others are told, and it does not spin. */
static void a_full_table_turns_peers_away(void **state)
{
	struct seg_ask q = { .head = seg_head(SEG_ASK), .access = R };
	struct kedge_segment_info i = { .size = sizeof(i) };
	struct rlimit was, few;
	struct sockaddr_un a;
	int fd[40], n;

	begin();
	q.id = id.word[0];
	for (n = 0; n < 40; n++)
		fd[n] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	few = (struct rlimit){ 32, was.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	for (n = 0; n < 39; n++) {
		socklen_t len = list_address(name_of(segment), &a);

		assert_int_equal(connect(fd[n], (struct sockaddr *)&a, len), 0);
		send(fd[n], &q, sizeof(q), MSG_NOSIGNAL);
	}
	/* The rest is told, or makes room: all are looked at, which leaves none waiting. */
	WAIT_FOR(!kedge_segment_info(segment, &i) && i.grants >= 10 && none_waits(fd, 39));
	assert_true(i.grants < 32);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	for (n = 0; n < 40; n++)
		close(fd[n]);
	works();
	over();
}

/* ---- owners ---- */

static struct seg_answer good;

static int file_of(size_t len, int seals)
{
	int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	if (seals)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

struct lie {
	struct seg_answer answer;
	size_t answer_len;
	int fd[2];
	int fds;
	int listener;
	bool of_part; /* the segment is in parts, and it is the answer about one */
};

/* A listing of all owners, of a test that runs beside this one, asks this one too. */
static int accept_own(int listener)
{
	struct ucred who = { 0 };
	socklen_t len = sizeof(who);
	int fd;

	while ((fd = accept(listener, NULL, NULL)) >= 0) {
		getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len);
		if (who.pid == getpid())
			break;
		close(fd);
	}
	return fd;
}

static void say(int fd, struct lie *l)
{
	char space[CMSG_SPACE(2 * sizeof(int))] = { 0 };
	struct iovec iov = { &l->answer, l->answer_len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;

	if (l->fds) {
		m.msg_control = space;
		m.msg_controllen = CMSG_SPACE((size_t)l->fds * sizeof(int));
		c = CMSG_FIRSTHDR(&m);
		*c = (struct cmsghdr){ .cmsg_len = CMSG_LEN((size_t)l->fds * sizeof(int)),
				       .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(c), l->fd, (size_t)l->fds * sizeof(int));
	}
	sendmsg(fd, &m, MSG_NOSIGNAL);
}

/* A connection, with its question. */
static int asker(const struct lie *l)
{
	struct seg_part q;
	int fd = accept_own(l->listener);

	recv(fd, &q, sizeof(q), 0);
	return fd;
}

static int say_in_parts(const struct lie *l)
{
	struct seg_answer in_parts = good;
	int fd = asker(l);

	in_parts.flags = SEG_IN_PARTS;
	in_parts.len = 16 * page_len();
	send(fd, &in_parts, sizeof(in_parts), MSG_NOSIGNAL);
	return fd;
}

static void *answer_one(void *arg)
{
	struct lie *l = arg;
	int first = l->of_part ? say_in_parts(l) : -1, fd = asker(l);

	say(fd, l);
	close(fd);
	if (first >= 0)
		close(first);
	return NULL;
}

static struct kedge_segment_id owner_begin(struct lie *l, void *(*answer)(void *),
					   pthread_t *thread)
{
	struct kedge_segment_id name = { { (uint64_t)getpid() << 41, 5 } };
	struct sockaddr_un a;
	socklen_t len = list_address((uint32_t)getpid(), &a);

	l->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(l->listener, (struct sockaddr *)&a, len), 0);
	assert_int_equal(listen(l->listener, 1), 0);
	assert_int_equal(pthread_create(thread, NULL, answer, l), 0);
	return name;
}

static int asked(struct lie *l)
{
	struct kedge_attachment *att;
	struct kedge_segment_id name;
	struct kedge_grant *g;
	pthread_t thread;
	int rc;

	name = owner_begin(l, answer_one, &thread);
	rc = kedge_segment_get(&name, R, &g);
	if (!rc) {
		if (l->of_part)
			rc = kedge_segment_attach(g, 0, page_len(), 0, &att);
		if (l->of_part && !rc)
			kedge_segment_detach(att);
		kedge_segment_release(g);
	}
	pthread_join(thread, NULL);
	close(l->listener);
	return rc;
}

/* The answer of @l, with one thing changed, is told as @want. */
#define LIE(change, fd0, fd1, want)                                   \
	do {                                                           \
		l.answer = good;                                       \
		l.answer_len = sizeof(good);                           \
		l.fds = 2;                                             \
		change;                                                \
		l.fd[0] = fd0;                                         \
		l.fd[1] = fd1;                                         \
		assert_int_equal(asked(&l), want);                     \
	} while (0)

static void an_owner_is_not_trusted(void **state)
{
	const size_t page = page_len();
	struct lie l = { .answer_len = sizeof(good), .fds = 2 };
	int sealed = file_of(16 * page, SEALS), open_file = file_of(16 * page, 0);
	int small = file_of(page, SEALS);

	good = (struct seg_answer){
		.head = seg_head(SEG_ANSWER), .backend = KEDGE_SEGMENT_CONVERT, .proof = 5,
		.addr = page, .len = page, .file_len = 16 * page };
	LIE(, sealed, sealed, 0);
	LIE(l.answer.proof = 6, sealed, sealed, -EPROTO);
	LIE(l.answer.head.version++, sealed, sealed, -EPROTO);
	LIE(l.answer_len--, sealed, sealed, -EPROTO);
	LIE(l.answer_len = 0, sealed, sealed, -ENOENT);
	LIE(l.fds = 0, sealed, sealed, -EPROTO);
	LIE(l.fds = 1, sealed, sealed, -EPROTO);
	LIE(, sealed, open_file, -EPROTO);
	LIE(, open_file, sealed, -EPROTO);
	LIE(, sealed, small, -EPROTO);
	LIE(, small, sealed, small < 0);
	LIE(l.answer.word = 500, sealed, sealed, -EPROTO);
	LIE(l.answer.file_off = 16 * page, sealed, sealed, -EPROTO);
	LIE(l.answer.file_off = 1, sealed, sealed, -EPROTO);
	LIE(l.answer.len = UINT64_MAX, sealed, sealed, -EPROTO);
	LIE(l.answer.len = 0, sealed, sealed, -EPROTO);
	LIE(l.answer.file_len = 17 * page, sealed, sealed, -EPROTO);
	LIE(l.answer.file_len = 1, sealed, sealed, -EPROTO);
	LIE(l.answer.rc = -EACCES, sealed, sealed, -EACCES);
	LIE(l.answer.rc = 5, sealed, sealed, -EPROTO);
	close(sealed);
	close(open_file);
	close(small);
}

static void an_owner_is_not_trusted_about_parts(void **state)
{
	const size_t page = page_len();
	struct lie l = { .of_part = true };
	int sealed = file_of(16 * page, SEALS), open_file = file_of(16 * page, 0);

	good = (struct seg_answer){
		.head = seg_head(SEG_ANSWER), .backend = KEDGE_SEGMENT_CONVERT, .proof = 5,
		.addr = page, .len = page, .until = 2 * page, .file_len = 16 * page };
	LIE(l.answer.flags = SEG_IN_PARTS, sealed, sealed, -EPROTO);
	LIE(l.answer.backend = KEDGE_SEGMENT_COPY, sealed, sealed, -EPROTO);
	LIE(l.answer.until = page, sealed, sealed, -EPROTO);
	LIE(l.answer.until = 3 * page, sealed, sealed, -EPROTO);
	LIE(l.answer.until = UINT64_MAX, sealed, sealed, -EPROTO);
	LIE(l.answer.addr = 2 * page, sealed, sealed, -EPROTO);
	LIE(l.answer.addr = 0, sealed, sealed, -EPROTO);
	LIE(l.answer.addr = UINT64_MAX - page + 1, sealed, sealed, -EPROTO);
	LIE(l.answer.rc = -EFAULT, sealed, sealed, -EFAULT);
	LIE(l.answer.rc = -EFAULT; l.answer.until = 0, sealed, sealed, -EPROTO);
	LIE(l.answer.rc = -EFAULT; l.answer.until = 3 * page, sealed, sealed, -EPROTO);
	LIE(l.answer.rc = -ENOENT, sealed, sealed, -ESTALE);
	LIE(l.fds = 0, sealed, sealed, -EPROTO);
	LIE(, sealed, open_file, -EPROTO);
	close(sealed);
	close(open_file);
}

/* ---- an owner that dies ---- */

static int when_attached[2]; /* a pipe */

/* A part, and a hole; the connection of the whole is the first that ends. */
static void *answer_and_die(void *arg)
{
	struct lie *l = arg;
	int part, hole;
	char c;

	close(say_in_parts(l));
	part = asker(l);
	say(part, l);
	hole = asker(l);
	l->fds = 0;
	l->answer.rc = -EFAULT;
	l->answer.until = 3 * page_len();
	say(hole, l);
	close(hole);
	if (read(when_attached[0], &c, 1) != 1)
		abort();
	close(part);
	return NULL;
}

/* It counts no change any more: that a connection ended is all that is heard. */
static void what_has_a_dead_owners_part_is_not_valid(void **state)
{
	const size_t page = page_len();
	int sealed = file_of(16 * page, SEALS);
	struct lie l = { .fds = 2, .fd = { sealed, sealed }, .answer_len = sizeof(good) };
	struct kedge_attachment *a;
	struct kedge_segment_id name;
	struct kedge_grant *g;
	pthread_t thread;
	uint64_t v;

	good = (struct seg_answer){
		.head = seg_head(SEG_ANSWER), .backend = KEDGE_SEGMENT_CONVERT, .proof = 5,
		.addr = page, .len = page, .until = 2 * page, .file_len = 16 * page };
	l.answer = good;
	assert_int_equal(pipe(when_attached), 0);
	name = owner_begin(&l, answer_and_die, &thread);
	assert_int_equal(kedge_segment_get(&name, R, &g), 0);
	/* It is heard that the whole has ended. */
	WAIT_FOR(kedge_segment_copy(g, 0, &v, sizeof(v), R) == -ESTALE);
	assert_int_equal(kedge_segment_attach(g, 0, 2 * page, 0, &a), 0);
	assert_true(kedge_segment_valid(a));
	assert_int_equal(write(when_attached[1], "x", 1), 1);
	WAIT_FOR(!kedge_segment_valid(a));
	kedge_segment_detach(a);
	kedge_segment_release(g);
	pthread_join(thread, NULL);
	close(l.listener);
	close(sealed);
	close(when_attached[0]);
	close(when_attached[1]);
}

#define LISTED PLAIN
#include "test_segment_hostile.cases.h"
