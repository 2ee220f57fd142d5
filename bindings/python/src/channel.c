// SPDX-License-Identifier: BSD-2-Clause
/*
 * Channels, and the sends and receives under way in them.
 *
 * A channel of the library is one thread's at a time, so a call by a second thread is
 * refused while one waits without the GIL. An operation is in its channel's list until
 * its completion was read; so long it holds its memory, and the list refers to it. It
 * does not refer to its channel: one that is dropped ends, and its operations with it.
 *
 * A receive of a task's holds its memory until the task has read its message or has given
 * it up (_abandon), as the message is copied from there then.
 */
#include "channel.h"

static void operation_done(struct operation *op, const struct kedge_completion *completion)
{
	struct kedge_completion result = *completion;
	struct channel *c = op->channel;

	if (op->next)
		op->next->link = op->link;
	*op->link = op->next;
	op->order.done = ++c->count;
	kept_settle(c, op, &result);
	/* Its memory is the program's again, which does not know. */
	if (op->abandoned && op->recv && !result.status && kept_add(c, op, &result))
		PyErr_WriteUnraisable((PyObject *)op);
	op->channel = NULL;
	op->result = result;
	if (result.status || op->abandoned || !op->keeps)
		range_put(&op->range);
	Py_DECREF(op);
}

static void all_done(struct channel *c, int status)
{
	const struct kedge_completion result = { .status = status };

	while (c->pending)
		operation_done(c->pending, &result);
}

static bool is_busy(const struct channel *c)
{
	if (c->busy != this_process())
		return false;
	fail_with(-EBUSY, "another call on this channel waits: a channel is one "
		  "thread's at a time");
	return true;
}

static bool is_usable(const struct channel *c)
{
	if (c->ch && c->process == this_process())
		return true;
	if (!c->ch)
		PyErr_SetString(PyExc_ValueError, "the channel is closed");
	else
		fail_with(-ECHILD, "the channel belongs to the parent process: after fork the "
			  "child opens its own");
	return false;
}

static bool begin(struct channel *c)
{
	if (!is_usable(c) || is_busy(c))
		return false;
	c->busy = this_process();
	return true;
}

/* Take all completions; the count, or a negative errno where the channel is at an end. */
static ssize_t take_completions(struct channel *c)
{
	struct kedge_completion out[32];
	ssize_t n, i, cnt = 0;

	/* First: a later message would be received in place of one that is kept. */
	kept_offer(c);
	do {
		Py_BEGIN_ALLOW_THREADS
		n = kedge_channel_poll(c->ch, out, 32);
		Py_END_ALLOW_THREADS
		for (i = 0; i < n; i++)
			operation_done((struct operation *)(uintptr_t)out[i].user, &out[i]);
		cnt += n;
	} while (n == 32 || (n >= 0 && kept_offer(c)));
	if (n >= 0)
		return cnt;
	all_done(c, (int)n);
	return n;
}

/* ---- posting ---- */

static struct operation *operation_new(PyObject *obj)
{
	struct operation *op = PyObject_New(struct operation, &operation_type);

	if (!op)
		return NULL;
	op->channel = NULL;
	op->op = 0;
	op->recv = op->keeps = op->abandoned = op->cancelled = false;
	op->given = NULL;
	memset(&op->order, 0, sizeof(op->order));
	memset(&op->result, 0, sizeof(op->result));
	if (range_get(&op->range, obj)) {
		Py_DECREF(op);
		return NULL;
	}
	return op;
}

