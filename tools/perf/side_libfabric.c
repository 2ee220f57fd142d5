// SPDX-License-Identifier: BSD-2-Clause
/*
 * libfabric's side: tagged messages over one reliable endpoint of a provider,
 * polled. Loaded where it is measured, as UCX is, and FI_* variables hold.
 *
 * It is used as a message-passing library uses it: what may be injected is, an
 * operation's context is where its result goes, and no registration is asked
 * for, so that providers which need one are not offered.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Before libfabric's, which define what they do not find: container_of(). */
#include "tools/perf/perf.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#define TAG	    1u
#define API	    FI_VERSION(1, 17)
#define ADDRESS_MAX 4096u
#define BATCH	    16
#define PAGE	    4096u

#define FABRIC_CALLS(X)                                                        \
	X(fi_getinfo)                                                          \
	X(fi_dupinfo)                                                          \
	X(fi_freeinfo)                                                         \
	X(fi_fabric)                                                           \
	X(fi_tostr)                                                            \
	X(fi_strerror)

struct fabric_side {
#define MEMBER(name) __typeof__(&name) name;
	FABRIC_CALLS(MEMBER)
#undef MEMBER
	void *lib;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	fi_addr_t peer;
	size_t inject;
};

static int load(struct fabric_side *s, char why[PERF_WHY_LEN])
{
	const struct {
		const char *name;
		void *to;
	} syms[] = {
#define ENTRY(name) { #name, &s->name },
		FABRIC_CALLS(ENTRY)
#undef ENTRY
	};
	size_t i;
	void *p;

	/* Else two of what it loads catch every signal that ends a process. */
	setenv("IPATH_NO_BACKTRACE", "1", 0);
	setenv("HFI_NO_BACKTRACE", "1", 0);
	s->lib = dlopen("libfabric.so.1", RTLD_NOW);
	if (!s->lib) {
		snprintf(why, PERF_WHY_LEN, "cannot load libfabric: install it "
			 "(Debian's libfabric1): %.100s", dlerror());
		return -ENOENT;
	}
	for (i = 0; i < ARRAY_SIZE(syms); i++) {
		p = dlsym(s->lib, syms[i].name);
		if (!p) {
			snprintf(why, PERF_WHY_LEN,
				 "the libfabric installed has no %s",
				 syms[i].name);
			return -ENOENT;
		}
		memcpy(syms[i].to, &p, sizeof(p));
	}
	return 0;
}

static int refused(const struct fabric_side *s, const char *what, int rc,
		   char why[PERF_WHY_LEN])
{
	snprintf(why, PERF_WHY_LEN, "%s: %s", what, s->fi_strerror(-rc));
	return rc == -FI_ENODATA ? -ENOENT : rc;
}

static void describe(const struct fabric_side *s, struct perf_facts *facts)
{
	const uint32_t any = 0;
	Dl_info info;

	snprintf(facts->transport, sizeof(facts->transport), "libfabric");
	/* The version of the library, whatever it is asked about. */
	snprintf(facts->version, sizeof(facts->version), "%s",
		 s->fi_tostr(&any, FI_TYPE_VERSION));
	if (dladdr((void *)(uintptr_t)s->fi_getinfo, &info))
		snprintf(facts->path, sizeof(facts->path), "%s",
			 info.dli_fname);
}

/* ---- opening ---- */

static int find_provider(struct fabric_side *s, const char *provider,
			 char why[PERF_WHY_LEN])
{
	struct fi_info *hints = s->fi_dupinfo(NULL);
	char what[100];
	int rc;

	if (!hints) {
		snprintf(why, PERF_WHY_LEN, "no memory");
		return -ENOMEM;
	}
	hints->caps = FI_TAGGED;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->fabric_attr->prov_name = strdup(provider);
	rc = hints->fabric_attr->prov_name
		     ? s->fi_getinfo(API, NULL, NULL, 0, hints, &s->info)
		     : -FI_ENOMEM;
	s->fi_freeinfo(hints);
	if (!rc)
		return 0;
	snprintf(what, sizeof(what), "no provider \"%.30s\" for tagged "
		 "messages; fi_info lists them", provider);
	return refused(s, what, rc, why);
}

static int open_domain(struct fabric_side *s)
{
	struct fi_av_attr av = { .type = FI_AV_TABLE, .count = 2 };
	struct fi_cq_attr cq = {
		.format = FI_CQ_FORMAT_TAGGED,
		.wait_obj = FI_WAIT_NONE,
		.size = s->info->rx_attr->size + s->info->tx_attr->size,
	};
	int rc;

	if (s->info->domain_attr->av_type != FI_AV_UNSPEC)
		av.type = s->info->domain_attr->av_type;
	rc = s->fi_fabric(s->info->fabric_attr, &s->fabric, NULL);
	if (!rc)
		rc = fi_domain(s->fabric, s->info, &s->domain, NULL);
	if (!rc)
		rc = fi_av_open(s->domain, &av, &s->av, NULL);
	if (!rc)
		rc = fi_cq_open(s->domain, &cq, &s->cq, NULL);
	if (!rc)
		rc = fi_endpoint(s->domain, s->info, &s->ep, NULL);
	if (!rc)
		rc = fi_ep_bind(s->ep, &s->av->fid, 0);
	if (!rc)
		rc = fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV);
	if (!rc)
		rc = fi_enable(s->ep);
	s->inject = s->info->tx_attr->inject_size;
	return rc;
}

