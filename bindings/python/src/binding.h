/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kedge._kedge: the objects of libkedge for Python.
 *
 * The interpreter's lock (GIL) guards every field here. A call of the library that may
 * register, wait or take a lock for long is made without it; meanwhile the object's
 * busy count keeps close() away. Types are static, as the module refuses
 * sub-interpreters: a device written in Python is called from threads that only the
 * main interpreter can be entered by.
 */
#ifndef BINDING_H
#define BINDING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include <kedge/kedge.h>

/* The capsule that __kedge_device__() of other extensions returns has this name. */
#define DEVICE_CAPSULE "kedge_device"

extern PyTypeObject cache_type, registration_type, device_type, notifier_type,
	listener_type, channel_type, operation_type;

/* error.c: kedge.Error; module.c: kedge.Event and kedge.Message. */
extern PyObject *error_type, *event_type, *message_type;

/* Raise kedge.Error for what a call returned, and return NULL. */
PyObject *fail(int rc);
/* The same with a sentence of the binding's own. */
PyObject *fail_with(int rc, const char *text);
/* True, with the error raised, where an object is in use: its close() may not go on. */
bool in_use(const char *what, Py_ssize_t cnt);
/*
 * __exit__(*args) of @obj, which calls its close(). An exception of the block is not
 * replaced by an OSError of that, which becomes a warning.
 */
PyObject *end_block(PyObject *obj, PyObject *args);
/* A text of the library's, which may have been cut within a character, as a str; for "O&". */
PyObject *text_of(void *text);
int errors_init(PyObject *module);

/* numbers.c: converters for "O&". */
int to_u64(PyObject *obj, void *out);
int to_u32(PyObject *obj, void *out);
int to_port(PyObject *obj, void *out);	 /* an unsigned int */
int to_offset(PyObject *obj, void *out); /* of a file: a uint64_t */

/* process.c: a number that no other process of this one's line has. */
uint64_t this_process(void);
int process_init(void);

/*
 * Uses of an object that end by themselves: calls without the GIL, transfers. Those of
 * the parent's threads are none of a forked child's, where they would never end; but what
 * they were changing is torn there, and not to be freed.
 */
struct uses {
	Py_ssize_t cnt;
	uint64_t process;
	bool torn;
};

static inline bool uses_torn(const struct uses *u)
{
	return u->torn || (u->cnt && u->process != this_process());
}

static inline Py_ssize_t uses_cnt(const struct uses *u)
{
	return u->cnt && u->process == this_process() ? u->cnt : 0;
}

static inline void uses_begin(struct uses *u)
{
	u->torn = uses_torn(u);
	u->cnt = uses_cnt(u) + 1;
	u->process = this_process();
}

/* In a child that was forked within the call there is nothing to count down. */
static inline void uses_end(struct uses *u)
{
	if (u->process == this_process())
		u->cnt--;
}

/* Memory that an object exports, or an (address, length) tuple names. */
struct range {
	Py_buffer view; /* held while view.obj is set */
	uintptr_t addr;
	size_t len;
	bool writable;
};

/* 0, or -1 with an error raised. @r stays where it is: the view may point into it. */
int range_get(struct range *r, PyObject *obj);
static inline void range_put(struct range *r)
{
	if (r->view.obj)
		PyBuffer_Release(&r->view);
}

struct registration;

struct cache {
	PyObject_HEAD
	struct kedge_cache *c; /* NULL once it is closed */
	PyObject *device;      /* keeps the device open */
	PyObject *notifier;    /* NULL: the process's own */
	struct registration *spare;
	unsigned int spare_cnt;
	uint64_t process;  /* the one that it is of */
	Py_ssize_t held;   /* registrations */
	struct uses calls; /* without the GIL */
};

struct registration {
	PyObject_HEAD
	struct cache *cache;
	const struct kedge_mr *mr; /* NULL once it is released */
	struct range range;
	uint32_t access;       /* that was asked for */
	bool registered;       /* by this get: its put may have to undo that */
	bool released;	       /* at the end of the last transfer */
	struct uses transfers; /* that need the memory and the registration */
	struct registration *next; /* while it is spare */
};

/* registration.c */
PyObject *cache_get(struct cache *c, PyObject *const *args, Py_ssize_t nargs,
		    PyObject *kwnames);
PyObject *cache_getv(struct cache *c, PyObject *const *args, Py_ssize_t nargs,
		     PyObject *kwnames);
void free_spare(struct cache *c);
/* Release it, or where a transfer needs it, let the end of that do so. */
void registration_end(struct registration *r);
/* The arguments (obj, access=None); -1 with an error raised. */
int range_and_access(struct range *r, uint32_t *access, PyObject *const *args,
		     Py_ssize_t nargs, PyObject *kwnames);

/* device.c: the device of what Cache() was given, and in *@keep what to hold for it. */
struct kedge_device *device_of(PyObject *obj, PyObject **keep);
bool is_written_in_python(PyObject *keep);

/*
 * The exception that reg() of a device in Python raises in a call on this thread that
 * registers. These two stand around the call, both with the GIL.
 */
struct raised {
	PyObject *exception;
	struct raised *outer;
};
void raised_begin(struct raised *r);
/*
 * True, with an error raised, where the call returned an errno, or an exception came
 * that no call may swallow (KeyboardInterrupt).
 */
bool raised_end(struct raised *r, ssize_t rc);

struct notifier {
	PyObject_HEAD
	struct kedge_notifier *nf; /* NULL once it is closed */
	uint64_t process; /* the one that it is of */
	Py_ssize_t caches;
	struct uses calls; /* without the GIL */
};

struct channel {
	PyObject_HEAD
	struct kedge_channel *ch;  /* NULL once it is closed */
	struct operation *pending; /* each is referred to by the list */
	struct kept *kept;	   /* messages for later receives */
	uint64_t count;		   /* of receives posted and complete */
	uint64_t process;	   /* the one that it is of */
	uint64_t busy;		   /* a thread of it is in a call without the GIL */
};

/* channel.c: a @cls, a Channel, that owns @ch; or NULL, and @ch is closed. */
PyObject *channel_new(PyTypeObject *cls, struct kedge_channel *ch);
/* listener.c: the method Channel._connect(address, timeout, opts). */
PyObject *channel_connect(PyObject *cls, PyObject *args);

/* api.c: the functions that kedge._uring takes from here. */
#define API_CAPSULE "kedge._kedge._api"

/* A transfer's hold on a registration and on the export of its memory. */
struct hold {
	PyObject *registration;
	uint64_t addr;
	uint64_t len;
	uint32_t index;
	uint32_t access;
	bool writable;
};

struct api {
	size_t size;
	PyObject *(*fail_with)(int rc, const char *text);
	uint64_t (*this_process)(void);
	int (*to_u32)(PyObject *obj, void *out);
	int (*to_offset)(PyObject *obj, void *out);
	/* A registration by @dev; -1 with an error raised. */
	int (*hold)(struct hold *h, PyObject *registration, const struct kedge_device *dev);
	/* A release() meanwhile takes effect now. */
	void (*unhold)(struct hold *h);
};
int api_init(PyObject *module);

/* No wait is longer than that without a look at signals. */
#define SLICE_MS 200

#endif /* BINDING_H */
