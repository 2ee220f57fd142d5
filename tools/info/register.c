// SPDX-License-Identifier: BSD-2-Clause
/* Questions to a device of any kind. */
#include "tools/info/info.h"

int info_register(struct kedge_device *dev, void *buf, size_t len,
		  int (*use)(void *arg, const struct kedge_mr *mr), void *arg)
{
	struct kedge_notifier_opts no = { .size = sizeof(no),
					  .backend = "none" };
	struct kedge_notifier *nf;
	struct kedge_cache *cache;
	const struct kedge_mr *mr;
	int rc;

	rc = kedge_notifier_open(&no, &nf);
	if (rc)
		return rc;
	rc = kedge_cache_open(dev, nf, NULL, &cache);
	if (rc)
		goto close_notifier;
	rc = kedge_cache_get(cache, buf, len, KEDGE_ACCESS_LOCAL_WRITE, &mr);
	if (rc)
		goto close_cache;
	rc = use ? use(arg, mr) : 0;
	kedge_cache_put(cache, mr);
close_cache:
	kedge_cache_close(cache);
close_notifier:
	kedge_notifier_close(nf);
	return rc;
}

void info_device_data(struct info_line *l, const struct kedge_device_attr *a)
{
	json_object_set_new(l->data, "slots",
			    json_integer((json_int_t)a->max_regions));
	json_object_set_new(l->data, "max_len",
			    json_integer((json_int_t)a->max_len));
	json_object_set_new(l->data, "chunk_len",
			    json_integer((json_int_t)a->chunk_len));
}
