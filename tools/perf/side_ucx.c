// SPDX-License-Identifier: BSD-2-Clause
/*
 * UCX's side: tagged messages over one endpoint of one worker, polled.
 *
 * The library is loaded here, in the ranks that measure it, and not linked: its
 * constructors and its patches of libc's code stay out of every other process.
 * UCX_* variables of the environment hold, but for UCX_TLS. It is told what it
 * can be told: that buffers are host memory, and the handle of what is its own.
 * With --peer-prefix it is another one than the headers at hand describe.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

#include "tools/perf/perf.h"

#define TAG	    1u
#define ADDRESS_MAX 65536u
#define CLOSE_SPINS 1000000u
#define MEMH_MIN    8192u
/* The oldest interface that has all that is used here. Later ones add members at
 * the ends of structs, which count if a mask says that they are set. */
#define API_MAJOR 1
#define API_MINOR 13
/* Where Debian has libraries, below lib. */
#if defined(__x86_64__)
#define MULTIARCH "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define MULTIARCH "aarch64-linux-gnu"
#else
#define MULTIARCH "."
#endif

#define UCX_CALLS(X)                                                           \
	X(ucp_get_version)                                                     \
	X(ucp_config_read)                                                     \
	X(ucp_config_modify)                                                   \
	X(ucp_config_release)                                                  \
	X(ucp_init_version)                                                    \
	X(ucp_cleanup)                                                         \
	X(ucp_worker_create)                                                   \
	X(ucp_worker_destroy)                                                  \
	X(ucp_worker_get_address)                                              \
	X(ucp_worker_release_address)                                          \
	X(ucp_worker_progress)                                                 \
	X(ucp_ep_create)                                                       \
	X(ucp_ep_close_nbx)                                                    \
	X(ucp_tag_send_nbx)                                                    \
	X(ucp_tag_recv_nbx)                                                    \
	X(ucp_request_check_status)                                            \
	X(ucp_request_free)                                                    \
	X(ucp_mem_map)                                                         \
	X(ucp_mem_query)                                                       \
	X(ucp_mem_unmap)                                                       \
	X(ucs_status_string)

/* Memory of ucp_mem_map(), in a list. */
struct ucx_mem {
	struct ucx_mem *next;
	ucp_mem_h memh;
	char *start;
	size_t len;
};

struct ucx_side {
#define MEMBER(name) __typeof__(&name) name;
	UCX_CALLS(MEMBER)
#undef MEMBER
	void *lib;
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_ep_h ep;
	struct ucx_mem *mem;
};

/* For callbacks, which are given an operation alone; a rank has one side. */
static __typeof__(&ucp_request_free) request_free;

static int resolve(struct ucx_side *s, char why[PERF_WHY_LEN])
{
	const struct {
		const char *name;
		void *to;
	} syms[] = {
#define ENTRY(name) { #name, &s->name },
		UCX_CALLS(ENTRY)
#undef ENTRY
	};
	size_t i;
	void *p;

	for (i = 0; i < ARRAY_SIZE(syms); i++) {
		p = dlsym(s->lib, syms[i].name);
		if (!p) {
			snprintf(why, PERF_WHY_LEN,
				 "this UCX has no %s: 1.13 or later is needed",
				 syms[i].name);
			return -ENOENT;
		}
		memcpy(syms[i].to, &p, sizeof(p));
	}
	request_free = s->ucp_request_free;
	return 0;
}

/* The folder of @prefix that has UCX's libraries. */
static int find_libs(const char *prefix, char dir[PATH_MAX],
		     char why[PERF_WHY_LEN])
{
	static const char *const libs[] = { "lib", "lib64", ("lib/" MULTIARCH) };
	char file[PATH_MAX];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(libs); i++) {
		if (snprintf(dir, PATH_MAX, "%s/%s", prefix, libs[i]) >=
			    PATH_MAX ||
		    snprintf(file, PATH_MAX, "%s/libucp.so.0", dir) >= PATH_MAX)
			continue;
		if (!access(file, R_OK))
			return 0;
	}
	snprintf(why, PERF_WHY_LEN, "--peer-prefix: there is no "
		 "lib/libucp.so.0 in %.100s: name the --prefix that UCX was "
		 "installed with", prefix);
	return -ENOENT;
}

