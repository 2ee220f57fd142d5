// SPDX-License-Identifier: BSD-2-Clause
/* See remote.h. */
#include <sys/prctl.h>

#include "remote.h"

struct kedge_region *region;
struct kedge_handle handle;
struct kedge_remote *remote;

struct kedge_region_info query(struct kedge_region *r)
{
	struct kedge_region_info info = { .size = sizeof(info) };

	assert_int_equal(kedge_region_query(r, &info), 0);
	return info;
}

char *bytes_of(struct kedge_region *r)
{
	return (char *)(uintptr_t)query(r).addr;
}

char *region_at(void)
{
	return bytes_of(region);
}

uint64_t bytes_had(void)
{
	struct kedge_region_budget b = { .size = sizeof(b) };

	assert_int_equal(kedge_region_budget(&b), 0);
	return b.used;
}

void grow_to(size_t len)
{
	int rc;

	do {
		rc = kedge_region_grow(region, len);
	} while (rc == -ETIMEDOUT);
	assert_int_equal(rc, 0);
}

void advertise(const struct kedge_handle_opts *user)
{
	struct kedge_handle_opts o = { .size = sizeof(o) };
	int rc;

	if (user)
		o = *user;
	o.node = way->node;
	o.flags = way->served && !way->leased ? KEDGE_HANDLE_SERVED : 0;
	rc = kedge_region_advertise(region, &o, &handle);
	if (rc)
		fail_msg("%s", kedge_strerror(rc));
	if (way->node)
		handle.bytes[16] ^= 1;
}

struct kedge_remote *open_it(void)
{
	struct kedge_remote *r = NULL;
	int rc = kedge_remote_open(&handle, SOON_MS, &r);

	if (rc)
		fail_msg("%s", kedge_strerror(rc));
	return r;
}

static bool made;

bool regions_were_made(void)
{
	return made;
}

void make_region(size_t len, const struct kedge_handle_opts *o)
{
	int rc = kedge_region_create(len, NULL, &region);

	made = true;
	if (rc)
		fail_msg("%s", kedge_strerror(rc));
	advertise(o);
}

void begin_remote_of(size_t len, const struct kedge_handle_opts *o)
{
	make_region(len, o);
	remote = open_it();
	if (way->leased)
		wait_for_lease(remote);
}

void end_remote(void)
{
	kedge_remote_close(remote);
	kedge_region_close(region);
}

void begin_remote(const struct kedge_handle_opts *o)
{
	begin_remote_of(LEN, o);
}

int with_remote(void **state)
{
	begin_remote(NULL);
	return 0;
}

int without_remote(void **state)
{
	end_remote();
	return 0;
}

void handle_works(void)
{
	struct kedge_remote *r = open_it();
	char c = 1;

	assert_int_equal(kedge_remote_put(r, 0, &c, 1, SOON_MS), 0);
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, SOON_MS), 0);
	kedge_remote_close(r);
}

static struct kedge_remote_info info_of(struct kedge_remote *r)
{
	struct kedge_remote_info info = { .size = sizeof(info) };

	assert_int_equal(kedge_remote_query(r, &info), 0);
	return info;
}

uint64_t remote_len(struct kedge_remote *r)
{
	return info_of(r).len;
}

unsigned int way_of(struct kedge_remote *r)
{
	return info_of(r).way;
}

void wait_for_lease(struct kedge_remote *r)
{
	WAIT_FOR(way_of(r) == KEDGE_REMOTE_RDMA);
}

void puts_byte(struct kedge_remote *r, uint64_t at, char c)
{
	assert_int_equal(kedge_remote_put(r, at, &c, 1, SOON_MS), 0);
	assert_int_equal(region_at()[at], c);
}

void gets_byte(struct kedge_remote *r, uint64_t at, char c)
{
	char got = (char)~c;

	assert_int_equal(kedge_remote_get(r, at, &got, 1, SOON_MS), 0);
	assert_int_equal(got, c);
}

void *shared_memory(size_t len)
{
	void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(at, MAP_FAILED);
	return at;
}

pid_t fork_child(void)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

pid_t start_child(void (*run)(void *arg), void *arg)
{
	pid_t pid = fork_child();

	if (!pid) {
		run(arg);
		_exit(0);
	}
	return pid;
}

void reap(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

void kill_child(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}
