// SPDX-License-Identifier: BSD-2-Clause
/* Opening a notifier: what is refused, and with what error. */
#include "notifier.h"

static struct kedge_notifier *const before = (struct kedge_notifier *)0x1;

static void refuse(const struct kedge_notifier_opts *o, int want)
{
	struct kedge_notifier *out = before;

	assert_int_equal(kedge_notifier_open(o, &out), want);
	assert_ptr_equal(out, before);
	assert_true(strlen(kedge_strerror(want)) > 0);
}

static void bad_options_are_refused(void **state)
{
	struct kedge_notifier_opts o = { .size = sizeof(o) };
	struct {
		struct kedge_notifier_opts o;
		uint64_t more;
	} newer = { { .size = sizeof(newer) }, 0 };
	struct kedge_notifier *out = before;

	assert_int_equal(kedge_notifier_open(&o, NULL), -EINVAL);
	o.size = 23; /* one less than 0.1 had */
	refuse(&o, -EINVAL);
	o.size = 0;
	refuse(&o, -EINVAL);
	o.size = sizeof(o);
	o.flags = 1u << 31;
	refuse(&o, -EINVAL);
	o.flags = 0;
	o.min_level = KEDGE_LEVEL_EXACT + 1;
	refuse(&o, -EINVAL);
	o.min_level = 0;
	o.backend = "ufd";
	refuse(&o, -EINVAL);
	o.backend = "";
	refuse(&o, -EINVAL);
	newer.more = 1;
	refuse(&newer.o, -E2BIG);
	newer.more = 0;
	assert_int_equal(kedge_notifier_open(&newer.o, &out), 0);
	kedge_notifier_close(out);
}

static void levels_are_kept(void **state)
{
	struct kedge_notifier_opts o = { .size = sizeof(o),
					 .min_level = KEDGE_LEVEL_EXACT };
	struct kedge_notifier_info info = { .size = sizeof(info) };
	struct kedge_notifier *out;

	if (access("/dev/ummunot", R_OK))
		refuse(&o, -EOPNOTSUPP);
	o.backend = "none";
	o.min_level = KEDGE_LEVEL_ADVISORY;
	refuse(&o, -EOPNOTSUPP);
	o.backend = "uffd";
	o.min_level = KEDGE_LEVEL_EXACT;
	refuse(&o, -EOPNOTSUPP);
	o.backend = "auto";
	o.min_level = KEDGE_LEVEL_ORDERED;
	assert_int_equal(kedge_notifier_open(&o, &out), 0);
	assert_int_equal(kedge_notifier_info(out, &info), 0);
	assert_true(info.level >= KEDGE_LEVEL_ORDERED);
	kedge_notifier_close(out);
	/* userfaultfd sees no SHM_REMAP: the tripwire does, or it is said. */
	o.flags = KEDGE_NOTIFIER_NO_BLIND_SPOT;
	if (info.blind & ~(uint32_t)KEDGE_BLIND_AROUND) {
		refuse(&o, -EOPNOTSUPP);
		return;
	}
	assert_int_equal(kedge_notifier_open(&o, &out), 0);
	kedge_notifier_close(out);
}

static void hooks_without_an_announcer_are_refused(void **state)
{
	struct kedge_notifier_opts o = { .size = sizeof(o),
					 .backend = "hooks" };

	refuse(&o, -EOPNOTSUPP);
	assert_non_null(strstr(kedge_strerror(-EOPNOTSUPP), "libkedge-hooks"));
}

static void bad_arguments_are_refused(void **state)
{
	char *p = new_pages(1);
	struct kedge_event ev;
	struct kedge_notifier_info info = { .size = 8 };

	assert_int_equal(kedge_watch_add(nf, p, 0, 1), -EINVAL);
	assert_int_equal(kedge_watch_add(nf, p, SIZE_MAX, 1), -EINVAL);
	assert_int_equal(kedge_watch_add(nf, (void *)UINTPTR_MAX, 1, 1),
			 -EINVAL);
	assert_int_equal(kedge_watch_add(nf, (void *)(UINTPTR_MAX - 5), 3, 1),
			 -EINVAL);
	assert_int_equal(kedge_watch_add(NULL, p, 1, 1), -EINVAL);
	assert_int_equal(kedge_watch_remove(NULL, 1), -EINVAL);
	assert_int_equal(kedge_watch_remove(nf, 1), -ENOENT);
	assert_int_equal(kedge_notifier_read(nf, NULL, 1), -EINVAL);
	assert_int_equal(kedge_notifier_read(nf, &ev, 0), -EINVAL);
	assert_int_equal(kedge_notifier_read(NULL, &ev, 1), -EINVAL);
	assert_int_equal(kedge_notifier_fd(NULL), -EINVAL);
	assert_int_equal(kedge_notifier_info(NULL, &info), -EINVAL);
	assert_int_equal(kedge_notifier_info(nf, NULL), -EINVAL);
	assert_int_equal(kedge_notifier_info(nf, &info), -EINVAL);
	kedge_notifier_close(NULL);
}

static void backends_can_be_tried(void **state)
{
	struct kedge_backend_info info = { .size = sizeof(info) };
	unsigned int fds, maps, i;

	/* Once before: libc and sanitizers keep what a first thread takes. */
	kedge_backend_probe(1, &info);
	fds = open_fds();
	maps = map_lines();
	(void)maps;
	for (i = 0; !kedge_backend_probe(i, &info); i++) {
		assert_non_null(info.name);
		assert_int_equal(!info.level, !!info.rc);
		if (info.rc)
			assert_true(info.reason[0]);
	}
	assert_int_equal(i, 4);
	assert_string_equal(info.name, "none");
	assert_int_equal(kedge_backend_probe(i, &info), -ENOENT);
	assert_int_equal(kedge_backend_probe(0, NULL), -EINVAL);
	info.size = 4;
	assert_int_equal(kedge_backend_probe(0, &info), -EINVAL);
	assert_int_equal(open_fds(), fds);
#ifndef __SANITIZE_THREAD__ /* it maps something for every thread there was */
	assert_in_range(map_lines(), 1, maps + 4);
#endif
}

#define NEEDED need_uffd
#define LISTED NF
#include "test_notifier_open.cases.h"
