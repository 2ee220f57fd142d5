// SPDX-License-Identifier: BSD-2-Clause
/* The limits and settings that decide how well a cache does here. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/common/sys.h"
#include "tools/doctor/stack.h"
#include "tools/doctor/trace.h"
#include "tools/info/info.h"

/* Less than this of pinned memory is soon used up. */
#define MEMLOCK_LOW (64ull << 20)
/* The kernel's default. */
#define MAPS_LOW 65530

static void set_number(struct info_line *l, const char *key, uint64_t v)
{
	/* JSON has no infinity: no limit is null. */
	json_object_set_new(l->data, key,
			    v == UINT64_MAX ? json_null()
					    : json_integer((json_int_t)v));
}

static void add_memlock(struct info *info)
{
	struct info_line *l = info_add(info, INFO_LIMITS, "memlock", INFO_OK);
	char soft[UTIL_HUMAN], hard[UTIL_HUMAN], locked[UTIL_HUMAN];
	char pinned[UTIL_HUMAN];
	struct sys_memlock m;

	sys_memlock(&m);
	set_number(l, "soft", m.soft);
	set_number(l, "hard", m.hard);
	set_number(l, "locked", m.locked);
	set_number(l, "pinned", m.pinned);
	json_object_set_new(l->data, "bound", json_boolean(m.bound));
	if (!m.bound || m.soft == UINT64_MAX) {
		info_text(l, "memory may be pinned without limit%s",
			  m.bound ? "" : " (this process has CAP_IPC_LOCK)");
		return;
	}
	info_text(l, "RLIMIT_MEMLOCK is %s (at most %s), locked %s, pinned %s",
		  util_human_bytes(soft, m.soft),
		  m.hard == UINT64_MAX ? "unlimited"
				       : util_human_bytes(hard, m.hard),
		  util_human_bytes(locked, m.locked),
		  util_human_bytes(pinned, m.pinned));
	if (m.soft >= MEMLOCK_LOW)
		return;
	l->state = INFO_LIMITED;
	info_todo(l, "ulimit -l unlimited, memlock in "
		     "/etc/security/limits.conf, or LimitMEMLOCK=infinity in "
		     "the service");
}

/* Less than this committed is no region of use. */
#define REGION_LOW (64ull << 20)

static void add_regions(struct info *info)
{
	static const struct {
		const char *name, *text, *todo;
	} bounds[] = {
		[KEDGE_BOUND_BUDGET] = { "budget", "the program's own budget", "" },
		[KEDGE_BOUND_MEMLOCK] = { "memlock", "RLIMIT_MEMLOCK",
			"ulimit -l unlimited, or LimitMEMLOCK=infinity in the service" },
		[KEDGE_BOUND_CGROUP] = { "cgroup", "the memory limit of a control group",
			"raise it: MemoryMax= of the service" },
		[KEDGE_BOUND_SYSTEM] = { "system", "what this machine has free",
			"end what uses it" },
	};
	struct info_line *l = info_add(info, INFO_LIMITS, "regions", INFO_OK);
	struct kedge_region_budget b = { .size = sizeof(b) };
	char buf[UTIL_HUMAN];

	if (kedge_region_budget(&b) || b.bound >= ARRAY_SIZE(bounds)) {
		l->state = INFO_MISSING;
		info_text(l, "what can be committed is not known");
		return;
	}
	set_number(l, "free", b.free);
	set_number(l, "limit", b.limit);
	set_number(l, "used", b.used);
	json_object_set_new(l->data, "bound", json_string(bounds[b.bound].name));
	info_text(l, "%s can be committed to regions, by %s", util_human_bytes(buf, b.free),
		  bounds[b.bound].text);
	if (b.free >= REGION_LOW)
		return;
	l->state = INFO_LIMITED;
	info_todo(l, "%s", bounds[b.bound].todo);
}

static void add_maps(struct info *info)
{
	struct info_line *l = info_add(info, INFO_LIMITS, "mappings", INFO_OK);
	char a[UTIL_HUMAN], b[UTIL_HUMAN];
	uint64_t now = sys_map_count();
	int64_t max;

	set_number(l, "now", now);
	if (sys_number("/proc/sys/vm/max_map_count", &max)) {
		l->state = INFO_LIMITED;
		info_text(l, "vm.max_map_count cannot be read");
		info_todo(l, "mount /proc");
		return;
	}
	set_number(l, "max", (uint64_t)max);
	info_text(l, "vm.max_map_count is %s, this process has %s",
		  util_human_count(a, (uint64_t)max),
		  util_human_count(b, now));
	if (max >= MAPS_LOW)
		return;
	l->state = INFO_LIMITED;
	info_todo(l, "sysctl -w vm.max_map_count=%d: many scattered watches "
		     "need it", MAPS_LOW);
}

