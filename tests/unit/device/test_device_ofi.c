// SPDX-License-Identifier: BSD-2-Clause
/* A domain of libfabric's as a device: a domain that is made here says what it was asked for. */
#include "cases.h"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <kedge/ofi_device.h>

#define LEN ((size_t)64 << 10)

/* ---- libfabric ---- */

static struct fake {
	struct fid_mr mr[64];
	unsigned int cnt; /* that were made, and */
	unsigned int live;
	unsigned int bound, enabled;
	uint64_t access;
	uint64_t taken;	 /* a key that another has */
	uint64_t last_key; /* that was asked for */
	bool gives_keys;
	bool keeps;	 /* a registration, as a cache does */
	int fails;	 /* the errno of the next registration */
	int enable_fails;
} fake;

static struct fid_ep endpoint;

static int mr_close(struct fid *fid)
{
	fake.live--;
	return 0;
}

static int mr_bind(struct fid *fid, struct fid *to, uint64_t flags)
{
	assert_ptr_equal(to, &endpoint.fid);
	fake.bound++;
	return 0;
}

static int mr_control(struct fid *fid, int command, void *arg)
{
	assert_int_equal(command, FI_ENABLE);
	fake.enabled++;
	return -fake.enable_fails;
}

static struct fi_ops mr_fid_ops = { .size = sizeof(mr_fid_ops), .close = mr_close,
				    .bind = mr_bind, .control = mr_control };

static int mr_reg(struct fid *fid, const void *buf, size_t len, uint64_t access, uint64_t offset,
		  uint64_t key, uint64_t flags, struct fid_mr **out, void *context)
{
	struct fid_mr *mr = &fake.mr[fake.cnt % 64];

	if (fake.fails) {
		int rc = -fake.fails;

		fake.fails = 0;
		return rc;
	}
	fake.last_key = key;
	if (!fake.gives_keys && key == fake.taken)
		return -FI_ENOKEY;
	*mr = (struct fid_mr){ .fid = { .fclass = FI_CLASS_MR, .ops = &mr_fid_ops } };
	mr->key = !fake.gives_keys ? key : fake.keeps ? 77 : 100 + fake.cnt;
	mr->mem_desc = mr;
	fake.access = access;
	fake.cnt++;
	fake.live++;
	*out = mr;
	return 0;
}

static struct fi_ops_mr mr_ops = { .size = sizeof(mr_ops), .reg = mr_reg };
static struct fid_domain domain = { .fid.fclass = FI_CLASS_DOMAIN, .mr = &mr_ops };
static struct fi_domain_attr attr;
static struct fi_info info = { .domain_attr = &attr };

static int begin(void **state)
{
	memset(&fake, 0, sizeof(fake));
	memset(&attr, 0, sizeof(attr));
	fake.taken = UINT64_MAX;
	attr.mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	attr.mr_key_size = 8;
	fake.gives_keys = true;
	return 0;
}

/* ---- the device ---- */

static char *map(void)
{
	char *p = new_map(LEN);

	memset(p, 1, LEN);
	return p;
}

static struct kedge_device *open_device(const struct kedge_ofi_device_opts *o)
{
	struct kedge_device *dev = NULL;
	int rc = kedge_device_open_ofi(&domain, &info, o, &dev);

	if (rc)
		fail_msg("%s", kedge_strerror(rc));
	assert_int_equal(fake.live, 0);
	return dev;
}

static const struct kedge_mr *get(struct kedge_cache *c, char *at, uint32_t access)
{
	const struct kedge_mr *mr = NULL;
	int rc = kedge_cache_get(c, at, LEN, access, &mr);

	if (rc)
		fail_msg("%s", kedge_strerror(rc));
	return mr;
}

