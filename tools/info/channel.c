// SPDX-License-Identifier: BSD-2-Clause
/* The ways of messages: channels to forked processes, and a swap of pages. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kedge/channel_info.h>
#include <kedge/kedge.h>
#include <kedge/pageswap.h>

#include "base/base.h"
#include "tools/common/net.h"
#include "tools/common/sys.h"
#include "tools/info/info.h"

#define TIMEOUT_MS 5000
#define WORD	   0x6b65646765ull
#define TAG	   1u
#define LOOPBACK   "127.0.0.1"
#define VERBS	   "verbs"

/* The other end: sends a word and stays until it has been taken. */
static int peer(struct kedge_channel *ch)
{
	uint64_t word = WORD;
	struct kedge_completion c;

	kedge_channel_send(ch, &word, sizeof(word), TAG, 0, NULL);
	while (kedge_channel_poll(ch, &c, 1) >= 0)
		kedge_channel_wait(ch, TIMEOUT_MS);
	kedge_channel_close(ch);
	return 0;
}

static int shm_peer(int fd)
{
	struct kedge_channel *ch;

	return kedge_channel_open_fd(fd, NULL, TIMEOUT_MS, &ch) ? 1 : peer(ch);
}

/* Its exit status: 0 or an errno. */
static int tcp_peer(const char *port)
{
	struct kedge_channel *ch;
	int rc = kedge_channel_open_tcp(LOOPBACK, port, NULL, TIMEOUT_MS, &ch);

	return rc ? -rc : peer(ch);
}

static int take_word(struct kedge_channel *ch)
{
	struct kedge_completion c = { .status = -ETIMEDOUT };
	uint64_t word = 0;
	ssize_t n;
	int rc;

	rc = kedge_channel_recv(ch, &word, sizeof(word), TAG, UINT64_MAX, 0,
				NULL);
	if (rc)
		return rc;
	while (!(n = kedge_channel_poll(ch, &c, 1)))
		if (kedge_channel_wait(ch, TIMEOUT_MS) <= 0)
			return -ETIMEDOUT;
	if (n < 0)
		return (int)n;
	return c.status ? c.status : word == WORD ? 0 : -EIO;
}

static void describe(struct info_line *l, struct kedge_channel *ch)
{
	struct kedge_channel_info info = { .size = sizeof(info) };
	char ways[80] = "";
	json_t *list = json_array();
	uint32_t way;
	size_t len;

	kedge_channel_info(ch, &info);
	for (way = KEDGE_WAY_EAGER; way < KEDGE_WAY_COUNT; way++) {
		if (!(info.ways & 1u << way))
			continue;
		len = strlen(ways);
		snprintf(ways + len, sizeof(ways) - len, "%s%s",
			 len ? ", " : "", kedge_way_name(way));
		json_array_append_new(list, json_string(kedge_way_name(way)));
	}
	json_object_set_new(l->data, "ways", list);
	info_text(l, "a message came from another process; ways to receive: "
		  "%s", ways);
	if (!info.why || !*info.why)
		return;
	l->state = INFO_LIMITED;
	info_todo(l, "%s", info.why);
}

/* Take the word over @ch, which ends here. */
static int try_word(struct kedge_channel *ch, struct info_line *l)
{
	int rc = take_word(ch);

	if (!rc)
		describe(l, ch);
	kedge_channel_close(ch);
	return rc;
}

/* A forked process that runs @other with its end of a pair; the rest is @mine's. */
static int with_other(int (*other)(int fd),
		      int (*mine)(int fd, struct kedge_channel **ch),
		      struct info_line *l)
{
	struct kedge_channel *ch;
	int fds[2], rc, status;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds))
		return -errno;
	fflush(NULL);
	pid = fork();
	if (!pid) {
		close(fds[0]);
		_exit(other(fds[1]));
	}
	close(fds[1]);
	rc = pid < 0 ? -errno : mine(fds[0], &ch);
	if (rc)
		close(fds[0]);
	else
		rc = try_word(ch, l);
	if (pid > 0)
		waitpid(pid, &status, 0);
	return rc;
}

static int shm_mine(int fd, struct kedge_channel **ch)
{
	return kedge_channel_open_fd(fd, NULL, TIMEOUT_MS, ch);
}

static void add_shm(struct info *info)
{
	struct info_line *l = info_add(info, INFO_MESSAGES, "shm", INFO_OK);
	int rc = with_other(shm_peer, shm_mine, l);

	if (!rc)
		return;
	l->state = INFO_MISSING;
	info_text(l, "no channel between two processes: %s",
		  kedge_strerror(rc));
}

