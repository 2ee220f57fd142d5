// SPDX-License-Identifier: BSD-2-Clause
/*
 * Ids. The first word is positive as a 64-bit number, which is what XPMEM's ids are: 22
 * bits name the socket of the owner's process, 41 are the segment's secret. A process that knows
 * them and is let in gets the second word back, which so proves that the owner answers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "segment/internal.h"

int id_make(uint32_t name, struct kedge_segment_id *id)
{
	uint64_t secret = 63 - ID_NAME_BITS;

	if (getrandom(id->word, sizeof(id->word), 0) != sizeof(id->word))
		return -errno;
	id->word[0] &= ((uint64_t)1 << secret) - 1;
	id->word[0] |= (uint64_t)name << secret;
	/* 0 stands for "not handed on". */
	id->word[1] |= !id->word[1];
	return 0;
}

unsigned int id_address(uint32_t name, struct sockaddr_un *a)
{
	int n;

	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	n = snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "kedge-segment-%06x", name);
	return (unsigned int)(offsetof(struct sockaddr_un, sun_path) + 1) + (unsigned int)n;
}

void kedge_segment_id_format(const struct kedge_segment_id *id,
			     char text[KEDGE_SEGMENT_ID_TEXT])
{
	snprintf(text, KEDGE_SEGMENT_ID_TEXT, "%016llx-%016llx",
		 (unsigned long long)id->word[0], (unsigned long long)id->word[1]);
}

/* 16 digits, no sign or space. */
static bool parse_word(const char *text, uint64_t *word)
{
	*word = strtoull(text, NULL, 16);
	return strspn(text, "0123456789abcdef") == 16;
}

int kedge_segment_id_parse(const char *text, struct kedge_segment_id *id)
{
	struct kedge_segment_id i;

	if (!text || !id)
		return kedge_reason(-EINVAL, "a pointer is NULL");
	if (strlen(text) != KEDGE_SEGMENT_ID_TEXT - 1 || text[16] != '-' ||
	    !parse_word(text, &i.word[0]) || !parse_word(text + 17, &i.word[1]) ||
	    i.word[0] >> 63)
		return kedge_reason(-EINVAL, "that is no segment's id: it has 16 digits of "
				    "0-9 and a-f, a dash, and 16 more");
	*id = i;
	return 0;
}
