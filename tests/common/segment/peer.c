// SPDX-License-Identifier: BSD-2-Clause
#include "peer.h"

#include <grp.h>
#include <sys/prctl.h>

enum op { GET, ATTACH, REATTACH, VALID, DETACH, RELEASE, COPY, INFO, LOAD, STORE, WRITABLE, COUNT };

struct request {
	enum op op;
	uint32_t access;
	struct kedge_segment_id id;
	uint64_t at;
	uint64_t len;
	uint64_t value;
};

struct reply {
	ssize_t rc;
	uint64_t value;
	struct kedge_segment_info info;
};

/* ---- there ---- */

static struct kedge_grant *grant;
static struct kedge_attachment *att;
static sigjmp_buf fault;

static void on_fault(int sig)
{
	siglongjmp(fault, sig);
}

static ssize_t touch(const struct request *q, struct reply *a)
{
	volatile uint64_t *w = (void *)((char *)kedge_segment_addr(att) + q->at);

	if (sigsetjmp(fault, 1))
		return -EFAULT;
	if (q->op == STORE)
		*w = q->value;
	else
		a->value = *w;
	return 0;
}

static ssize_t count(const struct request *q, struct reply *a, int sock)
{
	uint64_t *w = (void *)((char *)kedge_segment_addr(att) + q->at);
	struct pollfd p = { sock, POLLIN, 0 };
	volatile uint64_t n = 0;

	if (!sigsetjmp(fault, 1))
		while (!poll(&p, 1, 0)) {
			__atomic_fetch_add(w, 1, __ATOMIC_SEQ_CST);
			n++;
		}
	a->value = n;
	return 0;
}

static ssize_t make_writable(void)
{
	uintptr_t at = (uintptr_t)kedge_segment_addr(att) & ~(page_len() - 1);

	return mprotect((void *)at, page_len(), PROT_READ | PROT_WRITE) ? -errno : 0;
}

static ssize_t reattach(void)
{
	const void *at = att ? kedge_segment_addr(att) : NULL;
	int rc = kedge_segment_reattach(&att);

	if (rc)
		return att ? -ENOTRECOVERABLE : rc;
	return kedge_segment_addr(att) == at ? 0 : -EXDEV;
}

static ssize_t answer(const struct request *q, struct reply *a, int sock)
{
	switch (q->op) {
	case GET:
		return kedge_segment_get(&q->id, q->access, &grant);
	case ATTACH:
		return kedge_segment_attach(grant, q->at, q->len, q->access, &att);
	case REATTACH:
		return reattach();
	case VALID:
		return kedge_segment_valid(att);
	case DETACH:
		kedge_segment_detach(att);
		return 0;
	case RELEASE:
		kedge_segment_release(grant);
		return 0;
	case COPY:
		a->value = q->value;
		return kedge_segment_copy(grant, q->at, &a->value, sizeof(a->value), q->access);
	case INFO:
		a->info.size = sizeof(a->info);
		return kedge_grant_info(grant, &a->info);
	case WRITABLE:
		return make_writable();
	case COUNT:
		return count(q, a, sock);
	default:
		return touch(q, a);
	}
}

/* As "UID:GID:GROUP", GROUP being one that it is in besides. */
static void become(const char *user)
{
	unsigned int uid, gid, group;

	CHILD_CHECK(sscanf(user, "%u:%u:%u", &uid, &gid, &group) == 3);
	if (uid)
		CHILD_CHECK(!setgroups(1, &group) && !setresgid(gid, gid, gid) &&
			    !setresuid(uid, uid, uid));
}

static void serve(int sock, const char *user)
{
	struct sigaction sa = { .sa_handler = on_fault };
	struct request q;
	struct reply a;

	sigaction(SIGBUS, &sa, NULL);
	sigaction(SIGSEGV, &sa, NULL);
	become(user);
	while (recv(sock, &q, sizeof(q), 0) == sizeof(q)) {
		a = (struct reply){ 0 };
		a.rc = answer(&q, &a, sock);
		CHILD_CHECK(send(sock, &a, sizeof(a), 0) == sizeof(a));
	}
	_exit(0);
}

/* ---- here ---- */

void peer_main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "peer"))
		serve(atoi(argv[2]), argv[3]);
}

/* A program of its own, as a sanitizer lets no forked child start threads. */
void peer_start_as(struct peer *p, uid_t uid, gid_t gid, gid_t group)
{
	char sock[16], user[48];
	int sv[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv), 0);
	snprintf(sock, sizeof(sock), "%d", sv[1]);
	snprintf(user, sizeof(user), "%u:%u:%u", uid, gid, group);
	p->pid = fork();
	assert_true(p->pid >= 0);
	if (!p->pid) {
		close(sv[0]);
		execl("/proc/self/exe", "peer", "peer", sock, user, NULL);
		CHILD_CHECK(!"executed");
	}
	close(sv[1]);
	p->sock = sv[0];
	fcntl(p->sock, F_SETFD, FD_CLOEXEC);
	/* It copies from its parent, which Yama may forbid. */
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
}

