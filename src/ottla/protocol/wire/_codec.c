/* Reads and writes declared messages, three to five times faster than the Python that reader_generator.py and
 * writer_generator.py generate.
 *
 * A plan, made by plans.py, is the shape of one struct in one version. It handles well-formed messages only. Malformed
 * bytes, unwritable messages and tagged fields, which are rare, go to the generated Python, which starts again at the
 * beginning and raises the error. So only the Python defines what is valid and how an error reads. Nothing is trusted:
 * each length must lie within the buffer, and an array's count must fit the rest of the buffer at its element's smallest
 * size. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* The limits of reader_generator.py. */
#define MAX_ELEMENTS (1 << 18)
#define MAX_TEXT_BYTES 0x7FFF
#define PLAIN_NULL (-1)

#define FIRST_OUT_BYTES 1024
/* Bytes objects from this size are passed on instead of copied. */
#define LARGE_BYTES 4096

typedef struct Plan Plan;

/* A value on the wire. Kinds: b h i q H d ? of `struct`, u for a UUID, T text, B bytes, R records, A array, S struct. */
typedef struct Value {
    char kind;
    char nullable;
    char compact;
    Py_ssize_t least;      /* of an array: the smallest size of an element */
    struct Value *element; /* of an array */
    Plan *plan;            /* of a struct */
} Value;

/* The default of a field. Kinds: c a constant, l an empty list, m the result of a call. */
typedef struct {
    char kind;
    PyObject *value;
} Default;

typedef struct {
    PyObject *name;
    Value value;
    Default otherwise;
} Field;

struct Plan {
    PyObject_HEAD
    PyObject *cls;
    int is_flexible;
    Py_ssize_t plain_count, tagged_count, absent_count;
    Field *plain, *tagged, *absent;
    PyObject *slow_read, *slow_write;
};

static PyTypeObject *plan_type;
static PyObject *unknown_tags_name;

/* Return whether to fall back to the generated Python. An exception that is not about the message, such as a lack of
 * memory or an interrupt, goes to the caller; the Python raises any other again, with an explanation. */
static int
may_fall_back(void)
{
    if (!PyErr_Occurred())
        return 1;
    if (PyErr_ExceptionMatches(PyExc_MemoryError) || !PyErr_ExceptionMatches(PyExc_Exception))
        return 0;
    PyErr_Clear();
    return 1;
}

/* -- reading -- */

typedef struct {
    PyObject *view;
    const uint8_t *first, *at, *end;
} In;

static PyObject *read_struct(In *in, const Plan *plan);

static inline int
take(In *in, Py_ssize_t size, const uint8_t **bytes)
{
    if (size > in->end - in->at)
        return 0;
    *bytes = in->at;
    in->at += size;
    return 1;
}

static inline uint64_t
big_endian(const uint8_t *at, int size)
{
    uint64_t value = 0;
    for (int i = 0; i < size; i++)
        value = value << 8 | at[i];
    return value;
}

static int
read_uvarint(In *in, int64_t *value)
{
    uint64_t found = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (in->at == in->end)
            return 0;
        uint8_t byte = *in->at++;
        found |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (int64_t)found;
            return found >> 32 == 0;
        }
    }
    return 0;
}

/* Read a length or a count; -1 is null, if null is allowed. */
static int
read_size(In *in, const Value *value, int64_t *size)
{
    const uint8_t *bytes;
    if (value->compact) {
        if (!read_uvarint(in, size))
            return 0;
        *size -= 1;
    } else if (value->kind == 'T') {
        if (!take(in, 2, &bytes))
            return 0;
        *size = (int16_t)big_endian(bytes, 2);
    } else {
        if (!take(in, 4, &bytes))
            return 0;
        *size = (int32_t)big_endian(bytes, 4);
    }
    return *size >= 0 || (*size == -1 && value->nullable);
}

static PyObject *
read_records(In *in, int64_t size)
{
    PyObject *found = NULL;
    Py_ssize_t start = in->at - in->first;
    PyObject *from = PyLong_FromSsize_t(start), *to = PyLong_FromSsize_t(start + (Py_ssize_t)size);
    PyObject *slice = from && to ? PySlice_New(from, to, NULL) : NULL;
    if (slice != NULL)
        found = PyObject_GetItem(in->view, slice);
    Py_XDECREF(slice);
    Py_XDECREF(from);
    Py_XDECREF(to);
    in->at += size;
    return found;
}

