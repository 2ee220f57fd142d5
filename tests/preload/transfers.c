// SPDX-License-Identifier: BSD-2-Clause
/*
 * A program that transfers from memory whose pages have gone, or does not, on the tests' own
 * libibverbs: what "kedge doctor" says of it.
 *
 *	transfers fresh|send|receive|part|thread|lazy|peer|shared|inline|exec|many|killed|fixed
 *	transfers second|fails|again|gone|zero|iova
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define LEN ((size_t)64 << 10)

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_qp qp;

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(2);
}

static char *map_as(void *at, int how)
{
	char *p = mmap(at, LEN, PROT_READ | PROT_WRITE, how | MAP_ANONYMOUS | (at ? MAP_FIXED : 0),
		       -1, 0);

	must(p != MAP_FAILED, "mmap");
	memset(p, 1, LEN);
	return p;
}

static char *map(void *at)
{
	return map_as(at, MAP_PRIVATE);
}

static struct ibv_mr *reg(void *at)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, at, LEN, IBV_ACCESS_LOCAL_WRITE |
				       IBV_ACCESS_REMOTE_READ);

	must(mr != NULL, "ibv_reg_mr");
	return mr;
}

static void dereg(struct ibv_mr *mr)
{
	must(!ibv_dereg_mr(mr), "ibv_dereg_mr");
}

static void send_from(const struct ibv_mr *mr, const char *at, size_t len, unsigned int flags)
{
	struct ibv_sge sge = { (uintptr_t)at, (uint32_t)len, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = flags }, *bad;

	must(!ibv_post_send(&qp, &wr, &bad), "ibv_post_send");
}

__attribute__((noinline)) static void change_pages(char *p)
{
	must(!munmap(p, LEN), "munmap");
	map(p);
}

static void fresh(void)
{
	char *p = map(NULL);
	struct ibv_mr *mr = reg(p);

	send_from(mr, p, LEN, 0);
	dereg(mr);
	change_pages(p);
	mr = reg(p);
	send_from(mr, p, LEN, 0);
	dereg(mr);
}

static void send_stale(void)
{
	char *p = map(NULL);
	struct ibv_mr *mr = reg(p);

	change_pages(p);
	send_from(mr, p, LEN, 0);
	send_from(mr, p + 4096, 1, 0);
}

static void receive_stale(void)
{
	char *p = map(NULL);
	struct ibv_mr *mr = reg(p);
	struct ibv_sge sge = { (uintptr_t)p, 1, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	must(!madvise(p, LEN, MADV_DONTNEED), "madvise");
	must(!ibv_post_recv(&qp, &wr, &bad), "ibv_post_recv");
	dereg(mr);
}

/* The pages that are sent from are the ones that stayed. */
static void part(void)
{
	char *p = map(NULL);
	struct ibv_mr *mr = reg(p);

	must(!madvise(p, 4096, MADV_DONTNEED), "madvise");
	send_from(mr, p + 4096, LEN - 4096, 0);
	dereg(mr);
}

static void *change_in_thread(void *p)
{
	change_pages(p);
	return NULL;
}

static void by_thread(void)
{
	char *p = map(NULL);
	struct ibv_mr *mr = reg(p);
	pthread_t t;

	must(!pthread_create(&t, NULL, change_in_thread, p), "pthread_create");
	pthread_join(t, NULL);
	send_from(mr, p, LEN, 0);
	dereg(mr);
}

/* A cache that was told of the change, and deregisters when it gets to it. */
static void lazy(void)
{
	char *p = map(NULL);
	struct ibv_mr *old = reg(p), *now;

	change_pages(p);
	now = reg(p);
	send_from(now, p, LEN, 0);
	dereg(old);
	dereg(now);
}

/* Another process reads what this one has registered. */
static void peer(void)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_READ, .num_sge = 1 }, *bad;
	int told[2], over[2], status;
	struct ibv_sge sge;
	struct ibv_mr *mr;
	char *p = map(NULL);
	pid_t pid;

	must(!pipe(told) && !pipe(over), "pipe");
	pid = fork();
	if (!pid) {
		p = map(NULL);
		mr = reg(p);
		change_pages(p);
		must(write(told[1], mr, sizeof(*mr)) == sizeof(*mr), "write");
		must(read(over[0], p, 1) == 1, "read");
		exit(0);
	}
	mr = reg(p);
	sge = (struct ibv_sge){ (uintptr_t)p, 8, mr->lkey };
	wr.sg_list = &sge;
	mr = malloc(sizeof(*mr));
	must(mr && read(told[0], mr, sizeof(*mr)) == sizeof(*mr), "read");
	wr.wr.rdma.rkey = mr->rkey;
	wr.wr.rdma.remote_addr = (uintptr_t)mr->addr;
	must(!ibv_post_send(&qp, &wr, &bad), "ibv_post_send");
	must(write(over[1], "", 1) == 1, "write");
	must(waitpid(pid, &status, 0) == pid && !status, "the peer");
}

