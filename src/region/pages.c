// SPDX-License-Identifier: BSD-2-Clause
/*
 * The addresses and the pages of a region.
 *
 * Addresses are kept by a mapping that no one may touch. Pages are had before they are
 * mapped: a mapping of a memfd without pages would take them one by one, at accesses that
 * have no way to fail but to end the process. mlock() then enters all of them into the
 * page tables. Where something fails what is mapped gives way to the former mapping first,
 * and then the memfd gives its pages back, so that no address is ever without one of both.
 *
 * The pages of a memfd outlive its mappings in whatever process has one, so they are given
 * back by punching a hole, not by unmapping.
 */
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "notify/internal.h"
#include "region/internal.h"
#include "region/keeper.h"
#include "region/watch/look.h"

#ifndef MFD_HUGE_SHIFT
#define MFD_HUGE_SHIFT 26
#endif

/* Addresses begin where a huge page of the usual size can. */
#define ALIGN_LEN   ((uint64_t)2 << 20)
#define DEFAULT_MAX ((uint64_t)64 << 30)

#define SEALS (F_SEAL_SHRINK | F_SEAL_SEAL)

/* ---- addresses ---- */

/* Kernels before 4.17 take MAP_FIXED_NOREPLACE for no flag, and the address for a wish. */
static void *map_there(char *at, uint64_t len, int flags, int fd, off_t off)
{
	void *got = mmap(at, len, PROT_NONE, flags, fd, off);

	if (got == MAP_FAILED || got == at)
		return got;
	munmap(got, len);
	errno = EEXIST;
	return MAP_FAILED;
}

static int no_addresses(uint64_t len)
{
	return error_no_addresses(len, "for the region (max_len)");
}

static void *keep(uint64_t len, uint64_t align)
{
	char *all, *at;
	uint64_t before;

	if (len > SIZE_MAX / 4)
		return NULL;
	all = mmap(NULL, len + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		   -1, 0);
	if (all == MAP_FAILED)
		return NULL;
	at = (char *)(uintptr_t)round_up((uintptr_t)all, align);
	before = (uint64_t)(at - all);
	if (before)
		munmap(all, before);
	if (align > before)
		munmap(at + len, align - before);
	madvise(at, len, MADV_DONTFORK);
	return at;
}

int region_reserve(struct kedge_region *r, uint64_t len)
{
	const uint64_t align = r->page_size > ALIGN_LEN ? r->page_size : ALIGN_LEN;
	uint64_t most = r->max_len;

	if (most) {
		r->at = keep(most, align);
		return r->at ? 0 : no_addresses(most);
	}
	for (most = DEFAULT_MAX; !r->at && most > len; most /= 2) {
		r->max_len = round_up(most, align);
		r->at = keep(r->max_len, align);
	}
	if (!r->at) {
		r->max_len = len;
		r->at = keep(len, align);
	}
	return r->at ? 0 : no_addresses(len);
}

/*
 * Parts that are not the region's own, as the program has unmapped them: others may have memory
 * there, now or in a moment. Beyond @cnt the last one is longer than it has to be.
 */
#define OTHERS_MAX 16

struct others {
	struct kedge_region *r;
	uint32_t cnt;
	struct gap at[OTHERS_MAX];
};

static int note_other(void *arg, enum look is, uint64_t from, uint64_t to)
{
	struct others *o = arg;

	if (is == LOOK_OWN || is == LOOK_SHUT || (is == LOOK_KEPT && from >= o->r->len))
		return 0;
	if (o->cnt < OTHERS_MAX)
		o->at[o->cnt++] = (struct gap){ from, to };
	else
		o->at[OTHERS_MAX - 1].to = to;
	return 0;
}

static int find_others(void *arg)
{
	struct others *o = arg;

	return look_through(o->r, 0, o->r->max_len, note_other, o);
}

/* Call @fn for what is the region's of [@from, @to): 0 or its first error. */
static int each_own(struct kedge_region *r, uint64_t from, uint64_t to,
		    int (*fn)(struct kedge_region *r, uint64_t from, uint64_t to))
{
	struct others o = { .r = r };
	uint32_t i;
	int rc = 0;

	/* All of it is taken for the region's, as it has been made, if that cannot be known. */
	if (keeper_call(find_others, &o))
		o.cnt = 0;
	for (i = 0; !rc && i < o.cnt && from < to; i++) {
		if (o.at[i].to <= from)
			continue;
		if (o.at[i].from > from)
			rc = fn(r, from, o.at[i].from < to ? o.at[i].from : to);
		from = o.at[i].to;
	}
	return !rc && from < to ? fn(r, from, to) : rc;
}

