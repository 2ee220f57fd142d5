// SPDX-License-Identifier: BSD-2-Clause
/*
 * Bandwidth of one direction by libfabric's own calls, as its fi_msg_bw and fi_rma_bw have it,
 * with nothing of kedge's, which "kedge perf" measures: sends into posted receives, or writes and
 * one send at the end; so many messages under way, buffers used again, and a word of the receiver
 * at the end. The connecting side sends and prints Gbit/s.
 *
 *	ofi_bench serve|connect msg|rma PROVIDER NODE PORT LEN COUNT WINDOW
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#define BENCH_DIE(...)                                                 \
	do {                                                           \
		fprintf(stderr, "ofi_bench: " __VA_ARGS__);            \
		fputc('\n', stderr);                                   \
		exit(1);                                               \
	} while (0)

/* @cnt messages of @len bytes, @window of them under way. */
struct bench {
	int serve;
	const char *provider, *node, *port;
	size_t len;
	uint64_t cnt;
	unsigned int window;
	char *buf; /* @window * @len bytes */
};

static double now_sec(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

#define TRY(call)                                                      \
	do {                                                           \
		long rc_ = (call);                                     \
		if (rc_)                                               \
			BENCH_DIE("%s: %s", #call,                     \
				  fi_strerror((int)-rc_));             \
	} while (0)

struct raw {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct fid_mr *mr;
	struct fi_context2 ctx[64];
	uint64_t addr, key; /* the peer's */
	char word[64];
};

static struct fi_info *hints(const struct bench *b)
{
	struct fi_info *h = fi_allocinfo();

	h->ep_attr->type = FI_EP_MSG;
	h->caps = FI_MSG | FI_RMA;
	h->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
	h->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR |
				  FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	h->fabric_attr->prov_name = strdup(b->provider);
	return h;
}

static void make_ep(struct raw *r, struct fi_info *info, const struct bench *b)
{
	struct fi_cq_attr cq = { .size = 512, .format = FI_CQ_FORMAT_MSG };
	struct fi_eq_attr eq = { .wait_obj = FI_WAIT_UNSPEC };

	if (!r->eq)
		TRY(fi_eq_open(r->fabric, &eq, &r->eq, NULL));
	TRY(fi_domain(r->fabric, info, &r->domain, NULL));
	TRY(fi_cq_open(r->domain, &cq, &r->cq, NULL));
	TRY(fi_endpoint(r->domain, info, &r->ep, NULL));
	TRY(fi_ep_bind(r->ep, &r->eq->fid, 0));
	TRY(fi_ep_bind(r->ep, &r->cq->fid, FI_TRANSMIT | FI_RECV));
	TRY(fi_enable(r->ep));
	TRY(fi_mr_reg(r->domain, b->buf, b->window * b->len,
		      FI_SEND | FI_RECV | FI_WRITE | FI_REMOTE_WRITE, 0, 77, 0,
		      &r->mr, NULL));
}

static int event(struct raw *r, uint32_t want, struct fi_info **info)
{
	char room[sizeof(struct fi_eq_cm_entry) + 256];
	struct fi_eq_cm_entry *cm = (void *)room;
	struct fi_eq_err_entry err = { 0 };
	uint32_t got;
	ssize_t n;

	do {
		n = fi_eq_read(r->eq, &got, room, sizeof(room), 0);
	} while (n == -FI_EAGAIN);
	if (n < 0 || got != want) {
		fi_eq_readerr(r->eq, &err, 0);
		return -1;
	}
	if (info)
		*info = cm->info;
	return 0;
}

static void serve(struct raw *r, const struct bench *b)
{
	struct fi_eq_attr eq = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_info *h = hints(b), *info;
	struct fid_pep *pep;

	TRY(fi_getinfo(FI_VERSION(1, 17), b->node, b->port, FI_SOURCE, h,
		       &r->info));
	TRY(fi_fabric(r->info->fabric_attr, &r->fabric, NULL));
	TRY(fi_eq_open(r->fabric, &eq, &r->eq, NULL));
	TRY(fi_passive_ep(r->fabric, r->info, &pep, NULL));
	TRY(fi_pep_bind(pep, &r->eq->fid, 0));
	TRY(fi_listen(pep));
	TRY(event(r, FI_CONNREQ, &info));
	make_ep(r, info, b);
	TRY(fi_accept(r->ep, NULL, 0));
	TRY(event(r, FI_CONNECTED, NULL));
}

static void call(struct raw *r, const struct bench *b)
{
	struct fi_info *h = hints(b);
	int tries = 0;

	TRY(fi_getinfo(FI_VERSION(1, 17), b->node, b->port, 0, h, &r->info));
	TRY(fi_fabric(r->info->fabric_attr, &r->fabric, NULL));
	for (;;) {
		make_ep(r, r->info, b);
		if (!fi_connect(r->ep, r->info->dest_addr, NULL, 0) &&
		    !event(r, FI_CONNECTED, NULL))
			return;
		if (++tries == 200)
			BENCH_DIE("nobody listens");
		fi_close(&r->mr->fid);
		fi_close(&r->ep->fid);
		fi_close(&r->cq->fid);
		fi_close(&r->eq->fid);
		fi_close(&r->domain->fid);
		r->eq = NULL;
		usleep(20000);
	}
}

static uint64_t reap(struct raw *r)
{
	struct fi_cq_msg_entry e[16];
	ssize_t n = fi_cq_read(r->cq, e, 16);

	if (n == -FI_EAGAIN)
		return 0;
	if (n < 0)
		BENCH_DIE("fi_cq_read: %s", fi_strerror((int)-n));
	return (uint64_t)n;
}

/* The side that has received all says so in one small message. */
static void tell(struct raw *r, const void *data, size_t len)
{
	TRY(fi_inject(r->ep, data, len, 0));
}

static void post_word(struct raw *r)
{
	TRY(fi_recv(r->ep, r->word, sizeof(r->word), NULL, 0, &r->ctx[63]));
}

static int post(struct raw *r, const struct bench *b, uint64_t i, int rma)
{
	char *at = b->buf + i % b->window * b->len;
	void *ctx = &r->ctx[i % b->window % 63], *desc = fi_mr_desc(r->mr);
	ssize_t rc;

	if (rma)
		rc = fi_write(r->ep, at, b->len, desc, 0,
			      r->addr + i % b->window * b->len, r->key, ctx);
	else if (b->serve)
		rc = fi_recv(r->ep, at, b->len, desc, 0, ctx);
	else
		rc = fi_send(r->ep, at, b->len, desc, 0, ctx);
	if (rc && rc != -FI_EAGAIN)
		BENCH_DIE("post: %s", fi_strerror((int)-rc));
	return rc == 0;
}

static void move(struct raw *r, const struct bench *b, uint64_t cnt, int rma)
{
	uint64_t posted = 0, done = 0;

	while (done < cnt) {
		while (posted < cnt && posted < done + b->window &&
		       post(r, b, posted, rma))
			posted++;
		done += reap(r);
	}
}

static void all(struct raw *r, const struct bench *b, uint64_t cnt, int rma)
{
	if (rma && b->serve) {
		post_word(r);
		while (!reap(r))
			;
		tell(r, "done", 4);
		return;
	}
	if (!b->serve)
		post_word(r);
	move(r, b, cnt, rma);
	if (b->serve || rma)
		tell(r, "done", 4);
	if (!b->serve)
		while (!reap(r))
			;
}

/* Seconds that it took, from the first to the receiver's word for all. */
static double run(const struct bench *b, int rma)
{
	static struct raw r;
	uint64_t names[2];
	double start;

	if (b->serve)
		serve(&r, b);
	else
		call(&r, b);
	if (b->serve) {
		names[0] = r.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR
				   ? (uintptr_t)b->buf : 0;
		names[1] = fi_mr_key(r.mr);
		/* The peer is ready when it says so. */
		post_word(&r);
		while (!reap(&r))
			;
		tell(&r, names, sizeof(names));
	} else {
		post_word(&r);
		tell(&r, "here", 4);
		while (!reap(&r))
			;
		memcpy(names, r.word, sizeof(names));
		r.addr = names[0];
		r.key = names[1];
	}
	all(&r, b, b->window, rma);
	start = now_sec();
	all(&r, b, b->cnt, rma);
	start = now_sec() - start;
	if (b->serve)
		usleep(100000); /* what it said last is on its way */
	return start;
}

int main(int argc, char **argv)
{
	struct bench b = { 0 };
	double sec;

	if (argc != 9)
		BENCH_DIE("usage: serve|connect msg|rma PROVIDER NODE "
			  "PORT LEN COUNT WINDOW");
	b.serve = !strcmp(argv[1], "serve");
	b.provider = argv[3];
	b.node = argv[4];
	b.port = argv[5];
	b.len = strtoull(argv[6], NULL, 0);
	b.cnt = strtoull(argv[7], NULL, 0);
	b.window = (unsigned int)strtoul(argv[8], NULL, 0);
	if (!b.len || !b.cnt || !b.window || b.window > 64)
		BENCH_DIE("LEN, COUNT and WINDOW (up to 64) are numbers");
	b.buf = mmap(NULL, b.window * b.len, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (b.buf == MAP_FAILED)
		BENCH_DIE("no memory");
	alarm(120);
	sec = run(&b, !strcmp(argv[2], "rma"));
	if (!b.serve)
		printf("%.3f\n", (double)(b.len * b.cnt) * 8e-9 / sec);
	return 0;
}
