// SPDX-License-Identifier: BSD-2-Clause
/*
 * Many: peers that are silent while others wait, channels where descriptors are
 * few, and a thousand of them.
 */
#include <grp.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/un.h>

#include <kedge/tcp.h>

#include "channel/internal.h"
#include "channel/shm/internal.h"
#include "channel_child.h"

/* ---- strangers ---- */

#define SILENT 400

static int sockets[SILENT];
static int silent_cnt;
static bool is_other;

static void be_silent(void)
{
	struct sockaddr_un a;
	uint32_t len = 0;
	int i;

	if (is_other)
		CHILD_CHECK(!setgroups(0, NULL) &&
			    !setresgid(65534, 65534, 65534) &&
			    !setresuid(65534, 65534, 65534));
	CHILD_CHECK(!shm_address(child_path, &a, &len));
	for (i = 0; i < silent_cnt; i++) {
		sockets[i] = socket(AF_UNIX, SOCK_STREAM, 0);
		CHILD_CHECK(!connect(sockets[i], (void *)&a, len));
		if (i == 7)
			CHILD_CHECK(write(child_sock[1], "", 1) == 1);
	}
	pause();
}

static void be_honest(void)
{
	struct kedge_channel *ch;
	struct kedge_completion c;

	CHILD_CHECK(!kedge_channel_open_shm(child_path, NULL, LIMIT * 1000, &ch));
	while (wait_and_poll(ch, &c) >= 0)
		;
}

/* One call of accept() is enough, for all callers that were there before. */
static void one_of_many(int cnt, bool other)
{
	struct kedge_listener *l;
	struct kedge_channel *ch;
	pid_t silent, honest;
	char c;

	silent_cnt = cnt;
	is_other = other;
	assert_int_equal(kedge_listener_open_shm(child_path, NULL, &l), 0);
	silent = child_begin(be_silent);
	assert_int_equal(read(child_sock[0], &c, 1), 1);
	close(child_sock[0]);
	assert_int_equal(kedge_listener_accept(l, 0, &ch), -ETIMEDOUT);
	honest = child_begin(be_honest);
	assert_int_equal(kedge_listener_accept(l, LIMIT * 1000, &ch), 0);
	assert_int_equal(ch->peer.pid, honest);
	kedge_channel_close(ch);
	kedge_listener_close(l);
	close(child_sock[0]);
	child_ends_well(honest);
	child_kill(silent);
}

static void the_silent_delay_nobody(void **state)
{
	one_of_many(8, false);
	one_of_many(SILENT, false);
}

static void other_users_delay_nobody(void **state)
{
	if (geteuid()) {
		print_message("skipped: only root can be another user\n");
		skip();
	}
	one_of_many(8, true);
	one_of_many(SILENT, true);
}

/* ---- strangers over TCP ---- */

#define FEW_FDS 200

static struct sockaddr_in tcp_at;
static char tcp_port[8];

static void allow_fds(rlim_t cnt)
{
	struct rlimit r;

	CHILD_CHECK(!getrlimit(RLIMIT_NOFILE, &r));
	r.rlim_cur = cnt < r.rlim_max ? cnt : r.rlim_max;
	CHILD_CHECK(!setrlimit(RLIMIT_NOFILE, &r));
}

static int dial(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 || !connect(fd, (void *)&tcp_at, sizeof(tcp_at)))
		return fd;
	close(fd);
	return -1;
}

static void tell(void)
{
	CHILD_CHECK(write(child_sock[1], "", 1) == 1);
}

static void dial_and_be_silent(void)
{
	int i;

	allow_fds(1024);
	for (i = 0; i < SILENT; i++)
		CHILD_CHECK(dial() >= 0);
	tell();
	pause();
}

static void flood_with_nonsense(void)
{
	char junk[512];
	int i, fd;

	memset(junk, 0x5a, sizeof(junk));
	for (i = 0;; i++) {
		fd = dial();
		if (fd < 0)
			continue;
		send(fd, junk, (size_t)i % sizeof(junk), MSG_NOSIGNAL);
		if (i == 20)
			tell();
		close(fd);
	}
}

static void say_hello(void)
{
	struct kedge_channel *ch;

	CHILD_CHECK(!kedge_channel_open_tcp("127.0.0.1", tcp_port, NULL,
					    LIMIT * 1000, &ch));
	CHILD_CHECK(kedge_channel_send(ch, "hello", 5, 1, 0, NULL) >= 0);
	kedge_channel_close(ch);
}

/* The next that is let in is the honest one. */
static void honest_one_gets_in(struct kedge_listener *l)
{
	struct kedge_channel *ch;
	pid_t pid = child_begin(say_hello);

	assert_int_equal(kedge_listener_accept(l, LIMIT * 1000, &ch), 0);
	kedge_channel_close(ch);
	close(child_sock[0]);
	child_ends_well(pid);
}

#define REST_MS 300