static void a_registration_is_libfabrics(void **state)
{
	struct kedge_device *dev = open_device(NULL);
	struct kedge_cache *cache;
	const struct kedge_mr *mr;
	char *at = map();

	assert_int_equal(kedge_cache_open(dev, NULL, NULL, &cache), 0);
	mr = get(cache, at, KEDGE_ACCESS_LOCAL_WRITE);
	assert_int_equal(fake.access, FI_SEND | FI_WRITE | FI_RECV | FI_READ);
	assert_ptr_equal(fi_mr_desc(kedge_ofi_mr(mr)), kedge_ofi_mr(mr));
	assert_true(fi_mr_key(kedge_ofi_mr(mr)) >= 100);
	assert_int_equal(kedge_ofi_addr(mr, at + 5), (uintptr_t)at + 5);
	kedge_cache_put(cache, mr);
	mr = get(cache, at, KEDGE_ACCESS_REMOTE_READ);
	assert_int_equal(fake.access, FI_SEND | FI_WRITE | FI_REMOTE_READ);
	kedge_cache_put(cache, mr);
	mr = get(cache, at, KEDGE_ACCESS_REMOTE_ATOMIC);
	assert_int_equal(fake.access & (FI_REMOTE_READ | FI_REMOTE_WRITE),
			 FI_REMOTE_READ | FI_REMOTE_WRITE);
	kedge_cache_put(cache, mr);
	kedge_cache_close(cache);
	kedge_device_close(dev);
	assert_int_equal(fake.live, 0);
	munmap(at, LEN);
}

/* Keys are asked for; offsets begin at 0. */
static void keys_of_ours_are_new_ones(void **state)
{
	const struct kedge_ofi_device_opts o = { .size = sizeof(o), .first_key = 0xfffffffe };
	struct kedge_device *dev;
	struct kedge_cache *cache;
	const struct kedge_mr *mr;
	char *at = map(), *other = map();

	fake.gives_keys = false;
	attr.mr_mode = 0;
	attr.mr_key_size = 4;
	fake.taken = 0xffffffff;
	dev = open_device(&o);
	assert_int_equal(kedge_cache_open(dev, NULL, NULL, &cache), 0);
	mr = get(cache, at, KEDGE_ACCESS_LOCAL_WRITE);
	assert_int_equal(fi_mr_key(kedge_ofi_mr(mr)), 0xfffffffe);
	assert_int_equal(kedge_ofi_addr(mr, at + 5), at + 5 - (char *)(uintptr_t)mr->addr);
	kedge_cache_put(cache, mr);
	/* The next is another's; then they begin anew. */
	mr = get(cache, other, KEDGE_ACCESS_LOCAL_WRITE);
	assert_int_equal(fi_mr_key(kedge_ofi_mr(mr)), 0);
	kedge_cache_put(cache, mr);
	kedge_cache_close(cache);
	kedge_device_close(dev);
	assert_int_equal(fake.live, 0);
	munmap(at, LEN);
	munmap(other, LEN);
}

static void two_devices_ask_for_other_keys(void **state)
{
	struct kedge_device *dev;
	struct kedge_cache *cache;
	uint64_t key[2];
	char *at = map();
	int i;

	fake.gives_keys = false;
	attr.mr_mode = 0;
	for (i = 0; i < 2; i++) {
		dev = open_device(NULL);
		assert_int_equal(kedge_cache_open(dev, NULL, NULL, &cache), 0);
		kedge_cache_put(cache, get(cache, at, 0));
		key[i] = fake.last_key;
		kedge_cache_close(cache);
		kedge_device_close(dev);
	}
	assert_int_not_equal(key[0], key[1]);
	munmap(at, LEN);
}

static void those_of_an_endpoint_are_bound_and_enabled(void **state)
{
	struct kedge_ofi_device_opts o = { .size = sizeof(o) };
	struct kedge_device *dev;
	struct kedge_cache *cache;
	const struct kedge_mr *mr;
	char *at = map();

	attr.mr_mode |= FI_MR_ENDPOINT;
	assert_int_equal(kedge_device_open_ofi(&domain, &info, &o, &dev), -EINVAL);
	assert_true(reason_says(-EINVAL, "FI_MR_ENDPOINT"));
	o.endpoint = &endpoint;
	dev = open_device(&o);
	assert_int_equal(kedge_cache_open(dev, NULL, NULL, &cache), 0);
	kedge_cache_put(cache, get(cache, at, 0));
	assert_int_equal(fake.bound, 1);
	assert_int_equal(fake.enabled, 1);
	fake.enable_fails = FI_EOPBADSTATE;
	assert_int_equal(kedge_cache_get(cache, at, LEN, KEDGE_ACCESS_LOCAL_WRITE, &mr), -EIO);
	kedge_cache_close(cache);
	kedge_device_close(dev);
	assert_int_equal(fake.live, 0);
	munmap(at, LEN);
}

