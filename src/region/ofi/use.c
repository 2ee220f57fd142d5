// SPDX-License-Identifier: BSD-2-Clause
/* Regions of this process, and those that it reaches, by libfabric. */
#include <stdlib.h>

#include "base/process/cancel.h"
#include "channel/ofi/lib.h"
#include "region/ofi/internal.h"

#define OPTS_V1 STRUCT_END(struct kedge_region_ofi_opts, flags)

static int look(void *choice)
{
	int rc = kedge__ofi_load();

	return rc ? rc : provider_look(choice);
}

static int read_opts(const struct kedge_region_ofi_opts *user, uint32_t *flags)
{
	struct kedge_region_ofi_opts o;
	int rc = kedge__opts_copy(&o, sizeof(o), OPTS_V1, user);

	if (rc)
		return rc;
	if (o.flags & ~KEDGE_REGION_OFI_WEAK_KEYS)
		return kedge_reason(-EINVAL, "unknown flag");
	*flags = o.flags;
	return 0;
}

/* The choice lives on, as threads may be at the one before. */
KEDGE_API int kedge_region_use_ofi(const char *provider, const struct kedge_region_ofi_opts *opts)
{
	struct choice *c;
	uint32_t flags = 0;
	int rc;

	NO_CANCEL();
	if (!provider || !*provider || strlen(provider) >= sizeof(c->name))
		return kedge_reason(-EINVAL, "the provider is NULL, empty or too long a name");
	rc = read_opts(opts, &flags);
	if (rc)
		return rc;
	c = calloc(1, sizeof(*c));
	if (!c)
		return kedge_reason(-ENOMEM, "no memory for a provider's name");
	strcpy(c->name, provider);
	c->flags = flags;
	rc = driver_use(false);
	if (!rc)
		rc = driver_call(look, c);
	if (rc) {
		free(c);
		return rc;
	}
	driver_ends_at_exit();
	rc = kedge__region_fabric(&line_fabric);
	if (rc)
		free(c);
	else
		provider_choose(c);
	return rc;
}
