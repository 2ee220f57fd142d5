// SPDX-License-Identifier: BSD-2-Clause
/* Accesses to several ranges. */
#include <string.h>

#include "base/base.h"
#include "region/gate.h"
#include "region/peer/access.h"

int access_check_parts(const struct kedge_remote_part *part, size_t cnt, uint64_t *end)
{
	size_t i;

	*end = 0;
	if (cnt && !part)
		return kedge_reason(-EINVAL, "the parts are NULL");
	for (i = 0; i < cnt; i++) {
		if (part[i].len && !part[i].data)
			return kedge_reason(-EINVAL, "the data of part %zu is NULL", i);
		if (part[i].len > UINT64_MAX - part[i].offset)
			*end = UINT64_MAX;
		else if (part[i].len && part[i].offset + part[i].len > *end)
			*end = part[i].offset + part[i].len;
	}
	return 0;
}

static int parts_by_owner(struct access *a, void *op)
{
	const struct stream_req q = { .op = *(const uint32_t *)op, .len = a->len,
				      .timeout_ms = access_left_ms(a) };

	return access_served(a, &q, a->part, a->cnt);
}

/* 0: it is done by the owner, or empty, or it is inside: then *@go is true. */
static int begin_parts(struct access *a, uint32_t op, uint32_t access, bool *go)
{
	int rc = access_check(a->r, access);

	*go = false;
	if (!rc)
		rc = access_check_parts(a->part, a->cnt, &a->len);
	if (rc || !a->len)
		return rc;
	return access_begin(a, parts_by_owner, &op, go);
}

KEDGE_API int kedge_remote_put_parts(struct kedge_remote *r, const struct kedge_remote_part *part,
				     size_t cnt, int timeout_ms)
{
	struct access a = { .r = r, .timeout_ms = timeout_ms, .part = part, .cnt = cnt };
	size_t i;
	bool go;
	int rc = begin_parts(&a, STREAM_PUT, KEDGE_HANDLE_WRITE, &go);

	if (!go)
		return rc;
	for (i = 0; i < cnt; i++)
		if (part[i].len)
			memcpy(a.l->at + part[i].offset, part[i].data, part[i].len);
	gate_leave(a.l->gate);
	return 0;
}

KEDGE_API int kedge_remote_get_parts(struct kedge_remote *r, const struct kedge_remote_part *part,
				     size_t cnt, int timeout_ms)
{
	struct access a = { .r = r, .timeout_ms = timeout_ms, .part = part, .cnt = cnt };
	size_t i;
	bool go;
	int rc = begin_parts(&a, STREAM_GET, KEDGE_HANDLE_READ, &go);

	if (!go)
		return rc;
	for (i = 0; i < cnt; i++)
		if (part[i].len)
			memcpy(part[i].data, a.l->at + part[i].offset, part[i].len);
	gate_leave(a.l->gate);
	return 0;
}
