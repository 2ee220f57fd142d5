// SPDX-License-Identifier: BSD-2-Clause
/* Registrations of a provider's. */
#include <sys/random.h>

#include "channel/ofi/internal.h"

/* A key that a stranger cannot guess. 0 if there is no randomness. */
static uint64_t new_key(struct ofi *o)
{
	ssize_t n;

	if (!o->key_cnt) {
		n = getrandom(o->keys, sizeof(o->keys), 0);
		o->key_cnt = n > 0 ? (uint32_t)n / 8 : 0;
	}
	return o->key_cnt ? o->keys[--o->key_cnt] & o->key_mask : 0;
}

static int bind_mr(struct ofi *o, struct fid_mr *mr)
{
	int rc = fi_mr_bind(mr, &o->ep->fid, 0);

	if (!rc)
		rc = fi_mr_enable(mr);
	if (rc)
		fi_close(&mr->fid);
	return rc;
}

static uint64_t flags_of(uint32_t access)
{
	uint64_t flags = FI_SEND | FI_WRITE;

	if (access & KEDGE_ACCESS_LOCAL_WRITE)
		flags |= FI_RECV | FI_READ;
	if (access & KEDGE_ACCESS_REMOTE_READ)
		flags |= FI_REMOTE_READ;
	if (access & KEDGE_ACCESS_REMOTE_WRITE)
		flags |= FI_REMOTE_WRITE;
	return flags;
}

int kedge__ofi_reg(struct rdma *r, void *at, size_t len, uint32_t access,
		   void **reg)
{
	struct ofi *o = ofi_of(r);
	struct fid_mr *mr = NULL;
	uint64_t key = 0;
	int rc, tries = 8;

	do {
		if (o->own_key)
			key = new_key(o);
		if (o->own_key && !key)
			return kedge_reason(-EAGAIN, "no random key");
		rc = fi_mr_reg(o->domain, at, len, flags_of(access), 0, key, 0,
			       &mr, NULL);
		if (!rc && o->bind_mr)
			rc = bind_mr(o, mr);
	} while (rc == -FI_ENOKEY && --tries);
	if (rc == -FI_ENOMEM && r->pins)
		return kedge_reason(-ENOMEM, "no memory, or RLIMIT_MEMLOCK is "
				    "used up: raise it with ulimit -l or "
				    "LimitMEMLOCK=");
	if (rc)
		return kedge_reason(kedge__ofi_errno(rc), "fi_mr_reg: %s",
				    fi_strerror(-rc));
	*reg = mr;
	return 0;
}

int kedge__ofi_dereg(struct rdma *r, void *reg)
{
	struct fid_mr *mr = reg;

	(void)r;
	return kedge__ofi_errno(fi_close(&mr->fid));
}
