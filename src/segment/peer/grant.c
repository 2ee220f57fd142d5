// SPDX-License-Identifier: BSD-2-Clause
/*
 * A grant: one connection to the owner, which the thread gets to keep, the owner's check
 * page, and one mapping of the whole memfd. Attachments are made from that one (mremap()
 * of no bytes of a shared mapping makes another), so that they need no descriptor, and
 * no word from the owner.
 *
 * Messages of the owner are not trusted: a store to a memfd that could be cut short would be
 * a SIGBUS, so it has to be sealed against that.
 */
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/clock/sock.h"
#include "base/process/cancel.h"
#include "base/process/page.h"
#include "segment/peer/attached.h"
#include "segment/thread/thread.h"

#define WAIT_S 10
#define NAP_NS 500000
#define SEALS  (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* ---- asking ---- */

struct reply {
	struct seg_answer a;
	int fd[2]; /* or -1 */
	pid_t pid;
};

static int nobody(void)
{
	return kedge_reason(-ENOENT, "no process of this network namespace has that segment: "
			    "its owner has ended or removed it, or the id is wrong");
}

static int silent(void)
{
	return kedge_reason(-ETIMEDOUT, "the segment's owner has not answered for %d s: it is "
			    "stopped", WAIT_S);
}

static int stranger(void)
{
	return kedge_reason(-EPROTO, "whoever answers for the segment is not its owner, or of "
			    "another version of kedge");
}

static int no_answer(int err)
{
	switch (err) {
	case ECONNREFUSED:
	case ENOENT:
		return nobody();
	case EAGAIN:
	case EINPROGRESS:
		return silent();
	}
	return kedge_reason(-err, "the segment's owner cannot be asked (%s)",
			    strerrordesc_np(err));
}

static int connect_to(uint32_t name, uint64_t until, struct clofork *sock)
{
	struct sockaddr_un a;
	unsigned int len = id_address(name, &a);
	int rc = clofork_begin();

	if (!rc)
		rc = clofork_end(sock, socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC |
					      SOCK_NONBLOCK, 0));
	if (rc)
		return rc;
	return clock_connect(sock->fd, &a, len, until) ? no_answer(errno) : 0;
}

static void close_fds(const struct reply *r)
{
	int i;

	for (i = 0; i < 2; i++)
		if (r->fd[i] >= 0)
			close(r->fd[i]);
}

static int receive(int sock, uint64_t until, struct reply *r)
{
	char space[CMSG_SPACE(2 * sizeof(int))] = { 0 };
	struct iovec iov = { &r->a, sizeof(r->a) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1,
			    .msg_control = space, .msg_controllen = sizeof(space) };
	const struct cmsghdr *c;
	struct ucred who = { 0 };
	socklen_t len = sizeof(who);
	ssize_t n;

	r->fd[0] = r->fd[1] = -1;
	n = clock_recvmsg(sock, &m, until);
	/* An owner that turned this one away unheard: what it said is behind that. */
	if (n < 0 && errno == ECONNRESET)
		n = clock_recvmsg(sock, &m, until);
	if (n < 0)
		return no_answer(errno);
	c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(r->fd, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &len);
	r->pid = who.pid;
	/* It has too many that ask, or ends. */
	if (!n)
		return nobody();
	if (m.msg_flags & MSG_CTRUNC)
		return error_no_fd(EMFILE);
	return n == (ssize_t)sizeof(r->a) && seg_is(&r->a.head, SEG_ANSWER) ? 0 : stranger();
}

