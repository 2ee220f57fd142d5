// SPDX-License-Identifier: BSD-2-Clause
/* Why the verbs device refuses, on this machine's own memory and limits. */
#include <grp.h>
#include <sys/resource.h>

#include "cases.h"
#include "base/base.h"
#include "device/device.h"
#include "device/proc.h"
#include "fakes/verbs.h"

#define PAGE 4096u
#define LW KEDGE_ACCESS_LOCAL_WRITE

static char *mem;
static size_t real_page;

static int setup(void **state)
{
	fake_setup(state);
	real_page = (size_t)sysconf(_SC_PAGESIZE);
	mem = mmap(NULL, 8 * real_page, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return mem == MAP_FAILED ? -1 : 0;
}

static int teardown(void **state)
{
	munmap(mem, 8 * real_page);
	return fake_teardown(state);
}

/* The device says @err to [at, at + len); what comes of it. */
static void expect(void *at, size_t len, uint32_t access, int err, int rc,
		   const char *words)
{
	struct kedge_device *dev = fake_open(NULL);
	struct kedge_device_mr mr;

	fake_refuse(FAKE_REG, err, 1);
	assert_int_equal(device_reg(dev, at, len, access, &mr), rc);
	fake_words(rc, words);
	/* Registrations tried to find out are gone. */
	assert_int_equal(fake.regs, 0);
	kedge_device_close(dev);
}

static void errors_of_the_device_are_told_apart(void **state)
{
	expect(mem, PAGE, LW, ENOSPC, -ENOSPC, "no room");
	expect(mem, PAGE, LW, EOPNOTSUPP, -EOPNOTSUPP, "DAX");
	expect(mem, PAGE, LW, EINVAL, -EOPNOTSUPP, "access 0x1 (error 22)");
	expect(mem, PAGE, LW, EIO, -EIO, "error 5");
	/* A NULL without an errno. */
	expect(mem, PAGE, LW, -1, -EIO, "error 5");
}

static void a_full_table_is_no_lack_of_memory(void **state)
{
	static const int says[] = { ENOMEM, EINVAL };
	struct kedge_device *dev;
	struct kedge_device_mr a, b;
	size_t i;

	fake.attr.orig_attr.max_mr = 1;
	dev = fake_open(NULL);
	assert_int_equal(device_reg(dev, mem, PAGE, 0, &a), 0);
	assert_int_equal(device_reg(dev, mem, PAGE, 0, &b), -ENOSPC);
	fake_words(-ENOSPC, "this process has 1 on it, the device takes 1");
	device_dereg(dev, &a);
	/* Others' registrations: not one page is taken any more. */
	for (i = 0; i < ARRAY_SIZE(says); i++) {
		fake_refuse(FAKE_REG, says[i], 2);
		assert_int_equal(device_reg(dev, mem, PAGE, 0, &b), -ENOSPC);
	}
	fake_refuse(FAKE_REG, ENOMEM, 1);
	assert_int_equal(device_reg(dev, mem, PAGE, 0, &b), -ENOMEM);
	fake_words(-ENOMEM, "fake0 has no memory to register 4 KiB");
	kedge_device_close(dev);
}

/* A registration tried to find out cannot be ended. */
static void a_page_that_stays_is_told(void **state)
{
	struct kedge_device *dev = fake_open(NULL);
	struct kedge_device_mr mr;

	fake_refuse(FAKE_REG, EINVAL, 1);
	fake_refuse_also(FAKE_DEREG, EBUSY);
	assert_int_equal(device_reg(dev, mem, PAGE, 0, &mr), -EOPNOTSUPP);
	assert_int_equal(fake_log_cnt, 1);
	assert_int_equal(fake.regs, 1);
	kedge_device_close(dev);
	assert_int_equal(fake.regs, 0);
}

/* As a user whom the limit binds, in a child. */
static int bound(void)
{
	const struct rlimit limit = { 64 * 1024, 64 * 1024 };
	const struct rlimit none = { 0, 0 };
	struct kedge_device *dev = fake_open(NULL);
	struct kedge_device_mr mr;
	int rc;

	if (setrlimit(RLIMIT_MEMLOCK, &limit))
		return 1;
	if (!getuid() && (setgroups(0, NULL) || setuid(65534)))
		return 2;
	if (kedge__proc_may_pin())
		return 3;
	fake_refuse(FAKE_REG, ENOMEM, 1);
	rc = device_reg(dev, mem + 100, 64 * 1024, LW, &mr);
	if (rc != -ENOMEM || !strstr(kedge_strerror(rc),
				     "RLIMIT_MEMLOCK is 64 KiB, this process "
				     "has pinned 0 KiB and asks for 68 KiB "
				     "more: raise it with ulimit -l"))
		return 4;
	if (fake.calls[FAKE_REG] != 1)
		return 5;
	/* Within it, it is something else. */
	fake_refuse(FAKE_REG, ENOMEM, 1);
	rc = device_reg(dev, mem, 32 * 1024, LW, &mr);
	if (rc != -ENOMEM || strstr(kedge_strerror(rc), "RLIMIT"))
		return 6;
	if (setrlimit(RLIMIT_MEMLOCK, &none))
		return 7;
	fake_refuse(FAKE_REG, EPERM, 1);
	rc = device_reg(dev, mem, PAGE, LW, &mr);
	if (rc != -ENOMEM ||
	    !strstr(kedge_strerror(rc), "RLIMIT_MEMLOCK is 0 KiB"))
		return 8;
	kedge_device_close(dev);
	return 0;
}

/* As one whom it does not: then it is not the limit. */
static int unbound(void)
{
	const struct rlimit none = { 0, 0 };
	struct kedge_device *dev = fake_open(NULL);
	struct kedge_device_mr mr;
	int rc;

	if (setrlimit(RLIMIT_MEMLOCK, &none))
		return 1;
	fake_refuse(FAKE_REG, ENOMEM, 1);
	rc = device_reg(dev, mem, PAGE, LW, &mr);
	if (rc != -ENOMEM || strstr(kedge_strerror(rc), "RLIMIT"))
		return 2;
	kedge_device_close(dev);
	return 0;
}

static void in_a_child(int (*fn)(void))
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid)
		_exit(fn());
	ended_well(pid);
}

