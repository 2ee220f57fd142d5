// SPDX-License-Identifier: BSD-2-Clause
/* Counters over HTTP, for Prometheus: by libmicrohttpd, at the loopback interface alone. */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <microhttpd.h>

#include "base/base.h"
#include "tools/common/util.h"
#include "tools/top/top.h"

#define TYPE "text/plain; version=0.0.4; charset=utf-8"

static enum MHD_Result answer_with(struct MHD_Connection *c, unsigned int status, char *text,
				   size_t len)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);
	enum MHD_Result done;

	if (!r) {
		free(text);
		return MHD_NO;
	}
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, TYPE);
	done = MHD_queue_response(c, status, r);
	MHD_destroy_response(r);
	return done;
}

static enum MHD_Result refuse(struct MHD_Connection *c, unsigned int status, const char *words)
{
	char *text = strdup(words);

	return text ? answer_with(c, status, text, strlen(text)) : MHD_NO;
}

static bool is_here(const char *host)
{
	static const char *const names[] = { "localhost", "127.0.0.1" };
	size_t i, n;

	for (i = 0; i < ARRAY_SIZE(names) && host; i++) {
		n = strlen(names[i]);
		if (!strncmp(host, names[i], n) && (!host[n] || host[n] == ':'))
			return true;
	}
	/* HTTP/1.0 names none; a browser does. */
	return !host;
}

static enum MHD_Result answer(void *words, struct MHD_Connection *c, const char *url,
			      const char *method, const char *version, const char *data,
			      size_t *data_len, void **state)
{
	struct sources s;
	size_t len = 0;
	char *text;

	(void)version, (void)data, (void)state;
	/* A page of another site may have its name lead here. */
	if (!is_here(MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST)))
		return refuse(c, MHD_HTTP_FORBIDDEN, "it is localhost here\n");
	if (*data_len || (strcmp(method, "GET") && strcmp(method, "HEAD")))
		return refuse(c, MHD_HTTP_METHOD_NOT_ALLOWED, "GET /metrics\n");
	if (strcmp(url, "/metrics"))
		return refuse(c, MHD_HTTP_NOT_FOUND, "the counters are at /metrics\n");
	if (sources_find(&s, words))
		return refuse(c, MHD_HTTP_INTERNAL_SERVER_ERROR, "cannot look for processes\n");
	text = merge_text(&s, &len);
	sources_end(&s);
	return text ? answer_with(c, MHD_HTTP_OK, text, len) : MHD_NO;
}

int serve(unsigned int port, char *const *words)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
				  .sin_addr = { htonl(INADDR_LOOPBACK) } };
	struct MHD_Daemon *d;
	sigset_t ends;
	int sig;

	/* Before its thread begins: the signals are to come to this one. */
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGHUP);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	d = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, (uint16_t)port, NULL, NULL, answer,
			     (void *)(uintptr_t)words, MHD_OPTION_SOCK_ADDR, &at,
			     MHD_OPTION_CONNECTION_LIMIT, 256u, MHD_OPTION_CONNECTION_TIMEOUT, 3u,
			     MHD_OPTION_END);
	if (!d) {
		util_error("cannot listen at port %u of localhost: %s", port, strerror(errno));
		return CMD_CANNOT;
	}
	if (!util_flags.quiet)
		util_error("counters are at http://localhost:%u/metrics", port);
	while (sigwait(&ends, &sig))
		;
	MHD_stop_daemon(d);
	return CMD_OK;
}
