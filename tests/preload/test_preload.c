// SPDX-License-Identifier: BSD-2-Clause
/*
 * A verbs program on a fake libibverbs, which counts what reaches it: plain,
 * and with the preload in between. The behaviour of real RDMA stacks is in
 * tests/vm/verbs_program.c.
 *
 *	test_preload plain|default|trusted
 */
#include <dlfcn.h>

#include "test_preload.h"

#define ROUNDS 10
#define THREADS 4
/* Far from where the kernel maps. */
#define APART (UINT64_C(1) << 40)

enum mode mode;
struct fake *fake;
struct ibv_context *context;
struct ibv_pd *pd;
char *area;

int regs_made(void)
{
	return fake->calls[FAKE_REG_MR] + fake->calls[FAKE_REG_MR_IOVA] +
	       fake->calls[FAKE_REG_MR_IOVA2];
}

static int by_mode(int plain, int by_default, int trusted)
{
	return mode == PLAIN ? plain : mode == DEFAULT ? by_default : trusted;
}

int kept(int plain, int kedge)
{
	return by_mode(plain, kedge, kedge);
}

struct ibv_mr *reg(void *addr, size_t len, int access)
{
	/* The function, not the macro. */
	struct ibv_mr *mr = (ibv_reg_mr)(pd, addr, len, access);

	if (!mr)
		fail_msg("ibv_reg_mr: %s", strerror(errno));
	return mr;
}