/* With the channel begun: 0, or a negative errno. The list has it while it is under way. */
static int post(struct channel *c, struct operation *op, struct kedge_message *m, bool recv)
{
	const struct iovec piece = { (void *)op->range.addr, op->range.len };
	int rc;

	m->size = sizeof(*m);
	m->pieces = &piece;
	m->cnt = op->range.len ? 1 : 0;
	m->user = (uintptr_t)op;
	Py_BEGIN_ALLOW_THREADS
	rc = recv ? kedge_channel_recvmsg(c->ch, m, &op->op)
		  : kedge_channel_sendmsg(c->ch, m, &op->op);
	Py_END_ALLOW_THREADS
	if (rc < 0)
		return rc;
	if (rc == 1) {
		op->result.tag = m->tag;
		op->result.len = op->range.len;
		op->result.way = KEDGE_WAY_EAGER;
		range_put(&op->range);
		op->range.view.obj = NULL;
		return 0;
	}
	Py_INCREF(op);
	op->channel = c;
	op->next = c->pending;
	if (op->next)
		op->next->link = &op->next;
	op->link = &c->pending;
	c->pending = op;
	return 0;
}

static int parse_message(PyObject *args, PyObject *kwargs, bool recv, PyObject **obj,
			 struct kedge_message *m)
{
	static char *send_names[] = { "obj", "tag", "timeout_ms", NULL };
	static char *recv_names[] = { "obj", "tag", "mask", "timeout_ms", NULL };
	PyObject *tag = Py_None;

	m->mask = UINT64_MAX;
	if (!recv)
		return PyArg_ParseTupleAndKeywords(args, kwargs, "O|O&O&:send", send_names, obj,
						   to_u64, &m->tag, to_u32, &m->timeout_ms)
			       ? 0 : -1;
	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO&O&:recv", recv_names, obj, &tag,
					 to_u64, &m->mask, to_u32, &m->timeout_ms))
		return -1;
	if (tag == Py_None)
		m->mask = 0;
	return tag == Py_None || to_u64(tag, &m->tag) ? 0 : -1;
}

/* An operation that was posted; the channel is begun still. NULL: an error is raised. */
static struct operation *start(struct channel *c, PyObject *args, PyObject *kwargs, bool recv)
{
	struct kedge_message m = { 0 };
	struct operation *op;
	PyObject *obj;
	int rc;

	if (parse_message(args, kwargs, recv, &obj, &m))
		return NULL;
	op = operation_new(obj);
	if (!op)
		return NULL;
	if (recv && !op->range.writable) {
		PyErr_SetString(PyExc_BufferError, "a receive into an object that is read-only");
		goto drop;
	}
	if (!begin(c))
		goto drop;
	op->recv = recv;
	op->order = (struct order){ .posted = ++c->count, .tag = m.tag, .mask = m.mask };
	if (recv && kept_take(c, op))
		return op;
	rc = post(c, op, &m, recv);
	if (!rc)
		return op;
	c->busy = 0;
	fail(rc);
drop:
	Py_DECREF(op);
	return NULL;
}

static PyObject *result_of(struct operation *op)
{
	range_put(&op->range); /* of a task's receive */
	if (op->result.status)
		return fail(op->result.status);
	return PyObject_CallFunction(message_type, "KKs", op->result.tag, op->result.len,
				     kedge_way_name(op->result.way));
}

/* With the channel begun, until @op is done. -1: a signal's handler has raised. */
static int wait_for(struct channel *c, struct operation *op)
{
	for (;;) {
		take_completions(c);
		if (!op->channel)
			return 0;
		if (PyErr_CheckSignals())
			return -1;
		Py_BEGIN_ALLOW_THREADS
		kedge_channel_wait(c->ch, SLICE_MS);
		Py_END_ALLOW_THREADS
	}
}

/*
 * The exception gets the operation, as the message may have come all the same; until
 * the peer agrees that it is cancelled it holds its memory.
 */
static void give_up(struct channel *c, struct operation *op)
{
	PyObject *type, *value, *trace;

	PyErr_Fetch(&type, &value, &trace);
	PyErr_NormalizeException(&type, &value, &trace);
	kedge_channel_cancel(c->ch, op->op);
	take_completions(c);
	if (PyObject_SetAttrString(value, "operation", (PyObject *)op))
		PyErr_Clear();
	PyErr_Restore(type, value, trace);
}