static PyObject *read_array(In *in, const Value *value, int64_t count);

static PyObject *
read_sized(In *in, const Value *value)
{
    int64_t size;
    if (!read_size(in, value, &size))
        return NULL;
    if (size < 0)
        Py_RETURN_NONE;
    if (value->kind == 'A')
        return read_array(in, value, size);
    if (size > in->end - in->at || (value->kind == 'T' && size > MAX_TEXT_BYTES))
        return NULL;
    if (value->kind == 'R')
        return read_records(in, size);
    const char *bytes = (const char *)in->at;
    in->at += size;
    if (value->kind == 'T')
        return PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)size, "strict");
    return PyBytes_FromStringAndSize(bytes, (Py_ssize_t)size);
}

static PyObject *
read_fixed(In *in, char kind)
{
    const uint8_t *bytes;
    switch (kind) {
    case 'b':
        return take(in, 1, &bytes) ? PyLong_FromLong((int8_t)bytes[0]) : NULL;
    case '?':
        return take(in, 1, &bytes) ? PyBool_FromLong(bytes[0]) : NULL;
    case 'h':
        return take(in, 2, &bytes) ? PyLong_FromLong((int16_t)big_endian(bytes, 2)) : NULL;
    case 'H':
        return take(in, 2, &bytes) ? PyLong_FromLong((uint16_t)big_endian(bytes, 2)) : NULL;
    case 'i':
        return take(in, 4, &bytes) ? PyLong_FromLong((int32_t)big_endian(bytes, 4)) : NULL;
    case 'q':
        return take(in, 8, &bytes) ? PyLong_FromLongLong((int64_t)big_endian(bytes, 8)) : NULL;
    case 'u':
        return take(in, 16, &bytes) ? PyBytes_FromStringAndSize((const char *)bytes, 16) : NULL;
    case 'd': {
        double number;
        if (!take(in, 8, &bytes))
            return NULL;
        uint64_t bits = big_endian(bytes, 8);
        memcpy(&number, &bits, sizeof number);
        return PyFloat_FromDouble(number);
    }
    default:
        return NULL;
    }
}

static PyObject *
read_value(In *in, const Value *value)
{
    const uint8_t *mark;
    switch (value->kind) {
    case 'T':
    case 'B':
    case 'R':
    case 'A':
        return read_sized(in, value);
    case 'S':
        if (value->nullable) {
            if (!take(in, 1, &mark))
                return NULL;
            if ((int8_t)*mark == PLAIN_NULL)
                Py_RETURN_NONE;
            if (*mark != 1)
                return NULL;
        }
        return read_struct(in, value->plan);
    default:
        return read_fixed(in, value->kind);
    }
}