static int refused(const struct seg_answer *a)
{
	int rc = a->rc;

	switch (rc) {
	case -EFAULT:
		return rc;
	case -EOPNOTSUPP:
	case -ENOMEM:
	case -ENOSPC:
		return kedge_reason(rc, "in the segment's owner: %.*s", (int)sizeof(a->reason),
				    a->reason);
	case -EMFILE:
	case -ENFILE:
		return kedge_reason(rc, "the segment's owner has no file descriptor left: raise "
				    "its ulimit -n");
	case -ENOENT:
		return nobody();
	case -EAGAIN:
		return kedge_reason(-ETIMEDOUT, "the segment's owner has been in fork() for %d s",
				    WAIT_S);
	case -EACCES:
		return kedge_reason(rc, "the segment's mode does not let this user do that");
	case -EBUSY:
		return a->reason[0] ? kedge_reason(rc, "in the segment's owner: %.*s",
						   (int)sizeof(a->reason), a->reason)
		       : kedge_reason(rc, "the segment's owner has as many grants as it may: %u",
				    PEERS);
	}
	return stranger();
}

/* A question, of its kind. */
struct question {
	const void *packet;
	size_t len;
	uint32_t access;
};

static int ask(const struct kedge_segment_id *id, const struct question *q, int sock,
	       uint64_t until, struct reply *r)
{
	const ssize_t n = clock_send(sock, q->packet, q->len, until);
	int rc;

	/* It has ended, or turned this one away: what it said, if anything, is there still. */
	if (n < 0 && errno != EPIPE && errno != ECONNRESET)
		return no_answer(errno);
	rc = receive(sock, until, r);
	if (!rc && r->a.rc)
		rc = refused(&r->a);
	if (!rc && id->word[1] && id->word[1] != r->a.proof)
		rc = stranger();
	if (rc)
		close_fds(r);
	return rc;
}

/* ---- what came ---- */

/* Seals first: a file system that another process serves would be waited for. */
static bool is_memfd(int fd, uint64_t len)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct statfs fs;
	struct stat st;

	return seals >= 0 && (seals & SEALS) == SEALS && !fstatfs(fd, &fs) &&
	       fs.f_type == TMPFS_MAGIC && !fstat(fd, &st) && S_ISREG(st.st_mode) &&
	       (uint64_t)st.st_size >= len;
}

static bool is_sound(const struct seg_answer *a)
{
	const size_t page = kedge__page_size();

	return a->word < EXTENTS && a->len && a->len <= a->file_len &&
	       a->file_off <= a->file_len - a->len && !(a->file_len % page) &&
	       a->file_off % page == a->addr % page;
}