static PyObject *transfer(struct channel *c, PyObject *args, PyObject *kwargs, bool recv)
{
	struct operation *op = start(c, args, kwargs, recv);
	PyObject *result = NULL;

	if (!op)
		return NULL;
	if (!wait_for(c, op))
		result = result_of(op);
	else
		give_up(c, op);
	c->busy = 0;
	Py_DECREF(op);
	return result;
}

static PyObject *channel_send(struct channel *c, PyObject *args, PyObject *kwargs)
{
	return transfer(c, args, kwargs, false);
}

static PyObject *channel_recv(struct channel *c, PyObject *args, PyObject *kwargs)
{
	return transfer(c, args, kwargs, true);
}

static PyObject *channel_isend(struct channel *c, PyObject *args, PyObject *kwargs)
{
	struct operation *op = start(c, args, kwargs, false);

	if (op)
		c->busy = 0;
	return (PyObject *)op;
}

static PyObject *channel_irecv(struct channel *c, PyObject *args, PyObject *kwargs)
{
	struct operation *op = start(c, args, kwargs, true);

	if (!op)
		return NULL;
	c->busy = 0;
	if (!op->channel)
		range_put(&op->range); /* it had a message that was kept */
	return (PyObject *)op;
}

/* _irecv(): as irecv(), for a task. */
static PyObject *channel_task_irecv(struct channel *c, PyObject *args, PyObject *kwargs)
{
	struct operation *op = start(c, args, kwargs, true);

	if (!op)
		return NULL;
	c->busy = 0;
	op->keeps = true;
	return (PyObject *)op;
}

static PyObject *channel_poll(struct channel *c, PyObject *unused)
{
	ssize_t n;

	if (!begin(c))
		return NULL;
	n = take_completions(c);
	c->busy = 0;
	return n < 0 ? fail((int)n) : PyLong_FromSsize_t(n);
}

static PyObject *channel_arm(struct channel *c, PyObject *unused)
{
	int rc;

	if (!begin(c))
		return NULL;
	rc = kedge_channel_arm(c->ch);
	c->busy = 0;
	return rc < 0 ? fail(rc) : PyBool_FromLong(!rc);
}

static PyObject *channel_probe(struct channel *c, PyObject *args)
{
	struct kedge_envelope e = { .size = sizeof(e) };
	uint64_t tag = 0, mask = 0;
	const struct kept *k;
	int rc;

	if (!PyArg_ParseTuple(args, "|O&O&:probe", to_u64, &tag, to_u64, &mask) || !begin(c))
		return NULL;
	k = kept_find(c, tag, mask);
	if (k) {
		c->busy = 0;
		return PyObject_CallFunction(message_type, "KKO", k->tag, k->len, Py_None);
	}
	Py_BEGIN_ALLOW_THREADS
	rc = kedge_channel_probe(c->ch, tag, mask, &e);
	Py_END_ALLOW_THREADS
	c->busy = 0;
	if (rc < 0)
		return fail(rc);
	if (!rc)
		Py_RETURN_NONE;
	return PyObject_CallFunction(message_type, "KKO", e.tag, e.len, Py_None);
}

static PyObject *channel_fileno(struct channel *c, PyObject *unused)
{
	int fd;

	if (!is_usable(c))
		return NULL;
	fd = kedge_channel_fd(c->ch);
	return fd < 0 ? fail(fd) : PyLong_FromLong(fd);
}

static PyObject *channel_info(struct channel *c, PyObject *unused)
{
	struct kedge_channel_info i = { .size = sizeof(i) };
	PyObject *dict;
	int rc;

	if (!begin(c))
		return NULL;
	rc = kedge_channel_info(c->ch, &i);
	dict = rc ? fail(rc)
		  : Py_BuildValue("{s:s,s:I,s:O&,s:I,s:I}", "transport", i.transport, "ways",
				  i.ways, "why", text_of, i.why, "peer_pid", i.peer_pid,
				  "eager_max", i.eager_max);
	c->busy = 0;
	return dict;
}

