/* Scans the records of a batch, about fifty times faster than summary.py does in Python, and checks the header of the
 * batches that nearly every producer sends.
 *
 * This code only confirms. It summarizes well-formed records and returns None for anything else; then the Python scans
 * again and raises the error. So only the Python defines what is valid. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#include "_number.h"

/* Release the GIL from this size: a large batch is scanned in a thread of its own. */
#define LARGE_BYTES (1 << 20)
#define NO_TIMESTAMP (-1)

typedef struct {
    int64_t latest;
    int64_t earliest;
    int keyless;
} Summary;

/* Skip a length and its bytes. `least` is -1 if null is allowed. */
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

/* Scan records from the number `*next` up to the number `count`. Return the start of the first record that is incomplete
 * or malformed, and leave its number in `*next`. */
static const uint8_t *
walk_some(const uint8_t *at, const uint8_t *end, int64_t *next, int64_t count, int64_t base_timestamp, Summary *found)
{
    for (; *next < count; ++*next) {
        const uint8_t *first = at;
        int64_t size, skew, delta;
        if (!read_number(&at, end, 32, &size) || size < 1 || size > end - at)
            return first;
        const uint8_t *stop = at + size;
        at++; /* attributes, unused */
        if (!read_number(&at, stop, 64, &skew) || !read_number(&at, stop, 32, &delta) || delta != *next)
            return first;
        if (skew > 0 ? base_timestamp > INT64_MAX - skew : base_timestamp < INT64_MIN - skew)
            return first;
        int64_t timestamp = base_timestamp + skew;
        if (timestamp > found->latest)
            found->latest = timestamp;
        if (timestamp < found->earliest && timestamp != NO_TIMESTAMP)
            found->earliest = timestamp;
        if (!skip_bytes(&at, stop, -1, &size))
            return first;
        found->keyless |= size < 0;
        if (!skip_bytes(&at, stop, -1, &size) || !skip_headers(&at, stop) || at != stop)
            return first;
    }
    return at;
}

static int
walk(const uint8_t *at, const uint8_t *end, int64_t count, int64_t base_timestamp, Summary *found)
{
    int64_t next = 0;
    return walk_some(at, end, &next, count, base_timestamp, found) == end && next >= count;
}

/* Scan records, and release the GIL if there are many bytes. */
static int
walk_all(const uint8_t *first, const uint8_t *end, int64_t count, int64_t base_timestamp, Summary *found)
{
    int is_sound;
    if (end - first < LARGE_BYTES)
        return walk(first, end, count, base_timestamp, found);
    Py_BEGIN_ALLOW_THREADS
    is_sound = walk(first, end, count, base_timestamp, found);
    Py_END_ALLOW_THREADS
    return is_sound;
}

PyDoc_STRVAR(scan_doc,
    "scan(data, start, count, base_timestamp): return the latest and earliest timestamp, and whether a key is missing,\n"
    "or None.");

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
        is_sound = walk_all(first, end, count, base_timestamp, &found);
    }
    PyBuffer_Release(&data);
    if (!is_sound)
        Py_RETURN_NONE;
    return Py_BuildValue("LLN", (long long)found.latest, (long long)found.earliest, PyBool_FromLong(found.keyless));
}

PyDoc_STRVAR(scan_part_doc,
    "scan_part(data, start, first, count, base_timestamp): scan whole, well-formed records from the number `first`;\n"
    "return where they end, the next number, the latest and earliest timestamp, and whether a key is missing.");

