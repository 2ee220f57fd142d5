// SPDX-License-Identifier: BSD-2-Clause
/*
 * Owners and attachers that are killed at each step of each call, theirs or the other's: see
 * steps.h. The other one works on, with errors that are documented, and nothing is left of
 * the one that was killed: no process, and in the other no thread, descriptor or mapping.
 */
#include <dirent.h>
#include <sys/prctl.h>

#include "actor.h"

/*
 * Other segments are made after so many steps: by an attacher, which has nothing in common
 * with what it makes, whatever it had attached; and by an owner that has changed nothing.
 */
#define SELDOM 8

/* A sanitizer makes each call and each process several times as long: with one some steps are
 * left out, others in each scene. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STRIDE 5
#else
#define STRIDE 1
#endif

/* Those that work on are there all the time; the one killed is made for each step. */
static struct actor owner, attacher, witness;
static struct left owner_had, attacher_had, witness_had; /* with nothing of kedge's */
static struct left owner_alone; /* with a segment that nobody has */
static struct kedge_segment_id id; /* of the owner's first segment */
static bool has_segment, has_grant, has_attachment;
static uint32_t attach_flags;
static const char *scene_name;
static unsigned int shm_files;
static const char *const steps_of[] = { "the caller", "kedge's threads", "helpers" };