/* With nothing but silence to listen to it does not turn round in circles. */
static void listener_rests(struct kedge_listener *l)
{
	const clockid_t id = CLOCK_PROCESS_CPUTIME_ID;
	struct timespec from, to;
	struct kedge_channel *ch;

	clock_gettime(id, &from);
	assert_int_equal(kedge_listener_accept(l, REST_MS, &ch), -ETIMEDOUT);
	clock_gettime(id, &to);
	assert_true((double)(to.tv_sec - from.tv_sec) +
		    (double)(to.tv_nsec - from.tv_nsec) * 1e-9 <= 0.3 * REST_MS / 1000);
}

static struct kedge_listener *listen_over_tcp(void)
{
	char text[KEDGE_ADDRESS_MAX];
	struct kedge_listener *l;

	assert_int_equal(kedge_listener_open_tcp("127.0.0.1", "0", NULL, &l), 0);
	assert_int_equal(kedge_listener_address(l, text, sizeof(text)), 0);
	snprintf(tcp_port, sizeof(tcp_port), "%s", strrchr(text, ':') + 1);
	tcp_at = (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)atoi(tcp_port)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	return l;
}

static void strangers_over_tcp_delay_nobody(void **state)
{
	struct kedge_listener *l;
	struct kedge_channel *ch;
	struct rlimit was;
	pid_t silent, flooder;
	char c;

	getrlimit(RLIMIT_NOFILE, &was);
	allow_fds(FEW_FDS);
	l = listen_over_tcp();
	silent = child_begin(dial_and_be_silent);
	/* The backlog holds them; those beyond it wait for accept(). */
	do
		assert_int_equal(kedge_listener_accept(l, 20, &ch), -ETIMEDOUT);
	while (recv(child_sock[0], &c, 1, MSG_DONTWAIT) != 1);
	close(child_sock[0]);
	honest_one_gets_in(l);
	listener_rests(l);
	flooder = child_begin(flood_with_nonsense);
	assert_int_equal(read(child_sock[0], &c, 1), 1);
	close(child_sock[0]);
	honest_one_gets_in(l);
	child_kill(flooder);
	child_kill(silent);
	kedge_listener_close(l);
	setrlimit(RLIMIT_NOFILE, &was);
}

/* ---- means ---- */

static void few_descriptors(void)
{
	struct rlimit r = { 40, 40 };

	CHILD_CHECK(!setrlimit(RLIMIT_NOFILE, &r));
}

static void connect_until_none_is_left(void)
{
	struct kedge_channel *ch;
	int rc, n = 0;

	/* A thread of the parent's may not have closed all strangers' sockets before the fork. */
	syscall(SYS_close_range, 3, child_sock[1] - 1, 0);
	syscall(SYS_close_range, child_sock[1] + 1, ~0u, 0);
	few_descriptors();
	while (!(rc = kedge_channel_open_shm(child_path, NULL, LIMIT * 1000, &ch)))
		n++;
	CHILD_CHECK(rc == -EMFILE);
	CHILD_CHECK(strstr(kedge_strerror(rc), "ulimit -n"));
	/* One for each, one for their process, three while one is opened. */
	CHILD_CHECK(n >= 20);
}

static void a_client_without_descriptors_says_so(void **state)
{
	struct kedge_channel *ch[64];
	struct kedge_listener *l;
	pid_t pid;
	int n = 0, status;

	assert_int_equal(kedge_listener_open_shm(child_path, NULL, &l), 0);
	pid = child_begin(connect_until_none_is_left);
	while (!waitpid(pid, &status, WNOHANG)) {
		assert_true(n < 64);
		n += !kedge_listener_accept(l, 10, &ch[n]);
	}
	assert_int_equal(status, 0);
	while (n)
		kedge_channel_close(ch[--n]);
	kedge_listener_close(l);
	close(child_sock[0]);
}

static void accept_until_none_is_left(void)
{
	struct kedge_listener *l;
	struct kedge_channel *ch;
	int rc;

	few_descriptors();
	CHILD_CHECK(!kedge_listener_open_shm(child_path, NULL, &l));
	CHILD_CHECK(write(child_sock[1], "", 1) == 1);
	while (!(rc = kedge_listener_accept(l, LIMIT * 1000, &ch)))
		;
	CHILD_CHECK(rc == -EMFILE);
	CHILD_CHECK(strstr(kedge_strerror(rc), "ulimit -n"));
}

static void a_listener_without_descriptors_says_so(void **state)
{
	pid_t pid = child_begin(accept_until_none_is_left);
	struct kedge_channel *ch[64];
	int n = 0, rc;
	char c;

	assert_int_equal(read(child_sock[0], &c, 1), 1);
	while (!(rc = kedge_channel_open_shm(child_path, NULL, LIMIT * 1000, &ch[n])))
		n++;
	assert_int_equal(rc, -ECONNRESET);
	assert_non_null(strstr(kedge_strerror(rc), "ulimit -n there"));
	child_ends_well(pid);
	while (n)
		kedge_channel_close(ch[--n]);
	close(child_sock[0]);
}

/* ---- many ---- */

#define MANY 1000
#define BULK (128u << 10) /* too long for the ring of most of these channels */

