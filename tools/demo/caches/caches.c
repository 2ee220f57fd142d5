// SPDX-License-Identifier: BSD-2-Clause
/*
 * A rank of MPI without MPI, where there is no RDMA adapter: it has a library register its
 * buffer, the adapter reads the message there, and the registration is given back. The
 * library is libfabric or UCX as it is installed, with its own cache; the adapter is the stand-in
 * (tools/standin/), whose registrations are fixed buffers of a ring of this program. The wire is a
 * file in memory. Like the ranks' program it knows nothing of kedge.
 *
 *	kedge-demo-caches libfabric|ucx kept|munmap|raw-munmap|raw-dontneed...
 */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <liburing.h>

#include "tools/demo/caches/caches.h"
#include "tools/demo/mpi/change.h"

#define RING_LEN 4

struct rig {
	const struct caches_ops *ops;
	struct io_uring ring;
	int wire;
	uint64_t *arrived;
};

void caches_say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

int caches_find(void *lib, const char *name, void *to)
{
	void *p = dlsym(lib, name);

	if (!p) {
		caches_say("there is no %s", name);
		return -1;
	}
	memcpy(to, &p, sizeof(p));
	return 0;
}

/* The stand-in's registrations are buffers of our ring from now on. */
static int be_the_adapter(struct rig *r)
{
	int (*use)(int ring_fd) = NULL;
	int rc;

	if (caches_find(RTLD_DEFAULT, "kedge_standin_use", &use))
		return -1;
	rc = io_uring_queue_init(RING_LEN, &r->ring, 0);
	if (!rc)
		rc = use(r->ring.ring_fd);
	if (rc)
		caches_say("the stand-in for an adapter needs io_uring's fixed buffers: %s; 'kedge "
			   "info' tells more", strerror(-rc));
	return rc ? -1 : 0;
}

static int open_wire(struct rig *r)
{
	r->wire = memfd_create("wire", MFD_CLOEXEC);
	r->arrived = new_buffer();
	if (r->wire >= 0 && r->arrived)
		return 0;
	caches_say("no memory");
	return -1;
}

/* The adapter reads the pages that were registered, and puts them on the wire. */
static int transmit(struct rig *r, const void *buf, unsigned int index)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);
	struct io_uring_cqe *cqe;
	int rc;

	io_uring_prep_write_fixed(sqe, r->wire, buf, LEN, 0, (int)index);
	rc = io_uring_submit_and_wait(&r->ring, 1);
	if (rc >= 0)
		rc = io_uring_wait_cqe(&r->ring, &cqe);
	if (rc >= 0) {
		rc = cqe->res;
		io_uring_cqe_seen(&r->ring, cqe);
	}
	if (rc == (int)LEN)
		return 0;
	caches_say("the adapter did not move a message: %s",
		   rc < 0 ? strerror(-rc) : "it is short");
	return -1;
}

static int send_one(struct rig *r, void *buf)
{
	unsigned int index = 0;
	void *mr = r->ops->get(buf, LEN, &index);
	int rc;

	if (!mr)
		return -1;
	rc = transmit(r, buf, index);
	r->ops->put(mr);
	return rc;
}

static int receive_one(const struct rig *r, int message)
{
	if (pread(r->wire, r->arrived, LEN, 0) == (ssize_t)LEN)
		return differs(r->arrived, message);
	caches_say("the wire has lost a message");
	return -1;
}

static int play(struct rig *r, const char *how)
{
	uint64_t *buf = new_buffer();
	int n, rc, wrong = 0;

	for (n = 0; buf && n < MESSAGES; n++) {
		if (n && change(how, buf)) {
			caches_say("%s: the memory cannot be changed, or that is no way to", how);
			return -1;
		}
		fill(buf, n);
		if (send_one(r, buf))
			return -1;
		rc = receive_one(r, n);
		if (rc < 0)
			return -1;
		wrong += rc;
	}
	if (buf)
		printf("%s: %d of %d wrong\n", how, wrong, MESSAGES);
	return buf ? 0 : -1;
}

int main(int argc, char **argv)
{
	static const struct caches_ops *const all[] = {
		WITH_LIBFABRIC ? &caches_libfabric : NULL,
		WITH_UCX ? &caches_ucx : NULL,
	};
	struct rig r = { NULL };
	size_t k;
	int i;

	for (k = 0; argc > 2 && k < sizeof(all) / sizeof(*all); k++)
		if (all[k] && !strcmp(argv[1], all[k]->name))
			r.ops = all[k];
	if (argc < 3) {
		caches_say("usage: kedge-demo-caches libfabric|ucx HOW...");
		return 2;
	}
	if (!r.ops)
		caches_say("kedge was built without the headers of %s", argv[1]);
	if (!r.ops || be_the_adapter(&r) || open_wire(&r) || r.ops->open())
		return CACHES_CANNOT;
	printf("version: %s\n", r.ops->version());
	for (i = 2; i < argc; i++)
		if (play(&r, argv[i]))
			return EXIT_FAILURE;
	return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}