#define NEED(x)                                                                        \
	do {                                                                           \
		if (!(x))                                                              \
			fail_msg("%s:%d: %s, killed at step %u of %s: %s", __FILE__,   \
				 __LINE__, scene_name, actor_steps.cnt,                \
				 steps_of[actor_steps.of], #x);                        \
	} while (0)

/* ---- calls ---- */

static long in_range(struct actor *a, enum act act, unsigned int n)
{
	return actor_does(a, (struct told){ .act = act, .range = n });
}

static long does(struct actor *a, enum act act)
{
	return in_range(a, act, 0);
}

static long gets(struct actor *a, const struct kedge_segment_id *of)
{
	return actor_does(a, (struct told){ .act = GET, .id = *of });
}

static long attaches(struct actor *a, bool half)
{
	return actor_does(a, (struct told){ .act = ATTACH, .half = half,
					    .flags = attach_flags });
}

/* An owner that is busy for a while has it fail: once more. */
static long attaches_at_last(struct actor *a, bool half)
{
	long rc;

	WAIT_FOR((rc = attaches(a, half)) != -ESTALE || actor_steps.killed);
	return rc;
}

static struct left left(struct actor *a)
{
	does(a, LEFT);
	return a->said.left;
}

/* A thread that was joined stays listed for a moment, with its descriptors. */
static struct left left_with(struct actor *a, unsigned int threads)
{
	struct left now;

	WAIT_FOR((now = left(a)).threads <= threads);
	return now;
}

static bool is_same(struct left a, struct left b)
{
	return a.fds == b.fds && a.threads == b.threads && a.maps == b.maps;
}

/* As it should be, or the process that was to do it, or the other one, was killed. */
static bool is_fine(long rc, long if_killed)
{
	return !rc || (actor_steps.killed && (rc == if_killed || rc == DEAD));
}

/* ---- what is done before, and what is done step by step ---- */

static void owner_makes(void)
{
	long rc = does(&owner, MAKE);

	if (!rc) {
		has_segment = true;
		id = owner.said.id;
	}
	NEED(is_fine(rc, DEAD));
}

static void owner_removes(void)
{
	NEED(is_fine(does(&owner, REMOVE), DEAD));
	has_segment = false;
}

static void attacher_gets(void)
{
	long rc = gets(&attacher, &id);

	has_grant = !rc;
	NEED(is_fine(rc, -ENOENT));
}

static void attacher_attaches(void)
{
	long rc = has_grant ? attaches_at_last(&attacher, false) : DEAD;

	has_attachment = !rc;
	NEED(is_fine(rc, -ESTALE));
}

static void attacher_detaches(void)
{
	if (has_attachment)
		NEED(is_fine(does(&attacher, DETACH), DEAD));
	has_attachment = false;
}

static void attacher_releases(void)
{
	if (has_grant)
		NEED(is_fine(does(&attacher, RELEASE), DEAD));
	has_grant = false;
}

static void attacher_uses(void)
{
	long rc;

	if (!has_attachment)
		return;
	does(&attacher, VALID);
	NEED(is_fine(does(&attacher, LOAD), -EFAULT));
	NEED(is_fine(does(&attacher, STORE), -EFAULT));
	rc = does(&attacher, COPY);
	NEED(rc == sizeof(uint64_t) || is_fine(rc, -ESTALE));
}

static void nothing(void)
{
	does(&owner, NEW);
}

static void a_segment(void)
{
	if (has_segment)
		return;
	does(&owner, NEW);
	owner_makes();
	if (!owner.dies)
		owner_alone = left_with(&owner, owner_had.threads + 1);
}

static void an_attached_segment(void)
{
	a_segment();
	attacher_gets();
	attacher_attaches();
}

static void an_attached_segment_and_memory(void)
{
	an_attached_segment();
	in_range(&owner, NEW, 1);
}

static void another_is_made(void)
{
	NEED(is_fine(in_range(&owner, MAKE, 1), DEAD));
}

static void all_calls_of_an_attacher(void)
{
	attacher_gets();
	attacher_attaches();
	attacher_uses();
	attacher_detaches();
	attacher_releases();
	/* The owner has heard of the end of the first grant when it gives the second. */
	attacher_gets();
	attacher_attaches();
}

static void owner_changes(enum act act)
{
	NEED(is_fine(does(&owner, act), DEAD));
	if (has_attachment)
		does(&attacher, VALID);
}

static void it_is_unmapped(void)
{
	owner_changes(UNMAP);
}

static void it_is_emptied(void)
{
	owner_changes(EMPTY);
}

static void it_is_moved(void)
{
	owner_changes(MOVE);
}

static void it_is_forked(void)
{
	owner_changes(FORK);
}

static void it_is_removed(void)
{
	owner_removes();
	if (has_attachment)
		does(&attacher, VALID);
}

/* The owner attaches its own segment: the third one is there for this, too. */
static void it_is_attached_by_its_owner(void)
{
	long rc = gets(&owner, &id);

	NEED(is_fine(rc, DEAD));
	if (!rc)
		NEED(is_fine(attaches_at_last(&owner, false), DEAD));
	NEED(is_fine(does(&owner, LOAD), DEAD));
	NEED(is_fine(does(&owner, DETACH), DEAD));
	NEED(is_fine(does(&owner, RELEASE), DEAD));
}

/* ---- afterwards ---- */

/* A third process has what @a makes, and sees what is stored there. */
static void works_as_owner(struct actor *a, uint64_t value)
{
	const struct kedge_segment_id of = a->said.id;
	long rc;

	actor_does(a, (struct told){ .act = PUT, .value = value });
	NEED(!gets(&witness, &of));
	WAIT_FOR((rc = attaches(&witness, true)) != -ESTALE);
	NEED(!rc);
	NEED(!does(&witness, LOAD) && witness.said.value == value);
	WAIT_FOR(does(a, GRANTS) == 1);
	NEED(!does(&witness, DETACH) && !does(&witness, RELEASE));
	WAIT_FOR(!does(a, GRANTS));
	if (witness_had.threads)
		WAIT_FOR(is_same(left(&witness), witness_had));
}

/* Its memory is its own again, and no segment. */
static void removes_all(struct actor *a)
{
	NEED(!does(a, REMOVE) && !does(a, INTACT) && !does(a, FREE));
}

/* Its thread hears of the end in its own time: what is attached before is as good as what
 * was attached. */
static bool is_stale(void)
{
	long rc = attaches(&attacher, true);

	if (!rc)
		does(&attacher, DETACH);
	NEED(!rc || rc == -ESTALE);
	return rc;
}

static void attacher_finds_it_gone(void)
{
	if (has_attachment) {
		WAIT_FOR(!does(&attacher, VALID));
		if (attach_flags & KEDGE_ATTACH_KEEP)
			NEED(!does(&attacher, LOAD));
		else
			WAIT_FOR(does(&attacher, LOAD) == -EFAULT);
		NEED(does(&attacher, COPY) == -ESTALE);
		does(&attacher, DETACH);
	}
	if (has_grant) {
		WAIT_FOR(is_stale());
		does(&attacher, RELEASE);
	}
	if (has_segment)
		NEED(gets(&attacher, &id) == -ENOENT);
	has_segment = has_grant = has_attachment = false;
}

static void the_attacher_works_on(unsigned int at)
{
	attacher_finds_it_gone();
	if (at % SELDOM == 1) {
		does(&attacher, NEW);
		NEED(!does(&attacher, MAKE));
		works_as_owner(&attacher, at);
		removes_all(&attacher);
	}
	WAIT_FOR(is_same(left(&attacher), attacher_had));
}

static void the_owner_works_on(unsigned int at, bool keeps)
{
	struct left now;

	if (!has_segment)
		owner_makes();
	owner.said.id = id;
	works_as_owner(&owner, at);
	/* Nor has its thread anything of the one that was killed. */
	WAIT_FOR((now = left(&owner)).fds == owner_alone.fds &&
		 now.threads == owner_alone.threads);
	has_grant = has_attachment = false;
	if (keeps && at % SELDOM)
		return;
	removes_all(&owner);
	has_segment = false;
	WAIT_FOR(is_same(left(&owner), owner_had));
}

static unsigned int files_in_shm(void)
{
	DIR *d = opendir("/dev/shm");
	const struct dirent *e;
	unsigned int n = 0;

	while (d && (e = readdir(d)))
		n += strstr(e->d_name, "kedge") != NULL;
	if (d)
		closedir(d);
	return n;
}

/* ---- scenes ---- */

struct scene {
	const char *name;
	bool owner_dies;
	void (*before)(void);
	void (*during)(void);
};

static const struct scene scenes[] = {
	{ "an owner that makes its first segment", true, nothing, owner_makes },
	{ "an owner that makes another segment", true, an_attached_segment_and_memory,
	  another_is_made },
	{ "an owner that serves an attacher", true, a_segment, all_calls_of_an_attacher },
	{ "an owner that unmaps a part", true, an_attached_segment, it_is_unmapped },
	{ "an owner that empties a part", true, an_attached_segment, it_is_emptied },
	{ "an owner that moves a part", true, an_attached_segment, it_is_moved },
	{ "an owner that forks", true, an_attached_segment, it_is_forked },
	{ "an owner that removes it", true, an_attached_segment, it_is_removed },
	{ "an owner that attaches its own", true, an_attached_segment,
	  it_is_attached_by_its_owner },
	{ "an attacher that makes all calls", false, a_segment, all_calls_of_an_attacher },
	{ "an attacher whose part is unmapped", false, an_attached_segment, it_is_unmapped },
	{ "an attacher whose part is emptied", false, an_attached_segment, it_is_emptied },
	{ "an attacher whose part is moved", false, an_attached_segment, it_is_moved },
	{ "an attacher whose owner forks", false, an_attached_segment, it_is_forked },
	{ "an attacher whose owner removes it", false, an_attached_segment, it_is_removed },
};

#define SCENES (sizeof(scenes) / sizeof(scenes[0]))

/* False: it was not killed, as it has made fewer steps. */
static bool killed_at(const struct scene *s, enum steps_of of, unsigned int at)
{
	struct actor *a = s->owner_dies ? &owner : &attacher;
	bool killed;

	attach_flags = at % 2 ? KEDGE_ATTACH_KEEP : 0;
	actor_start(a, true);
	s->before();
	NEED(!does(a, STEPS));
	steps_count(&actor_steps, of, at);
	s->during();
	killed = actor_steps.killed;
	steps_end(&actor_steps);
	if (s->owner_dies)
		the_attacher_works_on(at);
	else
		the_owner_works_on(at, s->during == all_calls_of_an_attacher);
	NEED(files_in_shm() == shm_files);
	actor_end(a);
	return killed;
}

static void killed_at_each_step(const struct scene *s)
{
	const unsigned int first = 1 + (unsigned int)(s - scenes) % STRIDE;
	unsigned int kills[STEPS_OF_CNT] = { 0 }, at;
	int of;

	scene_name = s->name;
	for (of = 0; of < STEPS_OF_CNT; of++) {
		for (at = first; killed_at(s, (enum steps_of)of, at); at += STRIDE)
			kills[of]++;
	}
	print_message("%s: killed at %u steps of the caller, %u of kedge's threads, %u of "
		      "helpers\n", s->name, kills[CALLER], kills[THREADS], kills[HELPERS]);
	/* With the module the other one's calls may be none of its own. */
	NEED(STRIDE > 1 || actor_backend == KEDGE_SEGMENT_MODULE ||
	     kills[CALLER] + kills[THREADS] + kills[HELPERS] > 0);
}

/* ---- cases ---- */

static bool has_module(void)
{
	int fd = open("/dev/kedge-segment", O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* Once before: libc and the library keep what they make at the first call. */
static void start(struct actor *a, struct left *had)
{
	unsigned int threads;

	actor_start(a, false);
	threads = left(a).threads;
	does(a, NEW);
	if (does(a, MAKE)) {
		print_message("skipped: %s\n", a->said.reason);
		skip();
	}
	works_as_owner(a, 1);
	removes_all(a);
	*had = left_with(a, threads);
}

static void need_steps(void)
{
	struct actor a;
	int rc;

	actor_start(&a, true);
	rc = (int)does(&a, STEPS);
	if (!rc)
		steps_end(&actor_steps);
	actor_end(&a);
	if (rc) {
		print_message("skipped: no seccomp filter (%s)\n", strerrordesc_np(-rc));
		skip();
	}
}

static void begin(const struct scene *s)
{
	unsigned int threads;

	scene_name = s->name;
	skip_if(actor_backend == KEDGE_SEGMENT_MODULE && !has_module(),
		"the module kedge_segment is not loaded");
	need_steps();
	shm_files = files_in_shm();
	actor_start(&witness, false);
	threads = left(&witness).threads;
	witness_had.threads = 0;
	if (s->owner_dies)
		start(&attacher, &attacher_had);
	else
		start(&owner, &owner_had);
	witness_had = left_with(&witness, threads);
}

static void each_step(void **state)
{
	const struct scene *s = *state;

	begin(s);
	killed_at_each_step(s);
}

/* All end with what they are, also where a case has failed. */
static int end(void **state)
{
	actor_end(&owner);
	actor_end(&attacher);
	actor_end(&witness);
	if (actor_steps.listener >= 0)
		close(actor_steps.listener);
	actor_steps.listener = -1;
	has_segment = has_grant = has_attachment = false;
	return 0;
}

static int run(uint32_t backend, const char *name)
{
	struct CMUnitTest tests[SCENES];
	size_t i;

	actor_backend = backend;
	for (i = 0; i < SCENES; i++)
		tests[i] = (struct CMUnitTest){ .name = scenes[i].name, .test_func = each_step,
						.teardown_func = end,
						.initial_state = (void *)(uintptr_t)&scenes[i] };
	return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

/* With an argument the module's alone: a guest is slow. */
int main(int argc, char **argv)
{
	int failed = 0;

	/* Those that a killed process has started come here. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (argc == 1)
		failed = run(KEDGE_SEGMENT_CONVERT, "segment_kill of converted memory");
	failed += run(KEDGE_SEGMENT_MODULE, "segment_kill of the module's");
	return failed ? 1 : 0;
}