static int connect_peer(struct fabric_side *s, int fd)
{
	char mine[ADDRESS_MAX];
	size_t len = sizeof(mine);
	void *theirs;
	int rc;

	rc = fi_getname(&s->ep->fid, mine, &len);
	if (!rc)
		rc = perf_swap_addresses(fd, mine, len, ADDRESS_MAX, &theirs);
	if (rc)
		return rc;
	rc = fi_av_insert(s->av, theirs, 1, &s->peer, 0, NULL);
	free(theirs);
	return rc == 1 ? 0 : rc < 0 ? rc : -FI_EOTHER;
}

static void close_all(struct fabric_side *s)
{
	if (s->ep)
		fi_close(&s->ep->fid);
	if (s->cq)
		fi_close(&s->cq->fid);
	if (s->av)
		fi_close(&s->av->fid);
	if (s->domain)
		fi_close(&s->domain->fid);
	if (s->fabric)
		fi_close(&s->fabric->fid);
	if (s->info)
		s->fi_freeinfo(s->info);
	/* Loaded it stays: its providers cannot be unloaded. */
	free(s);
}

static int side_open(const struct perf_pair_cfg *cfg, unsigned int rank, int fd,
		     void **ctx, struct perf_facts *facts,
		     char why[PERF_WHY_LEN])
{
	struct fabric_side *s = calloc(1, sizeof(*s));
	int rc;

	if (!s) {
		snprintf(why, PERF_WHY_LEN, "no memory");
		return -ENOMEM;
	}
	rc = load(s, why);
	if (rc)
		goto close_side;
	describe(s, facts);
	rc = find_provider(s, cfg->name, why);
	if (rc)
		goto close_side;
	rc = open_domain(s);
	if (rc) {
		refused(s, "libfabric cannot start", rc, why);
		goto close_side;
	}
	rc = connect_peer(s, fd);
	if (rc) {
		refused(s, "libfabric cannot connect", rc, why);
		goto close_side;
	}
	close(fd);
	*ctx = s;
	return 0;

close_side:
	close_all(s);
	return rc;
}

static void side_close(void *ctx)
{
	close_all(ctx);
}

/* It has no memory of its own: whole pages. */
static void *side_alloc(void *ctx, size_t len)
{
	return aligned_alloc(PAGE, (len + PAGE - 1) & ~(size_t)(PAGE - 1));
}

static void side_free(void *ctx, void *p)
{
	free(p);
}

/* ---- messages ---- */

static void complete(const struct fi_cq_tagged_entry *e)
{
	struct perf_op *op = e->op_context;

	if (!op)
		return;
	op->len = e->len;
	op->done = true;
}

static int failed(struct fabric_side *s)
{
	struct fi_cq_err_entry e = { 0 };
	struct perf_op *op;
	ssize_t n = fi_cq_readerr(s->cq, &e, 0);

	if (n < 0)
		return n == -FI_EAGAIN ? 0 : (int)n;
	op = e.op_context;
	if (!op)
		return -e.err;
	op->status = e.err == FI_ETRUNC ? -EMSGSIZE : -e.err;
	op->done = true;
	return 1;
}

static int side_progress(void *ctx)
{
	struct fi_cq_tagged_entry e[BATCH];
	struct fabric_side *s = ctx;
	ssize_t n, i;

	n = fi_cq_read(s->cq, e, BATCH);
	if (n == -FI_EAGAIN)
		return 0;
	if (n == -FI_EAVAIL)
		return failed(s);
	for (i = 0; i < n; i++)
		complete(&e[i]);
	return (int)n;
}

static int side_send(void *ctx, const void *buf, size_t len, struct perf_op *op)
{
	struct fabric_side *s = ctx;
	ssize_t rc;

	for (;;) {
		rc = len <= s->inject
			     ? fi_tinject(s->ep, buf, len, s->peer, TAG)
			     : fi_tsend(s->ep, buf, len, NULL, s->peer, TAG,
					op);
		if (rc != -FI_EAGAIN)
			break;
		rc = side_progress(s);
		if (rc < 0)
			break;
	}
	if (rc)
		return (int)rc;
	return len <= s->inject;
}

static int side_recv(void *ctx, void *buf, size_t len, struct perf_op *op)
{
	struct fabric_side *s = ctx;
	ssize_t rc;

	do {
		rc = fi_trecv(s->ep, buf, len, NULL, FI_ADDR_UNSPEC, TAG, 0,
			      op);
	} while (rc == -FI_EAGAIN && side_progress(s) >= 0);
	return (int)rc;
}

static const struct perf_side libfabric = {
	.name = "libfabric",
	PERF_SIDE_CALLS,
};

const struct perf_side *perf_libfabric(void)
{
	return &libfabric;
}
