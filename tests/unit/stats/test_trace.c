// SPDX-License-Identifier: BSD-2-Clause
/* KEDGE_TRACE: a line for each change of watched memory, with the thread that made it. */
#include <dirent.h>
#include <semaphore.h>
#include <sys/prctl.h>

#include <kedge/hooks.h>

#include "cases.h"
#include "clock.h"
#include "stats/trace.h"

static char folder[] = "/tmp/kedge-trace-XXXXXX";
static char path[64];
static char text[8 << 20];

#define MANY 20000 /* changes: the ring has not as many */

/* Run @fn in a process of its own, with a trace at @to, and read what it has left at @from. */
static void traced(int (*fn)(void *), void *arg, const char *to, const char *from)
{
	ssize_t n;
	int fd;
	pid_t child;

	unlink(path);
	child = fork();
	if (!child) {
		setenv("KEDGE_TRACE", to, 1);
		alarm(CHILD_TIMEOUT);
		/* By exit(): the last lines are written as the process ends. */
		exit(fn(arg));
	}
	ended_well(child);
	fd = open(from, O_RDONLY);
	assert_true(fd >= 0);
	n = read(fd, text, sizeof(text) - 1);
	assert_true(n >= 0);
	text[n] = '\0';
	close(fd);
}

static bool has(const char *part)
{
	if (strstr(text, part))
		return true;
	fprintf(stderr, "no '%s' in: %.2000s\n", part, text);
	return false;
}

static struct kedge_notifier *watch(void *at, size_t len)
{
	struct kedge_notifier *nf = open_uffd();

	CHILD_CHECK(kedge_watch_add(nf, at, len, 1) >= 0);
	return nf;
}

/* By the process whose trace it is. */
static bool is_written(const char *part)
{
	ssize_t n = -1;
	int fd = open(path, O_RDONLY);

	if (fd >= 0) {
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	text[n > 0 ? n : 0] = '\0';
	return strstr(text, part);
}

static void *drop_named(void *p)
{
	prctl(PR_SET_NAME, "drops \"it\"");
	syscall(SYS_madvise, p, page_len(), MADV_DONTNEED);
	/* The name is looked up as the line is written: it waits for that, or the alarm. */
	while (!is_written("kind=remove"))
		usleep(1000);
	return NULL;
}

static int change_by_kernel(void *arg)
{
	char *p = new_pages(4);
	struct kedge_notifier *nf = watch(p, 4 * page_len());
	pthread_t t;

	CHILD_CHECK(!pthread_create(&t, NULL, drop_named, p));
	pthread_join(t, NULL);
	syscall(SYS_munmap, p + page_len(), page_len());
	kedge_notifier_close(nf);
	return 0;
}

static void a_change_has_its_thread(void **state)
{
	traced(change_by_kernel, NULL, path, path);
	assert_true(has("kind=remove"));
	assert_true(has("kind=unmap"));
	assert_true(has("by=kernel"));
	assert_true(has("watches=1"));
	/* Mostly the thread is found; where it is, its name cannot break the line. */
	assert_null(strstr(text, "drops \""));
	if (strstr(text, "thread="))
		assert_true(has("name="));
}

static int announce(void *arg)
{
	char *p = new_pages(1);
	struct kedge_notifier *nf = watch(p, page_len());
	struct kedge_hook hook;

	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP, p, page_len());
	kedge_hook_end(&hook);
	kedge_hook_begin(&hook, KEDGE_EVENT_REMOVE | KEDGE_HOOK_TELL_ONLY, p, page_len());
	kedge_hook_end(&hook);
	kedge_notifier_close(nf);
	return 0;
}

static void an_announced_change_has_its_stack(void **state)
{
	traced(announce, NULL, path, path);
	assert_true(has("kind=unmap"));
	assert_true(has("by=announced\n"));
	assert_true(has("by=announced unsure\n"));
	assert_true(has("name=\""));
	assert_null(strstr(text, "#0"));
	setenv("KEDGE_TRACE_STACK", "1", 1);
	traced(announce, NULL, path, path);
	setenv("KEDGE_TRACE_STACK", "0", 1);
	assert_true(has("  #0 "));
	assert_true(has("  #1 "));
}