static void a_cache_below_that_is_stale_is_refused(void **state)
{
	struct kedge_device *dev;

	fake.keeps = true;
	assert_int_equal(kedge_device_open_ofi(&domain, &info, NULL, &dev), -EOPNOTSUPP);
	assert_true(reason_says(-EOPNOTSUPP, "FI_MR_CACHE_MONITOR=disabled"));
	assert_int_equal(fake.live, 0);
}

static void errors_are_told(void **state)
{
	static const struct {
		int says, is;
	} all[] = { { FI_ENOMEM, -ENOMEM }, { FI_ENOSPC, -ENOSPC }, { FI_EFAULT, -EFAULT },
		    { FI_EACCES, -EACCES }, { FI_E2BIG, -E2BIG }, { FI_EINVAL, -EINVAL },
		    { FI_EOPNOTSUPP, -EOPNOTSUPP }, { FI_EOTHER, -EIO } };
	struct kedge_device *dev;
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(*all); i++) {
		fake.fails = all[i].says;
		assert_int_equal(kedge_device_open_ofi(&domain, &info, NULL, &dev), all[i].is);
	}
	assert_int_equal(fake.live, 0);
}

static void bad_arguments_are_refused(void **state)
{
	struct kedge_ofi_device_opts o = { .size = sizeof(o), .flags = 1 };
	struct kedge_device *dev;

	assert_int_equal(kedge_device_open_ofi(NULL, &info, NULL, &dev), -EINVAL);
	assert_int_equal(kedge_device_open_ofi(&domain, NULL, NULL, &dev), -EINVAL);
	assert_int_equal(kedge_device_open_ofi(&domain, &info, NULL, NULL), -EINVAL);
	assert_int_equal(kedge_device_open_ofi(&domain, &info, &o, &dev), -EINVAL);
	o.flags = 0;
	o.size = 4;
	assert_int_equal(kedge_device_open_ofi(&domain, &info, &o, &dev), -EINVAL);
	attr.mr_mode |= FI_MR_RAW;
	assert_int_equal(kedge_device_open_ofi(&domain, &info, NULL, &dev), -EOPNOTSUPP);
	attr.mr_mode &= ~FI_MR_RAW;
	attr.mr_key_size = 16;
	assert_int_equal(kedge_device_open_ofi(&domain, &info, NULL, &dev), -EOPNOTSUPP);
}

static void a_child_has_it_not(void **state)
{
	struct kedge_device *dev;
	struct kedge_cache *cache;
	const struct kedge_mr *mr;
	char *at = map();
	pid_t pid;

	need_threads_after_fork();
	dev = open_device(NULL);
	assert_int_equal(kedge_cache_open(dev, NULL, NULL, &cache), 0);
	mr = get(cache, at, 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		struct kedge_cache *own;

		CHILD_CHECK(!kedge_cache_open(dev, NULL, NULL, &own));
		CHILD_CHECK(kedge_cache_get(own, at, LEN, 0, &mr) == -ECHILD);
		kedge_cache_close(own);
		CHILD_CHECK(fake.live == 1);
		_exit(0);
	}
	ended_well(pid);
	kedge_cache_put(cache, mr);
	kedge_cache_close(cache);
	kedge_device_close(dev);
	assert_int_equal(fake.live, 0);
	munmap(at, LEN);
}

#define LISTED(f) cmocka_unit_test_setup(f, begin)
#include "test_device_ofi.cases.h"
