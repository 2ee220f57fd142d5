// SPDX-License-Identifier: BSD-2-Clause
/*
 * The io_uring device on the kernel that runs: what a registration does to
 * data, and that each thing the kernel refuses comes back as what it is.
 */
#include <linux/capability.h>
#include <sys/resource.h>

#include <liburing.h>

#include <kedge/uring.h>

#include "../../process/alone.h"
#include "cases.h"
#include "base/base.h"
#include "device/device.h"

#define MIB (1ul << 20)

static struct io_uring ring;
static bool ring_open;
static size_t page;
static int file; /* a page of 'F' */
static char *mem;

static uint64_t status_kib(const char *field)
{
	char line[256];
	uint64_t kib = 0;
	FILE *f = fopen("/proc/self/status", "r");

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, field, strlen(field)))
			kib = strtoull(line + strlen(field) + 1, NULL, 10);
	fclose(f);
	return kib;
}

static void *map(size_t len, int prot, int flags, int fd)
{
	void *p = mmap(NULL, len, prot, flags, fd, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static int setup(void **state)
{
	/* The kernel takes a closed ring apart in its own time. */
	while (status_kib("VmPin:"))
		usleep(1000);
	ring_open = !io_uring_queue_init(8, &ring, 0);
	mem = mmap(NULL, 16 * page, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return ring_open && mem != MAP_FAILED ? 0 : -1;
}

static int teardown(void **state)
{
	munmap(mem, 16 * page);
	if (ring_open)
		io_uring_queue_exit(&ring);
	return 0;
}

static struct kedge_device *open_dev(uint32_t flags, uint32_t first,
				     uint32_t slots)
{
	struct kedge_uring_opts opts = { .size = sizeof(opts),
					 .flags = flags,
					 .first_slot = first,
					 .slots = slots };
	struct kedge_device *dev = NULL;

	assert_int_equal(kedge_device_open_uring(&ring, &opts, &dev), 0);
	return dev;
}

static int reg(struct kedge_device *dev, void *addr, size_t len,
	       struct kedge_device_mr *mr)
{
	return device_reg(dev, addr, len, KEDGE_ACCESS_LOCAL_WRITE, mr);
}

/* Read the file's page through a slot; what the read returned. */
static int read_fixed(void *addr, unsigned int len, uint64_t slot)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
	struct io_uring_cqe *cqe;
	int rc;

	io_uring_prep_read_fixed(sqe, file, addr, len, 0, (int)slot);
	assert_int_equal(io_uring_submit(&ring), 1);
	assert_int_equal(io_uring_wait_cqe(&ring, &cqe), 0);
	rc = cqe->res;
	io_uring_cqe_seen(&ring, cqe);
	return rc;
}

/* Before Linux 6.4 a slot's pages are unpinned a second after it is empty. */
static void expect_pinned(uint64_t kib)
{
	while (status_kib("VmPin:") != kib)
		usleep(1000);
}

/* ---- data ---- */

static void data_arrives_in_a_registered_page(void **state)
{
	uint64_t pinned = status_kib("VmPin:");
	struct kedge_device *dev = open_dev(0, 0, 0);
	struct kedge_device_mr mr;

	assert_int_equal(reg(dev, mem, page, &mr), 0);
	assert_int_equal(status_kib("VmPin:") - pinned, page / 1024);
	assert_int_equal(read_fixed(mem, (unsigned int)page, mr.handle), page);
	assert_int_equal(mem[0], 'F');
	assert_int_equal(mem[page - 1], 'F');
	device_dereg(dev, &mr);
	expect_pinned(pinned);
	/* The slot is empty: a stale index is refused. */
	assert_int_equal(read_fixed(mem, (unsigned int)page, mr.handle),
			 -EFAULT);
	kedge_device_close(dev);
}

/* The fault that the library is for: the old pages keep the data, without an error. */
static void a_stale_registration_loses_data(void **state)
{
	struct kedge_device *dev = open_dev(0, 0, 1);
	struct kedge_device_mr mr;

	mem[0] = 'x';
	assert_int_equal(reg(dev, mem, page, &mr), 0);
	assert_int_equal(munmap(mem, page), 0);
	assert_ptr_equal(mmap(mem, page, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 mem);
	mem[0] = 'n';
	assert_int_equal(read_fixed(mem, (unsigned int)page, mr.handle), page);
	assert_int_equal(mem[0], 'n');
	device_dereg(dev, &mr);
	assert_int_equal(reg(dev, mem, page, &mr), 0);
	assert_int_equal(read_fixed(mem, (unsigned int)page, mr.handle), page);
	assert_int_equal(mem[0], 'F');
	device_dereg(dev, &mr);
	kedge_device_close(dev);
}

static void a_full_table_has_no_room(void **state)
{
	struct kedge_device *dev = open_dev(0, 0, 4);
	struct kedge_device_mr mr[4], more;
	int round, i;

	for (round = 0; round < 3; round++) {
		for (i = 0; i < 4; i++)
			assert_int_equal(reg(dev, mem, page, &mr[i]), 0);
		assert_int_equal(reg(dev, mem, page, &more), -ENOSPC);
		for (i = 0; i < 4; i++)
			device_dereg(dev, &mr[i]);
	}
	kedge_device_close(dev);
}

/* ---- memory that cannot be registered ---- */

static void bad_memory_is_named(void **state)
{
	struct kedge_device *dev = open_dev(0, 0, 1);
	FILE *tmp = tmpfile();
	struct kedge_device_mr mr;
	int shm = memfd_create("test", MFD_CLOEXEC);
	char *p;

	assert_non_null(tmp);
	assert_int_equal(ftruncate(fileno(tmp), (off_t)page), 0);
	assert_int_equal(ftruncate(shm, (off_t)page), 0);

	munmap(mem + page, page);
	assert_int_equal(reg(dev, mem, 3 * page, &mr), -EFAULT);
	expect_words(-EFAULT, "not mapped");
	assert_int_equal(mprotect(mem + 3 * page, page, PROT_READ), 0);
	assert_int_equal(reg(dev, mem + 2 * page, 3 * page, &mr), -EFAULT);
	expect_words(-EFAULT, "not writable");
	assert_int_equal(mprotect(mem + 3 * page, page, PROT_NONE), 0);
	assert_int_equal(reg(dev, mem + 2 * page, 3 * page, &mr), -EFAULT);
	expect_words(-EFAULT, "not writable");
	assert_int_equal(reg(dev, NULL, page, &mr), -EFAULT);

	p = map(page, PROT_READ | PROT_WRITE, MAP_SHARED, shm);
	assert_int_equal(reg(dev, p, page, &mr), 0);
	device_dereg(dev, &mr);
	assert_int_equal(ftruncate(shm, 0), 0);
	assert_int_equal(reg(dev, p, page, &mr), -EFAULT);
	munmap(p, page);

	p = map(page, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(tmp));
	assert_int_equal(reg(dev, p, page, &mr), 0);
	device_dereg(dev, &mr);
	munmap(p, page);

	/* tmpfs pins, other file systems' pages do not; both are right. */
	p = map(page, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(tmp));
	if (!reg(dev, p, page, &mr)) {
		device_dereg(dev, &mr);
	} else {
		assert_int_equal(reg(dev, p, page, &mr), -EOPNOTSUPP);
		expect_words(-EOPNOTSUPP, "shared file");
	}
	munmap(p, page);
	close(shm);
	fclose(tmp);
	kedge_device_close(dev);
}

/* 1 GiB of addresses with 2 MiB of memory behind them. */
static void a_gibibyte_is_the_most(void **state)
{
	struct kedge_device *dev = open_dev(0, 0, 1);
	size_t gib = 1024 * MIB, at;
	int rc;
	struct kedge_device_mr mr;
	int shm = memfd_create("test", MFD_CLOEXEC);
	struct iovec iov;
	char *p;

	assert_int_equal(ftruncate(shm, 2 * MIB), 0);
	p = map(gib + 2 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	for (at = 0; at <= gib; at += 2 * MIB)
		assert_ptr_equal(mmap(p + at, 2 * MIB, PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_FIXED, shm, 0),
				 p + at);
	assert_int_equal(reg(dev, p, gib + page, &mr), -E2BIG);
	/* The limit is the kernel's own. */
	iov = (struct iovec){ .iov_base = p, .iov_len = gib + page };
	assert_int_equal(io_uring_register_buffers_update_tag(&ring, 0, &iov,
							      NULL, 1),
			 -EFAULT);
	rc = reg(dev, p, gib, &mr);
	if (!rc)
		device_dereg(dev, &mr);
	munmap(p, gib + 2 * MIB);
	close(shm);
	kedge_device_close(dev);
	skip_if(rc == -ENOMEM, "ulimit -l is less than the 1 GiB that this takes");
	assert_int_equal(rc, 0);
}

/* ---- the limit on locked memory ---- */

static void drop_ipc_lock(void)
{
	struct __user_cap_header_struct h = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3];

	memset(d, 0, sizeof(d));
	assert_int_equal(syscall(SYS_capget, &h, d), 0);
	d[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
	d[CAP_TO_INDEX(CAP_IPC_LOCK)].permitted &= ~CAP_TO_MASK(CAP_IPC_LOCK);
	assert_int_equal(syscall(SYS_capset, &h, d), 0);
}

/* In the child: 0, or the line that is wrong. */
static int exhaust_memlock(void)
{
	struct rlimit rl = { .rlim_cur = 1 * MIB, .rlim_max = 1 * MIB };
	struct kedge_device_mr small, mr;
	struct kedge_device *dev;
	char *p;

	drop_ipc_lock();
	if (setrlimit(RLIMIT_MEMLOCK, &rl))
		return __LINE__;
	if (io_uring_queue_init(8, &ring, 0))
		return __LINE__;
	p = map(4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		-1);
	madvise(p, 4 * MIB, MADV_NOHUGEPAGE);
	dev = open_dev(0, 0, 8);
	if (reg(dev, p, page, &small))
		return __LINE__;
	if (reg(dev, p, 1 * MIB, &mr) != -ENOMEM)
		return __LINE__;
	expect_words(-ENOMEM, "RLIMIT_MEMLOCK is 1 MiB, this process has "
			      "pinned 4 KiB and asks for 1 MiB more: raise it "
			      "with ulimit -l or LimitMEMLOCK=");
	device_dereg(dev, &small);
	/* The rings of this user count too, so not all of it is free. */
	if (reg(dev, p, MIB / 4, &mr))
		return __LINE__;
	device_dereg(dev, &mr);
	kedge_device_close(dev);
	return 0;
}

static void an_exhausted_memlock_is_named(void **state)
{
	int rc;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		rc = exhaust_memlock();
		if (rc)
			fprintf(stderr, "line %d: %s\n", rc,
				kedge_strerror(-ENOMEM));
		_exit(!!rc);
	}
	ended_well(pid);
}

/* ---- the ring's life ---- */

static void a_closed_ring_is_refused(void **state)
{
	uint64_t pinned = status_kib("VmPin:");
	struct kedge_device *dev = open_dev(0, 0, 4), *other;
	struct kedge_device_mr a, b;
	struct io_uring stranger;

	assert_int_equal(reg(dev, mem, page, &a), 0);
	io_uring_queue_exit(&ring);
	ring_open = false;
	assert_int_equal(reg(dev, mem, page, &b), -EBADF);
	expect_words(-EBADF, "closed");
	other = NULL;
	assert_int_equal(kedge_device_open_uring(&ring, NULL, &other), -EBADF);
	assert_null(other);

	/* Another ring gets the number: its slots are not ours to empty. */
	assert_int_equal(io_uring_queue_init(8, &stranger, 0), 0);
	assert_int_equal(stranger.ring_fd, ring.ring_fd);
	assert_int_equal(io_uring_register_buffers(
				 &stranger,
				 &(struct iovec){ .iov_base = mem + page,
						  .iov_len = page },
				 1),
			 0);
	device_dereg(dev, &a);
	kedge_device_close(dev);
	/* Ours is unpinned, the stranger's is not. */
	assert_int_equal(status_kib("VmPin:") - pinned, page / 1024);
	ring = stranger;
	ring_open = true;
	assert_int_equal(read_fixed(mem + page, (unsigned int)page, 0), page);
}

static void a_file_is_no_ring(void **state)
{
	struct io_uring fake = { .ring_fd = file, .enter_ring_fd = file };
	struct kedge_uring_opts o = { .size = sizeof(o),
				      .flags = KEDGE_URING_TABLE_EXISTS };
	struct kedge_device *dev;

	assert_int_equal(kedge_device_open_uring(&fake, NULL, &dev), -EBADF);
	assert_int_equal(kedge_device_open_uring(&fake, &o, &dev), -EBADF);
}

static void a_table_that_exists_is_shared(void **state)
{
	struct iovec iov[8] = { { .iov_base = mem, .iov_len = page } };
	struct kedge_device *dev = NULL;
	struct kedge_device_attr attr = { .size = sizeof(attr) };
	struct kedge_device_mr mr, left;

	assert_int_equal(io_uring_register_buffers(&ring, iov, 8), 0);
	assert_int_equal(kedge_device_open_uring(&ring, NULL, &dev), -EBUSY);
	dev = open_dev(KEDGE_URING_TABLE_EXISTS, 2, 0);
	assert_int_equal(kedge_device_query(dev, &attr), 0);
	assert_int_equal(attr.max_regions, 6);
	assert_int_equal(reg(dev, mem + page, page, &mr), 0);
	assert_int_equal(reg(dev, mem + page, page, &left), 0);
	assert_int_equal(mr.handle, 2);
	assert_int_equal(read_fixed(mem + page, (unsigned int)page, 2), page);
	assert_int_equal(mem[page], 'F');
	device_dereg(dev, &mr);
	/* The slot of the device that was left is emptied, the caller's is not. */
	kedge_device_close(dev);
	assert_int_equal(read_fixed(mem + page, (unsigned int)page,
				    left.handle),
			 -EFAULT);
	assert_int_equal(read_fixed(mem, (unsigned int)page, 0), page);
}

/* ---- threads and processes ---- */

struct other {
	struct kedge_device *dev;
	struct kedge_device_mr mr;
	int rc;
};

static void *reg_and_dereg(void *arg)
{
	struct other *o = arg;
	struct kedge_device_mr mr;

	o->rc = reg(o->dev, mem, page, &mr);
	device_dereg(o->dev, o->rc ? &o->mr : &mr);
	return NULL;
}

static void elsewhere(struct other *o)
{
	in_thread(reg_and_dereg, o);
}

static void a_single_issuers_ring_is_its_threads(void **state)
{
	struct other o;

	io_uring_queue_exit(&ring);
	ring_open = !io_uring_queue_init(8, &ring, IORING_SETUP_SINGLE_ISSUER);
	skip_if(!ring_open, "no IORING_SETUP_SINGLE_ISSUER here");
	o.dev = open_dev(0, 0, 2);
	assert_int_equal(reg(o.dev, mem, page, &o.mr), 0);
	elsewhere(&o);
	assert_int_equal(o.rc, -EEXIST);
	/* Its dereg there failed: the slot still holds the page... */
	assert_int_equal(read_fixed(mem, (unsigned int)page, o.mr.handle),
			 page);
	/* ... and is emptied and used again by a reg on the right thread. */
	assert_int_equal(reg(o.dev, mem + page, page, &o.mr), 0);
	assert_int_equal(read_fixed(mem, (unsigned int)page, o.mr.handle),
			 -EFAULT);
	device_dereg(o.dev, &o.mr);
	kedge_device_close(o.dev);
}

static void a_registered_ring_serves_all_threads(void **state)
{
	struct other o = { .rc = 0 };

	skip_if(io_uring_register_ring_fd(&ring) != 1, "this kernel registers no rings");
	o.dev = open_dev(0, 0, 1);
	elsewhere(&o);
	assert_int_equal(o.rc, 0);
	assert_int_equal(reg(o.dev, mem, page, &o.mr), 0);
	device_dereg(o.dev, &o.mr);
	kedge_device_close(o.dev);
}

static void a_childs_close_leaves_the_parents_slots(void **state)
{
	struct kedge_device *dev = open_dev(0, 0, 2);
	struct kedge_device_mr mr, other;
	int status;
	pid_t pid;

	assert_int_equal(reg(dev, mem, page, &mr), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		status = reg(dev, mem, page, &other) != -ECHILD;
		device_dereg(dev, &mr);
		kedge_device_close(dev);
		_exit(status);
	}
	ended_well(pid);
	assert_int_equal(read_fixed(mem, (unsigned int)page, mr.handle), page);
	device_dereg(dev, &mr);
	kedge_device_close(dev);
}

static void *churn(void *arg)
{
	struct kedge_device_mr mr[3];
	struct kedge_device *dev = arg;
	intptr_t wrong = 0;
	int i, n, rc;

	for (i = 0; i < 2000; i++) {
		for (n = 0; n < 3; n++) {
			rc = reg(dev, mem + (size_t)n * page, page, &mr[n]);
			if (rc)
				break;
		}
		wrong += n < 3 && rc != -ENOSPC;
		while (n--)
			device_dereg(dev, &mr[n]);
	}
	return (void *)wrong;
}

static void threads_give_every_slot_back(void **state)
{
	uint64_t pinned = status_kib("VmPin:");
	struct kedge_device *dev = open_dev(0, 0, 8);
	struct kedge_device_mr mr[8];
	pthread_t thread[4];
	int i;

	run_threads(thread, 4, churn, dev, 0);
	join_threads(thread, 4);
	expect_pinned(pinned);
	for (i = 0; i < 8; i++)
		assert_int_equal(reg(dev, mem, page, &mr[i]), 0);
	kedge_device_close(dev);
	expect_pinned(pinned);
}

static int make_file(void)
{
	char buf[65536];

	memset(buf, 'F', sizeof(buf));
	file = memfd_create("data", MFD_CLOEXEC);
	return file < 0 || write(file, buf, page) != (ssize_t)page;
}

#include "test_uring_kernel.cases.h"

int main(void)
{
	struct kedge_device *dev;
	int rc;

	pin_alone();
	page = kedge__page_size();
	rc = io_uring_queue_init(8, &ring, 0);
	if (rc) {
		printf("skipped: no io_uring here: %s (see the sysctl "
		       "kernel.io_uring_disabled)\n",
		       strerror(-rc));
		return 77;
	}
	rc = kedge_device_open_uring(&ring, NULL, &dev);
	if (!rc)
		kedge_device_close(dev);
	io_uring_queue_exit(&ring);
	if (rc == -EOPNOTSUPP || rc == -EPERM) {
		printf("skipped: %s\n", kedge_strerror(rc));
		return 77;
	}
	if (make_file()) {
		perror("memfd");
		return 1;
	}
	return RUN(cases);
}
