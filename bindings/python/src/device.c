// SPDX-License-Identifier: BSD-2-Clause
/*
 * Devices: "memory", which registers nothing and numbers what it is given, for tests and
 * to measure by; an object of Python's with reg() and dereg(); and the capsule of
 * another extension, as kedge._uring is one.
 *
 * The library calls reg and dereg from any thread, with or without the GIL, and never
 * with a lock of its own held; so they may wait for the GIL.
 */
#include <errno.h>

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

/* The errno of the exception that is raised, which is taken, and named as the reason. */
static int take_error(PyObject *device)
{
	PyObject *type, *value, *trace, *number, *text;
	long err = 0;

	PyErr_Fetch(&type, &value, &trace);
	PyErr_NormalizeException(&type, &value, &trace);
	if (PyErr_GivenExceptionMatches(type, PyExc_MemoryError))
		err = ENOMEM;
	if (PyErr_GivenExceptionMatches(type, PyExc_OSError)) {
		number = PyObject_GetAttrString(value, "errno");
		if (number && PyLong_Check(number))
			err = PyLong_AsLong(number);
		Py_XDECREF(number);
		PyErr_Clear();
	}
	if (err <= 0 || err > 4095)
		err = EIO;
	text = PyObject_Str(value);
	kedge_reason((int)-err, "reg() of the device: %s",
		     text && PyUnicode_AsUTF8(text) ? PyUnicode_AsUTF8(text) : "an exception");
	Py_XDECREF(text);
	PyErr_Clear();
	if (PyErr_GivenExceptionMatches(type, PyExc_OSError) || err == ENOMEM) {
		Py_XDECREF(type);
		Py_XDECREF(value);
		Py_XDECREF(trace);
	} else {
		/* A mistake of the device's author, which an errno says too little of. */
		PyErr_Restore(type, value, trace);
		PyErr_WriteUnraisable(device);
	}
	return (int)-err;
}

/* An int, which is the handle, or a tuple (handle, offset). */
static int take_handle(PyObject *result, uintptr_t addr, struct kedge_device_mr *mr)
{
	unsigned long long handle, offset = addr;

	if (PyTuple_Check(result)) {
		if (!PyArg_ParseTuple(result, "KK", &handle, &offset))
			return -1;
	} else {
		handle = PyLong_AsUnsignedLongLong(result);
		if (handle == (unsigned long long)-1 && PyErr_Occurred())
			return -1;
	}
	mr->handle = handle;
	mr->offset = offset;
	return 0;
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
	} else if (PyObject_HasAttrString(obj, "__kedge_device__")) {
		*keep = capsule_of(obj);
	} else {
		*keep = device_open(&python_ops, obj);
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