static int load_from(struct ucx_side *s, const char *prefix,
		     char why[PERF_WHY_LEN])
{
	char dir[PATH_MAX], file[PATH_MAX + sizeof("/libucp.so.0")];
	int rc;

	rc = find_libs(prefix, dir, why);
	if (rc)
		return rc;
	snprintf(file, sizeof(file), "%s/libucp.so.0", dir);
	s->lib = dlopen(file, RTLD_NOW);
	if (s->lib)
		return 0;
	snprintf(why, PERF_WHY_LEN, "--peer-prefix: cannot load UCX: %.150s",
		 dlerror());
	return -ENOENT;
}

/* The folder of the library that has a function. */
static int folder_of(const void *call, char dir[PATH_MAX])
{
	Dl_info info;
	char *slash;

	if (!dladdr(call, &info) || !realpath(info.dli_fname, dir))
		return -ENOENT;
	slash = strrchr(dir, '/');
	if (slash)
		*slash = '\0';
	return 0;
}

/* libucp finds the others by the folder that it was built for: one that was
 * moved comes with parts of the system's. */
static int check_parts(const struct ucx_side *s, char why[PERF_WHY_LEN])
{
	char ucp[PATH_MAX], ucs[PATH_MAX];

	if (folder_of((void *)(uintptr_t)s->ucp_get_version, ucp) ||
	    folder_of((void *)(uintptr_t)s->ucs_status_string, ucs) ||
	    !strcmp(ucp, ucs))
		return 0;
	snprintf(why, PERF_WHY_LEN, "--peer-prefix: its libucp loads the "
		 "libucs of %.60s: set LD_LIBRARY_PATH=%.60s, too", ucs, ucp);
	return -ENOENT;
}

static int load(struct ucx_side *s, const char *prefix, char why[PERF_WHY_LEN])
{
	if (prefix)
		return load_from(s, prefix, why);
	s->lib = dlopen("libucp.so.0", RTLD_NOW);
	if (s->lib)
		return 0;
	snprintf(why, PERF_WHY_LEN, "cannot load UCX: install it (Debian's "
		 "libucx0), or name where it is with --peer-prefix: %.80s",
		 dlerror());
	return -ENOENT;
}

static void describe(const struct ucx_side *s, struct perf_facts *facts)
{
	unsigned int major, minor, release;
	Dl_info info;

	s->ucp_get_version(&major, &minor, &release);
	snprintf(facts->version, sizeof(facts->version), "%u.%u.%u", major,
		 minor, release);
	snprintf(facts->transport, sizeof(facts->transport), "ucx");
	if (!dladdr((void *)(uintptr_t)s->ucp_get_version, &info))
		return;
	snprintf(facts->path, sizeof(facts->path), "%s", info.dli_fname);
	facts->build = perf_build_of(info.dli_fname);
}

static int refused(const struct ucx_side *s, const char *what,
		   ucs_status_t status, char why[PERF_WHY_LEN])
{
	snprintf(why, PERF_WHY_LEN, "%s: %s", what,
		 s->ucs_status_string(status));
	return -EIO;
}

/* In lists of ours colons are between them: ud_v+aux is UCX's ud_v:aux. */
static void list_of(const char *tls, char *list, size_t size)
{
	char *p;

	snprintf(list, size, "%s,self", tls);
	for (p = list; (p = strchr(p, '+')) != NULL;)
		*p = ':';
}

static int open_context(struct ucx_side *s, const char *tls,
			char why[PERF_WHY_LEN])
{
	const ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES |
			      UCP_PARAM_FIELD_ESTIMATED_NUM_EPS |
			      UCP_PARAM_FIELD_ESTIMATED_NUM_PPN,
		.features = UCP_FEATURE_TAG,
		.estimated_num_eps = 1,
		.estimated_num_ppn = 2,
	};
	ucp_config_t *config;
	ucs_status_t status;
	char list[64];

	list_of(tls, list, sizeof(list));
	status = s->ucp_config_read(NULL, NULL, &config);
	if (status != UCS_OK)
		return refused(s, "UCX cannot read its settings", status, why);
	status = s->ucp_config_modify(config, "TLS", list);
	if (status == UCS_OK)
		status = s->ucp_init_version(API_MAJOR, API_MINOR, &params,
					     config, &s->context);
	s->ucp_config_release(config);
	return status == UCS_OK ? 0
				: refused(s, "UCX cannot start", status, why);
}

