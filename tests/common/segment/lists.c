// SPDX-License-Identifier: BSD-2-Clause
#include "lists.h"

#include <grp.h>
#include <sys/un.h>

/* ---- lists ---- */

int list_of(pid_t pid, uint32_t timeout_ms, struct listed *l)
{
	const struct kedge_segments_opts o = { .size = sizeof(o), .pid = pid,
					       .timeout_ms = timeout_ms };
	struct kedge_segment_entry e = { .size = sizeof(e) };
	struct kedge_segments *s;
	int rc = kedge_segments_open(&o, &s);

	l->cnt = 0;
	if (rc)
		return rc;
	/* A process of another test that could not be asked has no pid here. */
	while ((rc = kedge_segments_next(s, &e)) > 0)
		if ((!pid || e.pid) && l->cnt < sizeof(l->e) / sizeof(l->e[0]))
			l->e[l->cnt++] = e;
	kedge_segments_close(s);
	return rc;
}

void list_now(pid_t pid, struct listed *l)
{
	assert_int_equal(list_of(pid, LONG_MS, l), 0);
}

struct kedge_segment *make_as(void *at, size_t len, uint32_t mode, uint32_t backend)
{
	const struct kedge_segment_opts o = { .size = sizeof(o), .mode = mode,
					      .backend = backend };
	struct kedge_segment *s;

	assert_int_equal(kedge_segment_make(at, len, &o, &s), 0);
	return s;
}

/* ---- a program that owns one ---- */

/* The segment is made as user @made_as, and shown as @now. */
static void own(uid_t made_as, uid_t now)
{
	char c = 'r', *p = new_pages(1);

	CHILD_CHECK(!made_as || !setresuid(made_as, made_as, 0));
	make_as(p, page_len(), 0, KEDGE_SEGMENT_COPY);
	CHILD_CHECK(now == made_as || !setresuid(now, now, now));
	CHILD_CHECK(write(1, &c, 1) == 1);
	while (read(0, &c, 1) > 0)
		;
	_exit(0);
}

/* A program of its own, as a sanitizer lets no forked child start threads. */
void owner_start(struct owner *o, const char *made_as, const char *now)
{
	int in[2], out[2];
	char c;

	assert_int_equal(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC), 0);
	o->pid = fork();
	assert_true(o->pid >= 0);
	if (!o->pid) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		execl("/proc/self/exe", "owner", "owner", made_as, now, NULL);
		CHILD_CHECK(!"executed");
	}
	close(in[0]);
	close(out[1]);
	o->in = in[1];
	assert_int_equal(read(out[0], &c, 1), 1);
	close(out[0]);
}

void owner_end(struct owner *o)
{
	close(o->in);
	waitpid(o->pid, NULL, 0);
}

void owner_main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "owner"))
		own((uid_t)atoi(argv[2]), (uid_t)atoi(argv[3]));
}

/* ---- by hand ---- */

socklen_t list_address(uint32_t name, struct sockaddr_un *a)
{
	int n;

	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	n = snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "kedge-segment-%06x", name);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

uint32_t name_of(const struct kedge_segment *s)
{
	struct kedge_segment_id id;

	kedge_segment_id(s, &id);
	return (uint32_t)(id.word[0] >> 41);
}

int stranger(uint32_t name)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un a;
	socklen_t len = list_address(name, &a);

	if (fd < 0 || connect(fd, (struct sockaddr *)&a, len)) {
		close(fd);
		return -1;
	}
	return fd;
}

bool is_cut_off(int fd)
{
	char room[4096];
	ssize_t n;

	do
		n = recv(fd, room, sizeof(room), 0);
	while (n > 0);
	return !n || errno == ECONNRESET;
}

void become_nobody(void)
{
	const gid_t nobody = 65534;

	CHILD_CHECK(!setgroups(1, &nobody) && !setresgid(nobody, nobody, nobody) &&
		    !setresuid(nobody, nobody, nobody));
}

void need_root(void)
{
	skip_if(geteuid(), "only root can be another user");
}