void dereg(struct ibv_mr *mr)
{
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

void refused_with(void *addr, size_t len, int access, int err)
{
	errno = 0;
	assert_null(ibv_reg_mr(pd, addr, len, access));
	assert_int_equal(errno, err);
}

/* The next @times calls of it fail. */
static void fail_calls(int op, int err, int times)
{
	fake->op = op;
	fake->err = err;
	fake->times = times;
}

struct ibv_context *open_fake(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *c = ibv_open_device(list[0]);

	assert_string_equal(ibv_get_device_name(list[0]), "fake0");
	ibv_free_device_list(list);
	return c;
}

/* Nobody else's memory comes there when it is not mapped. */
static char *map_at(uintptr_t at)
{
	return mmap((void *)at, AREA, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}

static int setup(void **state)
{
	memset(fake, 0, sizeof(*fake));
	fake->fork = IBV_FORK_UNNEEDED;
	context = open_fake();
	pd = ibv_alloc_pd(context);
	area = map_at(APART);
	return pd && area != MAP_FAILED ? 0 : -1;
}

static int teardown(void **state)
{
	int bad = ibv_dealloc_pd(pd) || ibv_close_device(context);

	if (fake->regs || fake->leaked || fake->wrong)
		bad = 1;
	if (bad)
		fprintf(stderr, "left %d, leaked %d, wrong %d\n", fake->regs,
			fake->leaked, fake->wrong);
	munmap(area, AREA);
	return bad ? -1 : 0;
}

/* ---- what is cached ---- */

static void local_regions_are_kept(void **state)
{
	int i;

	errno = EXDEV;
	for (i = 0; i < ROUNDS; i++)
		dereg(reg(area, AREA, LW));
	assert_int_equal(regs_made(), kept(ROUNDS, 1));
	assert_int_equal(fake->regs, kept(0, 1));
	/* The fake one spoils it. */
	assert_int_equal(errno, kept(ENOTTY, EXDEV));
}

static void remote_access_ends_unless_peers_are_trusted(void **state)
{
	int i;

	for (i = 0; i < ROUNDS; i++)
		dereg(reg(area, AREA, LW | RW | RR));
	assert_int_equal(regs_made(), by_mode(ROUNDS, ROUNDS, 1));
	assert_int_equal(fake->regs, by_mode(0, 0, 1));
}

static void every_name_is_one_cache(void **state)
{
	int flags = LW; /* no constant, so the header takes another name */

	dereg(reg(area, PAGE, LW));
	__asm__("" : "+r"(flags));
	dereg(ibv_reg_mr(pd, area, PAGE, flags));
	dereg(ibv_reg_mr_iova(pd, area, PAGE, (uintptr_t)area, LW));
	dereg(ibv_reg_mr_iova2(pd, area, PAGE, (uintptr_t)area,
			       (unsigned int)flags));
	assert_int_equal(regs_made(), kept(4, 1));
}

static void a_program_sees_what_it_asked_for(void **state)
{
	struct ibv_mr *whole = reg(area, AREA, LW);
	struct ibv_mr *part = reg(area + 100, 5000, LW);

	assert_ptr_equal(whole->context, context);
	assert_ptr_equal(whole->pd, pd);
	assert_ptr_equal(whole->addr, area);
	assert_int_equal(whole->length, AREA);
	assert_ptr_equal(part->context, context);
	assert_ptr_equal(part->pd, pd);
	assert_ptr_equal(part->addr, area + 100);
	assert_int_equal(part->length, 5000);
	assert_int_not_equal(part->lkey, 0);
	assert_int_equal(part->rkey, part->lkey | 1);
	/* With kedge it is a part of the same region. */
	assert_int_equal(part->lkey == whole->lkey, kept(0, 1));
	assert_int_equal(regs_made(), kept(2, 1));
	dereg(whole);
	dereg(part);
}

static void new_memory_is_registered(void **state)
{
	int i;

	for (i = 0; i < ROUNDS; i++) {
		dereg(reg(area, AREA, LW));
		assert_int_equal(munmap(area, AREA), 0);
		assert_ptr_equal(map_at(APART), area);
	}
	assert_int_equal(regs_made(), ROUNDS);
}

static void domains_have_their_own(void **state)
{
	struct ibv_pd *other = ibv_alloc_pd(context);
	struct ibv_mr *a = reg(area, PAGE, LW);
	struct ibv_mr *b = ibv_reg_mr(other, area, PAGE, LW);

	assert_ptr_equal(b->pd, other);
	assert_int_not_equal(a->lkey, b->lkey);
	dereg(b);
	dereg(a);
	assert_int_equal(ibv_dealloc_pd(other), 0);
	assert_int_equal(fake->regs, kept(0, 1));
}

static void orderings_have_their_own(void **state)
{
	int relaxed = IBV_ACCESS_RELAXED_ORDERING;
	unsigned int access;

	dereg(reg(area, PAGE, LW));
	dereg(reg(area, PAGE, LW | relaxed));
	access = fake->access;
	dereg(reg(area, PAGE, LW));
	dereg(reg(area, PAGE, LW | relaxed));
	assert_true(access & (unsigned int)relaxed);
	/* Once more than two: kedge tries whether the device takes it. */
	assert_int_equal(regs_made(), kept(4, 3));
}

/* ---- what is not ---- */

static void what_is_out_of_the_ordinary_is_left_alone(void **state)
{
	static const unsigned int odd[] = {
		IBV_ACCESS_MW_BIND, IBV_ACCESS_ZERO_BASED,
		IBV_ACCESS_ON_DEMAND, IBV_ACCESS_HUGETLB,
	};
	unsigned int i;

	dereg(reg(area, PAGE, LW));
	for (i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		int before = fake->regs;
		struct ibv_mr *mr = reg(area, PAGE, LW | (int)odd[i]);

		assert_int_equal(fake->access, LW | odd[i]);
		assert_int_equal(fake->regs, before + 1);
		dereg(mr);
		assert_int_equal(fake->regs, before);
	}
	assert_int_equal(fake->calls[FAKE_REG_MR], kept(5, 4));
}

static void another_iova_is_left_alone(void **state)
{
	struct ibv_mr *mr;

	mr = ibv_reg_mr_iova(pd, area, PAGE, 12345, LW);
	assert_non_null(mr);
	assert_int_equal(fake->iova, 12345);
	assert_int_equal(fake->calls[FAKE_REG_MR_IOVA], 1);
	dereg(mr);
	mr = ibv_reg_mr_iova2(pd, area, PAGE, 54321, LW);
	assert_non_null(mr);
	assert_int_equal(fake->iova, 54321);
	dereg(mr);
	assert_int_equal(fake->regs, 0);
}

static void errors_are_libibverbs_own(void **state)
{
	static const int errs[] = { EPERM, EINVAL, EOPNOTSUPP, ENOENT, EFAULT,
				    ENOMEM, ENOSPC, EAGAIN };
	unsigned int i;

	for (i = 0; i < sizeof(errs) / sizeof(errs[0]); i++) {
		fake->reg_err = errs[i];
		fake->reg_times = 1000;
		refused_with(area, PAGE, LW, errs[i]);
		fake->reg_times = 0;
	}
	refused_with(area, PAGE, RW, EINVAL);
	refused_with(area, 0, LW, EINVAL);
	munmap(area + PAGE, PAGE);
	refused_with(area, 3 * PAGE, LW, EFAULT);
	dereg(reg(area, PAGE, LW));
}

/* Kedge is refused, and libibverbs succeeds under its other name. */
static void a_refusal_to_kedge_is_no_refusal(void **state)
{
	struct ibv_mr *mr;

	fail_calls(FAKE_REG_MR_IOVA2, EINVAL, 10);
	mr = reg(area, PAGE, LW);
	assert_int_equal(fake->calls[FAKE_REG_MR], 1);
	assert_int_equal(!!fake->calls[FAKE_REG_MR_IOVA2], kept(0, 1));
	assert_int_equal(fake->regs, 1);
	dereg(mr);
	assert_int_equal(fake->regs, 0);
	fake->times = 0;
	dereg(reg(area, PAGE, LW));
	assert_int_equal(fake->regs, kept(0, 1));
}

/* ---- ibv_rereg_mr() ---- */

static void a_changed_region_is_the_programs_own(void **state)
{
	struct ibv_mr *mr = reg(area, PAGE, LW), *other = reg(area, PAGE, LW);
	uint32_t key = mr->lkey;

	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION,
				      NULL, area + PAGE, 2 * PAGE, 0), 0);
	assert_ptr_equal(mr->addr, area + PAGE);
	assert_int_equal(mr->length, 2 * PAGE);
	assert_ptr_equal(mr->pd, pd);
	assert_int_not_equal(mr->lkey, key);
	assert_int_equal(mr->rkey, mr->lkey | 1);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL,
				      NULL, 0, LW | RW), 0);
	assert_int_equal(fake->access, LW | RW);
	assert_int_equal(fake->calls[FAKE_REREG_MR], 2);
	/* The other one of the same pages knows nothing of that. */
	assert_int_equal(fake->regs, 2);
	assert_int_not_equal(other->lkey, mr->lkey);
	dereg(mr);
	assert_int_equal(fake->regs, 1);
	dereg(other);
	assert_int_equal(fake->regs, kept(0, 1));
}

