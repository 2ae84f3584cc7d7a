/* Decodes the records of a batch directly into the buffers of Arrow columns, without a Python object per record.
 *
 * fill() returns None for malformed records and for records that do not fit; columns.py then decodes the batch in Python
 * and raises the error. The caller owns the buffers and has cleared all validity bits. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "_number.h"

enum {
    OFFSET, TIMESTAMP, KEY_END, KEY_VALID, KEY_DATA, VALUE_END, VALUE_VALID, VALUE_DATA,
    LIST_END, LIST_VALID, NAME_END, NAME_DATA, CONTENT_END, CONTENT_VALID, CONTENT_DATA, TARGETS
};

typedef struct {
    uint8_t *at; /* NULL if the column is not wanted */
    int64_t size;
} Target;

typedef struct {
    int64_t count, base_offset, last_delta, base_timestamp, append_time;
    int has_append_time;
    int64_t first, stop; /* the wanted offsets: first <= offset < stop */
} Batch;

typedef struct {
    Target targets[TARGETS];
    int64_t row, header;
} Columns;

/* Read a length and that many bytes; `least` is -1 if null is allowed. */
static inline int
read_bytes(const uint8_t **at, const uint8_t *end, int64_t least, const uint8_t **data, int64_t *size)
{
    if (!read_number(at, end, 32, size) || *size < least || *size > end - *at)
        return 0;
    *data = *at;
    if (*size > 0)
        *at += *size;
    return 1;
}

static inline int
put_number(Target *target, int64_t row, int64_t value)
{
    if (row >= target->size / 8)
        return 0;
    memcpy(target->at + row * 8, &value, 8);
    return 1;
}

static inline int
put_end(Target *target, int64_t row, int64_t end)
{
    int32_t narrow = (int32_t)end;
    if (end > INT32_MAX || row >= target->size / 4 - 1)
        return 0;
    memcpy(target->at + (row + 1) * 4, &narrow, 4);
    return 1;
}

static inline int
put_valid(Target *target, int64_t row)
{
    if (row / 8 >= target->size)
        return 0;
    target->at[row / 8] |= (uint8_t)(1 << (row & 7));
    return 1;
}

/* Append bytes or null to a column: its end offset, its validity (optional) and its bytes. */
static inline int
put_bytes(Target *end, Target *valid, Target *into, int64_t row, const uint8_t *data, int64_t size)
{
    int32_t used;
    if (row >= end->size / 4)
        return 0;
    memcpy(&used, end->at + row * 4, 4);
    if (used < 0 || used > into->size)
        return 0;
    if (size < 0)
        return put_end(end, row, used);
    if (size > into->size - used || !put_end(end, row, used + size))
        return 0;
    if (size)
        memcpy(into->at + used, data, (size_t)size);
    return valid == NULL || put_valid(valid, row);
}

static int
put_headers(Columns *columns, const uint8_t **at, const uint8_t *end, int is_wanted)
{
    Target *to = columns->targets;
    int64_t count, size;
    const uint8_t *data;
    if (!read_number(at, end, 32, &count) || count < 0)
        return 0;
    is_wanted = is_wanted && to[LIST_END].at != NULL;
    if (is_wanted && count > 0 && !put_valid(&to[LIST_VALID], columns->row))
        return 0;
    for (; count > 0; count--) {
        if (!read_bytes(at, end, 0, &data, &size))
            return 0;
        if (is_wanted && !put_bytes(&to[NAME_END], NULL, &to[NAME_DATA], columns->header, data, size))
            return 0;
        if (!read_bytes(at, end, -1, &data, &size))
            return 0;
        if (is_wanted) {
            if (!put_bytes(&to[CONTENT_END], &to[CONTENT_VALID], &to[CONTENT_DATA], columns->header, data, size))
                return 0;
            columns->header++;
        }
    }
    return !is_wanted || put_end(&to[LIST_END], columns->row, columns->header);
}

