// SPDX-License-Identifier: BSD-2-Clause
/* The counters themselves: of a cache by reason and kind, of a notifier, of a channel. */
#include "channel_pair.h"
#include "published.h"
#include "stats/stats.h"
#include "stats/text.h"

static char *text;

static double now_is(const char *name, const char *label, const char *other)
{
	size_t len;

	free(text);
	text = stats_text(&len);
	assert_non_null(text);
	assert_int_equal(strlen(text), len);
	return value_of(text, name, label, other, NULL);
}

static void misses_that_are_not_kept_have_a_reason(void **state)
{
	struct kedge_notifier_opts none = { .size = sizeof(none), .backend = "none" };
	struct kedge_cache_stats st = { .size = sizeof(st) };
	struct nodev *dev = nodev_new();
	struct kedge_notifier *nf;
	struct kedge_cache *c;
	const struct kedge_mr *mr;
	char *mem = new_pages(1);

	assert_int_equal(kedge_notifier_open(&none, &nf), 0);
	assert_int_equal(kedge_cache_open(dev->dev, nf, NULL, &c), 0);
	assert_int_equal(kedge_cache_get(c, mem, 1, 0, &mr), 0);
	kedge_cache_put(c, mr);
	assert_int_equal(kedge_cache_stats(c, &st), 0);
	assert_int_equal(st.uncached, 1);
	assert_int_equal(st.uncached_why[KEDGE_UNCACHED_KIND], 1);
	assert_int_equal(now_is("cache_uncached_total", "reason=\"kind\"", "device=\"nodev\""), 1);
	assert_int_equal(now_is("cache_uncached_total", "reason=\"busy\"", "device=\"nodev\""), 0);
	assert_int_equal(now_is("notifier_watches", "backend=\"none\"", "level=\"none\""), 0);
	kedge_cache_close(c);
	kedge_notifier_close(nf);
	/* It is closed, and its counters stay. */
	assert_int_equal(now_is("cache_uncached_total", "reason=\"kind\"", "cache=\"closed\""), 1);
	assert_int_equal(now_is("cache_regions", "cache=\"closed\"", ""), -1);
	nodev_free(dev);
	free_pages(mem, 1);
}

static void a_full_cache_says_so(void **state)
{
	struct kedge_cache_opts one = { .size = sizeof(one), .max_regions = 1 };
	struct kedge_cache_stats st = { .size = sizeof(st) };
	struct nodev *dev = nodev_new();
	struct kedge_cache *c;
	const struct kedge_mr *mr, *other;
	char *mem = new_pages(3);

	assert_int_equal(kedge_cache_open(dev->dev, NULL, &one, &c), 0);
	assert_int_equal(kedge_cache_get(c, mem, 1, 0, &mr), 0);
	assert_int_equal(kedge_cache_get(c, mem + 2 * page_len(), 1, 0, &other), 0);
	assert_int_equal(kedge_cache_stats(c, &st), 0);
	assert_int_equal(st.uncached_why[KEDGE_UNCACHED_LIMIT], st.uncached);
	assert_int_equal(st.uncached, 1);
	kedge_cache_put(c, mr);
	kedge_cache_put(c, other);
	kedge_cache_close(c);
	nodev_free(dev);
	free_pages(mem, 3);
}

/* Pages that another thread may still be dropping are registered and not kept. */
static bool is_kept(struct kedge_cache *c, const char *mem)
{
	const struct kedge_mr *mr;

	assert_int_equal(kedge_cache_get(c, mem, 1, 0, &mr), 0);
	kedge_cache_put(c, mr);
	return now_is("cache_regions", "device=\"nodev\"", "cache=\"") == 1;
}

static void invalidations_have_a_kind(void **state)
{
	struct nodev *dev = nodev_new();
	struct kedge_notifier *nf = open_uffd();
	struct kedge_cache *c;
	const struct kedge_mr *mr;
	char *mem = new_pages(1);

	assert_int_equal(kedge_cache_open(dev->dev, nf, NULL, &c), 0);
	assert_int_equal(kedge_cache_get(c, mem, 1, 0, &mr), 0);
	kedge_cache_put(c, mr);
	assert_int_equal(now_is("cache_regions", "device=\"nodev\"", "cache=\""), 1);
	assert_int_equal(now_is("notifier_watches", "backend=\"uffd\"", ""), 1);
	assert_int_equal(madvise(mem, page_len(), MADV_DONTNEED), 0);
	WAIT_FOR(is_kept(c, mem));
	assert_int_equal(now_is("cache_invalidations_total", "kind=\"remove\"", "device="), 1);
	assert_int_equal(now_is("cache_invalidations_total", "kind=\"unmap\"", "device="), 0);
	assert_true(now_is("notifier_events_total", "backend=\"uffd\"", "") >= 1);
	kedge_cache_close(c);
	/* With those that ended as it closed. */
	assert_int_equal(now_is("cache_mem_deregs_total", "cache=\"closed\"", ""),
			 now_is("cache_mem_regs_total", "cache=\"closed\"", ""));
	kedge_notifier_close(nf);
	nodev_free(dev);
	free_pages(mem, 1);
}

static double of_both(const char *name, const char *label)
{
	return now_is(name, "channel=\"1\"", label) + now_is(name, "channel=\"2\"", label);
}

static void a_channel_counts_its_messages(void **state)
{
	char buf[100];

	open_pair(NULL, NULL);
	assert_int_equal(kedge_channel_recv(b.ch, buf, sizeof(buf), ANY, 0, NULL), 0);
	assert_true(kedge_channel_send(a.ch, "hello", 5, 1, 0, NULL) >= 0);
	WAIT_FOR((turn(&a), turn(&b), b.cnt));
	/* Either end may have been open first. */
	assert_int_equal(of_both("channel_sent_messages_total", "transport=\"shm\""), 1);
	assert_int_equal(of_both("channel_received_bytes_total", "peer_pid="), 5);
	assert_int_equal(of_both("channel_received_by_way_total", "way=\"eager\""), 1);
	close_pair();
	assert_int_equal(now_is("channel_sent_messages_total", "channel=\"closed\"", ""), 1);
}

static void names_cannot_break_the_text(void **state)
{
	char labels[STATS_LABELS_LEN] = "";

	stats_label(labels, "a", "x\"y\n\\z\x80");
	assert_string_equal(labels, "a=\"x_y__z_\"");
	stats_label(labels, "b", "0123456789012345678901234567890123456789");
	assert_string_equal(labels, "a=\"x_y__z_\",b=\"0123456789012345678901234567890\"");
}

/* Each name's help and type come once, before all of its lines. */
static void a_name_has_one_head(void **state)
{
	const char *line, *name = "";
	char head[128];
	size_t len = 0;

	now_is("info", "", "");
	for (line = text; *line; line = strchr(line, '\n') + 1) {
		if (!strncmp(line, "# TYPE ", 7)) {
			name = line + 7;
			len = strcspn(name, " ");
			snprintf(head, sizeof(head), "# TYPE %.*s ", (int)len, name);
			assert_ptr_equal(strstr(text, head), line);
		} else if (*line != '#') {
			assert_int_equal(strncmp(line, name, len), 0);
			assert_int_equal(line[len], '{');
		}
	}
}

static int end_text(void **state)
{
	free(text);
	return 0;
}

#define LISTED PLAIN
#include "test_text.cases.h"

int main(void)
{
	int failed = need_uffd();

	if (failed)
		return failed;
	folder_begin();
	setenv("KEDGE_STATS", path_of("counters.prom"), 1);
	failed = cmocka_run_group_tests(cases, NULL, end_text);
	folder_end();
	return failed;
}
