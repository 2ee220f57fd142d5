// SPDX-License-Identifier: BSD-2-Clause
/*
 * A stand-in for an RDMA adapter, preloaded into programs on machines that have none: enough of
 * libibverbs and librdmacm for a library to open a device and register memory with it. Messages go
 * nowhere.
 *
 * A registration is a fixed buffer of an io_uring, so its pages are pinned as an adapter pins them,
 * by the same calls of the kernel, and whoever has the ring moves data by it: the key is the
 * buffer's index plus 1.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <liburing.h>
#include <rdma/rdma_cma.h>

#include "tools/standin/rdma.h"

/* verbs.h has macros of these names. */
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define EXPORT	__attribute__((visibility("default")))
#define RING_LEN 4
#define NAME	"standin0"

/* libefa's, whose header is not needed for anything else. */
int efadv_query_device(struct ibv_context *c, void *attr, uint32_t len);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards: */
static struct io_uring own_ring;
static int ring_fd = -1;
static int events_fd = -1;
static struct ibv_mr mrs[STANDIN_MRS];
static bool used[STANDIN_MRS];

static _Atomic uint64_t registered;

/* Libraries of drivers look behind a device for whose it is. */
static struct {
	struct ibv_device device;
	const void *behind[8];
} own = { .device = { .name = NAME, .node_type = IBV_NODE_CA,
		      .transport_type = IBV_TRANSPORT_IB } };
static struct ibv_context context = { .device = &own.device, .num_comp_vectors = 1 };

/* ---- registrations ---- */

static int update(unsigned int slot, void *addr, size_t len)
{
	struct iovec v = { addr, len };
	__u64 tag = 0;
	struct io_uring_rsrc_update2 u = { .offset = slot, .data = (uintptr_t)&v,
					   .tags = (uintptr_t)&tag, .nr = 1 };
	long rc = syscall(SYS_io_uring_register, ring_fd, IORING_REGISTER_BUFFERS_UPDATE, &u,
			  sizeof(u));

	return rc < 0 ? errno : 0;
}

static int make_room(int fd)
{
	struct io_uring_rsrc_register r = { .nr = STANDIN_MRS,
					    .flags = IORING_RSRC_REGISTER_SPARSE };

	return syscall(SYS_io_uring_register, fd, IORING_REGISTER_BUFFERS2, &r, sizeof(r)) ? errno
											  : 0;
}

/* By the program that moves data itself. */
EXPORT int kedge_standin_use(int fd)
{
	int err;

	pthread_mutex_lock(&lock);
	err = make_room(fd);
	if (!err) {
		ring_fd = fd;
		memset(used, 0, sizeof(used));
	}
	pthread_mutex_unlock(&lock);
	return -err;
}

EXPORT uint64_t kedge_standin_registered(void)
{
	return atomic_load(&registered);
}

static int open_ring(void)
{
	int err;

	if (ring_fd >= 0)
		return 0;
	err = -io_uring_queue_init(RING_LEN, &own_ring, 0);
	if (err)
		return err;
	err = make_room(own_ring.ring_fd);
	if (err)
		io_uring_queue_exit(&own_ring);
	else
		ring_fd = own_ring.ring_fd;
	return err;
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *addr, size_t len)
{
	unsigned int slot;
	struct ibv_mr *mr = NULL;
	int err;

	pthread_mutex_lock(&lock);
	err = open_ring();
	for (slot = 0; slot < STANDIN_MRS && used[slot]; slot++)
		;
	if (!err && slot == STANDIN_MRS)
		err = ENOMEM;
	if (!err)
		err = update(slot, addr, len);
	if (!err) {
		used[slot] = true;
		mr = &mrs[slot];
		*mr = (struct ibv_mr){ .context = &context, .pd = pd, .addr = addr,
				       .length = len, .handle = slot, .lkey = slot + 1,
				       .rkey = slot + 1 };
		atomic_fetch_add(&registered, 1);
	}
	pthread_mutex_unlock(&lock);
	errno = err;
	return mr;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	(void)access;
	return reg(pd, addr, len);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
				       unsigned int access)
{
	(void)access;
	if (iova == (uintptr_t)addr)
		return reg(pd, addr, len);
	errno = EOPNOTSUPP;
	return NULL;
}

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
				      int access)
{
	return ibv_reg_mr_iova2(pd, addr, len, iova, (unsigned int)access);
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	int err;

	pthread_mutex_lock(&lock);
	err = update(mr->handle, NULL, 0);
	used[mr->handle] = false;
	pthread_mutex_unlock(&lock);
	return err;
}

/* ---- the device ---- */

EXPORT struct ibv_device **ibv_get_device_list(int *cnt)
{
	struct ibv_device **list = calloc(2, sizeof(*list));

	if (list)
		list[0] = &own.device;
	if (cnt)
		*cnt = list ? 1 : 0;
	return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *d)
{
	return d->name;
}

