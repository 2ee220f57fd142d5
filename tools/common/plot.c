// SPDX-License-Identifier: BSD-2-Clause
/* A picture by gnuplot, which is run as a program and need not be there. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/common/plot.h"
#include "tools/common/util.h"

extern char **environ;

/* Whether @file can be written; one that was not there is not left there. */
static int check_file(const char *file)
{
	int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd >= 0)
		unlink(file);
	else if (errno == EEXIST)
		fd = open(file, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0) {
		util_error("--plot: cannot write %s: %s", file,
			   strerror(errno));
		return CMD_CANNOT;
	}
	close(fd);
	return CMD_OK;
}

/* Finds out if gnuplot runs, by asking its version. */
static int check_gnuplot(void)
{
	char *argv[] = { (char *)"gnuplot", (char *)"--version", NULL };
	posix_spawn_file_actions_t actions;
	int err, status = -1;
	pid_t pid;

	err = posix_spawn_file_actions_init(&actions);
	if (err)
		return util_fail(-err, "--plot");
	err = posix_spawn_file_actions_addopen(&actions, 1, "/dev/null",
					       O_WRONLY, 0);
	if (!err)
		err = posix_spawnp(&pid, argv[0], &actions, NULL, argv,
				   environ);
	posix_spawn_file_actions_destroy(&actions);
	while (!err && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!err && WIFEXITED(status) && !WEXITSTATUS(status))
		return CMD_OK;
	util_error("--plot: cannot run gnuplot: install it (Debian's "
		   "gnuplot-nox), or draw what --csv prints");
	return CMD_CANNOT;
}

int plot_check(const char *file)
{
	int rc = check_file(file);

	return rc ? rc : check_gnuplot();
}

/* Start "gnuplot -" with its standard input in *@in. */
static int start(pid_t *pid, FILE **in)
{
	char *argv[] = { (char *)"gnuplot", (char *)"-", NULL };
	posix_spawn_file_actions_t actions;
	int pipefd[2], err;

	if (pipe2(pipefd, O_CLOEXEC))
		return -errno;
	err = -posix_spawn_file_actions_init(&actions);
	if (err)
		goto close_pipe;
	err = -posix_spawn_file_actions_adddup2(&actions, pipefd[0], 0);
	if (!err)
		err = -posix_spawnp(pid, argv[0], &actions, NULL, argv,
				    environ);
	posix_spawn_file_actions_destroy(&actions);
	if (err)
		goto close_pipe;
	*in = fdopen(pipefd[1], "w");
	close(pipefd[0]);
	if (*in)
		return 0;
	err = -errno;
	close(pipefd[1]);
	waitpid(*pid, NULL, 0);
	return err;

close_pipe:
	close(pipefd[0]);
	close(pipefd[1]);
	return err;
}

/* Between single quotes gnuplot wants a single quote doubled. */
static void put_quoted(FILE *out, const char *text)
{
	fputc('\'', out);
	for (; *text; text++) {
		if (*text == '\'')
			fputc('\'', out);
		fputc(*text, out);
	}
	fputc('\'', out);
}

static int run(const char *file, unsigned int width, unsigned int height,
	       const char *script, const char *data)
{
	void (*before)(int) = signal(SIGPIPE, SIG_IGN);
	int status = 0, rc;
	FILE *in;
	pid_t pid;

	rc = start(&pid, &in);
	if (rc) {
		signal(SIGPIPE, before);
		return util_fail(rc, "cannot run gnuplot");
	}
	fprintf(in, "set terminal svg size %u,%u background 'white'\n"
		"set output ", width, height);
	put_quoted(in, file);
	fprintf(in, "\n$data << EOD\n%sEOD\n%s\n", data, script);
	rc = fclose(in) ? -errno : 0;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	signal(SIGPIPE, before);
	if (!rc && WIFEXITED(status) && !WEXITSTATUS(status))
		return CMD_OK;
	util_error("gnuplot could not draw %s", file);
	return CMD_CANNOT;
}

/* The table goes before the script that names it, so both are kept until they
 * are whole. */
int plot_draw(const char *file, unsigned int width, unsigned int height,
	      void (*put)(const void *of, FILE *script, FILE *data),
	      const void *of)
{
	char *script = NULL, *data = NULL;
	size_t script_len, data_len;
	FILE *s = open_memstream(&script, &script_len);
	FILE *d = open_memstream(&data, &data_len);
	int rc = s && d ? 0 : -ENOMEM;

	if (!rc)
		put(of, s, d);
	if (s && fclose(s))
		rc = -ENOMEM;
	if (d && fclose(d))
		rc = -ENOMEM;
	rc = rc ? util_fail(rc, "cannot draw %s", file)
		: run(file, width, height, script, data);
	free(script);
	free(data);
	return rc;
}
