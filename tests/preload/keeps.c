// SPDX-License-Identifier: BSD-2-Clause
/*
 * A program that deregisters too late, or in time, on the tests' own libibverbs: what "kedge run"
 * says of registrations whose pages have gone.
 *
 *	keeps in-time|late|again|remap|remap-remote|drop|moved|at-exit|child|second|middle
 *	keeps cancelled|refused|silent|renamed
 *	keeps unloads LIBRARY
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#undef ibv_reg_mr

#define LEN ((size_t)64 << 10)

static struct ibv_pd *pd;

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static char *map(void *at)
{
	char *p = mmap(at, LEN, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	must(p != MAP_FAILED, "mmap");
	memset(p, 1, LEN);
	return p;
}

static struct ibv_mr *reg(void *at, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, at, LEN, access);

	must(mr != NULL, "ibv_reg_mr");
	return mr;
}

static void dereg(struct ibv_mr *mr)
{
	must(!ibv_dereg_mr(mr), "ibv_dereg_mr");
}

static void remap(int access)
{
	char *p = map(NULL);
	struct ibv_mr *mr = reg(p, access);

	must(!munmap(p, LEN), "munmap");
	map(p);
	dereg(mr);
}

static void in_time(void)
{
	char *p = map(NULL);

	dereg(reg(p, IBV_ACCESS_LOCAL_WRITE));
	must(!munmap(p, LEN), "munmap");
	map(p);
	dereg(reg(p, IBV_ACCESS_LOCAL_WRITE));
}

/* Its order is wrong, and no data can be. */
static void late(void)
{
	char *p = map(NULL);
	struct ibv_mr *mr = reg(p, IBV_ACCESS_LOCAL_WRITE);

	must(!munmap(p, LEN), "munmap");
	dereg(mr);
}

/* A range that was registered before, and has changed since. With that access it is libibverbs', so
 * that kedge's cache does not watch it as well. */
static void again(void)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
	char *p = map(NULL);
	struct ibv_mr *mr;

	dereg(reg(p, access));
	must(!munmap(p, LEN), "munmap");
	map(p);
	mr = reg(p, access);
	must(!munmap(p, LEN), "munmap");
	map(p);
	dereg(mr);
}

/* A library goes that brought another one along: what that unmaps may be anywhere. */
static void unloads(const char *path)
{
	struct ibv_mr *mr = reg(map(NULL), IBV_ACCESS_LOCAL_WRITE);
	void *lib = dlopen(path, RTLD_NOW);

	if (!lib)
		fprintf(stderr, "%s\n", dlerror());
	must(lib && !dlclose(lib), "dlclose");
	dereg(mr);
}

static void drop(void)
{
	char *p = map(NULL);
	struct ibv_mr *mr = reg(p, IBV_ACCESS_LOCAL_WRITE);

	must(!madvise(p, LEN, MADV_DONTNEED), "madvise");
	dereg(mr);
}