static PyObject *
scan_part(PyObject *module, PyObject *const *given, Py_ssize_t given_count)
{
    (void)module;
    if (given_count != 5) {
        PyErr_SetString(PyExc_TypeError, "scan_part takes data, start, first, count and base_timestamp");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(given[1]);
    int64_t next = PyLong_AsLongLong(given[2]);
    int64_t count = PyLong_AsLongLong(given[3]);
    int64_t base_timestamp = PyLong_AsLongLong(given[4]);
    Py_buffer data;
    if (PyErr_Occurred() || PyObject_GetBuffer(given[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    Summary found = {NO_TIMESTAMP, INT64_MAX, 0};
    if (start >= 0 && start <= data.len) {
        const uint8_t *first = (const uint8_t *)data.buf, *end = first + data.len, *stop;
        Py_BEGIN_ALLOW_THREADS
        stop = walk_some(first + start, end, &next, count, base_timestamp, &found);
        Py_END_ALLOW_THREADS
        start = stop - first;
    }
    PyBuffer_Release(&data);
    return Py_BuildValue(
        "nLLLN", start, (long long)next, (long long)found.latest, (long long)found.earliest,
        PyBool_FromLong(found.keyless));
}

PyDoc_STRVAR(skip_pairs_doc,
    "skip_pairs(data, start, stop, count): skip whole, well-formed headers; return where they end and how many remain.");

static PyObject *
skip_pairs(PyObject *module, PyObject *const *given, Py_ssize_t given_count)
{
    (void)module;
    if (given_count != 4) {
        PyErr_SetString(PyExc_TypeError, "skip_pairs takes data, start, stop and count");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(given[1]);
    Py_ssize_t stop = PyLong_AsSsize_t(given[2]);
    int64_t count = PyLong_AsLongLong(given[3]), size;
    Py_buffer data;
    if (PyErr_Occurred() || PyObject_GetBuffer(given[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    if (start >= 0 && start <= stop && stop <= data.len) {
        const uint8_t *first = (const uint8_t *)data.buf, *at = first + start, *end = first + stop;
        while (count > 0 && skip_bytes(&at, end, 0, &size) && skip_bytes(&at, end, -1, &size)) {
            start = at - first;
            count--;
        }
    }
    PyBuffer_Release(&data);
    return Py_BuildValue("nL", start, (long long)count);
}

static inline uint64_t
number_at(const uint8_t *at, int size)
{
    uint64_t value = 0;
    while (size-- > 0)
        value = value << 8 | *at++;
    return value;
}

/* A batch's header, in the order of its fields. */
typedef struct {
    int64_t base_offset;
    int32_t batch_length, leader_epoch;
    int8_t magic;
    uint32_t crc;
    int16_t attributes;
    int32_t last_offset_delta;
    int64_t base_timestamp, max_timestamp, producer_id;
    int16_t producer_epoch;
    int32_t base_sequence, record_count;
} Header;

#define HEADER_BYTES 61
#define LENGTH_PREFIX_BYTES 12
#define COMPRESSION_MASK 0x07
#define LOG_APPEND_TIME_BIT 0x08
#define TRANSACTIONAL_BIT 0x10
#define CONTROL_BIT 0x20

static void
read_header(const uint8_t *at, Header *header)
{
    header->base_offset = (int64_t)number_at(at, 8);
    header->batch_length = (int32_t)number_at(at + 8, 4);
    header->leader_epoch = (int32_t)number_at(at + 12, 4);
    header->magic = (int8_t)at[16];
    header->crc = (uint32_t)number_at(at + 17, 4);
    header->attributes = (int16_t)number_at(at + 21, 2);
    header->last_offset_delta = (int32_t)number_at(at + 23, 4);
    header->base_timestamp = (int64_t)number_at(at + 27, 8);
    header->max_timestamp = (int64_t)number_at(at + 35, 8);
    header->producer_id = (int64_t)number_at(at + 43, 8);
    header->producer_epoch = (int16_t)number_at(at + 51, 2);
    header->base_sequence = (int32_t)number_at(at + 53, 4);
    header->record_count = (int32_t)number_at(at + 57, 4);
}

/* The checks of batch.py and validation.py, for plain batches only. */
static int
may_be_produced(const Header *header, Py_ssize_t size, uint32_t crc, int64_t max_bytes)
{
    if (header->magic != 2 || header->crc != crc || size > max_bytes ||
        (int64_t)header->batch_length + LENGTH_PREFIX_BYTES != (int64_t)size)
        return 0;
    if (header->base_offset != 0 || header->record_count <= 0 ||
        header->record_count - 1 != header->last_offset_delta)
        return 0;
    if (header->attributes & (LOG_APPEND_TIME_BIT | CONTROL_BIT))
        return 0;
    if (header->producer_id >= 0)
        return header->base_sequence >= 0 && header->producer_epoch >= 0;
    return !(header->attributes & TRANSACTIONAL_BIT);
}

PyDoc_STRVAR(inspect_doc,
    "inspect(batch, payload, crc, now_ms, (max_bytes, before_ms, after_ms, needs_keys)): return the header, as a tuple,\n"
    "of a batch that may be appended unchanged, else None. The payload is the decompressed records, or None if the\n"
    "batch is not compressed.");

static PyObject *
inspect(PyObject *module, PyObject *const *given, Py_ssize_t given_count)
{
    (void)module;
    long long max_bytes, before_ms, after_ms, earliest, latest;
    int needs_keys;
    if (given_count != 5 || !PyTuple_Check(given[4])) {
        PyErr_SetString(PyExc_TypeError, "inspect takes batch, payload, crc, now_ms and a tuple of rules");
        return NULL;
    }
    if (!PyArg_ParseTuple(given[4], "LLLp", &max_bytes, &before_ms, &after_ms, &needs_keys))
        return NULL;
    uint32_t crc = (uint32_t)PyLong_AsUnsignedLong(given[2]);
    long long now_ms = PyLong_AsLongLong(given[3]);
    int is_compressed = given[1] != Py_None;
    Py_buffer batch, payload;
    if (PyErr_Occurred() || PyObject_GetBuffer(given[0], &batch, PyBUF_SIMPLE) < 0)
        return NULL;
    if (is_compressed && PyObject_GetBuffer(given[1], &payload, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&batch);
        return NULL;
    }
    if (__builtin_add_overflow(now_ms, after_ms, &latest))
        latest = INT64_MAX;
    if (__builtin_sub_overflow(now_ms, before_ms, &earliest))
        earliest = INT64_MIN;
    int is_sound = 0;
    Header header;
    Summary found = {NO_TIMESTAMP, INT64_MAX, 0};
    if (batch.len >= HEADER_BYTES) {
        const uint8_t *first = (const uint8_t *)batch.buf;
        const uint8_t *records = first + HEADER_BYTES, *end = first + batch.len;
        if (is_compressed) {
            records = (const uint8_t *)payload.buf;
            end = records + payload.len;
        }
        read_header(first, &header);
        is_sound = may_be_produced(&header, batch.len, crc, max_bytes) &&
            !(header.attributes & COMPRESSION_MASK) == !is_compressed &&
            walk_all(records, end, header.record_count, header.base_timestamp, &found) &&
            found.latest == header.max_timestamp && found.latest <= latest && found.earliest >= earliest &&
            !(found.keyless && needs_keys);
    }
    PyBuffer_Release(&batch);
    if (is_compressed)
        PyBuffer_Release(&payload);
    if (!is_sound)
        Py_RETURN_NONE;
    return Py_BuildValue(
        "LiibkhiLLLhii", (long long)header.base_offset, header.batch_length, header.leader_epoch, (char)header.magic,
        (unsigned long)header.crc, header.attributes, header.last_offset_delta, (long long)header.base_timestamp,
        (long long)header.max_timestamp, (long long)header.producer_id, header.producer_epoch, header.base_sequence,
        header.record_count);
}

PyDoc_STRVAR(survey_doc,
    "survey(batches): return the attributes of all batches in a list, or'ed, or None if one is not a single batch of\n"
    "magic 2.");

static PyObject *
survey(PyObject *module, PyObject *batches)
{
    (void)module;
    if (!PyList_Check(batches)) {
        PyErr_SetString(PyExc_TypeError, "survey takes a list of batches");
        return NULL;
    }
    int seen = 0;
    Py_ssize_t count = PyList_Size(batches);
    for (Py_ssize_t number = 0; number < count; number++) {
        PyObject *view = PyList_GetItem(batches, number);
        Py_buffer batch;
        if (view == NULL)
            return NULL;
        if (!PyMemoryView_Check(view))
            Py_RETURN_NONE;
        if (PyObject_GetBuffer(view, &batch, PyBUF_SIMPLE) < 0) /* holds the view from here */
            return NULL;
        Header header;
        int is_one = batch.len >= HEADER_BYTES;
        if (is_one) {
            read_header((const uint8_t *)batch.buf, &header);
            is_one = header.magic == 2 && (int64_t)header.batch_length + LENGTH_PREFIX_BYTES == (int64_t)batch.len;
            seen |= header.attributes;
        }
        PyBuffer_Release(&batch);
        if (!is_one)
            Py_RETURN_NONE;
    }
    return PyLong_FromLong(seen & 0xFFFF);
}

static PyMethodDef methods[] = {
    {"scan", (PyCFunction)(void (*)(void))scan, METH_FASTCALL, scan_doc},
    {"scan_part", (PyCFunction)(void (*)(void))scan_part, METH_FASTCALL, scan_part_doc},
    {"skip_pairs", (PyCFunction)(void (*)(void))skip_pairs, METH_FASTCALL, skip_pairs_doc},
    {"inspect", (PyCFunction)(void (*)(void))inspect, METH_FASTCALL, inspect_doc},
    {"survey", survey, METH_O, survey_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ottla.protocol.wire._scan",
    .m_doc = "The looks at a batch and its records, compiled.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__scan(void)
{
    return PyModuleDef_Init(&definition);
}
