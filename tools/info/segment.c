// SPDX-License-Identifier: BSD-2-Clause
/* Memory that another process attaches: a segment of this one's, attached here and used. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kedge/segment.h>

#include "tools/info/info.h"

/* A store through an attachment is the owner's. */
static int try_attachment(struct kedge_grant *grant, volatile char *owner, size_t len)
{
	struct kedge_attachment *a;
	int rc = kedge_segment_attach(grant, 0, len, 0, &a);

	if (rc)
		return rc;
	*(volatile char *)kedge_segment_addr(a) = 2;
	if (*owner != 2 || !kedge_segment_valid(a))
		rc = -EIO;
	kedge_segment_detach(a);
	return rc;
}

static int try_segment(const struct kedge_segment *s, volatile char *owner, size_t len)
{
	struct kedge_segment_id id;
	struct kedge_grant *grant;
	int rc = kedge_segment_id(s, &id);

	if (!rc)
		rc = kedge_segment_get(&id, KEDGE_SEGMENT_READ | KEDGE_SEGMENT_WRITE, &grant);
	if (rc)
		return rc;
	rc = try_attachment(grant, owner, len);
	kedge_segment_release(grant);
	return rc;
}

/* Tries segments of such memory as most programs have; 0 or a negative errno. */
static int try_memory(struct kedge_segment_info *i, uint32_t flags)
{
	const struct kedge_segment_opts o = { .size = sizeof(o), .flags = flags };
	size_t len = 4 * (size_t)sysconf(_SC_PAGESIZE);
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct kedge_segment *s;
	int rc;

	if (p == MAP_FAILED)
		return -errno;
	memset(p, 1, len);
	rc = kedge_segment_make(p, len, &o, &s);
	if (!rc) {
		rc = kedge_segment_info(s, i);
		if (!rc && i->backend != KEDGE_SEGMENT_COPY)
			rc = try_segment(s, p, len);
		kedge_segment_remove(s);
	}
	munmap(p, len);
	return rc;
}

static const char *backend_name(uint32_t backend)
{
	return backend == KEDGE_SEGMENT_MODULE ? "module"
	       : backend == KEDGE_SEGMENT_CONVERT ? "convert" : "copy";
}

/* As of the whole address space, of which parts are converted. */
static void converted(struct info_line *l)
{
	struct kedge_segment_info i = { .size = sizeof(i) };
	int rc = try_memory(&i, KEDGE_SEGMENT_ON_ATTACH);

	json_object_set_new(l->data, "on_attach", json_boolean(!rc));
	if (rc)
		info_text(l, "attached, after a conversion: private anonymous memory, but not "
			  "part by part: %s", kedge_strerror(rc));
	else
		info_text(l, "attached, after a conversion: private anonymous memory, as a "
			  "range or part by part");
	info_todo(l, "for files, text and huge pages: load the module kedge_segment "
		     "(package kedge-segment-dkms)");
}

void info_segments(struct info *info)
{
	struct info_line *l = info_add(info, INFO_MESSAGES, "segment", INFO_OK);
	struct kedge_segment_info i = { .size = sizeof(i) };
	int rc = try_memory(&i, 0);

	json_object_set_new(l->data, "backend", rc ? json_null()
						   : json_string(backend_name(i.backend)));
	if (rc) {
		l->state = INFO_MISSING;
		info_text(l, "no memory can be another process's to load and store: %s",
			  kedge_strerror(rc));
		info_todo(l, "see man 3 kedge_segment_make for that error");
	} else if (i.backend == KEDGE_SEGMENT_MODULE) {
		info_text(l, "attached, as it is: memory of any kind, up to the whole "
			  "address space, by the module kedge_segment");
	} else if (i.backend == KEDGE_SEGMENT_CONVERT) {
		converted(l);
	} else {
		l->state = INFO_LIMITED;
		info_text(l, "copied only, not attached: %s", i.reason);
		info_todo(l, "Linux 6.8 or later, or load the module kedge_segment (package "
			     "kedge-segment-dkms)");
	}
}