static int open_worker(struct ucx_side *s, char why[PERF_WHY_LEN])
{
	const ucp_worker_params_t params = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SINGLE,
	};
	ucs_status_t status;

	status = s->ucp_worker_create(s->context, &params, &s->worker);
	return status == UCS_OK
		       ? 0
		       : refused(s, "UCX has no worker", status, why);
}

/* Give the other rank our address, and take its. */
static int swap_addresses(struct ucx_side *s, int fd, void **theirs)
{
	ucp_address_t *mine;
	size_t len;
	int rc;

	if (s->ucp_worker_get_address(s->worker, &mine, &len) != UCS_OK)
		return -EIO;
	rc = perf_swap_addresses(fd, mine, len, ADDRESS_MAX, theirs);
	s->ucp_worker_release_address(s->worker, mine);
	return rc;
}

static int connect_ep(struct ucx_side *s, int fd, char why[PERF_WHY_LEN])
{
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
	};
	ucs_status_t status;
	void *theirs;
	int rc;

	rc = swap_addresses(s, fd, &theirs);
	if (rc) {
		snprintf(why, PERF_WHY_LEN, "cannot exchange addresses: %s",
			 strerror(-rc));
		return rc;
	}
	params.address = theirs;
	status = s->ucp_ep_create(s->worker, &params, &s->ep);
	free(theirs);
	return status == UCS_OK
		       ? 0
		       : refused(s, "UCX cannot connect", status, why);
}

static int side_open(const struct perf_pair_cfg *cfg, unsigned int rank, int fd,
		     void **ctx, struct perf_facts *facts,
		     char why[PERF_WHY_LEN])
{
	struct ucx_side *s = calloc(1, sizeof(*s));
	int rc;

	if (!s) {
		snprintf(why, PERF_WHY_LEN, "no memory");
		return -ENOMEM;
	}
	rc = load(s, cfg->prefix, why);
	if (!rc)
		rc = resolve(s, why);
	if (!rc && cfg->prefix)
		rc = check_parts(s, why);
	if (rc)
		goto free_side;
	describe(s, facts);
	rc = open_context(s, cfg->name, why);
	if (rc)
		goto free_side;
	rc = open_worker(s, why);
	if (rc)
		goto cleanup;
	rc = connect_ep(s, fd, why);
	if (rc)
		goto destroy_worker;
	close(fd);
	*ctx = s;
	return 0;

destroy_worker:
	s->ucp_worker_destroy(s->worker);
cleanup:
	s->ucp_cleanup(s->context);
	/* Loaded it stays: its threads and patches cannot be unloaded. */
free_side:
	free(s);
	return rc;
}

static void side_close(void *ctx)
{
	const ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
		.flags = UCP_EP_CLOSE_FLAG_FORCE,
	};
	struct ucx_side *s = ctx;
	ucs_status_ptr_t req;
	unsigned int spins;

	req = s->ucp_ep_close_nbx(s->ep, &param);
	if (UCS_PTR_IS_PTR(req)) {
		for (spins = 0; spins < CLOSE_SPINS &&
				s->ucp_request_check_status(req) ==
					UCS_INPROGRESS;
		     spins++)
			s->ucp_worker_progress(s->worker);
		s->ucp_request_free(req);
	}
	s->ucp_worker_destroy(s->worker);
	s->ucp_cleanup(s->context);
	free(s);
}

/* ---- memory ---- */

