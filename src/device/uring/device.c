// SPDX-License-Identifier: BSD-2-Clause
/*
 * io_uring's fixed buffers as a device. A registration is one slot of the
 * ring's buffer table: the kernel pins the pages when the slot is filled and
 * lets go of them when it is emptied, so a stale slot loses data as a stale
 * key of an RDMA NIC does.
 *
 * table.c has the ring and its table, slots.c the slots' states and owners,
 * pages.c what a slot does to the pages, mark.c what becomes of the data in
 * them, explain.c the reasons.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <kedge/uring.h>

#include "base/base.h"
#include "base/process/cancel.h"
#include "device/uring/internal.h"

/* The kernel's own limit on one buffer. */
#define MAX_LEN (1024 * MIB)
/*
 * Measured on 512 MiB: from 1 MiB up (2 MiB with huge pages) the size of the
 * piece hardly changes how long the whole takes, and 4 MiB is within 1 % of
 * the best. What one lost page costs grows with it: 0.1 ms for 4 MiB, 0.4 ms
 * for 16 MiB.
 */
#define CHUNK_LEN (4 * MIB)
#define OPTS_V1	  STRUCT_END(struct kedge_uring_opts, first_slot)
#define FLAGS_ALL (KEDGE_URING_TABLE_EXISTS | KEDGE_URING_NO_MADV_FREE)

/* ---- the ops ---- */

static int check_reg(const struct uring *u, const void *addr, size_t len,
		     uint32_t access)
{
	uintptr_t end;

	if (!*u->here)
		return kedge_reason(-ECHILD, "the ring belongs to the parent "
					     "process");
	if (!len || __builtin_add_overflow((uintptr_t)addr, len, &end))
		return kedge_reason(-EINVAL, "%s",
				    len ? "the range wraps"
					: "the length is 0");
	if (access & ~KEDGE_ACCESS_ALL)
		return kedge_reason(-EINVAL, "access %#x is unknown", access);
	if (access & ~(uint32_t)KEDGE_ACCESS_LOCAL_WRITE)
		return kedge_reason(-EOPNOTSUPP, "io_uring gives no remote "
						 "access");
	if (len > MAX_LEN)
		return kedge_reason(-E2BIG, "io_uring registers at most 1 GiB "
					    "at once");
	/* To the kernel a buffer at 0 means an empty slot. */
	if (!addr)
		return kedge_reason(-EFAULT, "the address is NULL");
	return 0;
}

static int uring_reg(void *ctx, void *addr, size_t len, uint32_t access,
		     struct kedge_device_mr *mr)
{
	struct uring *u = ctx;
	enum slot_state left;
	uint32_t slot;
	int rc;

	rc = check_reg(u, addr, len, access);
	if (rc)
		return rc;
	if (!kedge__uring_take(u, &slot))
		return kedge__uring_full(u);
	rc = kedge__uring_pin(u, slot, addr, len,
			      access & KEDGE_ACCESS_LOCAL_WRITE, &left);
	/* The slot, or a range over two files' mappings (Linux 5.13 to 6.4)? */
	if (rc == -EINVAL && kedge__uring_probe(u, u->first + slot) == -EFAULT)
		rc = -EXDEV;
	if (rc != 1) {
		kedge__uring_give(u, slot, left);
		return kedge__uring_reg_refused(u, rc, (uintptr_t)addr, len);
	}
	mr->handle = u->first + slot;
	mr->offset = (uintptr_t)addr;
	mr->priv = slot;
	u->mem[slot].pinned = (struct range){ 0, 0 };
	if (access & KEDGE_ACCESS_LOCAL_WRITE)
		u->mem[slot].pinned = (struct range){ (uintptr_t)addr,
						      (uintptr_t)addr + len };
	return 0;
}

/* It is emptied when its data are safe, by a later registration or the close. */
static void keep_owed(struct uring *u, uint32_t slot)
{
	kedge__uring_give(u, slot, SLOT_LOST);
	kedge__log(KEDGE_LOG_WARN,
		   "memory of io_uring buffer slot %u was freed lazily, written "
		   "to by the ring and made read-only: it stays pinned, or the "
		   "data could be dropped; make it writable, or unmap it "
		   "(%u slots wait)",
		   u->first + slot,
		   __atomic_load_n(&u->lost_cnt, __ATOMIC_RELAXED));
}

static void uring_dereg(void *ctx, const struct kedge_device_mr *mr)
{
	struct uring *u = ctx;
	uint32_t slot = (uint32_t)mr->priv;
	int rc;

	if (!*u->here)
		return;
	if (!kedge__uring_take_used(u, mr->priv)) {
		kedge__log(KEDGE_LOG_ERROR,
			   "io_uring buffer %" PRIu64 " is deregistered but "
			   "not registered",
			   mr->handle);
		return;
	}
	u->mem[slot].pinned = (struct range){ 0, 0 };
	if (u->mem[slot].owed.end) {
		keep_owed(u, slot);
		return;
	}
	if (kedge__uring_unpin(u, slot, &rc)) {
		kedge__uring_give(u, slot, SLOT_FREE);
		return;
	}
	kedge__uring_give(u, slot, SLOT_LOST);
	kedge__log(KEDGE_LOG_ERROR,
		   "io_uring did not empty buffer slot %u (error %d%s): its "
		   "pages stay pinned and it is not used again until a later "
		   "registration or the close has emptied it",
		   u->first + slot, -rc,
		   rc == -EEXIST ? ", not the ring's submitter thread" : "");
}