static void the_limit_is_named(void **state)
{
	in_a_child(bound);
	if (kedge__proc_may_pin())
		in_a_child(unbound);
}

static void bad_memory_is_named(void **state)
{
	char *file;
	int fd;

	expect(mem, 8 * real_page, LW, EFAULT, -EFAULT, "cannot be pinned");
	mprotect(mem + real_page, real_page, PROT_READ);
	expect(mem, 8 * real_page, LW, EFAULT, -EFAULT, "not writable");
	expect(mem, 8 * real_page, 0, EFAULT, -EFAULT, "cannot be pinned");
	mprotect(mem + real_page, real_page, PROT_NONE);
	expect(mem, 8 * real_page, 0, EFAULT, -EFAULT, "not readable");
	munmap(mem + real_page, real_page);
	expect(mem, 8 * real_page, 0, EFAULT, -EFAULT, "is not mapped");
	expect(mem, real_page, 0, EFAULT, -EFAULT, "cannot be pinned");
	/* Ends in a hole. */
	expect(mem, 2 * real_page, 0, EFAULT, -EFAULT, "is not mapped");

	fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	file = mmap(NULL, real_page, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	assert_ptr_not_equal(file, MAP_FAILED);
	expect(file, real_page, LW, EFAULT, -EFAULT, "not writable");
	expect(file, real_page, 0, EFAULT, -EFAULT, "cannot be pinned");
	munmap(file, real_page);
}

static void a_shared_file_is_named(void **state)
{
	char path[] = "./verbs_why_XXXXXX";
	int fd = mkstemp(path);
	char *file;

	if (fd < 0)
		skip();
	unlink(path);
	assert_int_equal(ftruncate(fd, (off_t)real_page), 0);
	file = mmap(NULL, real_page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	assert_ptr_not_equal(file, MAP_FAILED);
	expect(file, real_page, LW, EFAULT, -EOPNOTSUPP, "shared file mappings");
	expect(file, real_page, 0, EFAULT, -EFAULT, "cannot be pinned");
	munmap(file, real_page);
	/* Memory has no file. */
	file = mmap(NULL, real_page, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	expect(file, real_page, LW, EFAULT, -EFAULT, "cannot be pinned");
	munmap(file, real_page);
}

#include "test_verbs_explain.cases.h"
