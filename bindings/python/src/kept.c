// SPDX-License-Identifier: BSD-2-Clause
/* See channel.h. The GIL guards the list. */
#include <stdlib.h>

#include "channel.h"

int kept_add(struct channel *c, const struct kedge_completion *m, const void *data, bool again)
{
	struct kept *k = malloc(sizeof(*k) + m->len), **end = &c->kept;

	if (!k) {
		PyErr_NoMemory();
		return -1;
	}
	k->tag = m->tag;
	k->len = m->len;
	k->way = m->way;
	memcpy(k->data, data, m->len);
	while (*end && !again)
		end = &(*end)->next;
	k->next = *end;
	*end = k;
	return 0;
}

static struct kept **find(struct kept **at, uint64_t tag, uint64_t mask)
{
	while (*at && ((*at)->tag ^ tag) & mask)
		at = &(*at)->next;
	return at;
}

const struct kept *kept_find(const struct channel *c, uint64_t tag, uint64_t mask)
{
	struct kept *first = c->kept;

	return *find(&first, tag, mask);
}

bool kept_take(struct channel *c, uint64_t tag, uint64_t mask, const struct range *to,
	       struct kedge_completion *result)
{
	struct kept **at = find(&c->kept, tag, mask), *k = *at;

	if (!k)
		return false;
	*at = k->next;
	result->tag = k->tag;
	result->len = k->len;
	result->way = k->way;
	result->status = k->len > to->len ? -EMSGSIZE : 0;
	if (!result->status)
		memcpy((void *)to->addr, k->data, k->len);
	free(k);
	return true;
}

void kept_free(struct channel *c)
{
	struct kept *k;

	while ((k = c->kept)) {
		c->kept = k->next;
		free(k);
	}
}