void peer_start(struct peer *p, uid_t uid)
{
	peer_start_as(p, uid, uid, uid);
}

void peer_end(struct peer *p)
{
	int status;

	close(p->sock);
	assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
	assert_int_equal(status, 0);
}

void peer_kill(struct peer *p)
{
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
	close(p->sock);
}

static ssize_t hear(struct peer *p, struct reply *a)
{
	assert_int_equal(recv(p->sock, a, sizeof(*a), 0), sizeof(*a));
	return a->rc;
}

static void tell(struct peer *p, struct request q)
{
	assert_int_equal(send(p->sock, &q, sizeof(q), 0), sizeof(q));
}

static ssize_t ask(struct peer *p, struct request q, struct reply *a)
{
	tell(p, q);
	return hear(p, a);
}

static int simple(struct peer *p, struct request q)
{
	struct reply a;

	return (int)ask(p, q, &a);
}

int peer_get(struct peer *p, const struct kedge_segment_id *id, uint32_t access)
{
	return simple(p, (struct request){ .op = GET, .id = *id, .access = access });
}

int peer_attach(struct peer *p, uint64_t offset, size_t len)
{
	return peer_attach_with(p, offset, len, 0);
}

int peer_attach_with(struct peer *p, uint64_t offset, size_t len, uint32_t flags)
{
	return simple(p, (struct request){ .op = ATTACH, .at = offset, .len = len,
					   .access = flags });
}

int peer_reattach(struct peer *p)
{
	return simple(p, (struct request){ .op = REATTACH });
}

int peer_valid(struct peer *p)
{
	return simple(p, (struct request){ .op = VALID });
}

int peer_detach(struct peer *p)
{
	return simple(p, (struct request){ .op = DETACH });
}

int peer_release(struct peer *p)
{
	return simple(p, (struct request){ .op = RELEASE });
}

int peer_make_writable(struct peer *p)
{
	return simple(p, (struct request){ .op = WRITABLE });
}

ssize_t peer_copy(struct peer *p, uint64_t offset, uint64_t *value, uint32_t access)
{
	struct reply a;

	ask(p, (struct request){ .op = COPY, .at = offset, .value = *value, .access = access },
	    &a);
	*value = a.value;
	return a.rc;
}

int peer_info(struct peer *p, struct kedge_segment_info *info)
{
	struct reply a;
	int rc = (int)ask(p, (struct request){ .op = INFO }, &a);

	*info = a.info;
	return rc;
}

int peer_load(struct peer *p, size_t at, uint64_t *value)
{
	struct reply a;
	int rc = (int)ask(p, (struct request){ .op = LOAD, .at = at }, &a);

	*value = a.value;
	return rc;
}

int peer_store(struct peer *p, size_t at, uint64_t value)
{
	return simple(p, (struct request){ .op = STORE, .at = at, .value = value });
}

void peer_count_begin(struct peer *p, size_t at)
{
	tell(p, (struct request){ .op = COUNT, .at = at });
}

uint64_t peer_count_end(struct peer *p)
{
	struct reply counted, a;

	tell(p, (struct request){ .op = VALID });
	hear(p, &counted);
	hear(p, &a);
	return counted.value;
}

void peer_has(struct peer *p, const struct kedge_segment *s, uint32_t access)
{
	struct kedge_segment_info i = { .size = sizeof(i) };
	struct kedge_segment_id id;

	assert_int_equal(kedge_segment_id(s, &id), 0);
	assert_int_equal(kedge_segment_info(s, &i), 0);
	assert_int_equal(peer_get(p, &id, access), 0);
	assert_int_equal(peer_attach(p, 0, i.len), 0);
}

void need_convert(void)
{
	const struct kedge_segment_opts o = { .size = sizeof(o),
					      .backend = KEDGE_SEGMENT_CONVERT };
	struct kedge_segment *s;
	char *p = new_pages(1);
	int rc = kedge_segment_make(p, 1, &o, &s);

	if (!rc)
		kedge_segment_remove(s);
	free_pages(p, 1);
	skip_if_refused(rc);
}

static uint64_t *numbered(uint64_t *w, size_t len)
{
	size_t i;

	for (i = 0; i < len / sizeof(*w); i++)
		w[i] = i;
	return w;
}

uint64_t *words(size_t len)
{
	return numbered((void *)new_pages(len / page_len()), len);
}
