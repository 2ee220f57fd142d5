// SPDX-License-Identifier: BSD-2-Clause
/* Channels, listeners and connectors: the calls, with their reasons. */
#include <string.h>

#include "shim.h"

static char *why(int rc)
{
	return rc < 0 ? strdup(kedge_strerror(rc)) : NULL;
}

struct go_listener_opened go_listener_open(int tcp, const char *where, const char *service,
					   const struct kedge_channel_opts *opts)
{
	struct go_listener_opened o = { 0 };

	o.rc = tcp ? kedge_listener_open_tcp(where, service, opts, &o.l)
		   : kedge_listener_open_shm(where, opts, &o.l);
	o.why = why(o.rc);
	return o;
}

struct go_channel_opened go_listener_accept(struct kedge_listener *l)
{
	struct go_channel_opened o = { 0 };

	o.rc = kedge_listener_accept(l, 0, &o.ch);
	o.why = why(o.rc);
	return o;
}

struct go_rc go_listener_address(struct kedge_listener *l, char *buf, size_t len)
{
	return go_answer(kedge_listener_address(l, buf, len));
}

struct go_connector_opened go_connector_open(int tcp, const char *where,
					     const char *service,
					     const struct kedge_channel_opts *opts)
{
	struct go_connector_opened o = { 0 };

	o.rc = tcp ? kedge_connector_open_tcp(where, service, opts, -1, &o.k)
		   : kedge_connector_open_shm(where, opts, -1, &o.k);
	o.why = why(o.rc);
	return o;
}

struct go_channel_opened go_connector_finish(struct kedge_connector *k)
{
	struct go_channel_opened o = { 0 };

	o.rc = kedge_connector_finish(k, &o.ch);
	o.why = why(o.rc);
	return o;
}

struct go_posted go_channel_post(struct kedge_channel *ch, int recv, unsigned char *buf,
				 size_t len, uint64_t tag, uint64_t mask, uint64_t user)
{
	struct go_posted p = { 0 };

	p.rc = recv ? kedge_channel_recv(ch, buf, len, tag, mask, user, &p.op)
		    : kedge_channel_send(ch, buf, len, tag, user, &p.op);
	p.why = why(p.rc);
	return p;
}

struct go_rc go_channel_poll(struct kedge_channel *ch, struct kedge_completion *out,
			     size_t n, unsigned int spins)
{
	ssize_t rc;

	do {
		rc = kedge_channel_poll(ch, out, n);
	} while (!rc && spins--);
	return go_answer(rc);
}

struct go_rc go_channel_arm(struct kedge_channel *ch)
{
	return go_answer(kedge_channel_arm(ch));
}

struct go_rc go_channel_cancel(struct kedge_channel *ch, uint64_t op)
{
	return go_answer(kedge_channel_cancel(ch, op));
}

struct go_rc go_channel_probe(struct kedge_channel *ch, uint64_t tag, uint64_t mask,
			      struct kedge_envelope *e)
{
	e->size = sizeof(*e);
	return go_answer(kedge_channel_probe(ch, tag, mask, e));
}

struct go_rc go_channel_info(struct kedge_channel *ch, struct kedge_channel_info *info)
{
	info->size = sizeof(*info);
	return go_answer(kedge_channel_info(ch, info));
}

struct go_rc go_channel_why(int status)
{
	return go_answer(status);
}