/* Pages of shared memory are the same when they come back. */
static void shared(void)
{
	char *p = map_as(NULL, MAP_SHARED);
	struct ibv_mr *mr = reg(p);

	must(!madvise(p, LEN, MADV_DONTNEED), "madvise");
	send_from(mr, p, LEN, 0);
	dereg(mr);
}

static void inlined(void)
{
	char *p = map(NULL);
	struct ibv_mr *mr = reg(p);

	must(!madvise(p, LEN, MADV_DONTNEED), "madvise");
	send_from(mr, p, 16, IBV_SEND_INLINE);
	dereg(mr);
}

static void many(void)
{
	int i;

	for (i = 0; i < 300; i++) {
		char *p = map(NULL);
		struct ibv_mr *mr = reg(p);

		change_pages(p);
		if (i % 3 == 0)
			send_from(mr, p, LEN, 0);
		dereg(mr);
		munmap(p, LEN);
	}
}

/* Other shared memory comes over it, which no notifier can watch. */
static void fixed(void)
{
	char *p = map_as(NULL, MAP_SHARED);
	struct ibv_mr *mr = reg(p);

	map_as(p, MAP_SHARED);
	send_from(mr, p, LEN, 0);
	dereg(mr);
}

static void second(void)
{
	char *p = map(NULL);
	struct ibv_mr *mr = reg(p);

	must(!madvise(p, 4096, MADV_DONTNEED), "madvise");
	must(!madvise(p + 5 * 4096, 100, MADV_DONTNEED), "madvise");
	send_from(mr, p + 5 * 4096, 4096, 0);
	dereg(mr);
}

/* Calls that the kernel refuses, and one that leaves all pages where they are. */
static void fails(void)
{
	char *p = map(NULL);
	struct ibv_mr *mr = reg(p);

	int i;

	for (i = 0; i < 20; i++)
		must(munmap(p + 1, LEN) == -1, "munmap succeeds");
	must(madvise(p, LEN, MADV_REMOVE) == -1, "madvise succeeds");
	must(mremap(p, LEN, LEN, MREMAP_MAYMOVE) == p, "mremap");
	send_from(mr, p, LEN, 0);
	/* One that succeeds after so many is followed. */
	change_pages(p);
	if (getenv("TRANSFERS_CHANGE"))
		send_from(mr, p, LEN, 0);
	dereg(mr);
}

__attribute__((noinline)) static void change_again(char *p)
{
	must(!munmap(p, LEN), "munmap again");
	map(p);
}

/* The first change was heeded, at the same address. */
static void again(void)
{
	char *p = map(NULL);
	struct ibv_mr *mr = reg(p);

	change_pages(p);
	dereg(mr);
	mr = reg(p);
	change_again(p);
	send_from(mr, p, LEN, 0);
	dereg(mr);
}

/* It leaves by a way that tells nothing, and what it did shows all the same. */
static void gone(void)
{
	char *p = map(NULL);
	struct ibv_mr *mr = reg(p);

	change_pages(p);
	send_from(mr, p, LEN, 0);
	dereg(mr);
	_exit(0);
}

static void zero(void)
{
	char *p = map(NULL);
	struct ibv_mr *mr = reg(p);

	must(!madvise(p, LEN, MADV_DONTNEED), "madvise");
	send_from(mr, p, 0, 0);
	dereg(mr);
}

/* Work requests name it by other addresses than the program does. */
static void iova(void)
{
	char *p = map(NULL);
	struct ibv_mr *mr = ibv_reg_mr_iova(pd, p, LEN, 0x10000, IBV_ACCESS_LOCAL_WRITE);

	must(mr != NULL, "ibv_reg_mr_iova");
	change_pages(p);
	send_from(mr, (char *)0x10000, LEN, 0);
	dereg(mr);
}

static void killed(void)
{
	send_stale();
	kill(getpid(), SIGKILL);
}

static const struct {
	const char *name;
	void (*run)(void);
} ways[] = {
	{ "fresh", fresh },   { "send", send_stale }, { "receive", receive_stale },
	{ "part", part },     { "thread", by_thread }, { "lazy", lazy },
	{ "peer", peer },     { "shared", shared },   { "inline", inlined },
	{ "many", many },     { "killed", killed },    { "fixed", fixed },
	{ "second", second }, { "fails", fails },      { "again", again },
	{ "gone", gone },     { "zero", zero },	       { "iova", iova },
};

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	size_t i;

	must(list && list[0], "ibv_get_device_list");
	if (argc > 1 && !strcmp(argv[1], "exec")) {
		execl("/proc/self/exe", argv[0], "send", NULL);
		must(0, "execl");
	}
	context = ibv_open_device(list[0]);
	pd = ibv_alloc_pd(context);
	must(pd != NULL, "ibv_alloc_pd");
	ibv_free_device_list(list);
	qp.context = context;
	for (i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		if (argc > 1 && !strcmp(argv[1], ways[i].name)) {
			ways[i].run();
			return 0;
		}
	}
	return 2;
}