/* The operation's end is asked for; with the channel begun. */
static int cancel(struct channel *c, struct operation *op)
{
	int rc = kedge_channel_cancel(c->ch, op->op);

	if (!rc)
		op->cancelled = true;
	return rc;
}

/*
 * _abandon(operation): its result will not be asked for. A message that it has, or gets
 * all the same, is kept for the next receive.
 */
static PyObject *channel_abandon(struct channel *c, PyObject *args)
{
	struct operation *op;

	if (!PyArg_ParseTuple(args, "O!:_abandon", &operation_type, &op))
		return NULL;
	if (!op->channel && op->keeps && !op->result.status && !op->abandoned) {
		op->abandoned = true;
		if (kept_add(c, op, &op->result))
			return NULL;
		range_put(&op->range);
	}
	op->abandoned = true;
	if ((op->channel && !op->cancelled) || (c->kept && c->pending)) {
		if (!begin(c))
			return NULL;
		if (op->channel)
			cancel(c, op);
		take_completions(c);
		c->busy = 0;
	}
	if (PyErr_Occurred())
		return NULL;
	Py_RETURN_NONE;
}

/* ---- the types ---- */

PyObject *channel_new(PyTypeObject *cls, struct kedge_channel *ch)
{
	struct channel *c = (struct channel *)cls->tp_alloc(cls, 0);

	if (!c) {
		kedge_channel_close(ch);
		return NULL;
	}
	c->ch = ch;
	c->process = this_process();
	return (PyObject *)c;
}

/* Operations keep their memory until the library is through with it. */
static void end(struct channel *c)
{
	struct kedge_channel *ch = c->ch;

	c->ch = NULL;
	/* In a forked child a call of the parent's may have been in the middle of a change. */
	if (!c->busy) {
		c->busy = this_process();
		Py_BEGIN_ALLOW_THREADS
		kedge_channel_close(ch);
		Py_END_ALLOW_THREADS
	}
	c->busy = 0;
	all_done(c, -ECANCELED);
	kept_free(c);
}

static void channel_dealloc(struct channel *c)
{
	end(c);
	Py_TYPE(c)->tp_free(c);
}

static PyObject *channel_close(struct channel *c, PyObject *unused)
{
	if (is_busy(c))
		return NULL;
	end(c);
	Py_RETURN_NONE;
}

static PyObject *channel_enter(struct channel *c, PyObject *unused)
{
	if (!c->ch) {
		PyErr_SetString(PyExc_ValueError, "the channel is closed");
		return NULL;
	}
	Py_INCREF(c);
	return (PyObject *)c;
}

static PyObject *channel_exit(struct channel *c, PyObject *args)
{
	return end_block((PyObject *)c, args);
}

static PyObject *channel_closed(struct channel *c, void *unused)
{
	return PyBool_FromLong(!c->ch);
}

#define WORDS(name, fn, doc) \
	{ name, (PyCFunction)(void (*)(void))(fn), METH_VARARGS | METH_KEYWORDS, doc }