static void *map_of(int fd, size_t len, int prot)
{
	void *p = mmap(NULL, len, prot, MAP_SHARED | MAP_NORESERVE, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

static int no_room(void)
{
	return kedge_reason(-ENOMEM, "no room for a mapping of the segment "
			    "(vm.max_map_count, RLIMIT_AS)");
}

static int reserve(struct kedge_grant *g, const struct reply *r)
{
	void *p;

	if (!is_sound(&r->a) || !is_memfd(r->fd[0], sizeof(struct seg_check)) ||
	    !is_memfd(r->fd[1], r->a.file_len))
		return stranger();
	g->map.check = map_of(r->fd[0], sizeof(struct seg_check), PROT_READ);
	p = mmap(NULL, r->a.file_len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		 -1, 0);
	if (p == MAP_FAILED)
		return no_room();
	g->map.base = p;
	g->map.len = r->a.file_len;
	return g->map.check ? 0 : no_room();
}

/* When the grant is in the table, so that drop.c knows that mapping. */
static int map_all(struct kedge_grant *g, const struct reply *r, uint32_t access)
{
	int prot = access & KEDGE_SEGMENT_WRITE ? PROT_READ | PROT_WRITE : PROT_READ;

	if (mmap(g->map.base, g->map.len, prot, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
		 r->fd[1], 0) == MAP_FAILED)
		return no_room();
	/* And none of those that are made from it. */
	madvise(g->map.base, g->map.len, MADV_DONTFORK);
	return 0;
}

static void unmap_all(struct kedge_grant *g)
{
	if (g->map.check)
		munmap((void *)(uintptr_t)g->map.check, sizeof(*g->map.check));
	if (g->map.base)
		munmap(g->map.base, g->map.len);
}

static void fill(struct kedge_grant *g, const struct reply *r, uint32_t access)
{
	g->info = (struct kedge_segment_info){
		.backend = r->a.backend, .access = access, .len = r->a.len,
		.addr = r->a.addr, .pid = r->pid };
	memcpy(g->info.reason, r->a.reason, sizeof(g->info.reason) - 1);
	g->in_parts = r->a.backend == KEDGE_SEGMENT_CONVERT && r->a.flags & SEG_IN_PARTS;
	g->file_off = r->a.file_off;
	g->word = r->a.word;
	g->own = r->pid == process_pid();
	g->count = r->a.count;
}

/* ---- the table ---- */

/* With the gate. */
static int enter(struct kedge_grant *g, int sock)
{
	struct seg_call call = { .op = SEG_OP_GRANT };
	int i, rc;

	sig_lock(&seg_lock);
	for (i = 0; i < (int)GRANTS && seg->grant[i]; i++)
		;
	if (i < (int)GRANTS) {
		seg->grant[i] = g;
		g->slot = i;
	}
	sig_unlock(&seg_lock);
	if (i == (int)GRANTS) {
		close(sock);
		return kedge_reason(-ENOSPC, "this process has %u grants, which are all that "
				    "it may have", GRANTS);
	}
	call.index = i;
	rc = call_thread(&call, sock);
	if (rc) {
		sig_lock(&seg_lock);
		seg->grant[i] = NULL;
		sig_unlock(&seg_lock);
	}
	return rc;
}

static int join(struct kedge_grant *g, struct clofork *sock)
{
	int rc;

	gate_lock();
	rc = service_use();
	if (!rc) {
		rc = enter(g, clofork_release(sock));
		if (rc)
			service_unuse();
	}
	gate_unlock();
	return rc;
}

static struct kedge_grant *grant_new(void)
{
	struct kedge_grant *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	list_init(&g->attachments);
	list_init(&g->parts);
	list_init(&g->part_node);
	g->pid = process_pid();
	g->slot = -1;
	clofork_init(&g->pidfd);
	clofork_init(&g->dev);
	return g;
}

/* As long as that is not readable, the number is the owner's. */
static void know_owner(struct kedge_grant *g)
{
	if (g->info.pid > 0)
		clofork_keep(&g->pidfd, (int)syscall(SYS_pidfd_open, g->info.pid, 0));
}

/* -ENOENT: the kernel module has no such segment, or there is none. */
static int get_from_module(const struct kedge_segment_id *id, uint32_t access,
			   struct kedge_grant **out)
{
	struct kedge_grant *g = grant_new();
	int rc;

	if (!g)
		return -ENOMEM;
	rc = module_get(g, id, access);
	if (rc) {
		free(g);
		return rc;
	}
	know_owner(g);
	*out = g;
	return 0;
}

static int make(const struct reply *r, uint32_t access, struct clofork *sock,
		struct kedge_grant **out)
{
	struct kedge_grant *g = grant_new();
	int rc = 0;

	if (!g)
		return -ENOMEM;
	fill(g, r, access);
	know_owner(g);
	if (r->a.backend == KEDGE_SEGMENT_CONVERT && !g->in_parts)
		rc = reserve(g, r);
	if (!rc)
		rc = join(g, sock);
	if (rc) {
		clofork_close(&g->pidfd);
		unmap_all(g);
		free(g);
		return rc;
	}
	if (g->map.base)
		rc = map_all(g, r, access);
	if (rc)
		grant_free(g);
	else
		*out = g;
	return rc;
}

/* ---- calls ---- */

/* A connection, a question, and a grant if the answer is yes. @r: the answer, whatever it is. */
static int get(const struct kedge_segment_id *id, const struct question *q, uint64_t until,
	       struct reply *r, struct kedge_grant **out)
{
	struct clofork sock;
	int rc;

	clofork_init(&sock);
	rc = connect_to(id_name(id->word[0]), until, &sock);
	if (!rc)
		rc = ask(id, q, sock.fd, until, r);
	if (!rc) {
		rc = make(r, q->access, &sock, out);
		close_fds(r);
	}
	clofork_close(&sock);
	return rc;
}

/* An owner that forks has nothing to hand out for that moment, and says so. */
static int get_in_time(const struct kedge_segment_id *id, const struct question *q,
		       struct reply *r, struct kedge_grant **out)
{
	const uint64_t until = clock_after_ms(WAIT_S * 1000);
	const struct timespec nap = { 0, NAP_NS };
	int rc;

	for (;;) {
		r->a.rc = 0;
		rc = get(id, q, until, r, out);
		if (!rc || r->a.rc != -EAGAIN || clock_ns() > until)
			return rc;
		syscall(SYS_nanosleep, &nap, NULL);
	}
}

/* A part of the memory that it names, from its start on. */
static bool is_part(const struct seg_answer *a, const struct seg_part *q)
{
	return a->backend == KEDGE_SEGMENT_CONVERT && !(a->flags & SEG_IN_PARTS) &&
	       a->addr <= UINT64_MAX - a->len && q->start >= a->addr &&
	       q->start - a->addr < a->len && a->until > q->start && a->until <= q->end &&
	       a->until - a->addr <= a->len;
}

int grant_part(struct kedge_grant *g, uint64_t start, uint64_t end, struct kedge_grant **part,
	       uint64_t *until)
{
	const struct seg_part p = { .head = seg_head(SEG_PART), .id = g->id.word[0],
				    .start = start, .end = end, .access = g->info.access };
	const struct question q = { &p, sizeof(p), g->info.access };
	struct reply r = { .a.until = 0 };
	int rc = get_in_time(&g->id, &q, &r, part);

	*until = r.a.until;
	if (rc == -ENOENT)
		return segment_is_stale();
	if (rc == -EFAULT)
		return *until > start && *until <= end ? rc : stranger();
	if (rc || (is_part(&r.a, &p) && r.pid == g->info.pid))
		return rc;
	grant_free(*part);
	return stranger();
}

int kedge_segment_get(const struct kedge_segment_id *id, uint32_t access,
		      struct kedge_grant **grant)
{
	struct seg_ask ask_for = { .head = seg_head(SEG_ASK), .access = access };
	const struct question q = { &ask_for, sizeof(ask_for), access };
	struct reply r;
	int rc;
	NO_CANCEL();

	if (!id || !grant || !access ||
	    access & ~(KEDGE_SEGMENT_READ | KEDGE_SEGMENT_WRITE))
		return kedge_reason(-EINVAL, "a pointer is NULL, or the access is neither "
				    "KEDGE_SEGMENT_READ nor KEDGE_SEGMENT_WRITE");
	rc = clofork_ready();
	if (!rc)
		rc = get_from_module(id, access, grant);
	if (rc != -ENOENT)
		return rc;
	rc = fork_ready();
	if (rc)
		return rc;
	ask_for.id = id->word[0];
	rc = get_in_time(id, &q, &r, grant);
	if (!rc)
		(*grant)->id = *id;
	return rc;
}

void grant_free(struct kedge_grant *g)
{
	struct seg_call call = { .op = SEG_OP_RELEASE };

	if (g->pid == process_pid() && g->info.backend == KEDGE_SEGMENT_MODULE) {
		module_release(g);
		clofork_close(&g->pidfd);
	} else if (g->pid == process_pid()) {
		if (g->own && g->map.base)
			segment_unmap(g->map.base, g->map.len);
		gate_lock();
		call.index = g->slot;
		sig_lock(&seg_lock);
		seg->grant[g->slot] = NULL;
		sig_unlock(&seg_lock);
		call_thread(&call, -1);
		service_unuse();
		gate_unlock();
		clofork_close(&g->pidfd);
		unmap_all(g);
	}
	attached_free(g);
	free(g);
}

int kedge_grant_info(const struct kedge_grant *g, struct kedge_segment_info *info)
{
	if (!g)
		return kedge_reason(-EINVAL, "a pointer is NULL");
	if (g->pid != process_pid())
		return -ECHILD;
	return kedge__info_copy(info, INFO_V1, &g->info,
				sizeof(g->info));
}