static void add_verify(struct info *info)
{
	bool ok = sys_pfn_visible();
	struct info_line *l = info_add(info, INFO_LIMITS, "pagemap",
				       ok ? INFO_OK : INFO_LIMITED);

	json_object_set_new(l->data, "pfn", json_boolean(ok));
	if (ok) {
		info_text(l, "page frames are visible: KEDGE_VERIFY=1 works");
		return;
	}
	info_text(l, "page frames are hidden: KEDGE_VERIFY=1 checks nothing");
	info_todo(l, "run as root, or with CAP_SYS_ADMIN, to use it");
}

static void add_cpus(struct info *info)
{
	struct info_line *l = info_add(info, INFO_LIMITS, "cpus", INFO_OK);
	unsigned int n = sys_cpus();

	set_number(l, "usable", n);
	info_text(l, "this process may run on %u CPU%s", n, n == 1 ? "" : "s");
	if (n > 1)
		return;
	l->state = INFO_LIMITED;
	info_todo(l, "give it a second one: the notifier's thread and the "
		     "program take turns");
}

static void add_huge(struct info *info)
{
	struct info_line *l = info_add(info, INFO_LIMITS, "pages", INFO_OK);
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	char buf[UTIL_HUMAN], mode[32];

	sys_choice("/sys/kernel/mm/transparent_hugepage/enabled", mode,
		   sizeof(mode));
	info_text(l, "pages of %s, transparent huge pages: %s",
		  util_human_bytes(buf, page), *mode ? mode : "none");
	set_number(l, "size", page);
	json_object_set_new(l->data, "huge",
			    *mode ? json_string(mode) : json_null());
	if (strcmp(mode, "never"))
		return;
	info_todo(l, "echo madvise > /sys/kernel/mm/transparent_hugepage/"
		     "enabled: large areas register faster");
}

static void add_seccomp(struct info *info)
{
	bool on = sys_seccomp();
	struct info_line *l = info_add(info, INFO_LIMITS, "seccomp", INFO_OK);

	json_object_set_new(l->data, "filter", json_boolean(on));
	info_text(l, on ? "a filter is in force: it may refuse userfaultfd or "
			  "io_uring, see above"
			: "no filter is in force");
}

static void sysctl_words(char *buf, size_t size, const char *path)
{
	int64_t v;

	if (sys_number(path, &v))
		snprintf(buf, size, "not there");
	else
		snprintf(buf, size, "%" PRId64, v);
}

/* Not right or wrong by themselves: what they mean here is said above. */
static void add_sysctls(struct info *info)
{
	struct info_line *l = info_add(info, INFO_LIMITS, "sysctl", INFO_OK);
	bool dev = !access("/dev/userfaultfd", R_OK | W_OK);
	char uffd[32], uring[32];
	int64_t v;

	sysctl_words(uffd, sizeof(uffd),
		     "/proc/sys/vm/unprivileged_userfaultfd");
	sysctl_words(uring, sizeof(uring),
		     "/proc/sys/kernel/io_uring_disabled");
	info_text(l, "vm.unprivileged_userfaultfd %s, kernel.io_uring_disabled "
		     "%s, /dev/userfaultfd %s", uffd, uring,
		  dev ? "usable" : access("/dev/userfaultfd", F_OK)
					   ? "not there" : "not permitted");
	json_object_set_new(l->data, "unprivileged_userfaultfd",
			    sys_number("/proc/sys/vm/unprivileged_userfaultfd",
				       &v) ? json_null() : json_integer(v));
	json_object_set_new(l->data, "io_uring_disabled",
			    sys_number("/proc/sys/kernel/io_uring_disabled",
				       &v) ? json_null() : json_integer(v));
	json_object_set_new(l->data, "dev_userfaultfd", json_boolean(dev));
}

static void add_doctor(struct info *info)
{
	int why = trace_try();
	struct info_line *l = info_add(info, INFO_LIMITS, "doctor",
				       why || !stack_can() ? INFO_LIMITED : INFO_OK);

	json_object_set_new(l->data, "traces", json_boolean(!why));
	json_object_set_new(l->data, "stacks", json_boolean(stack_can()));
	if (!why && stack_can()) {
		info_text(l, "kedge doctor can follow programs, and tell their call stacks");
		return;
	}
	info_text(l, "kedge doctor %s", why ? "cannot follow programs, so it tells no call stacks"
					    : "was built without libdw: it tells no call stacks");
	if (why)
		info_todo(l, "%s: allow ptrace() (kernel.yama.ptrace_scope, a seccomp filter), and "
			     "end a debugger of kedge itself", strerror(why));
	else
		info_todo(l, "install libdw-dev and build kedge again");
}

void info_limits(struct info *info)
{
	add_memlock(info);
	add_regions(info);
	add_maps(info);
	add_verify(info);
	add_cpus(info);
	add_huge(info);
	add_seccomp(info);
	add_sysctls(info);
	add_doctor(info);
}
