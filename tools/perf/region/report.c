// SPDX-License-Identifier: BSD-2-Clause
/* kedge perf --region: its processes, and the result for people and programs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/perf/region/region.h"

#define SOON_MS	  10000
#define ALIGN_LEN 4096

/* ---- the report ---- */

static const char *time_text(char buf[UTIL_HUMAN], double ns)
{
	if (ns >= 100)
		return util_human_ns(buf, ns);
	snprintf(buf, UTIL_HUMAN, "%.2f ns", ns);
	return buf;
}

static void print_text(const struct region_result *res)
{
	char a[UTIL_HUMAN], b[UTIL_HUMAN], c[UTIL_HUMAN];
	const struct region_row *r;

	printf("kedge %s, a region of another process on this host%s; %d rounds\n\n"
	       "%-32s %9s %9s   %-26s %9s %9s\n", kedge_version(),
	       res->opt->rdma ? ", by an RDMA adapter" : "", res->opt->rounds, "what", "size",
	       "time", "beside", "time", "as long");
	for (r = res->row; r < res->row + res->n; r++)
		printf("%-32s %9s %9s   %-26s %9s %8.2fx\n", r->text,
		       r->bytes ? perf_size_name(a, r->bytes) : "", time_text(b, r->ns),
		       r->beside, time_text(c, r->beside_ns), r->ratio);
	if (res->opt->rdma)
		puts("\nA write that is acknowledged is at the other adapter. With a read behind "
		     "it it is in the\nmemory that the other processor reads, which is what a put "
		     "promises.");
	if (*res->grow_why)
		printf("\nnot grown to 1 GiB: %s\n", res->grow_why);
	if (*res->regions_why)
		printf("\nnot %u regions: %s\n", REG_REGIONS, res->regions_why);
	if (res->failed)
		printf("\n%s%llu accesses beside the owner's changes failed%s\n",
		       util_colour(UTIL_RED), (unsigned long long)res->failed,
		       util_colour(UTIL_PLAIN));
}

static void print_csv(const struct region_result *res)
{
	const struct region_row *r;

	puts("bench,bytes,ns,beside,beside_ns,ratio");
	for (r = res->row; r < res->row + res->n; r++)
		printf("%s,%llu,%.5g,\"%s\",%.5g,%.5g\n", r->name,
		       (unsigned long long)r->bytes, r->ns, r->beside, r->beside_ns, r->ratio);
}

static json_t *row_json(const void *of, size_t i)
{
	const struct region_row *r = &((const struct region_result *)of)->row[i];

	return json_pack("{s:s, s:I, s:f, s:s, s:f, s:f}", "bench", r->name, "bytes",
			 (json_int_t)r->bytes, "ns", r->ns, "beside", r->beside, "beside_ns",
			 r->beside_ns, "ratio", r->ratio);
}

int region_report(const struct region_result *res)
{
	if (util_flags.json)
		return util_json_print(json_pack("{s:s, s:s, s:i, s:I, s:o}", "version",
						 kedge_version(), "way",
						 res->opt->rdma ? "rdma" : "mapped",
						 "rounds", res->opt->rounds,
						 "failed", (json_int_t)res->failed, "rows",
						 util_json_rows(res->n, row_json, res)))
			       ? CMD_CANNOT : CMD_OK;
	if (res->opt->csv)
		print_csv(res);
	else
		print_text(res);
	return CMD_OK;
}

/* ---- the processes ---- */

static size_t longest(const struct perf_opts *opt)
{
	size_t i, len = opt->rdma ? 1 : REG_MOVED;

	for (i = 0; i < opt->size_cnt; i++)
		if (opt->sizes[i] > len)
			len = opt->sizes[i];
	return len;
}

static int have_memory(struct region_side *s)
{
	const size_t rounds = (size_t)s->res->opt->rounds;
	int i;

	s->shared = mmap(NULL, s->owner.len, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s->shared == MAP_FAILED) {
		s->shared = NULL;
		return -ENOMEM;
	}
	memset(s->shared, 1, s->owner.len);
	s->data = aligned_alloc(ALIGN_LEN, s->owner.len);
	if (s->data)
		memset(s->data, 1, s->owner.len);
	for (i = 0; i < 3; i++)
		s->sample[i] = calloc(rounds, sizeof(double));
	return s->data && s->sample[0] && s->sample[1] && s->sample[2] ? 0 : -ENOMEM;
}

static int open_it(struct region_side *s)
{
	struct region_rep hello = { .rc = 0 };
	int rc = proc_recv(s->proc.fd, &hello, sizeof(hello));

	if (!rc && hello.rc)
		return util_fail(hello.rc, "the owner has no region: %s", hello.why);
	if (!rc)
		rc = kedge_remote_open(&hello.handle, SOON_MS, &s->remote);
	return rc ? util_fail(rc, "cannot open the region of another process") : 0;
}

static int open_verbs(struct region_side *s)
{
	struct region_rep rep = { .rc = 0 };
	int rc = raw_verbs_open(s->owner.node, s->owner.raw[0], s->data, s->owner.len, &s->verbs);

	if (rc)
		return util_fail(rc, "the adapter at %s cannot be used", s->owner.node);
	rc = proc_recv(s->proc.fd, &rep, sizeof(rep));
	return rc || rep.rc ? util_fail(rc ? rc : rep.rc, "the owner cannot use the adapter at %s: "
					"%s", s->owner.node, rep.why) : 0;
}

static void stop(struct region_side *s)
{
	int i;

	kedge_remote_close(s->remote);
	kedge_remote_close(s->served);
	kedge_queue_close(s->queue);
	raw_verbs_close(s->verbs);
	for (i = 0; i < 2; i++)
		if (s->owner.raw[i] >= 0)
			close(s->owner.raw[i]);
	proc_stop(&s->proc);
	if (s->shared)
		munmap(s->shared, s->owner.len);
	free(s->data);
	for (i = 0; i < 3; i++)
		free(s->sample[i]);
}

/* Before anything of kedge in this process: it has no threads yet. */
static int start(struct region_side *s)
{
	const int type = s->owner.node ? SOCK_SEQPACKET : SOCK_STREAM;
	int rc = socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, s->owner.raw) ? -errno : 0;

	if (!rc)
		rc = proc_start(&s->proc, region_owner_child, &s->owner);
	if (rc)
		return rc;
	/* So that this process sees the other one's end. */
	close(s->owner.raw[1]);
	s->owner.raw[1] = -1;
	return have_memory(s);
}

static int measure(struct region_side *s)
{
	int rc = open_it(s);

	if (!rc && s->owner.node)
		rc = open_verbs(s);
	if (rc)
		return rc;
	proc_pin(0);
	return s->owner.node ? region_measure_rdma(s) : region_measure(s);
}

int region_perf(const struct perf_opts *opt)
{
	struct region_result *res;
	struct region_side s = { .owner = { .raw = { -1, -1 }, .node = opt->node } };
	int rc = opt->rdma ? raw_verbs_use() : 0;

	if (rc)
		return util_fail(rc, "--way rdma");
	res = calloc(1, sizeof(*res));
	if (!res)
		return util_fail(-ENOMEM, "cannot keep the figures");
	res->opt = opt;
	s.res = res;
	s.owner.len = round_up(longest(opt), ALIGN_LEN);
	rc = start(&s);
	rc = rc ? util_fail(rc, "cannot start another process") : measure(&s);
	stop(&s);
	if (!rc)
		rc = region_report(res);
	if (!rc && res->failed)
		rc = CMD_FINDING;
	free(res);
	return rc;
}
