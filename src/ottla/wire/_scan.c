/* The walk over a batch's records, for those who build it: what summary.py does in Python, some fifty times faster.
 *
 * It only ever confirms. Records that it finds in order are summarized; anything else is answered None, and Python looks
 * again and says what is wrong. So what a record must look like is defined once, there. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#include "_number.h"

/* From here on other threads may run meanwhile: a large batch is looked at in a thread of its own. */
#define LARGE_BYTES (1 << 20)
#define NO_TIMESTAMP (-1)

typedef struct {
    int64_t latest;
    int64_t earliest;
    int keyless;
} Summary;

/* Step over a length and as many bytes; `least` is -1 where null is allowed. */
static inline int
skip_bytes(const uint8_t **at, const uint8_t *end, int64_t least, int64_t *size)
{
    if (!read_number(at, end, 32, size) || *size < least || *size > end - *at)
        return 0;
    if (*size > 0)
        *at += *size;
    return 1;
}

static int
skip_headers(const uint8_t **at, const uint8_t *end)
{
    int64_t count, size;
    if (!read_number(at, end, 32, &count) || count < 0)
        return 0;
    for (; count > 0; count--)
        if (!skip_bytes(at, end, 0, &size) || !skip_bytes(at, end, -1, &size))
            return 0;
    return 1;
}

static int
walk(const uint8_t *at, const uint8_t *end, int64_t count, int64_t base_timestamp, Summary *found)
{
    for (int64_t number = 0; number < count; number++) {
        int64_t size, skew, delta;
        if (!read_number(&at, end, 32, &size) || size < 1 || size > end - at)
            return 0;
        const uint8_t *stop = at + size;
        at++; /* attributes, of which there are none */
        if (!read_number(&at, stop, 64, &skew) || !read_number(&at, stop, 32, &delta) || delta != number)
            return 0;
        if (skew > 0 ? base_timestamp > INT64_MAX - skew : base_timestamp < INT64_MIN - skew)
            return 0;
        int64_t timestamp = base_timestamp + skew;
        if (timestamp > found->latest)
            found->latest = timestamp;
        if (timestamp < found->earliest && timestamp != NO_TIMESTAMP)
            found->earliest = timestamp;
        if (!skip_bytes(&at, stop, -1, &size))
            return 0;
        found->keyless |= size < 0;
        if (!skip_bytes(&at, stop, -1, &size) || !skip_headers(&at, stop) || at != stop)
            return 0;
    }
    return at == end;
}

PyDoc_STRVAR(scan_doc,
    "scan(data, start, count, base_timestamp): latest and earliest timestamp, and whether a key is missing; or None.");

static PyObject *
scan(PyObject *module, PyObject *const *given, Py_ssize_t given_count)
{
    (void)module;
    if (given_count != 4) {
        PyErr_SetString(PyExc_TypeError, "scan takes data, start, count and base_timestamp");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(given[1]);
    int64_t count = PyLong_AsLongLong(given[2]);
    int64_t base_timestamp = PyLong_AsLongLong(given[3]);
    Py_buffer data;
    if (PyErr_Occurred() || PyObject_GetBuffer(given[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    int is_sound = 0;
    Summary found = {NO_TIMESTAMP, INT64_MAX, 0};
    if (start >= 0 && start <= data.len) {
        const uint8_t *first = (const uint8_t *)data.buf + start, *end = (const uint8_t *)data.buf + data.len;
        if (data.len - start >= LARGE_BYTES) {
            Py_BEGIN_ALLOW_THREADS
            is_sound = walk(first, end, count, base_timestamp, &found);
            Py_END_ALLOW_THREADS
        } else {
            is_sound = walk(first, end, count, base_timestamp, &found);
        }
    }
    PyBuffer_Release(&data);
    if (!is_sound)
        Py_RETURN_NONE;
    return Py_BuildValue("LLN", (long long)found.latest, (long long)found.earliest, PyBool_FromLong(found.keyless));
}

static PyMethodDef methods[] = {
    {"scan", (PyCFunction)(void (*)(void))scan, METH_FASTCALL, scan_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ottla.wire._scan",
    .m_doc = "The walk over a batch's records, compiled.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__scan(void)
{
    return PyModuleDef_Init(&definition);
}
