// SPDX-License-Identifier: BSD-2-Clause
#include "actor.h"

#include <dirent.h>
#include <sys/prctl.h>

#define RW     (KEDGE_SEGMENT_READ | KEDGE_SEGMENT_WRITE)
#define PAGES  8u
#define APART  (1u << 20)
#define OUR_FD 900 /* of the socket, in the actor: it is no other descriptor's number */
#define SHOWN  5u  /* the word that others look at */

struct steps actor_steps = { .listener = -1 };
uint32_t actor_backend;

/* ---- there ---- */

static struct range {
	char *at;
	uint64_t *w;
	uint64_t *second; /* the other half; NULL: it is unmapped */
	bool emptied;
	struct kedge_segment *segment;
} range[2];
static struct kedge_grant *grant;
static struct kedge_attachment *att;
static sigjmp_buf fault;

static void on_fault(int sig)
{
	siglongjmp(fault, sig);
}

static size_t half_of(void)
{
	return PAGES / 2 * page_len();
}

static size_t words_of(size_t len)
{
	return len / sizeof(uint64_t);
}

/* With so much around it that it is not near the variables of a thread of kedge's caller:
 * another thread would convert it, which goes on for a while. */
static long new(struct range *r)
{
	size_t i;

	r->at = mmap(NULL, APART, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHILD_CHECK(r->at != MAP_FAILED);
	r->w = (void *)(r->at + APART / 2);
	pages_at(r->w, PAGES);
	r->second = r->w + words_of(half_of());
	r->emptied = false;
	for (i = 0; i < words_of(2 * half_of()); i++)
		r->w[i] = i;
	return 0;
}

static long make(struct range *r, struct said *s)
{
	const struct kedge_segment_opts o = { .size = sizeof(o), .backend = actor_backend };
	long rc = kedge_segment_make(r->w, 2 * half_of(), &o, &r->segment);

	if (rc)
		snprintf(s->reason, sizeof(s->reason), "%s", kedge_strerror((int)rc));
	else
		kedge_segment_id(r->segment, &s->id);
	return rc;
}

static long free_range(struct range *r)
{
	if (r->second != r->w + words_of(half_of()) && r->second)
		munmap(r->second, half_of());
	return munmap(r->at, APART);
}

static long unmap(struct range *r)
{
	long rc = munmap(r->second, half_of());

	r->second = NULL;
	return rc;
}

static long empty(struct range *r)
{
	r->emptied = true;
	return madvise(r->second, half_of(), MADV_DONTNEED);
}

static long move(struct range *r)
{
	void *to = mmap(NULL, half_of(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	r->second = mremap(r->second, half_of(), half_of(), MREMAP_MAYMOVE | MREMAP_FIXED, to);
	return r->second == MAP_FAILED ? -errno : 0;
}

static long intact(const struct range *r)
{
	const size_t half = words_of(half_of());
	size_t i;

	for (i = 0; i < half; i++)
		if (i != SHOWN && r->w[i] != i)
			return -EIO;
	for (i = 0; r->second && i < half; i++)
		if (r->second[i] != (r->emptied ? 0 : half + i))
			return -EIO;
	return 0;
}

static long fork_once(const struct range *r)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(intact(r) ? 1 : 0);
	if (pid < 0)
		return -errno;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return status;
}

static long grants(const struct range *r)
{
	struct kedge_segment_info i = { .size = sizeof(i) };
	int rc = kedge_segment_info(r->segment, &i);

	return rc ? rc : (long)i.grants;
}

static long touch(const struct told *t, struct said *s)
{
	volatile uint64_t *w = kedge_segment_addr(att);

	if (sigsetjmp(fault, 1))
		return -EFAULT;
	if (t->act == STORE)
		w[SHOWN] = t->value;
	else
		s->value = w[SHOWN];
	return 0;
}

static unsigned int entries(const char *path)
{
	DIR *d = opendir(path);
	unsigned int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/* "kedge-pages" ends by itself a second after the last conversion, and has no descriptors. */
static bool is_counted(const char *tid)
{
	char path[300], name[32] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%s/comm", tid);
	f = tid[0] == '.' ? NULL : fopen(path, "re");
	if (!f)
		return false;
	if (!fgets(name, sizeof(name), f))
		name[0] = '\0';
	fclose(f);
	return name[0] && strcmp(name, "kedge-pages\n") != 0;
}

static void count_threads(struct left *l)
{
	DIR *d = opendir("/proc/self/task");
	const struct dirent *e;
	char path[300];

	CHILD_CHECK(d);
	while ((e = readdir(d))) {
		if (!is_counted(e->d_name))
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/fd", e->d_name);
		l->fds += entries(path);
		l->threads++;
	}
	closedir(d);
}

static unsigned int maps_of_kedge(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned int n = 0;
	char line[512];

	CHILD_CHECK(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, "memfd:kedge") || strstr(line, "/dev/kedge");
	fclose(f);
	return n;
}

static long look(struct left *l)
{
	count_threads(l);
	l->maps = maps_of_kedge();
	return 0;
}

/* Before what the call returns: a message with it, or with an errno. */
static void hand_over(int listener)
{
	char space[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { &listener, sizeof(listener) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;

	if (listener >= 0) {
		m.msg_control = space;
		m.msg_controllen = sizeof(space);
		c = CMSG_FIRSTHDR(&m);
		*c = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)),
				       .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(c), &listener, sizeof(listener));
	}
	CHILD_CHECK(sendmsg(OUR_FD, &m, 0) == sizeof(listener));
}

static long begin_steps(void)
{
	int listener = steps_begin(OUR_FD);

	hand_over(listener);
	if (listener < 0)
		return listener;
	close(listener);
	return 0;
}

static long as_owner(const struct told *t, struct said *s)
{
	struct range *r = &range[t->range];

	switch (t->act) {
	case NEW:
		return new(r);
	case MAKE:
		return make(r, s);
	case REMOVE:
		kedge_segment_remove(r->segment);
		return 0;
	case FREE:
		return free_range(r);
	case UNMAP:
		return unmap(r);
	case EMPTY:
		return empty(r);
	case MOVE:
		return move(r);
	case FORK:
		return fork_once(r);
	case INTACT:
		return intact(r);
	case PUT:
		r->w[SHOWN] = t->value;
		return 0;
	default:
		return grants(r);
	}
}

static long act(const struct told *t, struct said *s)
{
	switch (t->act) {
	case GET:
		return kedge_segment_get(&t->id, RW, &grant);
	case ATTACH:
		return kedge_segment_attach(grant, 0, (t->half ? 1 : 2) * half_of(), t->flags,
					    &att);
	case VALID:
		return kedge_segment_valid(att);
	case LOAD:
	case STORE:
		return touch(t, s);
	case COPY:
		return kedge_segment_copy(grant, SHOWN * sizeof(s->value), &s->value,
					  sizeof(s->value), KEDGE_SEGMENT_READ);
	case DETACH:
		kedge_segment_detach(att);
		return 0;
	case RELEASE:
		kedge_segment_release(grant);
		return 0;
	case LEFT:
		return look(&s->left);
	case STEPS:
		return begin_steps();
	default:
		return as_owner(t, s);
	}
}

static void serve(void)
{
	const struct sigaction sa = { .sa_handler = on_fault };
	struct told t;
	struct said s;

	sigaction(SIGBUS, &sa, NULL);
	sigaction(SIGSEGV, &sa, NULL);
	while (recv(OUR_FD, &t, sizeof(t), 0) == sizeof(t)) {
		s = (struct said){ 0 };
		s.rc = act(&t, &s);
		CHILD_CHECK(send(OUR_FD, &s, sizeof(s), MSG_NOSIGNAL) == sizeof(s));
	}
	_exit(0);
}

#ifdef __SANITIZE_THREAD__
static void *no_work(void *arg)
{
	return arg;
}

/* The sanitizer's own thread is there from the first one on; where threads are counted. */
static void start_others_threads(void)
{
	pthread_t t;

	CHILD_CHECK(!pthread_create(&t, NULL, no_work, NULL));
	pthread_join(t, NULL);
	threads_now();
}
#else
static void start_others_threads(void)
{
}
#endif

static void run(int sock, bool dies)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	CHILD_CHECK(dup2(sock, OUR_FD) == OUR_FD);
	close_range(3, OUR_FD - 1, 0);
	if (!dies)
		start_others_threads();
	serve();
}

/* ---- here ---- */

static int take_over(int sock)
{
	char space[CMSG_SPACE(sizeof(int))] = { 0 };
	int said, fd;
	struct iovec iov = { &said, sizeof(said) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = space,
			    .msg_controllen = sizeof(space) };
	const struct cmsghdr *c;

	assert_int_equal(recvmsg(sock, &m, MSG_CMSG_CLOEXEC), sizeof(said));
	c = CMSG_FIRSTHDR(&m);
	if (!c)
		return said;
	memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	return fd;
}

void actor_start(struct actor *a, bool dies)
{
	int sv[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
	*a = (struct actor){ .sock = sv[0], .dies = dies };
	fflush(NULL);
	a->pid = fork();
	assert_true(a->pid >= 0);
	if (!a->pid)
		run(sv[1], dies);
	close(sv[1]);
	if (dies)
		actor_steps = (struct steps){ .listener = -1, .pid = a->pid };
}

void actor_end(struct actor *a)
{
	if (!a->pid)
		return;
	if (!a->dies || !actor_steps.killed) {
		kill(a->pid, SIGKILL);
		waitpid(a->pid, NULL, 0);
	}
	close(a->sock);
	a->pid = 0;
}

/* The limit starts anew with each step. */
static void hear(struct actor *a)
{
	struct pollfd p[2] = { { a->sock, POLLIN, 0 }, { -1, POLLIN, 0 } };
	ssize_t n;

	do {
		if (a->dies && actor_steps.killed) {
			a->said.rc = DEAD;
			return;
		}
		p[1].fd = p[1].revents & POLLHUP ? -1 : actor_steps.listener;
		if (poll(p, 2, HANG_S * 1000) <= 0)
			fail_msg("a call hangs");
		if (p[1].revents & POLLIN)
			steps_one(&actor_steps);
	} while (!p[0].revents);
	n = recv(a->sock, &a->said, sizeof(a->said), 0);
	if (n != (ssize_t)sizeof(a->said))
		fail_msg("a process that was not killed has ended");
}

long actor_does(struct actor *a, struct told t)
{
	if (a->dies && actor_steps.killed)
		return DEAD;
	assert_int_equal(send(a->sock, &t, sizeof(t), MSG_NOSIGNAL), sizeof(t));
	if (t.act == STEPS)
		steps_listen(&actor_steps, take_over(a->sock));
	hear(a);
	return a->said.rc;
}
