/* Rows of Arrow columns into the records of a batch, and keys to partitions: what rows.py does in Python, without an
 * object for each row. The caller has checked that the columns' ends rise and lie within their bytes. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum {
    KEY_END, KEY_VALID, KEY_DATA, VALUE_END, VALUE_VALID, VALUE_DATA,
    LIST_END, LIST_VALID, NAME_END, NAME_DATA, CONTENT_END, CONTENT_VALID, CONTENT_DATA, PARTS
};

#define SEED 0x9747B28CU
#define FACTOR 0x5BD1E995U

typedef struct {
    const uint8_t *parts[PARTS]; /* NULL: a column that is not there, or a validity without nulls */
} Rows;

static inline int
number_size(int64_t value)
{
    uint64_t raw = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    int size = 1;
    for (; raw >= 0x80; raw >>= 7)
        size++;
    return size;
}

static inline uint8_t *
put_number(uint8_t *at, int64_t value)
{
    uint64_t raw = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    for (; raw >= 0x80; raw >>= 7)
        *at++ = (uint8_t)(raw | 0x80);
    *at++ = (uint8_t)raw;
    return at;
}

static inline int32_t
end_at(const uint8_t *ends, int64_t row)
{
    int32_t end;
    memcpy(&end, ends + row * 4, 4);
    return end;
}

/* Where the bytes of a row begin, and how many; -1 for null. */
static inline int64_t
find_bytes(const uint8_t *ends, const uint8_t *valid, int64_t row, int32_t *start)
{
    if (ends == NULL || (valid != NULL && !(valid[row >> 3] >> (row & 7) & 1)))
        return -1;
    *start = end_at(ends, row);
    return (int64_t)end_at(ends, row + 1) - *start;
}

static inline int64_t
bytes_size(int64_t size)
{
    return number_size(size) + (size > 0 ? size : 0);
}

static inline uint8_t *
put_bytes(uint8_t *at, const uint8_t *data, int32_t start, int64_t size)
{
    at = put_number(at, size);
    if (size > 0) {
        memcpy(at, data + start, (size_t)size);
        at += size;
    }
    return at;
}

static inline void
find_headers(const Rows *rows, int64_t row, int32_t *first, int32_t *stop)
{
    const uint8_t *const *part = rows->parts;
    *first = *stop = 0;
    if (part[LIST_END] == NULL || (part[LIST_VALID] != NULL && !(part[LIST_VALID][row >> 3] >> (row & 7) & 1)))
        return;
    *first = end_at(part[LIST_END], row);
    *stop = end_at(part[LIST_END], row + 1);
}

static uint8_t *
put_record(const Rows *rows, int64_t row, int64_t delta, uint8_t *at, const uint8_t *end)
{
    const uint8_t *const *part = rows->parts;
    int32_t key, value, name, content, first, stop;
    int64_t key_size = find_bytes(part[KEY_END], part[KEY_VALID], row, &key);
    int64_t value_size = find_bytes(part[VALUE_END], part[VALUE_VALID], row, &value);
    find_headers(rows, row, &first, &stop);
    int64_t size = 2 + number_size(delta) + bytes_size(key_size) + bytes_size(value_size) + number_size(stop - first);
    for (int32_t each = first; each < stop; each++) {
        size += bytes_size(find_bytes(part[NAME_END], NULL, each, &name));
        size += bytes_size(find_bytes(part[CONTENT_END], part[CONTENT_VALID], each, &content));
    }
    if (size > INT32_MAX || size + number_size(size) > end - at)
        return NULL;
    at = put_number(at, size);
    *at++ = 0; /* attributes */
    *at++ = 0; /* the batch's own timestamp */
    at = put_number(at, delta);
    at = put_bytes(at, part[KEY_DATA], key, key_size);
    at = put_bytes(at, part[VALUE_DATA], value, value_size);
    at = put_number(at, stop - first);
    for (int32_t each = first; each < stop; each++) {
        int64_t found = find_bytes(part[NAME_END], NULL, each, &name);
        at = put_bytes(at, part[NAME_DATA], name, found);
        found = find_bytes(part[CONTENT_END], part[CONTENT_VALID], each, &content);
        at = put_bytes(at, part[CONTENT_DATA], content, found);
    }
    return at;
}

