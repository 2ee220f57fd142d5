// SPDX-License-Identifier: BSD-2-Clause
/* Text of other processes, as "kedge top" takes it: of any bytes, a line that is taken is a sample
 * with names and a number, and points into the text. */
#include <math.h>
#include <stdbool.h>

#include "feed.h"
#include "tools/top/parse.h"

static bool plain(const char *text)
{
	while (*text >= ' ' && *text <= '~' && *text != '\\')
		text++;
	return !*text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	char *text = exact_copy(data, len);
	struct samples s;
	size_t i, k;

	if (parse_text(text, len, &s)) {
		CHECK(!s.v && !s.cnt && !s.text);
		return 0;
	}
	for (i = 0; i < s.cnt; i++) {
		CHECK(!strncmp(s.v[i].name, "kedge_", 6) && plain(s.v[i].name));
		CHECK(s.v[i].value >= 0 && isfinite(s.v[i].value));
		CHECK(strlen(s.v[i].head) <= 2 * len);
		for (k = 0; k < s.v[i].cnt; k++) {
			CHECK(*s.v[i].label[k].name && plain(s.v[i].label[k].value));
			CHECK(parse_label(&s.v[i], s.v[i].label[k].name));
		}
	}
	parse_free(&s);
	return 0;
}
