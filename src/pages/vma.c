// SPDX-License-Identifier: BSD-2-Clause
/*
 * Questions about mappings. What the kernel checks itself (UFFDIO_MOVE does) is
 * asked only to put a refusal into words; what mremap() does not check is read
 * before it is let loose: whether two mappings differ in anything. That stands
 * in /proc/self/smaps alone, which is slow, as the kernel counts all pages for
 * it; the memory policy is asked for apart.
 */
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pages/internal.h"

#define NODE_WORDS 64 /* of a mask of nodes: 4096 of them */

/* One mapping as /proc/self/smaps shows it. */
struct traits {
	uint64_t start;
	uint64_t end;
	char perms[5];
	uint64_t inode;
	char name[64];
	char flags[160]; /* "rd wr mr mw me ac " */
};

int swap_vma_at(int maps_fd, uintptr_t at, struct vma_span *vma)
{
	return vma_check(maps_fd, at, at + kedge__page_size(), vma);
}

static bool parse_head(const char *line, struct traits *t)
{
	unsigned long start, end, inode;
	int at = 0;

	if (sscanf(line, "%lx-%lx %4s %*s %*s %lu %n", &start, &end, t->perms,
		   &inode, &at) < 4)
		return false;
	t->start = start;
	t->end = end;
	t->inode = inode;
	snprintf(t->name, sizeof(t->name), "%s", at ? line + at : "");
	t->flags[0] = '\0';
	return true;
}

/* The first mapping that ends after @at; 0, -ENOENT, or why /proc fails. */
static int traits_of(FILE *smaps, uint64_t at, struct traits *t)
{
	char line[512];
	bool in = false;
	int c;

	rewind(smaps);
	while (fgets(line, sizeof(line), smaps)) {
		struct traits head;

		/* A long name: what is left of it is no line. */
		while (!strchr(line, '\n') && (c = fgetc(smaps)) != EOF)
			if (c == '\n')
				break;
		if (in && !strncmp(line, "VmFlags: ", 9)) {
			snprintf(t->flags, sizeof(t->flags), "%.*s",
				 (int)sizeof(t->flags) - 1, line + 9);
			return 0;
		}
		if (!in && parse_head(line, &head) && head.end > at) {
			in = true;
			*t = head;
		}
	}
	return -ENOENT;
}

static bool has(const struct traits *t, const char *flag)
{
	const char *p = t->flags;

	while ((p = strstr(p, flag))) {
		if ((p == t->flags || p[-1] == ' ') && p[2] == ' ')
			return true;
		p += 2;
	}
	return false;
}

static const struct {
	const char *flag;
	const char *what;
} unfit[] = {
	{ "sh", "shared" },
	{ "lo", "locked (mlock)" },
	{ "ht", "made of huge TLB pages" },
	{ "pf", "a device's" },
	{ "io", "a device's" },
	{ "mm", "a device's" },
	{ "ss", "a shadow stack" },
	{ "sl", "sealed" },
	{ "gd", "a stack" },
	{ "um", "another userfaultfd's" },
	{ "uw", "another userfaultfd's" },
	{ "ui", "another userfaultfd's" },
	{ "ex", "executable" },
};

/* Check that a mapping may be swapped: 0 or -EOPNOTSUPP. */
static int fit(const struct traits *t)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(unfit); i++)
		if (has(t, unfit[i].flag))
			return kedge_reason(-EOPNOTSUPP, "the memory at 0x%llx "
					    "is %s: copy instead",
					    (unsigned long long)t->start,
					    unfit[i].what);
	if (t->inode)
		return kedge_reason(-EOPNOTSUPP, "the memory at 0x%llx is a "
				    "file's: copy instead",
				    (unsigned long long)t->start);
	if (!has(t, "rd") || !has(t, "wr"))
		return kedge_reason(-EOPNOTSUPP, "the memory at 0x%llx may not "
				    "be read and written: copy instead",
				    (unsigned long long)t->start);
	return 0;
}

static int no_proc(void)
{
	if (error_no_fd(errno))
		return error_no_fd(errno);
	return kedge_reason(-EOPNOTSUPP, "/proc/self/smaps cannot be read "
			    "(%s): mount /proc", strerrordesc_np(errno));
}

static int not_there(uint64_t at)
{
	return kedge_reason(-EFAULT, "nothing is mapped at 0x%llx",
			    (unsigned long long)at);
}

/* @check each mapping of a range up to the first that fails. @first is the first. */
static int range_check(FILE *smaps, uintptr_t at, size_t len, int (*check)(const struct traits *t),
		       struct traits *first)
{
	struct traits t = { .end = at };
	uint64_t pos;
	int rc = 0;

	for (pos = at; !rc && pos < at + len; pos = t.end) {
		rc = traits_of(smaps, pos, &t);
		if (rc == -ENOENT || (!rc && t.start > pos))
			rc = not_there(pos);
		if (!rc)
			rc = check(&t);
		if (pos == at)
			*first = t;
	}
	return rc;
}

