// SPDX-License-Identifier: BSD-2-Clause
/* Processes that publish their counters, and what becomes of the file or socket: as they go on, as
 * they end or are killed, and where another one has the place. */
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/un.h>

#include "clock.h"
#include "published.h"

/* A program with a cache, that has used it; it ends when it is told to. */
struct program {
	pid_t pid;
	int hear, say;
	void (*first)(void); /* before the cache, or NULL */
	void (*then)(void);  /* behind it */
	unsigned int caches;
};

static char said[4096]; /* by kedge, in this process */
static int kept[2];	/* descriptors of a program's that are its way to the test */

static void note(void *unused, int severity, const char *text)
{
	snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s\n", text);
}

static void use(struct kedge_cache *c, char *mem)
{
	const struct kedge_mr *mr;
	int i;

	/* One miss, and hits. */
	for (i = 0; i < 10; i++) {
		CHILD_CHECK(!kedge_cache_get(c, mem, 1, 0, &mr));
		kedge_cache_put(c, mr);
	}
}

static void be(const struct program *p, const char *value, int hear, int say)
{
	static struct kedge_cache *caches[256];
	struct nodev *dev = nodev_new();
	char *mem = new_pages(1), c = 0;
	unsigned int i;

	setenv("KEDGE_STATS", value, 1);
	kept[0] = hear;
	kept[1] = say;
	if (p->first)
		p->first();
	for (i = 0; i < p->caches; i++)
		CHILD_CHECK(!kedge_cache_open(dev->dev, NULL, NULL, &caches[i]));
	use(caches[0], mem);
	if (p->then)
		p->then();
	CHILD_CHECK(write(say, &c, 1) == 1);
	CHILD_CHECK(read(hear, &c, 1) == 1);
	for (i = 0; i < p->caches; i++)
		kedge_cache_close(caches[i]);
	exit(0);
}

static void program_starts(struct program *p, const char *value)
{
	int to[2], from[2];
	char c;

	need_threads_after_fork();
	assert_int_equal(pipe2(to, O_CLOEXEC) | pipe2(from, O_CLOEXEC), 0);
	p->caches = p->caches ? p->caches : 1;
	fflush(NULL);
	p->pid = fork();
	assert_true(p->pid >= 0);
	if (!p->pid)
		be(p, value, to[0], from[1]);
	close(to[0]);
	close(from[1]);
	p->hear = from[0];
	p->say = to[1];
	assert_int_equal(read(p->hear, &c, 1), 1);
}

static int program_status(struct program *p)
{
	int status;

	assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
	close(p->say);
	close(p->hear);
	return status;
}

static void program_ends(struct program *p)
{
	assert_int_equal(write(p->say, "", 1), 1);
	assert_int_equal(program_status(p), 0);
}

static void program_is_killed(struct program *p)
{
	assert_int_equal(kill(p->pid, SIGKILL), 0);
	assert_true(WIFSIGNALED(program_status(p)));
}

static const char *sock(const char *path)
{
	static char value[256];

	snprintf(value, sizeof(value), "unix:%s", path);
	return value;
}

static bool counts(const char *text, const char *number)
{
	char cache[32];

	snprintf(cache, sizeof(cache), "cache=\"%s\"", number);
	return value_of(text, "cache_misses_total", cache, NULL) == 1 &&
	       value_of(text, "cache_hits_total", cache, NULL) == 9;
}

static void a_file_is_kept_up_to_date(void **state)
{
	struct program p = { 0 };
	const char *path = path_of("a.prom");
	struct stat st;

	umask(022);
	program_starts(&p, path);
	WAIT_FOR(counts(text_of_file(path), "1"));
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0644);
	program_ends(&p);
	/* The last ones, as it ended. */
	assert_true(counts(text_of_file(path), "closed"));
	assert_int_equal(value_of(text_of_file(path), "cache_misses_total", "cache=\"1\"", NULL),
			 -1);
	assert_int_equal(unlink(path), 0);
}

static void a_socket_tells_each_client(void **state)
{
	struct program p = { 0 };
	const char *path = path_of("a.sock");
	struct stat st;
	int i;

	umask(0);
	program_starts(&p, sock(path));
	for (i = 0; i < 20; i++)
		assert_true(counts(text_of_socket(path), "1"));
	assert_int_equal(value_of(text_of_socket(path), "info", "version=", NULL), 1);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	program_ends(&p);
	assert_int_equal(access(path, F_OK), -1);
}

static void processes_in_a_folder_are_told_apart(void **state)
{
	struct program p = { 0 }, q = { 0 };
	const char *of_p, *of_q;
	char pid[32];

	program_starts(&p, sock(folder));
	program_starts(&q, sock(folder));
	of_p = path_of("kedge-%s-%d.sock", program_invocation_short_name, p.pid);
	of_q = path_of("kedge-%s-%d.sock", program_invocation_short_name, q.pid);
	snprintf(pid, sizeof(pid), "pid=\"%d\"", p.pid);
	assert_int_equal(value_of(text_of_socket(of_p), "cache_hits_total", pid, NULL), 9);
	snprintf(pid, sizeof(pid), "pid=\"%d\"", q.pid);
	assert_int_equal(value_of(text_of_socket(of_q), "cache_hits_total", pid, NULL), 9);
	program_ends(&p);
	program_ends(&q);
}

