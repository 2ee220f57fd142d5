// SPDX-License-Identifier: BSD-2-Clause
/*
 * kedge.Error, and a class for each errno that the interpreter has one of its own for:
 * kedge.TimeoutError is an Error and a TimeoutError, and OSError chooses which.
 */
#include "binding.h"

#define BASES 14

PyObject *error_type;
static PyObject *bases[BASES], *classes[BASES];
static PyObject *close_name; /* one, as types' caches of attributes hold each name */

static int add_class(PyObject *module, size_t i)
{
	const char *name = ((PyTypeObject *)bases[i])->tp_name;

	if (!classes[i])
		classes[i] = PyObject_CallFunction((PyObject *)&PyType_Type, "s(OO){s:s}", name,
						   error_type, bases[i], "__module__", "kedge");
	if (!classes[i])
		return -1;
	Py_INCREF(classes[i]);
	return PyModule_AddObject(module, name, classes[i]);
}

int errors_init(PyObject *module)
{
	PyObject *const of[BASES] = {
		PyExc_BlockingIOError, PyExc_BrokenPipeError, PyExc_ChildProcessError,
		PyExc_ConnectionAbortedError, PyExc_ConnectionRefusedError,
		PyExc_ConnectionResetError, PyExc_FileExistsError, PyExc_FileNotFoundError,
		PyExc_InterruptedError, PyExc_IsADirectoryError, PyExc_NotADirectoryError,
		PyExc_PermissionError, PyExc_ProcessLookupError, PyExc_TimeoutError,
	};
	size_t i;

	if (!close_name)
		close_name = PyUnicode_InternFromString("close");
	if (!close_name)
		return -1;
	memcpy(bases, of, sizeof(bases));
	if (!error_type)
		error_type = PyErr_NewExceptionWithDoc(
			"kedge.Error", "A failure of a call of kedge, in its own words.",
			PyExc_OSError, NULL);
	if (!error_type)
		return -1;
	Py_INCREF(error_type);
	if (PyModule_AddObject(module, "Error", error_type))
		return -1;
	for (i = 0; i < BASES; i++)
		if (add_class(module, i))
			return -1;
	return 0;
}

PyObject *text_of(void *text)
{
	return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

/* Borrowed; NULL with an error raised. */
static PyObject *class_of(int err)
{
	PyObject *plain = PyObject_CallFunction(PyExc_OSError, "is", err, "");
	PyObject *found = error_type;
	size_t i;

	if (!plain)
		return NULL;
	for (i = 0; i < BASES; i++)
		if ((PyObject *)Py_TYPE(plain) == bases[i])
			found = classes[i];
	Py_DECREF(plain);
	return found;
}

PyObject *fail_with(int rc, const char *text)
{
	int err = rc < 0 ? -rc : rc;
	PyObject *type = class_of(err);
	PyObject *args = type ? Py_BuildValue("(iO&)", err, text_of, text) : NULL;

	if (args)
		PyErr_SetObject(type, args);
	Py_XDECREF(args);
	return NULL;
}

PyObject *fail(int rc)
{
	return fail_with(rc, kedge_strerror(rc));
}

bool in_use(const char *what, Py_ssize_t cnt)
{
	char text[96];

	if (!cnt)
		return false;
	PyOS_snprintf(text, sizeof(text), "%s: %zd in use: release them, then close",
		      what, cnt);
	fail_with(-EBUSY, text);
	return true;
}

PyObject *end_block(PyObject *obj, PyObject *args)
{
	PyObject *closed = PyObject_CallMethodNoArgs(obj, close_name);
	PyObject *type, *value, *trace;

	if (closed || PyTuple_GET_SIZE(args) < 1 || PyTuple_GET_ITEM(args, 0) == Py_None ||
	    !PyErr_ExceptionMatches(PyExc_OSError))
		return closed;
	PyErr_Fetch(&type, &value, &trace);
	PyErr_NormalizeException(&type, &value, &trace);
	if (PyErr_WarnFormat(PyExc_ResourceWarning, 1, "it stays open: %S", value))
		PyErr_WriteUnraisable(NULL);
	Py_XDECREF(type);
	Py_XDECREF(value);
	Py_XDECREF(trace);
	Py_RETURN_NONE;
}