/* Events of the device, of which there are none; made once, as the context is one for all. */
static int open_events(void)
{
	int err = 0;

	pthread_mutex_lock(&lock);
	if (events_fd < 0)
		events_fd = eventfd(0, EFD_CLOEXEC);
	if (events_fd < 0)
		err = errno;
	context.async_fd = events_fd;
	pthread_mutex_unlock(&lock);
	return err;
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	const int err = open_events();

	(void)d;
	errno = err;
	return err ? NULL : &context;
}

EXPORT int ibv_close_device(struct ibv_context *c)
{
	(void)c;
	return 0;
}

EXPORT int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
	(void)c;
	*a = (struct ibv_device_attr){
		.max_mr_size = UINT64_MAX, .max_qp = 1024, .max_qp_wr = 4096, .max_sge = 16,
		.max_cq = 1024, .max_cqe = 4096, .max_mr = STANDIN_MRS, .max_pd = 1024,
		.max_qp_rd_atom = 16, .max_qp_init_rd_atom = 16, .max_srq = 64,
		.max_srq_wr = 4096, .max_srq_sge = 16, .phys_port_cnt = 1,
		.atomic_cap = IBV_ATOMIC_HCA,
	};
	return 0;
}

/* Those who ask know a shorter structure, of which the fields set here are. */
EXPORT int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *a)
{
	struct ibv_port_attr *to = (struct ibv_port_attr *)(void *)a;

	(void)c;
	(void)port;
	to->state = IBV_PORT_ACTIVE;
	to->max_mtu = to->active_mtu = IBV_MTU_4096;
	to->gid_tbl_len = 1;
	to->pkey_tbl_len = 1;
	to->max_msg_sz = 1u << 30;
	return 0;
}

EXPORT int ibv_query_gid(struct ibv_context *c, uint8_t port, int i, union ibv_gid *gid)
{
	(void)c;
	(void)port;
	memset(gid, 0, sizeof(*gid));
	gid->raw[0] = 0xfe;
	gid->raw[1] = 0x80;
	gid->raw[15] = 1;
	return i ? -1 : 0;
}

EXPORT int ibv_query_pkey(struct ibv_context *c, uint8_t port, int i, __be16 *pkey)
{
	(void)c;
	(void)port;
	*pkey = 0xffff;
	return i ? -1 : 0;
}

/* ---- objects that are only made and ended ---- */

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	if (pd)
		pd->context = c;
	return pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	return 0;
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *c, int cqe, void *user,
				    struct ibv_comp_channel *channel, int vector)
{
	struct ibv_cq *cq = calloc(1, sizeof(*cq));

	(void)vector;
	if (cq)
		*cq = (struct ibv_cq){ .context = c, .cqe = cqe, .cq_context = user,
				       .channel = channel };
	return cq;
}

EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	free(cq);
	return 0;
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct ibv_qp *qp = calloc(1, sizeof(*qp));

	if (qp)
		*qp = (struct ibv_qp){ .context = pd->context, .pd = pd, .send_cq = a->send_cq,
				       .recv_cq = a->recv_cq, .qp_type = a->qp_type };
	return qp;
}

EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
	free(qp);
	return 0;
}

EXPORT struct ibv_context **rdma_get_devices(int *cnt)
{
	struct ibv_context **list = calloc(2, sizeof(*list));

	if (list)
		list[0] = &context;
	if (cnt)
		*cnt = list ? 1 : 0;
	return list;
}

EXPORT void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}

/* ---- addresses: none is an adapter's ---- */

EXPORT int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **out, void *user,
			  enum rdma_port_space space)
{
	struct rdma_cm_id *id = calloc(1, sizeof(*id));

	if (!id)
		return -1;
	*id = (struct rdma_cm_id){ .channel = channel, .context = user, .ps = space };
	*out = id;
	return 0;
}

EXPORT int rdma_destroy_id(struct rdma_cm_id *id)
{
	free(id);
	return 0;
}

EXPORT int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	(void)id;
	(void)addr;
	errno = ENODEV;
	return -1;
}

EXPORT int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst,
			     int ms)
{
	(void)id;
	(void)src;
	(void)dst;
	(void)ms;
	return 0;
}

EXPORT int rdma_getaddrinfo(const char *node, const char *service,
			    const struct rdma_addrinfo *hints, struct rdma_addrinfo **out)
{
	(void)node;
	(void)service;
	(void)hints;
	*out = calloc(1, sizeof(**out));
	return *out ? 0 : -1;
}

EXPORT void rdma_freeaddrinfo(struct rdma_addrinfo *a)
{
	if (a) {
		free(a->ai_src_addr);
		free(a->ai_dst_addr);
	}
	free(a);
}

/* ---- other libraries', which take any device for one of theirs ---- */

EXPORT int efadv_query_device(struct ibv_context *c, void *attr, uint32_t len)
{
	(void)c;
	(void)attr;
	(void)len;
	return EOPNOTSUPP;
}