static int
walk(const uint8_t *at, const uint8_t *end, const Batch *batch, Columns *columns)
{
    Target *to = columns->targets;
    int64_t delta = -1;
    for (int64_t number = 0; number < batch->count; number++) {
        int64_t size, skew, previous = delta, timestamp = batch->append_time;
        const uint8_t *data;
        if (!read_number(&at, end, 32, &size) || size < 1 || size > end - at)
            return 0;
        const uint8_t *stop = at + size;
        at++; /* attributes: records have none */
        if (!read_number(&at, stop, 64, &skew) || !read_number(&at, stop, 32, &delta))
            return 0;
        if (delta <= previous || delta > batch->last_delta)
            return 0;
        if (!batch->has_append_time) {
            int64_t base = batch->base_timestamp;
            if (skew > 0 ? base > INT64_MAX - skew : base < INT64_MIN - skew)
                return 0;
            timestamp = base + skew;
        }
        int64_t offset;
        if (__builtin_add_overflow(batch->base_offset, delta, &offset))
            return 0;
        int is_wanted = offset >= batch->first && offset < batch->stop;
        if (is_wanted && to[OFFSET].at && !put_number(&to[OFFSET], columns->row, offset))
            return 0;
        if (is_wanted && to[TIMESTAMP].at) {
            if (timestamp > INT64_MAX / 1000 || timestamp < INT64_MIN / 1000)
                return 0;
            if (!put_number(&to[TIMESTAMP], columns->row, timestamp * 1000))
                return 0;
        }
        if (!read_bytes(&at, stop, -1, &data, &size))
            return 0;
        if (is_wanted && to[KEY_END].at
            && !put_bytes(&to[KEY_END], &to[KEY_VALID], &to[KEY_DATA], columns->row, data, size))
            return 0;
        if (!read_bytes(&at, stop, -1, &data, &size))
            return 0;
        if (is_wanted && to[VALUE_END].at
            && !put_bytes(&to[VALUE_END], &to[VALUE_VALID], &to[VALUE_DATA], columns->row, data, size))
            return 0;
        if (!put_headers(columns, &at, stop, is_wanted) || at != stop)
            return 0;
        columns->row += is_wanted;
    }
    return at == end;
}

static int
take_targets(PyObject *given, Py_buffer *views, Columns *columns, Py_ssize_t *taken)
{
    if (!PyTuple_Check(given) || PyTuple_Size(given) != TARGETS) {
        PyErr_Format(PyExc_TypeError, "fill takes a tuple of %d buffers", TARGETS);
        return 0;
    }
    for (*taken = 0; *taken < TARGETS; ++*taken) {
        PyObject *each = PyTuple_GetItem(given, *taken);
        views[*taken].obj = NULL;
        columns->targets[*taken] = (Target){NULL, 0};
        if (each == Py_None)
            continue;
        if (PyObject_GetBuffer(each, &views[*taken], PyBUF_WRITABLE) < 0)
            return 0;
        columns->targets[*taken] = (Target){views[*taken].buf, views[*taken].len};
    }
    return 1;
}

PyDoc_STRVAR(fill_doc,
    "fill(payload, count, base_offset, last_delta, base_timestamp, append_time, first, stop, buffers, row, header):\n"
    "fill the buffers; return the next row and header, or None. append_time is None if records have their own timestamps.");

static PyObject *
fill(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *payload, *append_time, *buffers;
    long long count, base_offset, last_delta, base_timestamp, first, stop, row, header;
    if (!PyArg_ParseTuple(args, "OLLLLOLLOLL:fill", &payload, &count, &base_offset, &last_delta, &base_timestamp,
                          &append_time, &first, &stop, &buffers, &row, &header))
        return NULL;
    Batch batch = {count, base_offset, last_delta, base_timestamp, 0, append_time != Py_None, first, stop};
    if (batch.has_append_time) {
        batch.append_time = PyLong_AsLongLong(append_time);
        if (PyErr_Occurred())
            return NULL;
    }
    Columns columns = {.row = row, .header = header};
    Py_buffer data, views[TARGETS];
    Py_ssize_t taken = 0;
    int is_sound = 0;
    if (PyObject_GetBuffer(payload, &data, PyBUF_SIMPLE) < 0)
        return NULL;
    if (take_targets(buffers, views, &columns, &taken) && row >= 0 && header >= 0) {
        const uint8_t *at = data.buf;
        Py_BEGIN_ALLOW_THREADS
        is_sound = walk(at, at + data.len, &batch, &columns);
        Py_END_ALLOW_THREADS
    }
    while (taken-- > 0)
        if (views[taken].obj != NULL)
            PyBuffer_Release(&views[taken]);
    PyBuffer_Release(&data);
    if (PyErr_Occurred())
        return NULL;
    if (!is_sound)
        Py_RETURN_NONE;
    return Py_BuildValue("LL", (long long)columns.row, (long long)columns.header);
}

static PyMethodDef methods[] = {
    {"fill", fill, METH_VARARGS, fill_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ottla.spark.connector._columns",
    .m_doc = "Decode the records of a batch into the buffers of Arrow columns.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__columns(void)
{
    return PyModuleDef_Init(&definition);
}