static const char *pid_label(const struct program *p)
{
	static char label[2][32];
	static unsigned int turn;
	char *to = label[turn++ % 2];

	snprintf(to, sizeof(label[0]), "pid=\"%d\"", p->pid);
	return to;
}

static void log_to_us(void)
{
	kedge_log_set(note, NULL, KEDGE_LOG_WARN);
}

static void it_was_refused(void)
{
	WAIT_FOR(strstr(said, "another process answers there"));
	CHILD_CHECK(strchr(said, '\n') == strrchr(said, '\n'));
}

static void a_socket_of_another_is_left_to_it(void **state)
{
	struct program p = { 0 }, q = { .first = log_to_us, .then = it_was_refused };
	const char *path = path_of("a.sock");

	program_starts(&p, sock(path));
	program_starts(&q, sock(path));
	assert_int_equal(value_of(text_of_socket(path), "info", pid_label(&p), NULL), 1);
	/* Until that one ends. */
	program_ends(&p);
	MOVE_UNTIL(1000, value_of(text_of_socket(path), "info", pid_label(&q), NULL) == 1);
	program_ends(&q);
	assert_int_equal(access(path, F_OK), -1);
}

static void a_name_that_is_gone_is_had_again(void **state)
{
	struct program p = { 0 };
	const char *path = path_of("a.sock");

	program_starts(&p, sock(path));
	assert_int_equal(unlink(path), 0);
	MOVE_UNTIL(1000, counts(text_of_socket(path), "1"));
	program_ends(&p);
}

static void it_is_no_file(void)
{
	WAIT_FOR(strstr(said, "is no file"));
}

/* As root, /dev/null would become a file. */
static void what_is_no_file_is_left_alone(void **state)
{
	struct program p = { .first = log_to_us, .then = it_is_no_file };
	const char *pipe = path_of("pipe"), *link = path_of("link");
	struct stat st;

	assert_int_equal(mkfifo(pipe, 0600), 0);
	assert_int_equal(symlink("/dev/null", link), 0);
	program_starts(&p, pipe);
	program_ends(&p);
	program_starts(&p, link);
	program_ends(&p);
	assert_int_equal(lstat(pipe, &st), 0);
	assert_true(S_ISFIFO(st.st_mode));
	assert_int_equal(lstat(link, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	unlink(pipe);
	unlink(link);
}

static void a_socket_of_a_killed_one_is_taken_over(void **state)
{
	struct program p = { 0 }, q = { 0 };
	const char *path = path_of("a.sock");

	program_starts(&p, sock(path));
	program_is_killed(&p);
	assert_int_equal(access(path, F_OK), 0);
	program_starts(&q, sock(path));
	assert_true(counts(text_of_socket(path), "1"));
	program_ends(&q);
}

static void what_is_no_socket_is_left_alone(void **state)
{
	struct program q = { .first = log_to_us, .then = it_was_refused };
	const char *path = path_of("mine");
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_int_equal(write(fd, "kept", 4), 4);
	close(fd);
	program_starts(&q, sock(path));
	program_ends(&q);
	assert_string_equal(text_of_file(path), "kept");
	assert_int_equal(unlink(path), 0);
}

static void there_is_no_such_folder(void)
{
	WAIT_FOR(strstr(said, "counters are not published at /no-such/"));
}

static void a_place_that_is_not_there_is_told_once(void **state)
{
	struct program p = { .first = log_to_us, .then = there_is_no_such_folder };

	program_starts(&p, "unix:/no-such/folder");
	program_ends(&p);
	program_starts(&p, "/no-such/folder");
	program_ends(&p);
}

static void no_bytes_in_files(void)
{
	const struct rlimit none = { 0, 0 };

	log_to_us();
	CHILD_CHECK(!setrlimit(RLIMIT_FSIZE, &none));
}

static void it_is_too_large(void)
{
	WAIT_FOR(strstr(said, "File too large"));
}

/* SIGXFSZ would end it, at the last write as well, which is made while it ends. */
static void a_limit_of_file_sizes_ends_no_program(void **state)
{
	struct program p = { .first = no_bytes_in_files, .then = it_is_too_large };

	program_starts(&p, path_of("a.prom"));
	program_ends(&p);
}

static void close_all(void)
{
	int fd;

	for (fd = 3; fd < 1024; fd++)
		if (fd != kept[0] && fd != kept[1])
			close(fd);
	close_range(1024, ~0u, 0);
}

static void descriptors_that_are_closed_are_had_again(void **state)
{
	struct program p = { .then = close_all };
	const char *path = path_of("a.sock"), *file = path_of("a.prom");

	program_starts(&p, sock(path));
	MOVE_UNTIL(1000, counts(text_of_socket(path), "1"));
	program_ends(&p);
	program_starts(&p, file);
	MOVE_UNTIL(1000, counts(text_of_file(file), "1"));
	program_ends(&p);
	assert_int_equal(unlink(file), 0);
}

static int connect_to(const char *path)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(name.sun_path, sizeof(name.sun_path), "%s", path);
	assert_int_equal(connect(fd, (const struct sockaddr *)&name, sizeof(name)), 0);
	return fd;
}

static void a_client_that_reads_nothing_holds_up_no_end(void **state)
{
	/* More text than a socket takes by itself. */
	struct program p = { .caches = 200 };
	const char *path = path_of("a.sock"), *text;
	int fd, least = 1, n;

	program_starts(&p, sock(path));
	text = text_of_socket(path);
	assert_true(strlen(text) > 400000);
	assert_int_equal(value_of(text, "cache_hits_total", "cache=\"200\"", NULL), 0);
	fd = connect_to(path);
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &least, sizeof(least));
	WAIT_FOR(!ioctl(fd, FIONREAD, &n) && n > 0);
	program_ends(&p);
	close(fd);
}