static PyObject *
read_array(In *in, const Value *value, int64_t count)
{
    if (count > (in->end - in->at) / value->least)
        return NULL;
    if (count > MAX_ELEMENTS && strchr("TBASR", value->element->kind) != NULL)
        return NULL;
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        PyObject *one = read_value(in, value->element);
        if (one == NULL || PyList_SetItem(list, i, one) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *
make_default(const Default *otherwise)
{
    switch (otherwise->kind) {
    case 'l':
        return PyList_New(0);
    case 'm':
        return PyObject_CallNoArgs(otherwise->value);
    default:
        Py_INCREF(otherwise->value);
        return otherwise->value;
    }
}

static int
set_new(PyObject *made, PyObject *name, PyObject *value)
{
    if (value == NULL)
        return 0;
    int failed = PyObject_SetAttr(made, name, value);
    Py_DECREF(value);
    return failed == 0;
}

static int
set_defaults(PyObject *made, const Field *fields, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++)
        if (!set_new(made, fields[i].name, make_default(&fields[i].otherwise)))
            return 0;
    return 1;
}

static int
fill(In *in, const Plan *plan, PyObject *made)
{
    const uint8_t *tags;
    if (!set_defaults(made, plan->absent, plan->absent_count))
        return 0;
    for (Py_ssize_t i = 0; i < plan->plain_count; i++)
        if (!set_new(made, plan->plain[i].name, read_value(in, &plan->plain[i].value)))
            return 0;
    if (plan->is_flexible) {
        if (!take(in, 1, &tags) || *tags != 0)
            return 0;
        if (!set_defaults(made, plan->tagged, plan->tagged_count))
            return 0;
    }
    return PyObject_SetAttr(made, unknown_tags_name, Py_None) == 0;
}

static PyObject *
read_struct(In *in, const Plan *plan)
{
    PyObject *made = PyType_GenericAlloc((PyTypeObject *)plan->cls, 0);
    if (made != NULL && !fill(in, plan, made))
        Py_CLEAR(made);
    return made;
}

PyDoc_STRVAR(read_doc, "read(view, position): read the message at a position; return it and the position after it.");

static PyObject *
plan_read(PyObject *self, PyObject *const *given, Py_ssize_t given_count)
{
    Plan *plan = (Plan *)self;
    if (given_count != 2) {
        PyErr_SetString(PyExc_TypeError, "read takes a view and a position");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(given[1]);
    Py_buffer data;
    if (PyErr_Occurred() || PyObject_GetBuffer(given[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *message = NULL;
    In in = {given[0], (const uint8_t *)data.buf, NULL, (const uint8_t *)data.buf + data.len};
    if (start >= 0 && start <= data.len) {
        in.at = in.first + start;
        message = read_struct(&in, plan);
    }
    PyBuffer_Release(&data);
    if (message != NULL)
        return Py_BuildValue("Nn", message, (Py_ssize_t)(in.at - in.first));
    if (!may_fall_back())
        return NULL;
    return PyObject_CallFunctionObjArgs(plan->slow_read, given[0], given[1], NULL);
}

/* -- writing -- */

typedef struct {
    PyObject *chunks; /* the list of complete chunks */
    uint8_t *bytes;
    Py_ssize_t size, room;
    uint8_t first[FIRST_OUT_BYTES];
} Out;

static int write_struct(Out *out, const Plan *plan, PyObject *made);

static uint8_t *
reserve(Out *out, Py_ssize_t size)
{
    if (size > out->room - out->size) {
        if (size > PY_SSIZE_T_MAX - 2 * out->room) {
            PyErr_NoMemory();
            return NULL;
        }
        Py_ssize_t room = 2 * out->room + size;
        uint8_t *bytes = PyMem_Malloc((size_t)room);
        if (bytes == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        memcpy(bytes, out->bytes, (size_t)out->size);
        if (out->bytes != out->first)
            PyMem_Free(out->bytes);
        out->bytes = bytes;
        out->room = room;
    }
    uint8_t *at = out->bytes + out->size;
    out->size += size;
    return at;
}

static int
put_number(Out *out, uint64_t value, int size)
{
    uint8_t *at = reserve(out, size);
    if (at == NULL)
        return 0;
    for (int i = size - 1; i >= 0; i--, value >>= 8)
        at[i] = (uint8_t)value;
    return 1;
}

static int
put_uvarint(Out *out, uint64_t value)
{
    uint8_t *at;
    do {
        if ((at = reserve(out, 1)) == NULL)
            return 0;
        *at = (uint8_t)((value & 0x7F) | (value > 0x7F ? 0x80 : 0));
        value >>= 7;
    } while (value != 0);
    return 1;
}

static int
put_bytes(Out *out, const void *bytes, Py_ssize_t size)
{
    uint8_t *at = reserve(out, size);
    if (at == NULL)
        return 0;
    if (size > 0)
        memcpy(at, bytes, (size_t)size);
    return 1;
}

/* Write the size of the value that follows; -1 is null. */
static int
put_size(Out *out, const Value *value, Py_ssize_t size)
{
    if (value->compact)
        return (int64_t)size < (int64_t)UINT32_MAX && put_uvarint(out, (uint64_t)(size + 1));
    if (value->kind == 'T')
        return size <= INT16_MAX && put_number(out, (uint64_t)size, 2);
    return size <= INT32_MAX && put_number(out, (uint64_t)size, 4);
}

/* Emit the buffered bytes as a chunk. */
static int
end_chunk(Out *out)
{
    if (out->size == 0)
        return 1;
    PyObject *chunk = PyBytes_FromStringAndSize((const char *)out->bytes, out->size);
    out->size = 0;
    int failed = chunk == NULL || PyList_Append(out->chunks, chunk) < 0;
    Py_XDECREF(chunk);
    return !failed;
}

static int
write_fixed(Out *out, char kind, PyObject *value)
{
    if (kind == 'u')
        return PyBytes_Check(value) && PyBytes_Size(value) == 16 && put_bytes(out, PyBytes_AsString(value), 16);
    if (kind == '?') {
        int is_true = PyObject_IsTrue(value);
        return is_true >= 0 && put_number(out, (uint64_t)is_true, 1);
    }
    if (kind == 'd') {
        double number = PyFloat_AsDouble(value);
        uint64_t bits;
        memcpy(&bits, &number, sizeof bits);
        return !(number == -1.0 && PyErr_Occurred()) && put_number(out, bits, 8);
    }
    if (!PyLong_Check(value))
        return 0;
    long long number = PyLong_AsLongLong(value);
    if (number == -1 && PyErr_Occurred())
        return 0;
    switch (kind) {
    case 'b':
        return number >= INT8_MIN && number <= INT8_MAX && put_number(out, (uint64_t)number, 1);
    case 'h':
        return number >= INT16_MIN && number <= INT16_MAX && put_number(out, (uint64_t)number, 2);
    case 'H':
        return number >= 0 && number <= UINT16_MAX && put_number(out, (uint64_t)number, 2);
    case 'i':
        return number >= INT32_MIN && number <= INT32_MAX && put_number(out, (uint64_t)number, 4);
    case 'q':
        return put_number(out, (uint64_t)number, 8);
    default:
        return 0;
    }
}

static int
write_text(Out *out, const Value *value, PyObject *text)
{
    Py_ssize_t size;
    if (!PyUnicode_Check(text))
        return 0;
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &size);
    return bytes != NULL && put_size(out, value, size) && put_bytes(out, bytes, size);
}

/* Records and large bytes objects are passed on without a copy. */
static int
write_bytes(Out *out, const Value *value, PyObject *data)
{
    Py_ssize_t size = PyObject_Size(data);
    if (size < 0 || !put_size(out, value, size))
        return 0;
    if (size == 0)
        return 1;
    if (value->kind == 'B' && size < LARGE_BYTES && PyBytes_Check(data))
        return put_bytes(out, PyBytes_AsString(data), size);
    return end_chunk(out) && PyList_Append(out->chunks, data) == 0;
}

static int write_value(Out *out, const Value *value, PyObject *given);

static int
write_array(Out *out, const Value *value, PyObject *items)
{
    int is_list = PyList_Check(items);
    if (!is_list && !PyTuple_Check(items))
        return 0;
    Py_ssize_t count = PyObject_Size(items);
    if (!put_size(out, value, count))
        return 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *one = is_list ? PyList_GetItem(items, i) : PyTuple_GetItem(items, i);
        /* The list may drop the element meanwhile, because comparing or converting a value may run Python. */
        Py_XINCREF(one);
        int is_written = one != NULL && write_value(out, value->element, one);
        Py_XDECREF(one);
        if (!is_written)
            return 0;
    }
    return 1;
}

static int
write_value(Out *out, const Value *value, PyObject *given)
{
    int is_null = given == Py_None;
    if (is_null && !value->nullable)
        return 0;
    switch (value->kind) {
    case 'T':
        return is_null ? put_size(out, value, -1) : write_text(out, value, given);
    case 'B':
    case 'R':
        return is_null ? put_size(out, value, -1) : write_bytes(out, value, given);
    case 'A':
        return is_null ? put_size(out, value, -1) : write_array(out, value, given);
    case 'S':
        if (value->nullable && !put_number(out, (uint64_t)(is_null ? PLAIN_NULL : 1), 1))
            return 0;
        return is_null || write_struct(out, value->plan, given);
    default:
        return write_fixed(out, value->kind, given);
    }
}

static int
is_default(const Field *field, PyObject *given)
{
    if (field->otherwise.kind == 'l')
        return PyList_Check(given) && PyList_Size(given) == 0;
    if (given == field->otherwise.value)
        return 1;
    PyObject *otherwise = make_default(&field->otherwise);
    int is_equal = otherwise != NULL && PyObject_RichCompareBool(given, otherwise, Py_EQ) == 1;
    Py_XDECREF(otherwise);
    return is_equal;
}

static int
write_struct(Out *out, const Plan *plan, PyObject *made)
{
    if ((PyObject *)Py_TYPE(made) != plan->cls)
        return 0;
    for (Py_ssize_t i = 0; i < plan->plain_count; i++) {
        PyObject *given = PyObject_GetAttr(made, plan->plain[i].name);
        int is_written = given != NULL && write_value(out, &plan->plain[i].value, given);
        Py_XDECREF(given);
        if (!is_written)
            return 0;
    }
    if (!plan->is_flexible)
        return 1;
    for (Py_ssize_t i = 0; i <= plan->tagged_count; i++) {
        int is_last = i == plan->tagged_count;
        PyObject *given = PyObject_GetAttr(made, is_last ? unknown_tags_name : plan->tagged[i].name);
        int is_absent = given != NULL && (is_last ? given == Py_None : is_default(&plan->tagged[i], given));
        Py_XDECREF(given);
        if (!is_absent)
            return 0;
    }
    return put_number(out, 0, 1);
}

PyDoc_STRVAR(write_doc, "write(message, add): call `add` with the chunks of a message, in order.");

static PyObject *
plan_write(PyObject *self, PyObject *const *given, Py_ssize_t given_count)
{
    Plan *plan = (Plan *)self;
    if (given_count != 2) {
        PyErr_SetString(PyExc_TypeError, "write takes a message and a function");
        return NULL;
    }
    Out out = {.chunks = PyList_New(0), .bytes = out.first, .room = FIRST_OUT_BYTES};
    if (out.chunks == NULL)
        return NULL;
    int is_written = write_struct(&out, plan, given[0]) && end_chunk(&out);
    if (out.bytes != out.first)
        PyMem_Free(out.bytes);
    if (!is_written) {
        Py_DECREF(out.chunks);
        if (!may_fall_back())
            return NULL;
        return PyObject_CallFunctionObjArgs(plan->slow_write, given[0], given[1], NULL);
    }
    Py_ssize_t count = PyList_Size(out.chunks);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *done = PyObject_CallFunctionObjArgs(given[1], PyList_GetItem(out.chunks, i), NULL);
        if (done == NULL) {
            Py_DECREF(out.chunks);
            return NULL;
        }
        Py_DECREF(done);
    }
    Py_DECREF(out.chunks);
    Py_RETURN_NONE;
}

/* -- plans -- */

static void
clear_value(Value *value)
{
    if (value->element != NULL) {
        clear_value(value->element);
        PyMem_Free(value->element);
        value->element = NULL;
    }
    Py_CLEAR(value->plan);
}

static void
clear_fields(Field **fields, Py_ssize_t *count)
{
    Field *gone = *fields;
    Py_ssize_t many = *count;
    *fields = NULL;
    *count = 0;
    for (Py_ssize_t i = 0; i < many; i++) {
        Py_CLEAR(gone[i].name);
        Py_CLEAR(gone[i].otherwise.value);
        clear_value(&gone[i].value);
    }
    PyMem_Free(gone);
}

/* Parse (kind, nullable, compact, least, of). `of` is the element of an array or the plan of a struct, else None. */
static int
parse_value(PyObject *given, Value *value)
{
    int kind, nullable, compact;
    PyObject *of;
    if (!PyArg_ParseTuple(given, "CppnO", &kind, &nullable, &compact, &value->least, &of))
        return 0;
    value->kind = (char)kind;
    value->nullable = (char)nullable;
    value->compact = (char)compact;
    if (kind == 'S') {
        if (!PyObject_TypeCheck(of, plan_type)) {
            PyErr_SetString(PyExc_TypeError, "a struct has a plan");
            return 0;
        }
        Py_INCREF(of);
        value->plan = (Plan *)of;
    } else if (kind == 'A') {
        if (value->least < 1) {
            PyErr_SetString(PyExc_ValueError, "an array of empty elements would have no bound");
            return 0;
        }
        value->element = PyMem_Calloc(1, sizeof(Value));
        if (value->element == NULL) {
            PyErr_NoMemory();
            return 0;
        }
        return parse_value(of, value->element);
    }
    return 1;
}

/* Parse tuples of (name, value or None, kind of the default, default). */
static int
parse_fields(PyObject *given, Field **fields, Py_ssize_t *count)
{
    Py_ssize_t many = PyTuple_Size(given);
    if (many < 0)
        return 0;
    *fields = PyMem_Calloc((size_t)many + 1, sizeof(Field));
    if (*fields == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    *count = many;
    for (Py_ssize_t i = 0; i < many; i++) {
        Field *field = *fields + i;
        PyObject *name, *value, *otherwise;
        int kind;
        if (!PyArg_ParseTuple(PyTuple_GetItem(given, i), "UOCO", &name, &value, &kind, &otherwise))
            return 0;
        Py_INCREF(name);
        PyUnicode_InternInPlace(&name);
        field->name = name;
        Py_INCREF(otherwise);
        field->otherwise.kind = (char)kind;
        field->otherwise.value = otherwise;
        if (value != Py_None && !parse_value(value, &field->value))
            return 0;
    }
    return 1;
}

static PyObject *
plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    PyObject *cls, *plain, *tagged, *absent, *slow_read, *slow_write;
    int is_flexible;
    if (!PyArg_ParseTuple(args, "O!pO!O!O!OO", &PyType_Type, &cls, &is_flexible, &PyTuple_Type, &plain, &PyTuple_Type,
                          &tagged, &PyTuple_Type, &absent, &slow_read, &slow_write))
        return NULL;
    Plan *plan = (Plan *)PyType_GenericAlloc(type, 0);
    if (plan == NULL)
        return NULL;
    Py_INCREF(cls);
    Py_INCREF(slow_read);
    Py_INCREF(slow_write);
    plan->cls = cls;
    plan->slow_read = slow_read;
    plan->slow_write = slow_write;
    plan->is_flexible = is_flexible;
    if (!parse_fields(plain, &plan->plain, &plan->plain_count) ||
        !parse_fields(tagged, &plan->tagged, &plan->tagged_count) ||
        !parse_fields(absent, &plan->absent, &plan->absent_count)) {
        Py_DECREF(plan);
        return NULL;
    }
    return (PyObject *)plan;
}

static void
plan_dealloc(PyObject *self)
{
    Plan *plan = (Plan *)self;
    PyTypeObject *type = Py_TYPE(self);
    clear_fields(&plan->plain, &plan->plain_count);
    clear_fields(&plan->tagged, &plan->tagged_count);
    clear_fields(&plan->absent, &plan->absent_count);
    Py_CLEAR(plan->cls);
    Py_CLEAR(plan->slow_read);
    Py_CLEAR(plan->slow_write);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef plan_methods[] = {
    {"read", (PyCFunction)(void (*)(void))plan_read, METH_FASTCALL, read_doc},
    {"write", (PyCFunction)(void (*)(void))plan_write, METH_FASTCALL, write_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot plan_slots[] = {
    {Py_tp_doc, "The shape of one struct in one version: class, flexible, plain, tagged and absent fields, slow forms."},
    {Py_tp_new, plan_new},
    {Py_tp_dealloc, plan_dealloc},
    {Py_tp_methods, plan_methods},
    {0, NULL},
};

static PyType_Spec plan_spec = {
    .name = "ottla.protocol.wire._codec.Plan",
    .basicsize = sizeof(Plan),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = plan_slots,
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ottla.protocol.wire._codec",
    .m_doc = "Reading and writing declared messages, compiled.",
    .m_size = -1,
};

PyMODINIT_FUNC
PyInit__codec(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    unknown_tags_name = PyUnicode_InternFromString("unknown_tags");
    plan_type = (PyTypeObject *)PyType_FromSpec(&plan_spec);
    if (unknown_tags_name == NULL || plan_type == NULL || PyModule_AddObjectRef(module, "Plan", (PyObject *)plan_type) < 0)
        Py_CLEAR(module);
    return module;
}