static struct kedge_channel *many[MANY];

static void copying(struct kedge_channel_opts *o)
{
	*o = (struct kedge_channel_opts){ .size = sizeof(*o),
					  .way = KEDGE_WAY_COPY };
}

static void serve_many(void)
{
	static char out[BULK], in[BULK];
	static ssize_t done[MANY];
	struct kedge_channel_opts o;
	struct kedge_listener *l;
	struct kedge_completion c;
	ssize_t n;
	int i;

	copying(&o);
	CHILD_CHECK(!kedge_listener_open_shm(child_path, &o, &l));
	CHILD_CHECK(write(child_sock[1], "", 1) == 1);
	for (i = 0; i < MANY; i++)
		CHILD_CHECK(!kedge_listener_accept(l, LIMIT * 1000, &many[i]));
	for (i = 0; i < MANY; i++) {
		CHILD_CHECK(!kedge_channel_recv(many[i], in, BULK, 0, 0, 1,
						NULL));
		done[i] = kedge_channel_send(many[i], out, BULK, 1, 2, NULL);
		CHILD_CHECK(done[i] >= 0);
	}
	/* In the peer's order: to ask all of them each time takes milliseconds. */
	for (i = 0; i < MANY; i++)
		while (done[i] < 2) {
			n = kedge_channel_poll(many[i], &c, 1);
			CHILD_CHECK(n >= 0);
			done[i] += n;
			if (n)
				alarm(LIMIT); /* a peer that goes on does not hang */
			else
				kedge_channel_wait(many[i], 1000);
		}
	while (kedge_channel_poll(many[0], &c, 1) >= 0)
		kedge_channel_wait(many[0], 1000);
}

static unsigned long status_kib(const char *key)
{
	unsigned long kib = 0;
	char line[256];
	FILE *f = fopen("/proc/self/status", "r");

	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, key, strlen(key)))
			kib = strtoul(line + strlen(key), NULL, 10);
	fclose(f);
	return kib;
}

static void exchange_one(struct kedge_channel *ch, char *out, char *in)
{
	struct kedge_completion c;
	ssize_t n;
	int done;

	assert_int_equal(kedge_channel_recv(ch, in, BULK, 0, 0, 1, NULL), 0);
	done = kedge_channel_send(ch, out, BULK, 1, 2, NULL);
	assert_in_range(done, 0, 1);
	while (done < 2) {
		n = kedge_channel_poll(ch, &c, 1);
		assert_true(n >= 0);
		done += (int)n;
		if (!n)
			kedge_channel_wait(ch, 1000);
	}
}

/* Nothing is mapped as it is under a sanitizer. */
static bool is_plain(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return false;
#else
	return true;
#endif
}

static void a_thousand_channels_are_cheap(void **state)
{
	struct rlimit r = { 4096, 4096 };
	unsigned long virt = status_kib("VmSize:"), rss = status_kib("VmRSS:");
	unsigned int fds = open_fds(), before = threads_now();
	struct kedge_channel_opts o;
	unsigned long threads;
	uint64_t since;
	char *buf = calloc(2, BULK), c;
	pid_t pid;
	int i;

	if (setrlimit(RLIMIT_NOFILE, &r))
		skip();
	copying(&o);
	pid = child_begin(serve_many);
	assert_int_equal(read(child_sock[0], &c, 1), 1);
	since = now_ns();
	for (i = 0; i < MANY; i++)
		assert_int_equal(kedge_channel_open_shm(child_path, &o, LIMIT * 1000,
							&many[i]), 0);
	print_message("opened in %llu ms\n",
		      (unsigned long long)(now_ns() - since) / 1000000);
	for (i = 0; i < MANY; i++) {
		alarm(LIMIT);
		exchange_one(many[i], buf, buf + BULK);
	}
	for (i = 0; i < MANY; i++)
		while (kedge_channel_arm(many[i]) == 1)
			kedge_channel_poll(many[i], NULL, 0);
	virt = status_kib("VmSize:") - virt;
	rss = status_kib("VmRSS:") - rss;
	fds = open_fds() - fds;
	threads = status_kib("Threads:");
	print_message("%u descriptors, %lu threads, %lu KiB of addresses, "
		      "%lu KiB resident\n", fds, threads, virt, rss);
	assert_in_range(fds, MANY, 2100);
	assert_in_range(threads, 1, 3);
	if (is_plain()) {
		assert_in_range(virt, 0, 1ul << 20);
		assert_in_range(rss, 0, 100ul << 10);
	}
	for (i = 0; i < MANY; i++)
		kedge_channel_close(many[i]);
	assert_true(threads_are(before));
	child_ends_well(pid);
	close(child_sock[0]);
	free(buf);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(the_silent_delay_nobody),
		CASE(other_users_delay_nobody),
		CASE(strangers_over_tcp_delay_nobody),
		CASE(a_client_without_descriptors_says_so),
		CASE(a_listener_without_descriptors_says_so),
		CASE(a_thousand_channels_are_cheap),
	};

	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