static unsigned int lines_of(const char *text, const char *start)
{
	unsigned int n = 0;

	for (; text && (text = strstr(text, start)); text++)
		n++;
	return n;
}

static void forks(void)
{
	struct nodev *dev;
	struct kedge_cache *c;
	char mine[512];
	int status;
	pid_t pid = fork();

	CHILD_CHECK(pid >= 0);
	if (pid) {
		CHILD_CHECK(waitpid(pid, &status, 0) == pid && !status);
		return;
	}
	dev = nodev_new();
	CHILD_CHECK(!kedge_cache_open(dev->dev, NULL, NULL, &c));
	snprintf(mine, sizeof(mine), "%s", path_of("%d.sock", getpid()));
	/* Its parent's cache is not its own. */
	CHILD_CHECK(value_of(text_of_socket(mine), "cache_hits_total", "cache=\"1\"", NULL) == 0);
	CHILD_CHECK(lines_of(text_of_socket(mine), "\nkedge_cache_hits_total{") == 1);
	kedge_cache_close(c);
	exit(0);
}

static void a_forked_child_has_counters_of_its_own(void **state)
{
	struct program p = { .then = forks };

	program_starts(&p, sock(path_of("%%p.sock")));
	assert_true(counts(text_of_socket(path_of("%d.sock", p.pid)), "1"));
	program_ends(&p);
}

static void a_forked_child_holds_no_socket(void **state)
{
	struct program p = { 0 };
	const char *path = path_of("a.sock");
	pid_t pid;

	program_starts(&p, sock(path));
	pid = fork();
	if (!pid) {
		pause();
		_exit(0);
	}
	assert_true(counts(text_of_socket(path), "1"));
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	program_ends(&p);
}

static void no_descriptors(void)
{
	const struct rlimit few = { 128, 1024 };

	CHILD_CHECK(!setrlimit(RLIMIT_NOFILE, &few));
	while (dup(0) >= 0)
		;
}

static void a_client_is_let_in_when_there_is_a_descriptor(void **state)
{
	struct program p = { .then = no_descriptors };
	const char *path = path_of("a.sock");
	const struct rlimit more = { 256, 1024 };
	int fd;

	program_starts(&p, sock(path));
	fd = connect_to(path);
	assert_int_equal(prlimit(p.pid, RLIMIT_NOFILE, &more, NULL), 0);
	assert_true(counts(text_of_socket(path), "1"));
	close(fd);
	program_ends(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_is_kept_up_to_date),
		cmocka_unit_test(a_socket_tells_each_client),
		cmocka_unit_test(processes_in_a_folder_are_told_apart),
		cmocka_unit_test(a_socket_of_another_is_left_to_it),
		cmocka_unit_test(a_name_that_is_gone_is_had_again),
		cmocka_unit_test(what_is_no_file_is_left_alone),
		cmocka_unit_test(a_socket_of_a_killed_one_is_taken_over),
		cmocka_unit_test(what_is_no_socket_is_left_alone),
		cmocka_unit_test(a_place_that_is_not_there_is_told_once),
		cmocka_unit_test(a_limit_of_file_sizes_ends_no_program),
		cmocka_unit_test(descriptors_that_are_closed_are_had_again),
		cmocka_unit_test(a_client_that_reads_nothing_holds_up_no_end),
		cmocka_unit_test(a_forked_child_has_counters_of_its_own),
		cmocka_unit_test(a_forked_child_holds_no_socket),
		cmocka_unit_test(a_client_is_let_in_when_there_is_a_descriptor),
	};
	int failed;

	test_clock_begin();
	folder_begin();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	folder_end();
	return failed;
}