static void *side_alloc(void *ctx, size_t len)
{
	const ucp_mem_map_params_t params = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH |
			      UCP_MEM_MAP_PARAM_FIELD_FLAGS |
			      UCP_MEM_MAP_PARAM_FIELD_ADDRESS,
		.length = len,
		.flags = UCP_MEM_MAP_ALLOCATE,
	};
	ucp_mem_attr_t attr = { .field_mask = UCP_MEM_ATTR_FIELD_ADDRESS };
	struct ucx_side *s = ctx;
	struct ucx_mem *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	if (s->ucp_mem_map(s->context, &params, &m->memh) != UCS_OK)
		goto free_mem;
	if (s->ucp_mem_query(m->memh, &attr) != UCS_OK)
		goto unmap;
	m->start = attr.address;
	m->len = len;
	m->next = s->mem;
	s->mem = m;
	return m->start;

unmap:
	s->ucp_mem_unmap(s->context, m->memh);
free_mem:
	free(m);
	return NULL;
}

static void side_free(void *ctx, void *p)
{
	struct ucx_side *s = ctx;
	struct ucx_mem **at, *m;

	for (at = &s->mem; (m = *at); at = &m->next) {
		if (m->start != p)
			continue;
		*at = m->next;
		s->ucp_mem_unmap(s->context, m->memh);
		free(m);
		return;
	}
}

/* ---- messages ---- */

static int status_errno(ucs_status_t status)
{
	switch (status) {
	case UCS_OK:
		return 0;
	case UCS_ERR_NO_MEMORY:
		return -ENOMEM;
	case UCS_ERR_CONNECTION_RESET:
	case UCS_ERR_ENDPOINT_TIMEOUT:
		return -ECONNRESET;
	case UCS_ERR_MESSAGE_TRUNCATED:
		return -EMSGSIZE;
	default:
		return -EIO;
	}
}

static void sent(void *request, ucs_status_t status, void *user)
{
	struct perf_op *op = user;

	op->status = status_errno(status);
	op->done = true;
	request_free(request);
}

static void received(void *request, ucs_status_t status,
		     const ucp_tag_recv_info_t *info, void *user)
{
	struct perf_op *op = user;

	op->len = info->length;
	sent(request, status, user);
}

/* The handle of a buffer that is of side_alloc(). Short messages are copied
 * whatever they lie in, and shall not pay for the search. */
static void add_memh(const struct ucx_side *s, const void *buf, size_t len,
		     ucp_request_param_t *param)
{
	const struct ucx_mem *m;

	if (len < MEMH_MIN)
		return;
	for (m = s->mem; m; m = m->next) {
		if ((const char *)buf < m->start ||
		    (const char *)buf >= m->start + m->len)
			continue;
		param->op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
		param->memh = m->memh;
		return;
	}
}

static int side_send(void *ctx, const void *buf, size_t len, struct perf_op *op)
{
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
				UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_MEMORY_TYPE,
		.cb.send = sent,
		.user_data = op,
		.memory_type = UCS_MEMORY_TYPE_HOST,
	};
	struct ucx_side *s = ctx;
	ucs_status_ptr_t req;

	add_memh(s, buf, len, &param);
	req = s->ucp_tag_send_nbx(s->ep, buf, len, TAG, &param);
	if (!req)
		return 1;
	return UCS_PTR_IS_ERR(req) ? status_errno(UCS_PTR_STATUS(req)) : 0;
}

static int side_recv(void *ctx, void *buf, size_t len, struct perf_op *op)
{
	ucp_tag_recv_info_t info;
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
				UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_MEMORY_TYPE |
				UCP_OP_ATTR_FIELD_RECV_INFO,
		.cb.recv = received,
		.user_data = op,
		.memory_type = UCS_MEMORY_TYPE_HOST,
		.recv_info.tag_info = &info,
	};
	struct ucx_side *s = ctx;
	ucs_status_ptr_t req;

	add_memh(s, buf, len, &param);
	req = s->ucp_tag_recv_nbx(s->worker, buf, len, TAG, UINT64_MAX, &param);
	if (UCS_PTR_IS_ERR(req))
		return status_errno(UCS_PTR_STATUS(req));
	if (req)
		return 0;
	op->len = info.length;
	op->done = true;
	return 0;
}

static int side_progress(void *ctx)
{
	struct ucx_side *s = ctx;

	return (int)s->ucp_worker_progress(s->worker);
}

static const struct perf_side ucx = {
	.name = "ucx",
	PERF_SIDE_CALLS,
};

const struct perf_side *perf_ucx(void)
{
	return &ucx;
}