static int unmap(struct kedge_region *r, uint64_t from, uint64_t to)
{
	munmap(r->at + from, to - from);
	return 0;
}

/* Take access to [@from, @to) away; the addresses stay ours. */
static int hide(struct kedge_region *r, uint64_t from, uint64_t to)
{
	char *at = r->at + from;

	if (mmap(at, to - from, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		return -errno;
	madvise(at, to - from, MADV_DONTFORK);
	return 0;
}

static void give_back(struct kedge_region *r, uint64_t from, uint64_t to)
{
	while (fallocate(r->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
			 (off_t)(to - from)) && errno == EINTR)
		;
}

/* ---- pages ---- */

static int open_file(struct kedge_region *r)
{
	unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int err;

	if (r->page_size != kedge__page_size())
		flags |= MFD_HUGETLB |
			 (unsigned int)__builtin_ctzll(r->page_size) << MFD_HUGE_SHIFT;
	r->fd = memfd_create("kedge-region", flags);
	if (r->fd < 0) {
		err = errno;
		return error_no_fd(err) ? error_no_fd(err)
					: kedge_reason(-err, "memfd_create: error %d", err);
	}
	fcntl(r->fd, F_ADD_SEALS, SEALS);
	/* A peer that was given it to be read alone does not open it for more. */
	fchmod(r->fd, 0400);
	if (!r->given)
		own_file_add(r->fd);
	return 0;
}

static int too_long(uint64_t len, int err)
{
	if (err == EFBIG)
		return kedge_reason(-EFBIG, "RLIMIT_FSIZE allows no file of %llu KiB, which the "
				    "memory is: raise it with ulimit -f or LimitFSIZE=",
				    (unsigned long long)len >> 10);
	return kedge_reason(-err, "ftruncate to %llu bytes: error %d", (unsigned long long)len,
			    err);
}

/* A peer that has the memory may have made the file longer, which cannot be undone. */
static bool is_longer(struct kedge_region *r, uint64_t len)
{
	struct stat st;

	if (fstat(r->fd, &st) || (uint64_t)st.st_size < len)
		return false;
	r->file_len = (uint64_t)st.st_size;
	return true;
}

/* SIGXFSZ, which comes with the limit, is the keeper's, and blocked there. */
static int extend_file(struct kedge_region *r, uint64_t len)
{
	if (len <= r->file_len)
		return 0;
	if (ftruncate(r->fd, (off_t)len))
		return errno == EPERM && is_longer(r, len) ? 0 : too_long(len, errno);
	r->file_len = len;
	return 0;
}

static int map_at(struct kedge_region *r, uint64_t from, uint64_t to, int how)
{
	char *at = r->at + from;
	void *got = map_there(at, to - from, MAP_SHARED | how, r->fd, (off_t)from);

	if (got == MAP_FAILED && errno == EEXIST)
		return -EEXIST;
	/* No access until it is kept from children: another thread may fork in between. */
	if (got == MAP_FAILED || madvise(at, to - from, MADV_DONTFORK) ||
	    mprotect(at, to - from, PROT_READ | PROT_WRITE))
		return kedge_reason(-errno, "mmap: error %d; with ENOMEM the process has "
				    "too many mappings: raise vm.max_map_count", errno);
	return 0;
}

static int map(struct kedge_region *r, uint64_t from, uint64_t to)
{
	return map_at(r, from, to, MAP_FIXED);
}

int region_map_gap(struct kedge_region *r, uint64_t from, uint64_t to)
{
	return map_at(r, from, to, MAP_FIXED_NOREPLACE);
}

/* Huge TLB pages are never swapped, and to lock them would count. The system call itself:
 * sanitizers' mlock() does not lock. */
int region_lock_in(struct kedge_region *r, uint64_t from, uint64_t to)
{
	char *at = r->at + from;
	uint64_t off;

	if (r->page_size != kedge__page_size()) {
		for (off = from; off < to; off += r->page_size)
			(void)*(volatile char *)(r->at + off);
		return 0;
	}
	if (!syscall(SYS_mlock, at, to - from))
		return 0;
	return kedge_reason(errno == EAGAIN ? -ENOMEM : -errno, "mlock: error %d: "
			    "RLIMIT_MEMLOCK was used up meanwhile (ulimit -l), or there are "
			    "too many mappings (vm.max_map_count)", errno);
}

/* ---- what the keeper does ---- */

struct change {
	struct kedge_region *r;
	uint64_t len;
	bool careful;
	uint64_t had;
};

static int in_the_way(uint64_t from, uint64_t to)
{
	return kedge_reason(-EEXIST, "at bytes %llu to %llu of the region's addresses is other "
			    "memory, as the program has unmapped what was kept there: unmap it, "
			    "and call this again", (unsigned long long)from,
			    (unsigned long long)to);
}

static int no_others(void *holes, enum look is, uint64_t from, uint64_t to)
{
	if (is == LOOK_NONE)
		*(bool *)holes = true;
	return is == LOOK_KEPT || is == LOOK_NONE ? 0 : in_the_way(from, to);
}

static int keep_again(void *arg, enum look is, uint64_t from, uint64_t to)
{
	const struct kedge_region *r = arg;
	char *at = r->at + from;

	if (is == LOOK_KEPT)
		return 0;
	if (is != LOOK_NONE)
		return in_the_way(from, to);
	if (map_there(at, to - from, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
		      MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED)
		return errno == EEXIST ? in_the_way(from, to)
				       : error_no_addresses(to - from, "for the region");
	madvise(at, to - from, MADV_DONTFORK);
	return 0;
}

/*
 * All of it up to @len, from its end on, is kept, or it is not known. What the program has unmapped
 * is so again if it is free; by a call that replaces nothing, as others may map memory there
 * meanwhile.
 */
static int keep_all(struct kedge_region *r, uint64_t len)
{
	bool holes = false;
	int rc = r->len ? look_through(r, r->len, len, no_others, &holes) : 0;

	if (!rc && holes)
		rc = look_through(r, r->len, len, keep_again, r);
	return rc == -EOPNOTSUPP ? 0 : rc;
}

static int commit(void *arg)
{
	struct change *c = arg;
	struct kedge_region *r = c->r;
	int rc = keep_all(r, c->len);

	if (!rc && r->fd < 0)
		rc = open_file(r);
	if (!rc)
		rc = extend_file(r, c->len);
	if (rc)
		return rc;
	/* A peer that was stopped while it was trimmed may have stored there since. */
	give_back(r, r->len, c->len);
	rc = region_fill(r->fd, r->len, c->len - r->len, c->careful, &c->had);
	if (rc)
		goto give_back;
	rc = map(r, r->len, c->len);
	if (!rc)
		rc = region_lock_in(r, r->len, c->len);
	if (!rc)
		return 0;
	hide(r, r->len, c->len);
give_back:
	give_back(r, r->len, c->len);
	return rc;
}

static int release(void *arg)
{
	const struct change *c = arg;

	give_back(c->r, c->len, c->r->len);
	return 0;
}

static int end(void *arg)
{
	struct kedge_region *r = arg;

	if (r->fd >= 0) {
		give_back(r, 0, r->file_len);
		own_file_remove(r->fd);
		close(r->fd);
	}
	return 0;
}

/* ---- the others ---- */

int region_commit(struct kedge_region *r, uint64_t len, bool careful, uint64_t *had)
{
	struct change c = { r, len, careful, UINT64_MAX };
	int rc = keeper_call(commit, &c);

	*had = c.had;
	if (!rc)
		r->len = len;
	return rc;
}

int region_release(struct kedge_region *r, uint64_t len)
{
	struct change c = { .r = r, .len = len };
	int rc = each_own(r, len, r->len, hide);

	if (rc)
		return kedge_reason(rc, "mmap: error %d; with ENOMEM the process has too "
				    "many mappings: raise vm.max_map_count", -rc);
	/* Without a keeper there is no memfd to take them from any more. */
	keeper_call(release, &c);
	r->len = len;
	return 0;
}

void region_end(struct kedge_region *r)
{
	if (r->at)
		each_own(r, 0, r->max_len, unmap);
	keeper_call(end, r);
}
