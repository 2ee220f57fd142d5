// SPDX-License-Identifier: BSD-2-Clause
/* The file of measured costs, whatever it says: what is taken can be computed with. */
#include "feed.h"

#include "channel/rdma/cost/costs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct curve c[CURVES];
	char *text = text_copy(data, size);
	int i, j;

	if (kedge__rdma_costs_parse(text, c))
		for (i = 0; i < CURVES; i++)
			for (j = 0; j < POINTS; j++)
				CHECK(c[i].ns[j] > 0 && c[i].ns[j] <= NS_MAX);
	free(text);
	return 0;
}