static void a_region_survives_a_change_that_fails(void **state)
{
	struct ibv_mr *mr = reg(area, PAGE, LW);

	fail_calls(FAKE_REREG_MR, EOPNOTSUPP, 1);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL,
				      NULL, 0, LW | RW), IBV_REREG_MR_ERR_CMD);
	assert_int_equal(errno, EOPNOTSUPP);
	assert_ptr_equal(mr->addr, area);
	assert_int_equal(mr->length, PAGE);
	assert_int_equal(mr->rkey, mr->lkey | 1);
	dereg(mr);
	if (mode == PLAIN)
		return;
	/* No region to change can be had. */
	mr = reg(area, PAGE, LW);
	fake->reg_err = ENOMEM;
	fake->reg_times = 1;
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL,
				      NULL, 0, LW | RW),
			 IBV_REREG_MR_ERR_INPUT);
	assert_ptr_equal(mr->addr, area);
	dereg(mr);
}

static void a_dereg_that_fails_leaves_the_region(void **state)
{
	struct ibv_mr *mr = reg(area, PAGE, LW);
	int before;

	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION,
				      NULL, area, PAGE, 0), 0);
	before = fake->regs;
	fail_calls(FAKE_DEREG_MR, EBUSY, 1);
	assert_int_equal(ibv_dereg_mr(mr), EBUSY);
	assert_int_equal(fake->regs, before);
	dereg(mr);
	assert_int_equal(fake->regs, before - 1);
}

/* ---- fork ---- */

static void ibv_fork_init_is_respected(void **state)
{
	int i;

	/* Asked when the domain registers for the first time. */
	fake->fork = IBV_FORK_ENABLED;
	for (i = 0; i < ROUNDS; i++)
		dereg(reg(area, PAGE, LW));
	assert_int_equal(fake->calls[FAKE_REG_MR], ROUNDS);
	assert_int_equal(regs_made(), ROUNDS);
}