static int check_all(uintptr_t at, size_t len, int (*check)(const struct traits *t))
{
	FILE *smaps = fopen("/proc/self/smaps", "re");
	struct traits t;
	int rc;

	if (!smaps)
		return no_proc();
	rc = range_check(smaps, at, len, check, &t);
	fclose(smaps);
	return rc;
}

/* All of it may be swapped. */
int swap_why_not(uintptr_t at, size_t len)
{
	return check_all(at, len, fit);
}

/* ---- what other memory in its place would not have ---- */

static const struct {
	const char *flag;
	const char *what;
} kept[] = {
	{ "dc", "kept from children (MADV_DONTFORK)" },
	{ "wf", "emptied in children (MADV_WIPEONFORK)" },
	{ "dd", "kept out of core dumps (MADV_DONTDUMP)" },
};

static int is_kept(const struct traits *t)
{
	size_t i;

	if (has(t, "sh"))
		return 0;
	for (i = 0; i < ARRAY_SIZE(kept); i++)
		if (has(t, kept[i].flag))
			return kedge_reason(-EOPNOTSUPP, "the memory at 0x%llx is %s, and would "
					    "not be any more: copy instead",
					    (unsigned long long)t->start, kept[i].what);
	return 0;
}

int swap_is_kept(uintptr_t at, size_t len)
{
	return check_all(at, len, is_kept);
}

/* ---- two mappings, alike in everything? ---- */

static int differ(const struct traits *a, const struct traits *b,
		  const char *what)
{
	return kedge_reason(-EOPNOTSUPP, "the mappings at 0x%llx and 0x%llx "
			    "differ in %s, so mremap() cannot exchange their "
			    "pages: let userfaultfd do it",
			    (unsigned long long)a->start,
			    (unsigned long long)b->start, what);
}

static int compare(const struct traits *a, const struct traits *b)
{
	if (strcmp(a->perms, b->perms))
		return differ(a, b, "protection");
	if (strcmp(a->flags, b->flags))
		return differ(a, b, "their flags (see VmFlags in "
				    "/proc/self/smaps)");
	if (strcmp(a->name, b->name))
		return differ(a, b, "their names");
	return 0;
}

/* Without NUMA nodes (ENOSYS) there is no policy to differ. */
static bool same_policy(uintptr_t a, uintptr_t b)
{
	unsigned long nodes[2][NODE_WORDS] = { { 0 } };
	int mode[2] = { 0, 0 }, i;

	for (i = 0; i < 2; i++)
		if (syscall(SYS_get_mempolicy, &mode[i], nodes[i],
			    8ul * sizeof(nodes[i]), i ? b : a, MPOL_F_ADDR))
			return errno == ENOSYS;
	return mode[0] == mode[1] && !memcmp(nodes[0], nodes[1],
					     sizeof(nodes[0]));
}

static int one_mapping(FILE *smaps, uintptr_t at, size_t len, struct traits *t)
{
	int rc = range_check(smaps, at, len, fit, t);

	if (!rc && t->end - at < len)
		rc = kedge_reason(-EOPNOTSUPP, "the range at 0x%llx lies in "
				  "several mappings, which mremap() does not "
				  "move: let userfaultfd do it",
				  (unsigned long long)at);
	return rc;
}

static _Atomic uint64_t alike_ns;

uint64_t swap_alike_ns(void)
{
	return atomic_load_explicit(&alike_ns, memory_order_relaxed);
}

int swap_alike(uintptr_t a, uintptr_t b, size_t len)
{
	uint64_t t0 = clock_ns();
	FILE *smaps = fopen("/proc/self/smaps", "re");
	struct traits ta, tb;
	int rc;

	if (!smaps)
		return no_proc();
	rc = one_mapping(smaps, a, len, &ta);
	if (!rc)
		rc = one_mapping(smaps, b, len, &tb);
	fclose(smaps);
	if (!rc && ta.start != tb.start)
		rc = compare(&ta, &tb);
	if (!rc && ta.start != tb.start && !same_policy(a, b))
		rc = differ(&ta, &tb, "memory policy");
	atomic_store_explicit(&alike_ns, clock_ns() - t0, memory_order_relaxed);
	return rc;
}

int swap_vma_count(size_t *have, size_t *max)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char text[32] = "";
	int c;

	if (!f)
		return no_proc();
	for (*have = 0; (c = getc_unlocked(f)) != EOF;)
		*have += c == '\n';
	fclose(f);
	f = fopen("/proc/sys/vm/max_map_count", "re");
	if (!f || !fgets(text, sizeof(text), f))
		text[0] = '\0';
	if (f)
		fclose(f);
	*max = strtoull(text, NULL, 10);
	if (!*max)
		*max = 65530; /* the kernel's default, where it is not shown */
	return 0;
}
