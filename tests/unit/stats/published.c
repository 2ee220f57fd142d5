// SPDX-License-Identifier: BSD-2-Clause
#include "published.h"

#include <dirent.h>
#include <sys/un.h>

char folder[64];

void folder_begin(void)
{
	strcpy(folder, "/tmp/kedge-stats-XXXXXX");
	assert_non_null(mkdtemp(folder));
}

static void folder_empty(void)
{
	DIR *d = opendir(folder);
	struct dirent *e;

	while (d && (e = readdir(d)))
		unlink(path_of("%s", e->d_name));
	if (d)
		closedir(d);
}

/* A thread of this process that publishes may put its file back between the two steps, and does not
 * make the folder again. */
void folder_end(void)
{
	int rc;

	do {
		folder_empty();
		rc = rmdir(folder);
	} while (rc && errno == ENOTEMPTY);
	assert_int_equal(rc, 0);
}

const char *path_of(const char *fmt, ...)
{
	static char paths[8][512];
	static unsigned int turn;
	char *to = paths[turn++ % 8];
	int n = snprintf(to, sizeof(paths[0]), "%s/", folder);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(to + n, sizeof(paths[0]) - (size_t)n, fmt, ap);
	va_end(ap);
	return to;
}

static const char *read_all(int fd)
{
	static char text[TEXT_LEN];
	size_t len = 0;
	ssize_t n;

	while ((n = read(fd, text + len, sizeof(text) - 1 - len)) > 0)
		len += (size_t)n;
	close(fd);
	text[len] = '\0';
	return n < 0 ? NULL : text;
}

const char *text_of_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd < 0 ? NULL : read_all(fd);
}

const char *text_of_socket(const char *path)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(name.sun_path, sizeof(name.sun_path), "%s", path);
	if (connect(fd, (const struct sockaddr *)&name, sizeof(name))) {
		close(fd);
		return NULL;
	}
	return read_all(fd);
}

static bool has_all(const char *line, va_list labels)
{
	const char *label, *found;
	bool all = true;

	while ((label = va_arg(labels, const char *))) {
		found = strstr(line, label);
		all = all && found && found < strchrnul(line, '\n');
	}
	return all;
}

double value_of(const char *text, const char *name, ...)
{
	const char *line;
	char start[128];
	va_list ap;
	bool found;

	snprintf(start, sizeof(start), "kedge_%s{", name);
	for (line = text; line && *line; line = strchrnul(line, '\n'), line += !!*line) {
		if (strncmp(line, start, strlen(start)))
			continue;
		va_start(ap, name);
		found = has_all(line, ap);
		va_end(ap);
		if (found)
			return strtod(strchr(line, '}') + 1, NULL);
	}
	return -1;
}
