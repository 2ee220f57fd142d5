// SPDX-License-Identifier: BSD-2-Clause
/* Options that libkedge-ofi's calls take, and those that they refuse. */
#include <kedge/ofi.h>

#include "ofi_pair.h"

static void arguments_are_checked(void **state)
{
	struct kedge_channel_opts small = { .size = 4 };
	struct kedge_listener *l = NULL;
	struct kedge_channel *ch = NULL;

	assert_int_equal(kedge_channel_open_ofi(NULL, NULL, "1", NULL, 0, &ch),
			 -EINVAL);
	assert_int_equal(kedge_channel_open_ofi(NULL, "::1", NULL, NULL, 0,
						&ch), -EINVAL);
	assert_int_equal(kedge_channel_open_ofi(NULL, "::1", "1", NULL, 0,
						NULL), -EINVAL);
	assert_int_equal(kedge_channel_open_ofi(NULL, "::1", "1", &small, 0,
						&ch), -EINVAL);
	assert_int_equal(kedge_listener_open_ofi(NULL, NULL, NULL, NULL, &l),
			 -EINVAL);
	assert_int_equal(kedge_listener_open_ofi(NULL, NULL, "0", NULL, NULL),
			 -EINVAL);
	assert_int_equal(kedge_listener_open_ofi(NULL, NULL, "0", &small, &l),
			 -EINVAL);
	assert_null(l);
	assert_null(ch);
}

static void providers_are_told_apart(void **state)
{
	struct kedge_listener *l = NULL;

	assert_int_equal(kedge_listener_open_ofi("nosuch", NULL, "0", NULL,
						 &l), -ENODEV);
	assert_non_null(strstr(kedge_strerror(-ENODEV), "\"nosuch\""));
	/* Part of libfabric, and nothing by itself. */
	assert_int_equal(kedge_listener_open_ofi("ofi_hook_noop", NULL, "0",
						 NULL, &l), -ENODEV);
	assert_int_equal(kedge_listener_open_ofi("tcp", "256.1.1.1", "0", NULL,
						 &l), -EADDRNOTAVAIL);
	assert_null(l);
}

static void what_there_is_is_listed(void **state)
{
	struct kedge_ofi_provider *list;
	ssize_t n, i, tcp = -1, shm = -1;

	assert_int_equal(kedge_ofi_list(NULL, 1), -EINVAL);
	n = kedge_ofi_list(NULL, 0);
	assert_true(n > 0);
	list = calloc((size_t)n, sizeof(*list));
	assert_non_null(list);
	assert_int_equal(kedge_ofi_list(list, (size_t)n), n);
	for (i = 0; i < n; i++) {
		if (!strcmp(list[i].name, "tcp"))
			tcp = i;
		if (!strcmp(list[i].name, "shm"))
			shm = i;
	}
	assert_true(tcp >= 0 && shm >= 0);
	assert_int_equal(list[tcp].flags, KEDGE_OFI_CHANNEL);
	assert_int_equal(list[shm].flags, KEDGE_OFI_CHANNEL);
	free(list);
}

/* Nothing of it is to be opened by whichever name, nor offered. */
static void one_that_mixes_up_datagrams_is_refused(void **state)
{
	static const char *const names[] = { "udp;ofi_rxd", "ofi_rxd" };
	struct kedge_ofi_provider list[64];
	struct kedge_listener *l = NULL;
	struct kedge_channel *ch = NULL;
	struct fi_info *hints, *info = NULL;
	ssize_t i, n;
	int old;

	hints = fi_allocinfo();
	assert_non_null(hints);
	hints->fabric_attr->prov_name = strdup(names[0]);
	if (fi_getinfo(OFI_API, NULL, NULL, 0, hints, &info)) {
		fi_freeinfo(hints);
		skip();
	}
	fi_freeinfo(hints);
	old = info->fabric_attr->prov_version < FI_VERSION(204, 0);
	fi_freeinfo(info);
	n = kedge_ofi_list(list, 64);
	for (i = 0; i < n && i < 64; i++)
		if (!strcmp(list[i].name, names[0]))
			assert_int_equal(!(list[i].flags & KEDGE_OFI_CHANNEL),
					 old);
	if (!old)
		skip();
	for (i = 0; i < 2; i++) {
		assert_int_equal(kedge_listener_open_ofi(names[i], "127.0.0.1",
							 "0", NULL, &l),
				 -EOPNOTSUPP);
		assert_non_null(strstr(kedge_strerror(-EOPNOTSUPP), "2.4"));
		assert_int_equal(kedge_channel_open_ofi(names[i], "127.0.0.1",
							"9", NULL, 100, &ch),
				 -EOPNOTSUPP);
		assert_non_null(strstr(kedge_strerror(-EOPNOTSUPP), "2.4"));
	}
	assert_null(l);
	assert_null(ch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arguments_are_checked),
		cmocka_unit_test(providers_are_told_apart),
		cmocka_unit_test(what_there_is_is_listed),
		cmocka_unit_test(one_that_mixes_up_datagrams_is_refused),
	};

	if (ofi_missing())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
