// SPDX-License-Identifier: BSD-2-Clause
/*
 * Watch an array of a running program change.
 *
 *	peek               is the program: it prints the id of its segment
 *	peek ID            is the one that watches
 *
 * cc peek.c $(pkg-config --cflags --libs kedge)
 */
#include <stdio.h>
#include <unistd.h>

#include <kedge/segment.h>

static long cells[4096];

static int failed(const char *what, int rc)
{
	fprintf(stderr, "peek: %s: %s\n", what, kedge_strerror(rc));
	return 1;
}

static int own(void)
{
	char text[KEDGE_SEGMENT_ID_TEXT];
	struct kedge_segment *segment;
	struct kedge_segment_id id;
	int rc = kedge_segment_make(cells, sizeof(cells), NULL, &segment);

	if (rc)
		return failed("make", rc);
	kedge_segment_id(segment, &id);
	kedge_segment_id_format(&id, text);
	printf("%s\n", text);
	fflush(stdout);
	for (long i = 0;; i++, usleep(1000))
		cells[i % 4096]++;
}

static int watch(const char *text)
{
	struct kedge_attachment *attachment;
	struct kedge_segment_id id;
	struct kedge_grant *grant;
	int rc = kedge_segment_id_parse(text, &id);

	if (!rc)
		rc = kedge_segment_get(&id, KEDGE_SEGMENT_READ, &grant);
	if (!rc)
		rc = kedge_segment_attach(grant, 0, sizeof(cells), KEDGE_ATTACH_KEEP,
					  &attachment);
	if (rc)
		return failed(text, rc);
	for (;;) {
		const long *c = kedge_segment_addr(attachment);
		long sum = 0;

		for (int i = 0; i < 4096; i++)
			sum += c[i];
		if (!kedge_segment_valid(attachment))
			return printf("the program has ended\n") < 0;
		printf("%ld\n", sum);
		fflush(stdout);
		sleep(1);
	}
}

int main(int argc, char **argv)
{
	return argc > 1 ? watch(argv[1]) : own();
}
