// SPDX-License-Identifier: BSD-2-Clause
/*
 * Devices: "memory", which registers nothing and numbers what it is given, for tests and
 * to measure by; an object of Python's with reg() and dereg(); and the capsule of
 * another extension, as kedge._uring is one.
 *
 * The library calls reg and dereg from any thread, with or without the GIL, and never
 * with a lock of its own held; so they may wait for the GIL.
 */
#include "binding.h"

struct device {
	PyObject_HEAD
	struct kedge_device *dev;
	PyObject *reg; /* NULL: "memory" */
	PyObject *dereg;
};

static int memory_reg(void *ctx, void *addr, size_t len, uint32_t access,
		      struct kedge_device_mr *mr)
{
	static uint64_t last;

	/* Relaxed: a number that no other registration has. */
	mr->handle = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
	mr->offset = (uintptr_t)addr;
	return 0;
}

static void memory_dereg(void *ctx, const struct kedge_device_mr *mr)
{
}

static const struct kedge_device_ops memory_ops = {
	.size = sizeof(memory_ops),
	.name = "memory",
	.reg = memory_reg,
	.dereg = memory_dereg,
};

/* ---- what reg() raises ---- */

/* The innermost call on this thread that registers; the GIL is held where it is read. */
static __thread struct raised *current;

void raised_begin(struct raised *r)
{
	r->exception = NULL;
	r->outer = current;
	current = r;
}

static bool ends_programs(PyObject *exception)
{
	return exception && !PyErr_GivenExceptionMatches(exception, PyExc_Exception);
}

static void raise_again(PyObject *exception)
{
	PyObject *type = (PyObject *)Py_TYPE(exception);

	Py_INCREF(type);
	PyErr_Restore(type, exception, PyException_GetTraceback(exception));
}

static void set_cause(PyObject *exception)
{
	PyObject *type, *value, *trace;

	PyErr_Fetch(&type, &value, &trace);
	PyErr_NormalizeException(&type, &value, &trace);
	PyException_SetCause(value, exception);
	PyErr_Restore(type, value, trace);
}

static void unraisable(PyObject *exception, PyObject *device)
{
	raise_again(exception);
	PyErr_WriteUnraisable(device);
}

/* Exceptions that an errno says enough of. */
static bool is_plain(PyObject *exception)
{
	return PyErr_GivenExceptionMatches(exception, PyExc_OSError) ||
	       PyErr_GivenExceptionMatches(exception, PyExc_MemoryError);
}

bool raised_end(struct raised *r, ssize_t rc)
{
	PyObject *exception = r->exception;

	current = r->outer;
	if (ends_programs(exception)) {
		raise_again(exception);
		return true;
	}
	if (rc < 0) {
		fail((int)rc);
		if (exception)
			set_cause(exception);
		return true;
	}
	/* A second attempt, or another chunk, went well. */
	if (exception && !is_plain(exception))
		unraisable(exception, NULL);
	else
		Py_XDECREF(exception);
	return false;
}

/* The call on this thread raises it; a helper's thread has none to raise it in. */
static void keep_exception(PyObject *exception, PyObject *device)
{
	if (current && !ends_programs(current->exception)) {
		Py_XDECREF(current->exception);
		current->exception = exception;
	} else if (current || is_plain(exception)) {
		Py_DECREF(exception);
	} else {
		unraisable(exception, device);
	}
}

static int errno_of(PyObject *exception)
{
	PyObject *number;
	long err = 0;

	if (PyErr_GivenExceptionMatches(exception, PyExc_MemoryError))
		err = ENOMEM;
	if (PyErr_GivenExceptionMatches(exception, PyExc_OSError)) {
		number = PyObject_GetAttrString(exception, "errno");
		if (number && PyLong_Check(number))
			err = PyLong_AsLong(number);
		Py_XDECREF(number);
		PyErr_Clear();
	}
	return err <= 0 || err > 4095 ? EIO : (int)err;
}

/* The errno of the exception that is raised, which is taken, and named as the reason. */
static int take_error(PyObject *device)
{
	PyObject *type, *value, *trace, *text;
	const char *words;
	int err;

	PyErr_Fetch(&type, &value, &trace);
	PyErr_NormalizeException(&type, &value, &trace);
	if (trace)
		PyException_SetTraceback(value, trace);
	Py_XDECREF(trace);
	err = errno_of(value);
	text = is_plain(value) ? PyObject_Str(value) : PyObject_Repr(value);
	words = text ? PyUnicode_AsUTF8(text) : NULL;
	kedge_reason(-err, "reg() of the device: %s",
		     words && *words ? words : ((PyTypeObject *)type)->tp_name);
	Py_XDECREF(text);
	PyErr_Clear();
	Py_DECREF(type);
	keep_exception(value, device);
	return -err;
}

/* ---- devices in Python ---- */

/* An int, which is the handle, or a tuple (handle, offset). */
static int take_handle(PyObject *result, uintptr_t addr, struct kedge_device_mr *mr)
{
	mr->offset = addr;
	if (!PyTuple_Check(result))
		return to_u64(result, &mr->handle) ? 0 : -1;
	return PyArg_ParseTuple(result, "O&O&", to_u64, &mr->handle, to_u64, &mr->offset) ? 0 : -1;
}

static int python_reg(void *ctx, void *addr, size_t len, uint32_t access,
		      struct kedge_device_mr *mr)
{
	PyGILState_STATE gil = PyGILState_Ensure();
	struct device *d = ctx;
	PyObject *type, *value, *trace, *result;
	int rc = 0;

