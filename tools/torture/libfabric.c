// SPDX-License-Identifier: BSD-2-Clause
/*
 * libfabric's own cache of registrations, as the domains of its provider "verbs" have one, in the
 * place of kedge's. The adapter is the stand-in (tools/standin/), whose registrations are fixed
 * buffers of the test's ring.
 *
 * The monitor that watches memory for that cache is libfabric's choice: FI_MR_CACHE_MONITOR, and
 * libkedge-fi where that is found.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <kedge/ofi_device.h>

#include "tools/common/ofi_domain.h"
#include "tools/torture/dio.h"
#include "tools/torture/rig.h"

#define ACCESS	(FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)

struct libfabric {
	struct ofi_domain d;
	_Atomic uint64_t gets;
	uint64_t before; /* registrations that were made */
	uint64_t (*registered)(void);
};

int libfabric_open(struct rig *rig, struct libfabric **out)
{
	struct libfabric *f = calloc(1, sizeof(*f));
	int rc;

	if (!f)
		return kedge_reason(-ENOMEM, "no memory");
	rc = ofi_domain_standin(rig->ring.ring_fd, &f->registered);
	if (!rc)
		rc = ofi_domain_open("verbs", &f->d);
	if (rc) {
		free(f);
		return rc;
	}
	f->before = f->registered();
	*out = f;
	return 0;
}

void libfabric_close(struct libfabric *f)
{
	ofi_domain_close(&f->d);
	free(f);
}

int libfabric_get(struct libfabric *f, const void *addr, size_t len, struct fid_mr **mr,
		  uint64_t *handle)
{
	int rc = fi_mr_reg(f->d.domain, addr, len, ACCESS, 0, 0, 0, mr, NULL);

	if (rc)
		return kedge_reason(rc, "fi_mr_reg: %s", strerror(-rc));
	atomic_fetch_add(&f->gets, 1);
	*handle = fi_mr_key(*mr) - 1;
	return 0;
}

void libfabric_put(struct fid_mr *mr)
{
	fi_close(&mr->fid);
}

void libfabric_stats(struct libfabric *f, struct kedge_cache_stats *stats)
{
	const uint64_t made = f->registered() - f->before;

	stats->gets = atomic_load(&f->gets);
	stats->hits = stats->gets > made ? stats->gets - made : 0;
	stats->uncached = made;
}

/* ---- a domain as a device of kedge's cache ---- */

static int ofi_rig_open(struct rig *rig, const char *name)
{
	int rc = dio_uring.rig_open(rig, name);

	if (rc)
		return rc;
	rc = libfabric_open(rig, &rig->ofi);
	if (rc)
		dio_uring.rig_close(rig);
	return rc;
}

static void ofi_rig_close(struct rig *rig)
{
	libfabric_close(rig->ofi);
	dio_uring.rig_close(rig);
}

static int ofi_kedge_open(struct rig *rig, struct kedge_device **dev)
{
	return ofi_domain_device(&rig->ofi->d, dev);
}

static int ofi_open(struct rig *rig, struct dio_port *port)
{
	return dio_uring.open(rig, port);
}

static void ofi_close(struct dio_port *port)
{
	dio_uring.close(port);
}

/* The key says which buffer of the ring it is. */
static int ofi_move(struct rig *rig, struct dio_port *port, const struct ref *ref,
		    uint8_t *const *at, const uint64_t *in, uint64_t *out, unsigned int cnt)
{
	struct ref buffer = *ref;

	buffer.handle = fi_mr_key(kedge_ofi_mr(ref->mr)) - 1;
	return dio_uring.move(rig, port, &buffer, at, in, out, cnt);
}

static int no_table(struct rig *rig, unsigned int slots)
{
	(void)rig;
	(void)slots;
	return kedge_reason(-EOPNOTSUPP, "a naive cache on libfabric's domains is not tested");
}

const struct dio_ops dio_ofi = {
	.name = "ofi",
	.access = KEDGE_ACCESS_ALL,
	.rig_open = ofi_rig_open,
	.rig_close = ofi_rig_close,
	.kedge_open = ofi_kedge_open,
	.table_open = no_table,
	.open = ofi_open,
	.close = ofi_close,
	.move = ofi_move,
};
