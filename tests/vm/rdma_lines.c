// SPDX-License-Identifier: BSD-2-Clause
/* Lines over an adapter (region/verbs/): what holds by each (lines.h). */
#include <arpa/inet.h>

#include "lines.h"
#include "region/verbs/internal.h"

/* As IPv4 addresses are mapped. */
int main(void)
{
	const char *text = getenv("RDMA_SERVER_ADDR");

	lines.f = &line_fabric;
	lines.here[10] = lines.here[11] = 0xff;
	if (!text || inet_pton(AF_INET, text, lines.here + 12) != 1 || !adapters_look())
		return 1;
	return lines_run();
}
