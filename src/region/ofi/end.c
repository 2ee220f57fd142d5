// SPDX-License-Identifier: BSD-2-Clause
/* An endpoint with all that it needs, and memory that is registered with it. */
#include <endian.h>
#include <sys/random.h>

#include "region/ofi/internal.h"

#define KEYS 8 /* that are tried: another registration may have it */

static int open_cq(struct end *e, int *fd)
{
	struct fi_cq_attr attr = { .size = 2 * RING, .format = FI_CQ_FORMAT_CONTEXT,
				   .wait_obj = FI_WAIT_FD };
	int rc = fd ? fi_cq_open(e->domain, &attr, &e->cq, NULL) : -FI_ENOSYS;

	if (!rc && !fi_control(&e->cq->fid, FI_GETWAIT, fd) && *fd >= 0)
		return 0;
	/* Some providers have no such descriptor. */
	if (!rc)
		fi_close(&e->cq->fid);
	e->cq = NULL;
	if (fd)
		*fd = -1;
	attr.wait_obj = FI_WAIT_NONE;
	return fi_cq_open(e->domain, &attr, &e->cq, NULL);
}

static int open_ep(struct end *e)
{
	struct fi_av_attr attr = { .type = e->info->domain_attr->av_type, .count = 1 };
	int rc = fi_av_open(e->domain, &attr, &e->av, NULL);

	if (rc)
		return ofi_failed("fi_av_open", rc);
	rc = fi_endpoint(e->domain, e->info, &e->ep, NULL);
	if (!rc)
		rc = fi_ep_bind(e->ep, &e->av->fid, 0);
	if (!rc)
		rc = fi_ep_bind(e->ep, &e->cq->fid, FI_TRANSMIT | FI_RECV);
	if (!rc)
		rc = fi_enable(e->ep);
	return rc ? ofi_failed("fi_enable", rc) : 0;
}

static int open_all(struct end *e, int *fd)
{
	int rc = fi_fabric(e->info->fabric_attr, &e->fabric, NULL);

	if (rc)
		return ofi_failed("fi_fabric", rc);
	rc = fi_domain(e->fabric, e->info, &e->domain, NULL);
	if (rc)
		return ofi_failed("fi_domain", rc);
	rc = open_cq(e, fd);
	return rc ? ofi_failed("fi_cq_open", rc) : open_ep(e);
}

int end_open(struct end *e, const unsigned char place[16], int *fd)
{
	int rc;

	memset(e, 0, sizeof(*e));
	e->choice = provider_chosen();
	rc = provider_find(e->choice, place, &e->info);
	if (rc)
		return rc;
	rc = open_all(e, fd);
	if (rc)
		end_close(e);
	return rc;
}

/* ---- memory ---- */

static int new_key(const struct end *e, uint64_t *key)
{
	const size_t len = e->info->domain_attr->mr_key_size;

	*key = 0;
	if (e->info->domain_attr->mr_mode & FI_MR_PROV_KEY)
		return 0;
	if (getrandom(key, sizeof(*key), 0) != sizeof(*key))
		return kedge_reason(-EAGAIN, "no random key");
	if (len && len < sizeof(*key))
		*key &= (UINT64_C(1) << len * 8) - 1;
	return 0;
}

static int bind_mr(struct end *e)
{
	int rc = fi_mr_bind(e->mr, &e->ep->fid, 0);

	return rc ? rc : fi_mr_enable(e->mr);
}

int end_register(struct end *e, void *at, uint64_t len, uint64_t access)
{
	const int mode = e->info->domain_attr->mr_mode;
	int rc, tries = KEYS;
	uint64_t key;

	if (!access && !(mode & FI_MR_LOCAL))
		return 0;
	do {
		rc = new_key(e, &key);
		if (rc)
			return rc;
		rc = fi_mr_reg(e->domain, at, len, access ? access : FI_READ | FI_WRITE, 0, key, 0,
			       &e->mr, NULL);
	} while (rc == -FI_ENOKEY && --tries);
	if (!rc && mode & FI_MR_ENDPOINT)
		rc = bind_mr(e);
	if (rc)
		return ofi_failed("fi_mr_reg", rc);
	e->desc = fi_mr_desc(e->mr);
	if (!access)
		return 0;
	e->key = fi_mr_key(e->mr);
	e->at = mode & FI_MR_VIRT_ADDR ? (uintptr_t)at : 0;
	return e->key == FI_KEY_NOTAVAIL
		       ? kedge_reason(-EOPNOTSUPP, "the provider has keys of more than 64 bits")
		       : 0;
}

/* ---- two ---- */

int end_tell(const struct end *e, struct fabric_ofi_end *out)
{
	size_t len = sizeof(out->name);
	int rc = fi_getname(&e->ep->fid, out->name, &len);

	if (rc)
		return ofi_failed("fi_getname", rc);
	out->at = htole64(e->at);
	out->key = htole64(e->key);
	out->provider = htole32(e->choice->number);
	out->name_len = htole32((uint32_t)len);
	return 0;
}

/* Names are libfabric's to read, and it trusts them: they have to be of the form of its own. */
static bool is_a_name(const struct end *e, const struct fabric_ofi_end *other)
{
	struct fabric_ofi_end own;

	if (end_tell(e, &own) || own.name_len != other->name_len)
		return false;
	return !e->choice->ip || !memcmp(own.name, other->name, sizeof(uint16_t));
}

int end_join(struct end *e, const struct fabric_ofi_end *other)
{
	if (le32toh(other->provider) != e->choice->number)
		return kedge_reason(-EPROTO, "the other side's provider is not \"%s\"",
				    e->choice->name);
	if (!is_a_name(e, other) || fi_av_insert(e->av, other->name, 1, &e->peer, 0, NULL) != 1)
		return kedge_reason(-EPROTO, "the provider \"%s\" does not take the other side's "
				    "address: are both of one version of libfabric?",
				    e->choice->name);
	return 0;
}

static void close_mr(struct end *e)
{
	if (e->mr)
		fi_close(&e->mr->fid);
	e->mr = NULL;
}

/* A registration of an endpoint ends before that, and by itself ends what peers do there; any other
 * one behind it, as the endpoint may have a part of a write to it. */
void end_close(struct end *e)
{
	if (e->info && e->info->domain_attr->mr_mode & FI_MR_ENDPOINT)
		close_mr(e);
	if (e->ep)
		fi_close(&e->ep->fid);
	close_mr(e);
	if (e->av)
		fi_close(&e->av->fid);
	if (e->cq)
		fi_close(&e->cq->fid);
	if (e->domain)
		fi_close(&e->domain->fid);
	if (e->fabric)
		fi_close(&e->fabric->fid);
	fi_freeinfo(e->info);
	memset(e, 0, sizeof(*e));
}