static void uring_preserve(void *ctx, const struct kedge_device_mr *mr,
			   void *addr, size_t len, uint32_t flags)
{
	struct range r = { (uintptr_t)addr, (uintptr_t)addr + len };
	struct uring *u = ctx;

	if (u->marks == MARK_AT_END && *u->here &&
	    kedge__uring_is_used(u, mr->priv))
		kedge__uring_preserve(r, flags, &u->mem[mr->priv].owed);
}

static int uring_query(void *ctx, struct kedge_device_attr *attr)
{
	const struct uring *u = ctx;

	attr->flags = KEDGE_DEVICE_WRITES | KEDGE_DEVICE_PINS;
	attr->max_len = MAX_LEN;
	attr->max_regions = u->slots;
	attr->chunk_len = CHUNK_LEN;
	attr->access = KEDGE_ACCESS_LOCAL_READ | KEDGE_ACCESS_LOCAL_WRITE;
	return 0;
}

static void table_fini(struct uring *u)
{
	/* A forked child shares the ring: the table is the parent's. */
	if (!*u->here)
		return;
	kedge__uring_pay_all(u);
	if (u->made)
		kedge__uring_table_drop(u);
	else
		kedge__uring_empty_all(u);
}

static void uring_close(void *ctx)
{
	struct uring *u = ctx;

	table_fini(u);
	kedge__uring_slots_fini(u);
	kedge__uring_ring_close(u);
	pthread_mutex_destroy(&u->lock);
	munmap((void *)(uintptr_t)u->here, sizeof(*u->here));
	free(u);
}

/* ---- open ---- */

/* A page that reads 1 here and 0 in a forked child, whatever it shares. */
static int mark_here(struct uring *u)
{
	uint32_t *here;
	int rc;

	here = mmap(NULL, sizeof(*here), PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (here == MAP_FAILED)
		return kedge_reason(-ENOMEM, "no memory for the device");
	if (madvise(here, sizeof(*here), MADV_WIPEONFORK)) {
		rc = -errno;
		munmap(here, sizeof(*here));
		return kedge_reason(rc, "MADV_WIPEONFORK fails: error %d", -rc);
	}
	*here = 1;
	u->here = here;
	return 0;
}

static int check_opts(struct kedge_uring_opts *opts,
		      const struct kedge_uring_opts *user)
{
	int rc = kedge__opts_copy(opts, sizeof(*opts), OPTS_V1, user);

	if (rc)
		return rc;
	if (opts->flags & ~FLAGS_ALL)
		return kedge_reason(-EINVAL, "flags %#x are unknown",
				    opts->flags & ~FLAGS_ALL);
	if (opts->first_slot && !(opts->flags & KEDGE_URING_TABLE_EXISTS))
		return kedge_reason(-EINVAL,
				    "first_slot needs "
				    "KEDGE_URING_TABLE_EXISTS: a table of our "
				    "own starts at 0");
	return 0;
}

static int table_init(struct uring *u, const struct kedge_uring_opts *opts)
{
	u->marks = opts->flags & KEDGE_URING_NO_MADV_FREE
			   ? MARK_NEVER
			   : kedge__uring_mark_when();
	if (opts->flags & KEDGE_URING_TABLE_EXISTS)
		return kedge__uring_table_use(u, opts->first_slot, opts->slots);
	return kedge__uring_table_new(u, opts->slots);
}

static const struct kedge_device_ops uring_ops = {
	.size = sizeof(uring_ops),
	.name = "uring",
	.reg = uring_reg,
	.dereg = uring_dereg,
	.query = uring_query,
	.close = uring_close,
	.preserve = uring_preserve,
};

int kedge_device_open_uring(struct io_uring *ring,
			    const struct kedge_uring_opts *user,
			    struct kedge_device **dev)
{
	NO_CANCEL();
	struct kedge_uring_opts opts;
	struct uring *u;
	int rc;

	if (!ring || !dev)
		return kedge_reason(-EINVAL, "the %s is NULL",
				    ring ? "result pointer" : "ring");
	rc = check_opts(&opts, user);
	if (rc)
		return rc;

	u = calloc(1, sizeof(*u));
	if (!u)
		return kedge_reason(-ENOMEM, "no memory for the device");
	rc = -pthread_mutex_init(&u->lock, NULL);
	if (rc)
		goto free_ctx;
	rc = mark_here(u);
	if (rc)
		goto destroy_lock;
	rc = kedge__uring_ring_open(u, ring);
	if (rc)
		goto unmark;
	rc = table_init(u, &opts);
	if (rc)
		goto close_ring;
	rc = kedge__uring_slots_init(u);
	if (rc)
		goto drop_made;
	rc = kedge_device_open(&uring_ops, u, dev);
	if (rc)
		goto fini_slots;
	return 0;

fini_slots:
	kedge__uring_slots_fini(u);
drop_made:
	if (u->made)
		kedge__uring_table_drop(u);
close_ring:
	kedge__uring_ring_close(u);
unmark:
	munmap((void *)(uintptr_t)u->here, sizeof(*u->here));
destroy_lock:
	pthread_mutex_destroy(&u->lock);
free_ctx:
	free(u);
	return rc;
}
