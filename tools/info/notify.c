// SPDX-License-Identifier: BSD-2-Clause
/* The notifiers, each opened for real, and the one a program gets. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "base/base.h"
#include "tools/common/sys.h"
#include "tools/info/info.h"

static const struct {
	uint32_t bit;
	const char *words;
} blind_spots[] = {
	{ KEDGE_BLIND_RAW, "any change not made through libc" },
	{ KEDGE_BLIND_SHM_REMAP, "shmat(SHM_REMAP) made around libc" },
	{ KEDGE_BLIND_GUARD, "madvise(MADV_GUARD_INSTALL) made around libc" },
	{ KEDGE_BLIND_SHARING, "processes made around libc that share the memory" },
	{ KEDGE_BLIND_AROUND, "the first change around libc of what libc handed out, for a second "
			      "thread" },
};

static const char *level_words(uint32_t level)
{
	switch (level) {
	case KEDGE_LEVEL_EXACT:
		return "exact: a change is seen before the range can be had "
		       "again";
	case KEDGE_LEVEL_ORDERED:
		return "ordered: a change is seen before the call that made it "
		       "returns";
	case KEDGE_LEVEL_ADVISORY:
		return "advisory: only changes made through libc are seen";
	}
	return "none: every get registers and every put deregisters; always "
	       "right, never fast";
}

/* The blind spots in words, and as a JSON array. */
static json_t *blind_words(uint32_t blind, char *buf, size_t size)
{
	json_t *all = json_array();
	size_t i, at = 0;

	buf[0] = '\0';
	/* What RAW says holds the others. */
	for (i = 0; i < ARRAY_SIZE(blind_spots); i++) {
		if (!(blind & blind_spots[i].bit))
			continue;
		json_array_append_new(all, json_string(blind_spots[i].words));
		if (at < size && !(at && (blind & KEDGE_BLIND_RAW)))
			at += (size_t)snprintf(buf + at, size - at, "%s%s",
					       at ? " and " : "",
					       blind_spots[i].words);
	}
	return all;
}

/*
 * The system call without privilege is allowed since Linux 5.11, so that where
 * it is refused a filter is the likely cause, and the sysctl on older kernels.
 */
static void uffd_todo(struct info_line *l)
{
	int64_t sysctl;

	if (sys_seccomp()) {
		info_todo(l, "a seccomp filter is in force: allow userfaultfd "
			     "in the container's profile, or hand it the device "
			     "/dev/userfaultfd");
		return;
	}
	if (!sys_number("/proc/sys/vm/unprivileged_userfaultfd", &sysctl) &&
	    !sysctl)
		info_todo(l, "sysctl -w vm.unprivileged_userfaultfd=1, or give "
			     "this user access to /dev/userfaultfd%s",
			  access("/dev/userfaultfd", F_OK) ?
			  " (Linux 6.1 has it)" : "");
}

/* The module's version, or "" where it is not loaded. */
static void module_version(char *text, size_t len)
{
	FILE *f = fopen("/sys/module/ummunot/version", "re");

	*text = '\0';
	if (!f)
		return;
	if (!fgets(text, (int)len, f))
		*text = '\0';
	text[strcspn(text, "\n")] = '\0';
	fclose(f);
}

static void ummunot_state(struct info_line *l, const char *version)
{
	json_object_set_new(l->data, "module",
			    *version ? json_string(version) : json_null());
	if (*version)
		return;
	info_todo(l, "optional: make -C kernel && insmod kernel/build/ummunot.ko, or "
		     "by DKMS (see ummunot(4))");
}

/* Of the backend that is taken: what a lookup costs. */
static const char *check_words(const struct info *info)
{
	if (info->check == KEDGE_CHECK_CALL)
		return "; a lookup makes one system call";
	if (info->check == KEDGE_CHECK_NONE)
		return "; every get registers";
	return info->hooked ? "; a lookup loads one counter, as "
			      "libkedge-hooks announces changes, and without "
			      "it makes one system call"
			    : "; a lookup loads one counter";
}

/* And what would make it cheaper. */
static void add_check(struct info *info, struct info_line *l)
{
	static const char *const names[] = { "load", "call", "none" };

	if (info->check == KEDGE_CHECK_CALL)
		info_todo(l, "optional: link libkedge-hooks (pkg-config does), "
			     "or LD_PRELOAD=libkedge-hooks.so");
	json_object_set_new(l->data, "check", json_string(names[info->check]));
	json_object_set_new(l->data, "hooked", json_boolean(info->hooked));
}

static void add_backend(struct info *info, const struct kedge_backend_info *b)
{
	bool taken = info->notifier && !strcmp(info->notifier, b->name);
	struct info_line *l;
	char blind[256], version[32];
	json_t *spots;

	l = info_add(info, INFO_NOTIFIERS, b->name,
		     b->rc ? INFO_MISSING
		     : b->level < KEDGE_LEVEL_ORDERED ? INFO_LIMITED
						      : INFO_OK);
	spots = blind_words(b->blind, blind, sizeof(blind));
	if (b->rc) {
		info_text(l, "%s", *b->reason ? b->reason
					      : kedge_strerror(b->rc));
		if (!strcmp(b->name, "uffd"))
			uffd_todo(l);
	} else {
		info_text(l, "%s%s%s%s%s", level_words(b->level),
			  *blind && b->level >= KEDGE_LEVEL_ORDERED ?
			  "; blind to " : "",
			  b->level >= KEDGE_LEVEL_ORDERED ? blind : "",
			  taken ? check_words(info) : "",
			  taken ? " <- taken by default" : "");
		if (taken)
			add_check(info, l);
	}
	if (!strcmp(b->name, "ummunot")) {
		module_version(version, sizeof(version));
		ummunot_state(l, version);
	}
	json_object_set_new(l->data, "level",
			    b->rc ? json_null()
				  : json_string(util_level_name(b->level)));
	json_object_set_new(l->data, "taken", json_boolean(taken));
	json_object_set_new(l->data, "blind", spots);
}

/* The notifier that a program gets with the default options. */
static void find_taken(struct info *info)
{
	struct kedge_notifier_info ni = { .size = sizeof(ni) };
	struct kedge_notifier *nf;
	int rc;

	rc = kedge_notifier_open(NULL, &nf);
	if (rc) {
		/* KEDGE_NOTIFIER asks for what is not there. */
		util_error("the default notifier does not open: %s",
			   kedge_strerror(rc));
		return;
	}
	if (!kedge_notifier_info(nf, &ni)) {
		info->notifier = ni.backend;
		info->level = ni.level;
		info->check = ni.check;
		info->hooked = ni.hooked;
	}
	kedge_notifier_close(nf);
}

void info_notifiers(struct info *info)
{
	struct kedge_backend_info b = { .size = sizeof(b) };
	unsigned int i;

	find_taken(info);
	for (i = 0; !kedge_backend_probe(i, &b); i++)
		add_backend(info, &b);
}
