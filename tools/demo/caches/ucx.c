// SPDX-License-Identifier: BSD-2-Clause
/*
 * UCX: a memory domain of its component "ib", which keeps registrations unless UCX_RCACHE_ENABLE=n.
 * The library is loaded globally, so that a preloaded one is asked first, as in programs that are
 * linked with UCX.
 */
#include <dlfcn.h>
#include <string.h>

#include <uct/api/uct.h>

#include "tools/demo/caches/caches.h"

#define DEVICE "standin0"

struct calls {
	__typeof__(&uct_query_components) components;
	__typeof__(&uct_component_query) query;
	__typeof__(&uct_md_config_read) config;
	__typeof__(&uct_md_open) open;
	__typeof__(&uct_md_mem_reg) reg;
	__typeof__(&uct_md_mem_dereg) dereg;
	__typeof__(&uct_md_mkey_pack) pack;
	__typeof__(&ucs_status_string) text;
	const char *(*version)(void);
};

static struct calls calls;
static uct_md_h md;

static int load(void)
{
	const struct {
		const char *name;
		void *to;
	} names[] = {
		{ "uct_query_components", &calls.components },
		{ "uct_component_query", &calls.query },
		{ "uct_md_config_read", &calls.config },
		{ "uct_md_open", &calls.open },
		{ "uct_md_mem_reg", &calls.reg },
		{ "uct_md_mem_dereg", &calls.dereg },
		{ "uct_md_mkey_pack", &calls.pack },
		{ "ucs_status_string", &calls.text },
		{ "ucp_get_version_string", &calls.version },
	};
	size_t i;

	if (!dlopen("libucp.so.0", RTLD_NOW | RTLD_GLOBAL)) {
		caches_say("UCX is not installed (Debian's libucx0): %s", dlerror());
		return -1;
	}
	for (i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (caches_find(RTLD_DEFAULT, names[i].name, names[i].to))
			return -1;
	return 0;
}

static uct_component_h find_component(void)
{
	uct_component_attr_t attr = { .field_mask = UCT_COMPONENT_ATTR_FIELD_NAME };
	uct_component_h *all, found = NULL;
	unsigned int n, i;

	if (calls.components(&all, &n) != UCS_OK)
		return NULL;
	for (i = 0; i < n && !found; i++)
		if (calls.query(all[i], &attr) == UCS_OK && !strcmp(attr.name, "ib"))
			found = all[i];
	return found;
}

static int open_domain(void)
{
	uct_md_config_t *config;
	uct_component_h ib;
	ucs_status_t status;

	if (load())
		return -1;
	ib = find_component();
	if (!ib) {
		caches_say("this UCX has no transports of libibverbs (Debian's libucx0 has them)");
		return -1;
	}
	status = calls.config(ib, NULL, NULL, &config);
	if (status == UCS_OK)
		status = calls.open(ib, DEVICE, config, &md);
	if (status == UCS_OK)
		return 0;
	caches_say("UCX opens no memory domain of the device: %s", calls.text(status));
	return -1;
}

static const char *version(void)
{
	return calls.version();
}

/* The stand-in's key is the buffer's index and 1; UCX has that of atomic operations behind it. */
static void *get(void *at, size_t len, unsigned int *index)
{
	uint32_t packed[16] = { 0 };
	uct_mem_h mr = NULL;
	ucs_status_t status;

	status = calls.reg(md, at, len, UCT_MD_MEM_ACCESS_ALL, &mr);
	if (status == UCS_OK)
		status = calls.pack(md, mr, packed);
	if (status != UCS_OK) {
		caches_say("UCX registers no memory: %s", calls.text(status));
		return NULL;
	}
	*index = packed[0] - 1;
	return mr;
}

static void put(void *mr)
{
	calls.dereg(md, mr);
}

const struct caches_ops caches_ucx = {
	.name = "ucx", .open = open_domain, .version = version, .get = get, .put = put,
};
