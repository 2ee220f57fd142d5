// SPDX-License-Identifier: BSD-2-Clause
/* Each step of the thread's beginning made to fail in turn, in a process of its own: the program
 * goes on with its cache, gets its socket later or is told once, and neither descriptors nor a name
 * stay. */
#include "../../fakes/faults.h"
#include "published.h"
#include "stats/text.h"

#define WRAP(name, params, args)       \
	int __real_##name params;      \
	int __wrap_##name params;      \
	int __wrap_##name params       \
	{                              \
		if (fault_now(#name)) { \
			errno = ENOBUFS; \
			return -1;     \
		}                      \
		return __real_##name args; \
	}

WRAP(socket, (int domain, int type, int protocol), (domain, type, protocol))
WRAP(bind, (int fd, const struct sockaddr *to, socklen_t len), (fd, to, len))
WRAP(listen, (int fd, int backlog), (fd, backlog))
WRAP(fchmod, (int fd, mode_t mode), (fd, mode))

static unsigned int said;
static char last[512];

static void note(void *unused, int severity, const char *text)
{
	said++;
	snprintf(last, sizeof(last), "%s", text);
}

struct attempt {
	const char *value;
	int step;
};

#define REFUSED	  2 /* the cache itself */
#define NOT_COME  3 /* to that step */
#define NOT_OURS  4

static bool is_one_of(const char *name, const char *names)
{
	const char *found = strstr(names, name);

	return found && found[strlen(name)] == ' ';
}

static int one(void *arg)
{
	const struct attempt *a = arg;
	struct kedge_notifier *nf = open_uffd();
	struct nodev *dev = nodev_new();
	const struct kedge_mr *mr;
	struct kedge_cache *c;
	char *mem = new_pages(1);
	unsigned int fds = open_fds();
	bool ours = true;
	int rc, hit;

	kedge_log_set(note, NULL, KEDGE_LOG_WARN);
	setenv("KEDGE_STATS", a->value, 1);
	fault_at(a->step);
	rc = kedge_cache_open(dev->dev, nf, NULL, &c);
	hit = fault_hit();
	fault_at(0);
	if (rc)
		return REFUSED;
	CHILD_CHECK(!kedge_cache_get(c, mem, 1, 0, &mr));
	kedge_cache_put(c, mr);
	/* A socket is tried for again by the thread; without the thread it is told. */
	if (hit && is_one_of(fault_name(), "socket bind listen fchmod "))
		WAIT_FOR(text_of_socket(a->value + 5));
	else if (hit && is_one_of(fault_name(), "eventfd pthread_create "))
		CHILD_CHECK(said == 1 && strstr(last, "counters are not published at"));
	else if (hit)
		ours = false; /* the cache does without */
	kedge_cache_close(c);
	if (said == 1)
		CHILD_CHECK(open_fds() == fds);
	if (!hit)
		CHILD_CHECK(!said);
	exit(!hit ? NOT_COME : ours ? 0 : NOT_OURS);
}

/* Returns the number of its steps. */
static unsigned int each_step(const char *value, const char *path)
{
	struct attempt a = { .value = value };
	unsigned int steps = 0;
	int status;

	for (a.step = 1; a.step < 1000; a.step++) {
		status = in_child(one, &a);
		assert_true(WIFEXITED(status));
		assert_int_not_equal(WEXITSTATUS(status), 1);
		steps += !status;
		if (strcmp(path, value))
			assert_int_equal(access(path, F_OK), -1);
		if (WEXITSTATUS(status) == NOT_COME)
			break;
	}
	return steps;
}

static void a_socket_that_is_not_to_be_had(void **state)
{
	const char *path = path_of("a.sock");
	char value[256];

	snprintf(value, sizeof(value), "unix:%s", path);
	/* The socket, its mode, its name, its queue, what wakes the thread, the thread. */
	assert_in_range(each_step(value, path), 6, 8);
}

static void a_thread_that_is_not_to_be_had(void **state)
{
	const char *path = path_of("a.prom");

	assert_in_range(each_step(path, path), 2, 4);
	unlink(path);
}

static void a_text_that_has_no_memory(void **state)
{
	struct nodev *dev = nodev_new();
	struct kedge_cache *c;
	int step, hit = 1, failed = 0;
	size_t len;
	char *text;

	setenv("KEDGE_STATS", path_of("b.prom"), 1);
	assert_int_equal(kedge_cache_open(dev->dev, NULL, NULL, &c), 0);
	for (step = 1; hit; step++) {
		fault_at(step);
		text = stats_text(&len);
		hit = fault_hit();
		fault_at(0);
		assert_true(!text || value_of(text, "info", "version=", NULL) == 1);
		failed += !text || value_of(text, "cache_hits_total", "cache=\"1\"", NULL) < 0;
		free(text);
	}
	assert_int_equal(failed, step - 2);
	assert_true(failed >= 1);
	kedge_cache_close(c);
	nodev_free(dev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_socket_that_is_not_to_be_had),
		cmocka_unit_test(a_thread_that_is_not_to_be_had),
		cmocka_unit_test(a_text_that_has_no_memory),
	};
	int failed = need_uffd();

	if (failed)
		return failed;
	folder_begin();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	folder_end();
	return failed;
}