static PyMethodDef channel_methods[] = {
	WORDS("send", channel_send, "send(obj, tag=0, timeout_ms=0): a Message, once the "
	      "memory is the caller's again."),
	WORDS("recv", channel_recv, "recv(obj, tag=None, mask=all, timeout_ms=0): a Message, "
	      "received into an object's memory. Any tag, or those alike in mask."),
	WORDS("isend", channel_isend, "As send(), but an Operation."),
	WORDS("irecv", channel_irecv, "As recv(), but an Operation."),
	WORDS("_irecv", channel_task_irecv, NULL),
	{ "poll", (PyCFunction)channel_poll, METH_NOARGS,
	  "Make progress; how many operations have completed." },
	{ "arm", (PyCFunction)channel_arm, METH_NOARGS,
	  "True: wait for fileno(). False: poll() first." },
	{ "probe", (PyCFunction)channel_probe, METH_VARARGS,
	  "probe(tag=0, mask=0): the Message that a receive would get, or None." },
	{ "fileno", (PyCFunction)channel_fileno, METH_NOARGS, "A descriptor to wait on." },
	{ "info", (PyCFunction)channel_info, METH_NOARGS, "What it is: a dict." },
	{ "close", (PyCFunction)channel_close, METH_NOARGS,
	  "End it; operations under way fail with ECANCELED." },
	{ "_abandon", (PyCFunction)channel_abandon, METH_VARARGS, NULL },
	{ "_connect", (PyCFunction)channel_connect, METH_VARARGS | METH_CLASS, NULL },
	{ "__enter__", (PyCFunction)channel_enter, METH_NOARGS, NULL },
	{ "__exit__", (PyCFunction)channel_exit, METH_VARARGS, NULL },
	{ NULL },
};

static PyGetSetDef channel_fields[] = {
	{ "closed", (getter)channel_closed, NULL, "True once it is closed.", NULL },
	{ NULL },
};

PyTypeObject channel_type = {
	PyVarObject_HEAD_INIT(NULL, 0)
	.tp_name = "kedge._kedge.Channel",
	.tp_basicsize = sizeof(struct channel),
	.tp_dealloc = (destructor)channel_dealloc,
	.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
	.tp_methods = channel_methods,
	.tp_getset = channel_fields,
};

static void operation_dealloc(struct operation *op)
{
	range_put(&op->range);
	PyObject_Free(op);
}

static PyObject *operation_wait(struct operation *op, PyObject *unused)
{
	struct channel *c = op->channel;
	PyObject *result = NULL;

	if (!c)
		return result_of(op);
	if (!begin(c))
		return NULL;
	Py_INCREF(c);
	if (!wait_for(c, op))
		result = result_of(op);
	c->busy = 0;
	Py_DECREF(c);
	return result;
}

static PyObject *operation_result(struct operation *op, PyObject *unused)
{
	if (!op->channel)
		return result_of(op);
	PyErr_SetString(PyExc_ValueError, "the operation is under way");
	return NULL;
}

static PyObject *operation_cancel(struct operation *op, PyObject *unused)
{
	struct channel *c = op->channel;
	int rc;

	if (!c)
		Py_RETURN_FALSE;
	if (!begin(c))
		return NULL;
	rc = cancel(c, op);
	c->busy = 0;
	return rc && rc != -ENOENT ? fail(rc) : PyBool_FromLong(!rc);
}

static PyObject *operation_is_done(struct operation *op, void *unused)
{
	return PyBool_FromLong(!op->channel);
}

static PyMethodDef operation_methods[] = {
	{ "wait", (PyCFunction)operation_wait, METH_NOARGS,
	  "Its Message, once it is done. A signal's exception leaves it under way." },
	{ "result", (PyCFunction)operation_result, METH_NOARGS, "Its Message, if it is done." },
	{ "cancel", (PyCFunction)operation_cancel, METH_NOARGS,
	  "End it early. It is done when its completion is read; False: it is done." },
	{ NULL },
};

static PyGetSetDef operation_fields[] = {
	{ "done", (getter)operation_is_done, NULL, "True once its completion was read.", NULL },
	{ NULL },
};

PyTypeObject operation_type = {
	PyVarObject_HEAD_INIT(NULL, 0)
	.tp_name = "kedge.Operation",
	.tp_basicsize = sizeof(struct operation),
	.tp_dealloc = (destructor)operation_dealloc,
	.tp_flags = Py_TPFLAGS_DEFAULT,
	.tp_doc = "A send or receive under way. It ends with its channel.",
	.tp_methods = operation_methods,
	.tp_getset = operation_fields,
};