static int childs_life(void)
{
	struct ibv_pd *own = ibv_alloc_pd(context);
	int i, made = regs_made();

	/* The parent's domain is not cached here, but works. */
	if (ibv_dereg_mr(ibv_reg_mr(pd, area, PAGE, LW)))
		return 1;
	if (regs_made() != made + 1)
		return 2;
	made++;
	for (i = 0; i < ROUNDS; i++)
		if (ibv_dereg_mr(ibv_reg_mr(own, area, PAGE, LW)))
			return 3;
	if (regs_made() != made + kept(ROUNDS, 1))
		return 4;
	return ibv_dealloc_pd(own) ? 5 : 0;
}

static void a_child_has_its_own(void **state)
{
	struct ibv_mr *mr = reg(area, PAGE, LW);
	int made = regs_made(), i;
	pid_t pid;

	for (i = 0; i < 2; i++) {
		fflush(NULL);
		pid = fork();
		if (!pid)
			exit(i ? childs_life() : 0);
		assert_true(pid > 0);
		ended_well(pid);
	}
	dereg(mr);
	dereg(reg(area, PAGE, LW));
	assert_int_equal(regs_made(), made + kept(1, 0));
}

/* ---- threads ---- */

static atomic_bool stop;
static atomic_int bad;

static void *register_all_the_time(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg;
	struct ibv_mr *mr;

	while (!stop) {
		size_t from = (size_t)rand_r(&seed) % (AREA / 2);
		size_t len = 1 + (size_t)rand_r(&seed) % (AREA / 2);
		int access = rand_r(&seed) & 1 ? LW : LW | RW;

		mr = ibv_reg_mr(pd, area + from, len, access);
		if (!mr && errno != EFAULT)
			bad++;
		if (mr && (mr->addr != area + from || mr->length != len))
			bad++;
		if (mr && ibv_dereg_mr(mr))
			bad++;
	}
	return NULL;
}

static void threads_register_what_another_unmaps(void **state)
{
	pthread_t t[THREADS];
	uintptr_t i;
	char *p;

	stop = false;
	for (i = 0; i < THREADS; i++)
		t[i] = run_thread(register_all_the_time, (void *)i);
	for (i = 0; i < 2000; i++) {
		munmap(area + i % 48 * PAGE, 16 * PAGE);
		p = mmap(area + i % 48 * PAGE, 16 * PAGE,
			 PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
			 0);
		assert_ptr_equal(p, area + i % 48 * PAGE);
	}
	stop = true;
	join_threads(t, THREADS);
	assert_int_equal(bad, 0);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		CASE(local_regions_are_kept),
		CASE(remote_access_ends_unless_peers_are_trusted),
		CASE(every_name_is_one_cache),
		CASE(a_program_sees_what_it_asked_for),
		CASE(new_memory_is_registered),
		CASE(domains_have_their_own),
		CASE(orderings_have_their_own),
		CASE(what_is_out_of_the_ordinary_is_left_alone),
		CASE(another_iova_is_left_alone),
		CASE(errors_are_libibverbs_own),
		CASE(a_refusal_to_kedge_is_no_refusal),
		CASE(what_is_kept_makes_room),
		CASE(what_is_kept_makes_room_for_others),
		CASE(another_error_flushes_nothing),
		CASE(who_holds_all_is_told_so),
		CASE(a_changed_region_is_the_programs_own),
		CASE(a_region_survives_a_change_that_fails),
		CASE(a_dereg_that_fails_leaves_the_region),
		CASE(a_domain_is_busy_while_it_has_regions),
		CASE(an_imported_domain_is_let_go),
		CASE(a_device_is_closed_with_all_that_is_kept),
		CASE(a_device_is_closed_with_regions_in_use),
		CASE(an_imported_domain_goes_with_regions_in_use),
		CASE(ibv_fork_init_is_respected),
		CASE(a_child_has_its_own),
		CASE(threads_register_what_another_unmaps),
	};

	return RUN(tests);
}

int main(int argc, char **argv)
{
	static const char *const modes[] = { "plain", "default", "trusted" };
	struct fake *(*find)(void);
	int i;

	*(void **)&find = dlsym(RTLD_DEFAULT, "fake_ibverbs");
	for (i = 0; argc == 2 && find && i < 3; i++) {
		if (strcmp(argv[1], modes[i]))
			continue;
		mode = (enum mode)i;
		fake = find();
		return run();
	}
	fprintf(stderr, find ? "usage: test_preload plain|default|trusted\n"
			     : "this is not the tests' libibverbs\n");
	return 2;
}