static void change(char *p, unsigned int times)
{
	struct kedge_hook hook;

	while (times--) {
		kedge_hook_begin(&hook, KEDGE_EVENT_REMOVE, p, page_len());
		kedge_hook_end(&hook);
	}
}

static int many(void *pipe)
{
	char *p = new_pages(1);
	struct kedge_notifier *nf = watch(p, page_len());
	int reader = open(pipe, O_RDONLY | O_NONBLOCK);

	change(p, MANY);
	kedge_notifier_close(nf);
	/* Lines that a pipe has no room for are given up in time, so that the process ends. */
	test_clock_hurry(50);
	return reader < 0;
}

static sem_t held, go;

/* The thread that writes says that it cannot, and is kept there. */
static void hold(void *unused, int severity, const char *message)
{
	sem_post(&held);
	sem_wait(&go);
}

static void close_the_trace(void)
{
	char at[64], name[300];
	struct dirent *e;
	DIR *d = opendir("/proc/self/fd");
	ssize_t n;

	CHILD_CHECK(d);
	while ((e = readdir(d))) {
		snprintf(name, sizeof(name), "/proc/self/fd/%s", e->d_name);
		n = readlink(name, at, sizeof(at) - 1);
		at[n > 0 ? n : 0] = '\0';
		if (!strcmp(at, path))
			close(atoi(e->d_name));
	}
	closedir(d);
}

/* No line can be written until all changes have been: the ring has to be full. */
static int many_unwritten(void *away)
{
	char *p = new_pages(1);
	struct kedge_notifier *nf = watch(p, page_len());

	CHILD_CHECK(!sem_init(&held, 0, 0) && !sem_init(&go, 0, 0));
	kedge_log_set(hold, NULL, KEDGE_LOG_WARN);
	close_the_trace();
	CHILD_CHECK(!rename(folder, away));
	change(p, 1);
	sem_wait(&held);
	change(p, MANY - 1);
	CHILD_CHECK(!rename(away, folder));
	sem_post(&go);
	kedge_notifier_close(nf);
	return 0;
}

static unsigned int lines_with(const char *part)
{
	unsigned int n = 0;
	const char *p;

	for (p = strstr(text, part); p; p = strstr(p + 1, part))
		n++;
	return n;
}

static void what_does_not_fit_is_counted(void **state)
{
	uint64_t lost = 0;
	const char *p;
	char away[96];

	snprintf(away, sizeof(away), "%s.away", folder);
	traced(many_unwritten, away, path, path);
	for (p = strstr(text, "lost="); p; p = strstr(p + 1, "lost="))
		lost += strtoull(p + strlen("lost="), NULL, 10);
	assert_in_range(lost, 2, MANY);
	assert_int_equal(lines_with("kind=remove") + lost, MANY);
}

