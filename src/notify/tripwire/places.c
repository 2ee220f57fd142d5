// SPDX-License-Identifier: BSD-2-Clause
/*
 * The kernel describes itself (BTF): its functions by name, with their
 * arguments. So what a program of the tripwire's reads is where this kernel has
 * it, and a function that it does not have is a group that is not complete.
 */
#include <linux/bpf.h>
#include <linux/btf.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/shm.h>

#include "base/base.h"
#include "bpf/btf.h"
#include "notify/tripwire/places.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

#define VMLINUX "/sys/kernel/btf/vmlinux"

const struct point tripwire_points[POINTS] = {
	{ "do_shmat", "shmflg", BPF_JSET, SHM_REMAP, SHM },
	{ "do_shmat", "shmflg", BPF_JSET, SHM_REMAP, SHM_AGAIN },
	{ "madvise_do_behavior", "behavior", BPF_JEQ, MADV_GUARD_INSTALL,
	  GUARD_CALLS },
	{ "do_madvise", "behavior", BPF_JEQ, MADV_GUARD_INSTALL,
	  GUARD_CALLS_OLD },
	{ "vector_madvise", "behavior", BPF_JEQ, MADV_GUARD_INSTALL,
	  GUARD_CALLS_OLD },
	{ "guard_install_set_pte", NULL, 0, 0, GUARD_MARKS },
};

/* Find an argument named @what, or a member of one; false if there is neither. */
static bool find_what(const struct btf *b, struct place *p, const char *what)
{
	int arg, off;
	uint32_t id;

	p->member = -1;
	p->arg = (int16_t)btf_argument(b, p->func, what);
	if (p->arg >= 0)
		return true;
	for (arg = 0; arg < 8; arg++) {
		id = btf_argument_struct(b, p->func, arg);
		off = id ? btf_member(b, id, what) : -1;
		if (off < 0 || off > INT16_MAX)
			continue;
		p->arg = (int16_t)arg;
		p->member = (int16_t)off;
		return true;
	}
	return false;
}

static int read_places(struct places *out)
{
	struct places p = { 0 };
	struct btf b;
	uint32_t id;
	int i, rc;

	rc = btf_open(&b, VMLINUX);
	if (rc)
		return rc;
	for (i = 0; i < POINTS; i++) {
		p.at[i].func = btf_find(&b, BTF_KIND_FUNC, tripwire_points[i].func);
		p.at[i].arg = -1;
		p.at[i].member = -1;
		if (p.at[i].func && tripwire_points[i].what &&
		    !find_what(&b, &p.at[i], tripwire_points[i].what))
			p.at[i].func = 0;
	}
	id = btf_find(&b, BTF_KIND_STRUCT, "task_struct");
	p.mm = id ? btf_member(&b, id, "mm") : -1;
	btf_close(&b);
	if (p.mm < 0 || p.mm > INT16_MAX)
		return kedge_reason(-EOPNOTSUPP,
				    "this kernel has no task_struct.mm");
	*out = p;
	return 0;
}

/*
 * The same, read once in a process: it is 5 MiB. Two threads may both read it.
 * No lock: a child forked meanwhile would find it taken for ever.
 */
int tripwire_places(struct places *out)
{
	enum { EMPTY, FILLING, FULL };
	static _Atomic int state;
	static struct places kept;
	int rc, expected = EMPTY;

	/* acquire: partner of the release below, for what is kept. */
	if (atomic_load_explicit(&state, memory_order_acquire) == FULL) {
		*out = kept;
		return 0;
	}
	rc = read_places(out);
	if (!rc && atomic_compare_exchange_strong(&state, &expected, FILLING)) {
		kept = *out;
		atomic_store_explicit(&state, FULL, memory_order_release);
	}
	return rc;
}