static int
take_parts(PyObject *given, Py_buffer *views, Rows *rows, Py_ssize_t *taken)
{
    if (!PyTuple_Check(given) || PyTuple_Size(given) != PARTS) {
        PyErr_Format(PyExc_TypeError, "columns are a tuple of %d buffers", PARTS);
        return 0;
    }
    for (*taken = 0; *taken < PARTS; ++*taken) {
        PyObject *each = PyTuple_GetItem(given, *taken);
        views[*taken].obj = NULL;
        rows->parts[*taken] = NULL;
        if (each == Py_None)
            continue;
        if (PyObject_GetBuffer(each, &views[*taken], PyBUF_SIMPLE) < 0)
            return 0;
        rows->parts[*taken] = views[*taken].buf;
    }
    return 1;
}

static void
release(Py_buffer *views, Py_ssize_t taken)
{
    while (taken-- > 0)
        if (views[taken].obj != NULL)
            PyBuffer_Release(&views[taken]);
}

PyDoc_STRVAR(encode_doc,
    "encode(columns, rows, start, out, position, delta): how many of the rows, from `start` on, became records in `out`\n"
    "behind `position`, and where they end. `delta` is the first one's number in the batch.");

static PyObject *
encode(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *columns, *wanted, *out;
    long long start, position, delta;
    if (!PyArg_ParseTuple(args, "OOLOLL:encode", &columns, &wanted, &start, &out, &position, &delta))
        return NULL;
    Rows rows;
    Py_buffer views[PARTS], index, target;
    Py_ssize_t taken = 0;
    if (PyObject_GetBuffer(wanted, &index, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(out, &target, PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&index);
        return NULL;
    }
    int64_t count = index.len / 4, done = start;
    uint8_t *first = target.buf, *at = first + position;
    if (position < 0 || position > target.len || start < 0)
        PyErr_SetString(PyExc_ValueError, "encode begins outside of its buffers");
    else if (take_parts(columns, views, &rows, &taken)) {
        Py_BEGIN_ALLOW_THREADS
        for (; done < count; done++) {
            uint8_t *next = put_record(&rows, end_at(index.buf, done), delta + done - start, at, first + target.len);
            if (next == NULL)
                break;
            at = next;
        }
        Py_END_ALLOW_THREADS
    }
    release(views, taken);
    PyBuffer_Release(&target);
    PyBuffer_Release(&index);
    if (PyErr_Occurred())
        return NULL;
    return Py_BuildValue("LL", (long long)(done - start), (long long)(at - first));
}

/* Kafka's hash of a key: murmur2 with its seed. */
static uint32_t
hash(const uint8_t *data, int64_t size)
{
    uint32_t hashed = SEED ^ (uint32_t)size, word;
    for (; size >= 4; data += 4, size -= 4) {
        word = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        word *= FACTOR;
        word ^= word >> 24;
        hashed = hashed * FACTOR ^ word * FACTOR;
    }
    if (size > 0) {
        for (word = 0; size > 0; size--)
            word = word << 8 | data[size - 1];
        hashed = (hashed ^ word) * FACTOR;
    }
    hashed = (hashed ^ hashed >> 13) * FACTOR;
    return hashed ^ hashed >> 15;
}

PyDoc_STRVAR(place_doc,
    "place(columns, count, partitions, out): the partition by its key of each row that has a key and in `out` a number\n"
    "below nought.");

static PyObject *
place(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *columns, *out;
    long long count, partitions;
    if (!PyArg_ParseTuple(args, "OLLO:place", &columns, &count, &partitions, &out))
        return NULL;
    Rows rows;
    Py_buffer views[PARTS], target;
    Py_ssize_t taken = 0;
    if (PyObject_GetBuffer(out, &target, PyBUF_WRITABLE) < 0)
        return NULL;
    if (partitions < 1 || count < 0 || count * 4 > target.len)
        PyErr_SetString(PyExc_ValueError, "place needs partitions, and room for every row");
    else if (take_parts(columns, views, &rows, &taken)) {
        for (int64_t row = 0; row < count; row++) {
            int32_t start, chosen = end_at(target.buf, row);
            int64_t size = find_bytes(rows.parts[KEY_END], rows.parts[KEY_VALID], row, &start);
            if (size < 0 || chosen >= 0)
                continue;
            chosen = (int32_t)((hash(rows.parts[KEY_DATA] + start, size) & 0x7FFFFFFFU) % (uint64_t)partitions);
            memcpy((uint8_t *)target.buf + row * 4, &chosen, 4);
        }
    }
    release(views, taken);
    PyBuffer_Release(&target);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"encode", encode, METH_VARARGS, encode_doc},
    {"place", place, METH_VARARGS, place_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ottla.pipeline._rows",
    .m_doc = "Rows of Arrow columns into the records of a batch, compiled.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__rows(void)
{
    return PyModuleDef_Init(&definition);
}