/* Nobody reads the pipe: no change waits for that, nor does the end. */
static void a_pipe_that_is_full_stops_nobody(void **state)
{
	char pipe[96];
	int fd;

	snprintf(pipe, sizeof(pipe), "%s/pipe", folder);
	assert_int_equal(mkfifo(pipe, 0600), 0);
	fd = open(pipe, O_RDONLY | O_NONBLOCK);
	assert_true(fd >= 0);
	traced(many, pipe, pipe, "/dev/null");
	assert_true(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	unlink(pipe);
}

static int announce_and_fork(void *arg)
{
	int status = -1;
	pid_t child;

	announce(NULL);
	child = fork();
	if (!child)
		exit(announce(NULL));
	CHILD_CHECK(waitpid(child, &status, 0) == child);
	return status;
}

static void a_child_has_a_trace_of_its_own(void **state)
{
	need_threads_after_fork();
	traced(announce_and_fork, NULL, path, path);
	assert_int_equal(lines_with("kind=unmap"), 2);
	assert_int_equal(lines_with("kind=remove"), 2);
}

static void in_a_folder_it_has_a_name_of_its_own(void **state)
{
	char list[128];
	FILE *f;

	traced(announce, NULL, folder, "/dev/null");
	snprintf(list, sizeof(list), "ls %s/kedge-*.trace", folder);
	f = popen(list, "r");
	assert_non_null(f);
	assert_non_null(fgets(text, sizeof(text), f));
	pclose(f);
	text[strcspn(text, "\n")] = '\0';
	assert_int_equal(unlink(text), 0);
}

/* As of a folder that others write to: one that is there already and leads elsewhere is left. */
static int link_then_announce(void *arg)
{
	char name[128];

	snprintf(name, sizeof(name), "%s/kedge-%s-%d.trace", folder,
		 program_invocation_short_name, (int)getpid());
	CHILD_CHECK(!symlink(arg, name));
	announce(NULL);
	unlink(name);
	return 0;
}

static void a_link_in_a_folder_is_not_followed(void **state)
{
	char target[96];

	snprintf(target, sizeof(target), "%s/elsewhere", folder);
	traced(link_then_announce, target, folder, "/dev/null");
	assert_int_equal(access(target, F_OK), -1);
}

/* Children of a program whose trace is being written find no lock taken. */
static int fork_meanwhile(void *arg)
{
	char *p = new_pages(1);
	struct kedge_notifier *nf = watch(p, page_len());
	struct kedge_hook hook;
	time_t now = 0;
	struct tm tm;
	int i, k, status;

	for (i = 0; i < 1000; i++) {
		for (k = 0; k < 50; k++) {
			kedge_hook_begin(&hook, KEDGE_EVENT_REMOVE, p, page_len());
			kedge_hook_end(&hook);
		}
		if (!fork()) {
			alarm(CHILD_TIMEOUT / 2);
			_exit(!localtime_r(&now, &tm));
		}
		CHILD_CHECK(wait(&status) > 0 && !status);
	}
	kedge_notifier_close(nf);
	return 0;
}

static void children_hang_in_no_lock(void **state)
{
	need_threads_after_fork();
	traced(fork_meanwhile, NULL, path, path);
	assert_true(has("kind=remove"));
}

/* The program goes on without its trace. */
static void a_place_that_is_not_there_is_no_failure(void **state)
{
	traced(announce, NULL, "/nonexistent/trace", "/dev/null");
	traced(announce, NULL, "/dev/full", "/dev/null");
	traced(announce, NULL, "unix:/nonexistent/trace", "/dev/null");
	traced(announce, NULL, "0", "/dev/null");
	/* As of a switch: it is told, and makes no file of that name. */
	traced(announce, NULL, "1", "/dev/null");
	assert_int_equal(access("1", F_OK), -1);
}

static void a_line_keeps_to_its_room(void **state)
{
	struct trace_change c = { .kind = KEDGE_EVENT_UNMAP, .tid = getpid(), .start = 4096,
				  .end = 8192, .watches = 3 };
	char line[TRACE_LINE_MAX];
	size_t room;

	c.stack.cnt = TRACE_FRAMES;
	assert_true(trace_line(line, sizeof(line), &c) < sizeof(line));
	for (room = 1; room < 400; room++) {
		memset(line, 'x', sizeof(line));
		assert_true(trace_line(line, room, &c) < room);
		assert_int_equal(line[room], 'x');
	}
}

#define LISTED PLAIN
#include "test_trace.cases.h"

int main(int argc, char **argv)
{
	int rc = need_uffd();

	if (rc)
		return rc;
	/* A process learns of it as it is loaded. */
	if (!getenv("KEDGE_TRACE_STACK")) {
		setenv("KEDGE_TRACE_STACK", "1", 1);
		execv("/proc/self/exe", argv);
	}
	setenv("KEDGE_TRACE_STACK", "0", 1);
	if (!mkdtemp(folder))
		return 1;
	snprintf(path, sizeof(path), "%s/trace", folder);
	test_clock_begin();
	rc = cmocka_run_group_tests(cases, NULL, NULL);
	unlink(path);
	rmdir(folder);
	return rc;
}