	PyErr_Fetch(&type, &value, &trace);
	result = PyObject_CallFunction(d->reg, "KnI", (unsigned long long)(uintptr_t)addr,
				       (Py_ssize_t)len, access);
	if (!result || take_handle(result, (uintptr_t)addr, mr))
		rc = take_error((PyObject *)d);
	Py_XDECREF(result);
	PyErr_Restore(type, value, trace);
	PyGILState_Release(gil);
	return rc;
}

static void python_dereg(void *ctx, const struct kedge_device_mr *mr)
{
	PyGILState_STATE gil = PyGILState_Ensure();
	struct device *d = ctx;
	PyObject *type, *value, *trace, *result;

	PyErr_Fetch(&type, &value, &trace);
	result = PyObject_CallFunction(d->dereg, "K", (unsigned long long)mr->handle);
	if (!result)
		PyErr_WriteUnraisable(d->dereg);
	Py_XDECREF(result);
	PyErr_Restore(type, value, trace);
	PyGILState_Release(gil);
}

static const struct kedge_device_ops python_ops = {
	.size = sizeof(python_ops),
	.name = "python",
	.reg = python_reg,
	.dereg = python_dereg,
};

static PyObject *device_open(const struct kedge_device_ops *ops, PyObject *obj)
{
	struct device *d = PyObject_GC_New(struct device, &device_type);
	int rc;

	if (!d)
		return NULL;
	d->dev = NULL;
	d->reg = d->dereg = NULL;
	if (obj) {
		d->reg = PyObject_GetAttrString(obj, "reg");
		d->dereg = d->reg ? PyObject_GetAttrString(obj, "dereg") : NULL;
		if (!d->dereg)
			goto drop;
	}
	rc = kedge_device_open(ops, d, &d->dev);
	if (rc) {
		fail(rc);
		goto drop;
	}
	PyObject_GC_Track(d);
	return (PyObject *)d;

drop:
	Py_DECREF(d);
	return NULL;
}

static void device_dealloc(struct device *d)
{
	PyObject_GC_UnTrack(d);
	kedge_device_close(d->dev);
	Py_XDECREF(d->reg);
	Py_XDECREF(d->dereg);
	PyObject_GC_Del(d);
}

static int device_traverse(struct device *d, visitproc visit, void *arg)
{
	Py_VISIT(d->reg);
	Py_VISIT(d->dereg);
	return 0;
}

bool is_written_in_python(PyObject *keep)
{
	return Py_TYPE(keep) == &device_type && ((struct device *)keep)->reg;
}

/* The capsule of an object's __kedge_device__(), or NULL with an error raised. */
static PyObject *capsule_of(PyObject *obj)
{
	PyObject *capsule = PyObject_CallMethod(obj, "__kedge_device__", NULL);

	if (capsule && !PyCapsule_IsValid(capsule, DEVICE_CAPSULE)) {
		PyErr_SetString(PyExc_TypeError, "__kedge_device__() returned no capsule "
				"\"" DEVICE_CAPSULE "\"");
		Py_CLEAR(capsule);
	}
	return capsule;
}

static PyObject *open_uring(void)
{
	PyObject *module = PyImport_ImportModule("kedge._uring"), *uring;

	if (!module)
		return NULL;
	uring = PyObject_CallMethod(module, "Uring", NULL);
	Py_DECREF(module);
	return uring;
}

static bool is_name(PyObject *obj, const char *name)
{
	return PyUnicode_Check(obj) && !PyUnicode_CompareWithASCIIString(obj, name);
}

/* 1, 0, or -1 with an error raised: PyObject_HasAttrString() takes one of memory for a no. */
static int has_capsule(PyObject *obj)
{
	PyObject *method = PyObject_GetAttrString(obj, "__kedge_device__");

	Py_XDECREF(method);
	if (method)
		return 1;
	if (!PyErr_ExceptionMatches(PyExc_AttributeError))
		return -1;
	PyErr_Clear();
	return 0;
}

static PyObject *device_of_object(PyObject *obj)
{
	int has = has_capsule(obj);

	if (has < 0)
		return NULL;
	return has ? capsule_of(obj) : device_open(&python_ops, obj);
}

struct kedge_device *device_of(PyObject *obj, PyObject **keep)
{
	PyObject *uring;

	if (is_name(obj, "uring")) {
		uring = open_uring();
		*keep = uring ? capsule_of(uring) : NULL;
		Py_XDECREF(uring);
	} else if (obj == Py_None || is_name(obj, "memory")) {
		*keep = device_open(&memory_ops, NULL);
	} else if (PyUnicode_Check(obj)) {
		PyErr_Format(PyExc_ValueError, "no device is called %R: \"memory\" and "
			     "\"uring\" are", obj);
		*keep = NULL;
	} else {
		*keep = device_of_object(obj);
	}
	if (!*keep)
		return NULL;
	if (PyCapsule_CheckExact(*keep))
		return PyCapsule_GetPointer(*keep, DEVICE_CAPSULE);
	return ((struct device *)*keep)->dev;
}

PyTypeObject device_type = {
	PyVarObject_HEAD_INIT(NULL, 0)
	.tp_name = "kedge._kedge.Device",
	.tp_basicsize = sizeof(struct device),
	.tp_dealloc = (destructor)device_dealloc,
	.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
	.tp_doc = "A device of a cache's.",
	.tp_traverse = (traverseproc)device_traverse,
};