static int try_listener(struct kedge_listener *listener, struct info_line *l)
{
	char at[KEDGE_ADDRESS_MAX];
	struct kedge_channel *ch;
	int rc = kedge_listener_address(listener, at, sizeof(at)), status = 0;
	pid_t pid;

	if (rc)
		return rc;
	fflush(NULL);
	pid = fork();
	if (!pid)
		_exit(tcp_peer(strrchr(at, ':')));
	if (pid < 0)
		return -errno;
	rc = kedge_listener_accept(listener, TIMEOUT_MS, &ch);
	if (!rc)
		rc = try_word(ch, l);
	waitpid(pid, &status, 0);
	/* It knows better why it did not come. */
	if (rc == -ETIMEDOUT && WIFEXITED(status) && WEXITSTATUS(status))
		rc = -WEXITSTATUS(status);
	return rc;
}

static int try_tcp(struct info_line *l)
{
	struct kedge_listener *listener;
	int rc = kedge_listener_open_tcp(LOOPBACK, "0", NULL, &listener);

	if (rc)
		return rc;
	rc = try_listener(listener, l);
	kedge_listener_close(listener);
	return rc;
}

static bool has_secret(void)
{
	return getenv("KEDGE_CHANNEL_SECRET") ||
	       getenv("KEDGE_CHANNEL_SECRET_FILE");
}

static void add_tcp(struct info *info)
{
	struct info_line *l = info_add(info, INFO_MESSAGES, "tcp", INFO_OK);
	int rc = try_tcp(l);

	json_object_set_new(l->data, "secret", json_boolean(has_secret()));
	if (rc) {
		l->state = INFO_MISSING;
		info_text(l, "no channel over the loopback interface: %s",
			  kedge_strerror(rc));
		if (rc == -ENETUNREACH || rc == -EADDRNOTAVAIL)
			info_todo(l, "ip link set lo up");
		return;
	}
	if (!has_secret())
		info_todo(l, "whoever reaches a port may open a channel, unless "
			  "both ends have a secret: KEDGE_CHANNEL_SECRET_FILE, "
			  "see man 7 kedge");
}

/* Loaded by each end after the fork: librdmacm is of one process. */
static int verbs_peer(int fd)
{
	struct kedge_channel *ch;

	return net_pair(VERBS, 0, fd, NULL, &ch) ? 1 : peer(ch);
}

static int verbs_mine(int fd, struct kedge_channel **ch)
{
	return net_pair(VERBS, 1, fd, NULL, ch);
}

static void add_verbs(struct info *info)
{
	struct info_line *l = info_add(info, INFO_MESSAGES, VERBS, INFO_OK);
	int rc = with_other(verbs_peer, verbs_mine, l);

	if (!rc)
		return;
	l->state = INFO_MISSING;
	info_text(l, "no channel over an RDMA adapter: %s", kedge_strerror(rc));
	if (rc == -ENODEV)
		info_todo(l, "an adapter, or soft-RoCE: modprobe rdma_rxe "
			  "rdma_ucm, then rdma link add rxe0 type rxe netdev "
			  "eth0");
	else if (rc == -ENOMEM)
		info_todo(l, "ulimit -l unlimited, or LimitMEMLOCK= of the "
			  "service");
	else
		info_todo(l, "see man 3 kedge_channel_open_rdma for that error");
}

/* Two pages for two, in one mapping. */
static int try_swap(uint32_t way)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *p = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int rc;

	if (p == MAP_FAILED)
		return -errno;
	memset(p, 1, 2 * page);
	memset(p + 2 * page, 2, 2 * page);
	rc = kedge_page_swap_with(p, p + 2 * page, 2 * page, way);
	if (!rc && (p[0] != 2 || p[4 * page - 1] != 1))
		rc = -EIO;
	munmap(p, 4 * page);
	return rc;
}

static void add_swap(struct info *info)
{
	struct info_line *l = info_add(info, INFO_MESSAGES, "swap", INFO_OK);
	int rc = try_swap(0);
	char thp[20];

	if (rc) {
		l->state = INFO_LIMITED;
		info_text(l, "large messages into new memory are copied: %s",
			  kedge_strerror(rc));
		if (rc == -EOPNOTSUPP)
			info_todo(l, "Linux 6.8 or later, where userfaultfd "
				  "moves pages");
		return;
	}
	sys_choice("/sys/kernel/mm/transparent_hugepage/enabled", thp,
		   sizeof(thp));
	rc = try_swap(KEDGE_SWAP_PHYS);
	info_text(l, "exchanged the pages of two ranges%s%s; transparent huge "
		  "pages: %s", rc ? ", not pinned ones: " : ", pinned ones too",
		  rc ? kedge_strerror(rc) : "", *thp ? thp : "none");
	if (*thp && strcmp(thp, "never"))
		return;
	l->state = INFO_LIMITED;
	info_todo(l, "messages land in huge pages where there are some: echo "
		  "madvise >/sys/kernel/mm/transparent_hugepage/enabled");
}

void info_messages(struct info *info)
{
	add_shm(info);
	add_tcp(info);
	add_verbs(info);
	add_swap(info);
	info_segments(info);
	info_ofi(info);
	info_ucx(info);
}
