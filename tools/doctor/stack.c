// SPDX-License-Identifier: BSD-2-Clause
/* See stack.h. */
#include <stdio.h>
#include <string.h>

#include <elfutils/libdwfl.h>

#include "tools/doctor/stack.h"

/* The processes that were looked at last; a first look takes some 30 ms. */
#define KNOWN 8
static struct known {
	pid_t pid;
	Dwfl *dwfl;
} known[KNOWN];

struct taking {
	uint64_t *pc;
	size_t cnt;
};

static void copy(char *to, size_t room, const char *from)
{
	snprintf(to, room, "%s", from ? from : "");
}

static const char *base_of(const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL;

	return slash ? slash + 1 : path;
}

static void name_frame(Dwfl *dwfl, Dwarf_Addr at, struct frame *f)
{
	Dwfl_Module *mod = dwfl_addrmodule(dwfl, at);
	const char *path = NULL;
	Dwfl_Line *line;
	GElf_Off off;
	GElf_Sym sym;

	if (!mod)
		return;
	copy(f->module, sizeof(f->module),
	     base_of(dwfl_module_info(mod, NULL, NULL, NULL, NULL, NULL, NULL, NULL)));
	copy(f->function, sizeof(f->function),
	     dwfl_module_addrinfo(mod, at, &off, &sym, NULL, NULL, NULL));
	if (*f->function)
		f->offset = off;
	line = dwfl_module_getsrc(mod, at);
	if (line)
		path = dwfl_lineinfo(line, NULL, &f->line, NULL, NULL, NULL);
	copy(f->file, sizeof(f->file), base_of(path));
}

static int take_frame(Dwfl_Frame *state, void *arg)
{
	struct taking *t = arg;
	Dwarf_Addr pc;
	bool exact;

	if (!dwfl_frame_pc(state, &pc, &exact))
		return DWARF_CB_ABORT;
	/* A return address may be the next function's first. */
	t->pc[t->cnt++] = pc - !exact;
	return t->cnt < STACK_MAX ? DWARF_CB_OK : DWARF_CB_ABORT;
}

static Dwfl *begin(pid_t pid)
{
	static const Dwfl_Callbacks callbacks = {
		.find_elf = dwfl_linux_proc_find_elf,
		.find_debuginfo = dwfl_standard_find_debuginfo,
	};
	static size_t next;
	struct known *k;
	size_t i;

	for (i = 0; i < KNOWN; i++)
		if (known[i].dwfl && known[i].pid == pid)
			return known[i].dwfl;
	k = &known[next++ % KNOWN];
	if (k->dwfl)
		dwfl_end(k->dwfl);
	*k = (struct known){ pid, dwfl_begin(&callbacks) };
	return k->dwfl;
}

/* Libraries may have come and gone since the last stack, and by exec all of them. */
static bool look_again(Dwfl *dwfl, pid_t pid)
{
	dwfl_report_begin(dwfl);
	if (dwfl_linux_proc_report(dwfl, pid) || dwfl_report_end(dwfl, NULL, NULL))
		return false;
	return dwfl_pid(dwfl) == pid || !dwfl_linux_proc_attach(dwfl, pid, true);
}

size_t stack_take(pid_t pid, pid_t tid, uint64_t pc[STACK_MAX])
{
	struct taking t = { .pc = pc };
	Dwfl *dwfl = begin(pid);

	if (dwfl && look_again(dwfl, pid))
		dwfl_getthread_frames(dwfl, tid, take_frame, &t);
	return t.cnt;
}

void stack_name(pid_t pid, uint64_t pc, struct frame *f)
{
	Dwfl *dwfl = begin(pid);

	memset(f, 0, sizeof(*f));
	f->pc = pc;
	if (dwfl)
		name_frame(dwfl, pc, f);
}

bool stack_can(void)
{
	return true;
}
