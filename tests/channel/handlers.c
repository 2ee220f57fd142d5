// SPDX-License-Identifier: BSD-2-Clause
/*
 * A program that is linked with every library of kedge's has the signal handlers
 * that it set, and dies as without them: before and after it has asked libfabric
 * what it has.
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kedge/kedge.h>
#include <kedge/ofi.h>
#include <kedge/uring.h>
#ifdef WITH_VERBS
#include <kedge/verbs.h>
#endif

#define SIGNALS 65

static int failed;

static void handler(int signo)
{
	(void)signo;
}

static void look(const char *when)
{
	struct sigaction sa;
	int i;

	for (i = 1; i < SIGNALS; i++) {
		if (sigaction(i, NULL, &sa) || i == SIGUSR1)
			continue;
		/* A shell lets what it runs in the background ignore some. */
		if (sa.sa_flags & SA_SIGINFO ||
		    (sa.sa_handler != SIG_DFL && sa.sa_handler != SIG_IGN)) {
			printf("FAIL: %s: signal %d is caught\n", when, i);
			failed = 1;
		}
	}
	sigaction(SIGUSR1, NULL, &sa);
	if (sa.sa_handler != handler) {
		printf("FAIL: %s: SIGUSR1 is not ours any more\n", when);
		failed = 1;
	}
}

static void dies(int signo, const char *when)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		raise(signo);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != signo) {
		printf("FAIL: %s: signal %d ends with status %x\n", when, signo,
		       status);
		failed = 1;
	}
}

static void nothing_is_written(void)
{
	struct dirent *e;
	DIR *dir = opendir(".");

	while ((e = readdir(dir)) != NULL)
		if (strstr(e->d_name, ".btr")) {
			printf("FAIL: %s was written\n", e->d_name);
			failed = 1;
		}
	closedir(dir);
}

int main(void)
{
	char dir[] = "/tmp/kedge-handlers-XXXXXX";
	/* So that each is linked. */
	void *volatile used[] = {
		(void *)kedge_ofi_list, (void *)kedge_device_open_uring,
#ifdef WITH_VERBS
		(void *)kedge_device_open_verbs,
#endif
	};
	ssize_t n;
	int i = 0;

	(void)used;
	(void)i;
	if (!mkdtemp(dir) || chdir(dir))
		return 1;
	signal(SIGUSR1, handler);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	/* Those of the sanitizer are not meant. */
	for (i = 1; i < SIGNALS; i++)
		if (i != SIGUSR1)
			signal(i, SIG_DFL);
#endif
	look("at the start");
	dies(SIGSEGV, "at the start");
	dies(SIGABRT, "at the start");
	n = kedge_ofi_list(NULL, 0);
	printf("%zd providers\n", n);
	look("with libfabric");
	dies(SIGSEGV, "with libfabric");
	dies(SIGABRT, "with libfabric");
	nothing_is_written();
	rmdir(dir);
	return failed;
}
