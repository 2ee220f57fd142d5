// SPDX-License-Identifier: BSD-2-Clause
/*
 * The demo's peer. It opens the RDMA device for itself; of the application's
 * it has only the file, the copy, and what comes through the socket.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/demo/peer.h"

/* The peer's own side. @stage: where a chunk is on its way */
struct side {
	struct rdma_dev dev;
	struct rdma_end end;
	struct ibv_mr *mr;
	uint8_t *stage;
	const struct demo_file *file;
};

static int side_open(struct side *s, const char *name)
{
	int rc;

	rc = rdma_dev_open(&s->dev, name);
	if (rc)
		return rc;
	s->stage = mmap(NULL, DEMO_CHUNK, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->stage == MAP_FAILED) {
		rc = -errno;
		goto close_dev;
	}
	errno = ENOMEM;
	s->mr = ibv_reg_mr(s->dev.pd, s->stage, DEMO_CHUNK,
			   IBV_ACCESS_LOCAL_WRITE);
	if (!s->mr) {
		rc = -errno;
		goto unmap_stage;
	}
	rc = rdma_end_open(&s->end, &s->dev, 1);
	if (rc)
		goto dereg;
	return 0;

dereg:
	ibv_dereg_mr(s->mr);
unmap_stage:
	munmap(s->stage, DEMO_CHUNK);
close_dev:
	rdma_dev_close(&s->dev);
	return rc;
}

static void side_close(struct side *s)
{
	rdma_end_close(&s->end);
	ibv_dereg_mr(s->mr);
	munmap(s->stage, DEMO_CHUNK);
	rdma_dev_close(&s->dev);
}

/* A chunk of the source into the stage. */
static int fetch(struct side *s, const struct demo_chunk *c)
{
	uint32_t have = 0;
	ssize_t n;

	while (have < c->len) {
		n = pread(s->file->src, s->stage + have, c->len - have,
			  (off_t)(c->src_off + have));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -ESTALE;
		have += (uint32_t)n;
	}
	return 0;
}

static int serve(struct side *s, const struct demo_ask *ask)
{
	struct rdma_op op = {
		.read = ask->writing,
		.local = s->stage,
		.lkey = s->mr->lkey,
		.len = ask->chunk.len,
		.remote = ask->addr,
		.rkey = ask->rkey,
	};
	int rc = 0;

	if (!ask->writing)
		rc = fetch(s, &ask->chunk);
	if (!rc)
		rc = rdma_run(&s->end, &op, 1, DEMO_PEER_TIMEOUT_MS / 2);
	if (rc)
		return rc;
	if (ask->writing)
		memcpy(s->file->map + ask->chunk.dst_off, s->stage,
		       ask->chunk.len);
	return (int)ask->chunk.len;
}

/* Until the application closes its side. */
static void serve_all(struct side *s, int sock)
{
	struct demo_answer answer;
	struct demo_ask ask;
	ssize_t n;

	for (;;) {
		n = recv(sock, &ask, sizeof(ask), 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n != sizeof(ask))
			return;
		answer.tag = ask.tag;
		answer.slot = ask.slot;
		answer.res = serve(s, &ask);
		do
			n = send(sock, &answer, sizeof(answer), MSG_NOSIGNAL);
		while (n < 0 && errno == EINTR);
		if (n < 0)
			return;
	}
}

static void peer_main(int sock, const char *name, const struct demo_file *file)
{
	struct side s = { .file = file };
	int rc;

	/* Not to outlive a parent that is killed. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	rc = side_open(&s, name);
	if (rc) {
		util_fail(rc, "the peer process cannot start");
		_exit(1);
	}
	rc = rdma_meet(&s.end, sock, DEMO_PEER_TIMEOUT_MS);
	if (!rc)
		serve_all(&s, sock);
	side_close(&s);
	_exit(rc ? 1 : 0);
}

int demo_peer_start(struct demo_peer *p, struct rdma_end *end,
		    const struct demo_file *file)
{
	int sock[2], rc;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock))
		return kedge_reason(-errno, "cannot make a socket: %s",
				    strerror(errno));
	p->pid = fork();
	if (p->pid < 0) {
		rc = kedge_reason(-errno, "cannot start another process: %s",
				  strerror(errno));
		close(sock[0]);
		close(sock[1]);
		return rc;
	}
	if (!p->pid) {
		close(sock[0]);
		peer_main(sock[1], end->dev->name, file);
	}
	close(sock[1]);
	p->sock = sock[0];
	rc = rdma_meet(end, p->sock, DEMO_PEER_TIMEOUT_MS);
	if (rc)
		demo_peer_stop(p);
	return rc;
}

void demo_peer_stop(struct demo_peer *p)
{
	close(p->sock);
	/* It has nothing to lose, and may hang. */
	kill(p->pid, SIGKILL);
	while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
		;
}
