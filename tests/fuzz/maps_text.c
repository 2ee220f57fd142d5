// SPDX-License-Identifier: BSD-2-Clause
/* /proc/self/maps, made and read strictly: see the header. */
#include <stdarg.h>

#include "maps_text.h"

/* A line is [at, end), without its newline. */
struct line {
	const char *at;
	const char *end;
};

static int digit(char c, unsigned int base)
{
	static const char digits[] = "0123456789abcdef";
	const char *d = c ? strchr(digits, c) : NULL;

	return d && (unsigned int)(d - digits) < base ? (int)(d - digits) : -1;
}

/* At least one and at most @max digits, then the character @after. */
static int number(struct line *l, unsigned int base, int max, char after,
		  uint64_t *v)
{
	int n = 0;

	*v = 0;
	while (l->at < l->end && digit(*l->at, base) >= 0 && n++ < max)
		*v = *v * base + (unsigned int)digit(*l->at++, base);
	return n && l->at < l->end && *l->at++ == after;
}

static int permissions(struct line *l, char *perm)
{
	static const char *const may_be[] = { "r-", "w-", "x-", "ps", " " };
	int i;

	for (i = 0; i < 5; i++, l->at++)
		if (l->at == l->end || !*l->at || !strchr(may_be[i], *l->at))
			return 0;
	memcpy(perm, l->at - 5, 4);
	perm[4] = '\0';
	return 1;
}

static int parse(struct line l, uint64_t from, struct map_line *v)
{
	uint64_t skip;

	if (!number(&l, 16, 16, '-', &v->start) ||
	    !number(&l, 16, 16, ' ', &v->end) || !permissions(&l, v->perm) ||
	    !number(&l, 16, 16, ' ', &v->offset) ||
	    !number(&l, 16, 8, ':', &skip) || !number(&l, 16, 8, ' ', &skip) ||
	    !number(&l, 10, 19, ' ', &v->inode))
		return 0;
	if (v->start < from || v->end <= v->start ||
	    (v->start | v->end | v->offset) % PAGE)
		return 0;
	/* The name is put into its column. */
	while (l.at < l.end && *l.at == ' ')
		l.at++;
	v->name = l.at;
	v->name_len = (size_t)(l.end - l.at);
	return !v->name_len ||
	       (strchr("/[a", *l.at) && !memchr(l.at, '\0', v->name_len));
}

void maps_parse(struct maps *m, const char *text, size_t len)
{
	struct line l = { .at = text };
	uint64_t from = 0;

	for (m->cnt = 0; len; m->cnt++) {
		l.end = memchr(l.at, '\n', len);
		if (!l.end || m->cnt == MAPS_MAX ||
		    !parse(l, from, &m->at[m->cnt])) {
			m->cnt = -1;
			return;
		}
		from = m->at[m->cnt].end;
		len -= (size_t)(l.end + 1 - l.at);
		l.at = l.end + 1;
	}
}

static struct {
	size_t len;
	char text[MAPS_MAX * 4400];
} made;

static void add(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void add(const char *fmt, ...)
{
	size_t room = sizeof(made.text) - made.len;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(made.text + made.len, room, fmt, ap);
	va_end(ap);
	CHECK(n >= 0 && (size_t)n < room);
	made.len += (size_t)n;
}

/* Names that somebody may look for, and long ones that look like lines. */
static void add_name(uint8_t which, uint8_t len)
{
	static const char *const names[] = {
		"[heap]", "[stack]", "/usr/lib/libx.so.6", "/SYSV00000000",
		"/SYSV0000002a (deleted)", "/dev/zero (deleted)",
		"/dev/shm/a b", "/memfd:a b (deleted)",
		"anon_inode:[io_uring]", "/memfd", "/var/SYSV", "/dev/sda",
		"[anon_shmem:a]",
	};
	unsigned int i;

	which %= 16;
	if (which < sizeof(names) / sizeof(names[0]))
		add("%s", names[which]);
	else
		for (i = 0; i < len; i++)
			add("%s", i ? "000-fffffffff000 " : "/ ");
}

static void add_mapping(struct bytes *in, uint64_t *at)
{
	uint8_t gap = take(in), pages = take(in), bits = take(in);
	uint8_t offset = take(in), name = take(in), name_len = take(in);

	*at += (uint64_t)(gap & 7) << (gap & 0x80 ? 36 : 12);
	add("%08llx-", (unsigned long long)*at);
	*at += ((uint64_t)pages + 1) * PAGE;
	add("%08llx %c%c%c%c %08llx %02x:%02x %u ",
	    (unsigned long long)*at, bits & 1 ? 'r' : '-', bits & 2 ? 'w' : '-',
	    bits & 4 ? 'x' : '-', bits & 8 ? 's' : 'p',
	    (unsigned long long)offset * PAGE, gap, gap,
	    bits & 16 ? (unsigned int)name << (bits >> 5) : 0);
	if (name) {
		add("%*s", 20, ""); /* into its column */
		add_name(name, name_len);
	}
	add("\n");
}

void maps_feed(struct maps *m, struct bytes *in)
{
	uint8_t how = take(in);
	size_t chunk = (size_t)take_number(in, 2);
	uint64_t at = 0;
	int i, cnt;

	if (!(how & 1)) {
		maps_parse(m, (const char *)in->at, in->left);
		feed_set(in->at, in->left, chunk, how & 2);
		return;
	}
	made.len = 0;
	cnt = take(in) % (MAPS_MAX + 1);
	for (i = 0; i < cnt; i++)
		add_mapping(in, &at);
	maps_parse(m, made.text, made.len);
	CHECK(m->cnt == cnt);
	feed_set(made.text, made.len, chunk, how & 2);
}

uint64_t maps_address(const struct maps *m, struct bytes *in)
{
	uint8_t which = take(in), how = take(in);
	uint64_t pages = (uint64_t)(how >> 2) * PAGE;
	const struct map_line *v;

	if (m->cnt <= 0)
		return take_number(in, 6) * PAGE;
	v = &m->at[which % m->cnt];
	return (how & 1 ? v->end : v->start) + (how & 2 ? pages : -pages);
}

int maps_range(const struct maps *m, struct bytes *in, uint64_t *start, uint64_t *end)
{
	*start = maps_address(m, in);
	*end = maps_address(m, in);
	if (*end <= *start)
		*end = *start + PAGE;
	return *end >= *start;
}

int has_prefix(const struct map_line *v, const char *prefix)
{
	return v->name_len >= strlen(prefix) &&
	       !memcmp(v->name, prefix, strlen(prefix));
}

int64_t status_vmpin(const char *text, size_t len)
{
	const char *end, *p;
	int64_t v;
	int digits;

	for (; len; len -= (size_t)(end + 1 - text), text = end + 1) {
		end = memchr(text, '\n', len);
		if (!end)
			return -1;
		if (end - text < 6 || memcmp(text, "VmPin:", 6))
			continue;
		p = text + 6;
		if (*p++ != '\t')
			return -1;
		while (*p == ' ')
			p++;
		for (v = 0, digits = 0; *p >= '0' && *p <= '9' && digits < 15;
		     digits++)
			v = v * 10 + (*p++ - '0');
		return digits && end - p == 3 && !memcmp(p, " kB", 3) &&
		       end - text < 100 ? v : -1;
	}
	return -1;
}