/* Pages go elsewhere with mremap(), and others come. */
static void moved(void)
{
	char *p = map(NULL), *to = map(NULL);
	struct ibv_mr *mr = reg(p, IBV_ACCESS_LOCAL_WRITE);

	must(mremap(p, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to, "mremap");
	map(p);
	dereg(mr);
}

static void at_exit(void)
{
	char *p = map(NULL);

	reg(p, IBV_ACCESS_LOCAL_WRITE);
	must(!munmap(p, LEN), "munmap");
	map(p);
}

/* The parent's registrations are not the child's, which has its own. */
static void child(void)
{
	char *p = map(NULL);
	struct ibv_mr *mr = reg(p, IBV_ACCESS_LOCAL_WRITE);
	pid_t pid = fork();
	int status;

	if (!pid) {
		must(!munmap(p, LEN), "munmap");
		map(p);
		at_exit();
		exit(0);
	}
	must(waitpid(pid, &status, 0) == pid && !status, "the child");
	dereg(mr);
}

/* One page goes for good; what comes back is where the next one was. */
static void second(void)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *p = map(NULL);
	struct ibv_mr *mr = reg(p, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);

	must(!munmap(p, page), "munmap");
	dereg(reg(map(NULL), IBV_ACCESS_LOCAL_WRITE)); /* the first change is seen */
	must(!munmap(p + 4 * page, page), "munmap");
	must(mmap(p + 4 * page, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	     p + 4 * page, "mmap");
	dereg(mr);
}

/* Neither end comes back. */
static void middle(void)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *p = map(NULL);
	struct ibv_mr *mr = reg(p, IBV_ACCESS_LOCAL_WRITE);

	must(!munmap(p, LEN), "munmap");
	must(mmap(p + 4 * page, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	     p + 4 * page, "mmap");
	dereg(mr);
}

/* A thread that is to end registers first, and is told of something: no lock goes with it. */
static void *register_cancelled(void *arg)
{
	char *p = map(NULL);
	struct ibv_mr *mr;

	pthread_cancel(pthread_self());
	mr = ibv_reg_mr(pd, p, LEN, IBV_ACCESS_LOCAL_WRITE);
	must(mr && !munmap(p, LEN) && mmap(p, LEN, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS |
					   MAP_FIXED, -1, 0) == p, "mmap");
	ibv_dereg_mr(mr);
	pthread_testcancel();
	return arg;
}

static void cancelled(void)
{
	pthread_t t;
	void *got;

	must(!pthread_create(&t, NULL, register_cancelled, NULL), "pthread_create");
	must(!pthread_join(t, &got) && got == PTHREAD_CANCELED, "pthread_join");
	dereg(reg(map(NULL), IBV_ACCESS_LOCAL_WRITE));
}

/* Deregistration fails, and the region is there still. */
static void refused(void)
{
	char *p = map(NULL);
	struct ibv_mr *mr = reg(p, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);

	setenv("FAKE_DEREG", "fails", 1);
	must(ibv_dereg_mr(mr) == EBUSY, "ibv_dereg_mr");
	unsetenv("FAKE_DEREG");
	must(!munmap(p, LEN), "munmap");
	map(p);
	dereg(mr);
}

/* It tells no more than that it began. */
static void silent_end(void)
{
	reg(map(NULL), IBV_ACCESS_LOCAL_WRITE);
	_exit(0);
}

static void renamed(void)
{
	program_invocation_short_name = (char *)"x\nstale 5 0 1 unmapped evil";
	in_time();
}

static const struct {
	const char *name;
	void (*run)(void);
} ways[] = {
	{ "in-time", in_time }, { "late", late }, { "again", again },	{ "drop", drop },
	{ "moved", moved },	{ "at-exit", at_exit }, { "child", child },
	{ "second", second },	{ "middle", middle },	{ "cancelled", cancelled },
	{ "refused", refused }, { "silent", silent_end }, { "renamed", renamed },
};

int main(int argc, char **argv)
{
	size_t i;
	struct ibv_device **list = ibv_get_device_list(NULL);
	const char *how = argc > 1 ? argv[1] : "";

	must(list && list[0], "ibv_get_device_list");
	pd = ibv_alloc_pd(ibv_open_device(list[0]));
	must(pd != NULL, "ibv_alloc_pd");
	ibv_free_device_list(list);
	for (i = 0; i < sizeof(ways) / sizeof(ways[0]) && strcmp(how, ways[i].name) != 0; i++)
		;
	if (i < sizeof(ways) / sizeof(ways[0]))
		ways[i].run();
	else if (!strcmp(how, "remap"))
		remap(IBV_ACCESS_LOCAL_WRITE);
	else if (!strcmp(how, "remap-remote"))
		remap(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	else if (!strcmp(how, "unloads"))
		unloads(argc > 2 ? argv[2] : "");
	else
		return 2;
	return 0;
}
