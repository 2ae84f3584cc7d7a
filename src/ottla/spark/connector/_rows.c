/* Encodes rows of Arrow columns as records, and chooses partitions by key, without a Python object per row.
 *
 * The input is not trusted: each row must lie within its column, and its bytes within the column's content. */

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

#define IS_NULL (-1)
#define IS_OUTSIDE (-2)

typedef struct {
    const uint8_t *at; /* NULL: no such column, or a validity without nulls */
    int64_t size;
} Part;

typedef struct {
    Part parts[PARTS];
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

/* Whether a row is valid, by an optional bitmap; IS_OUTSIDE if the row is beyond the bitmap. */
static inline int
find_valid(const Part *valid, int64_t row)
{
    if (valid == NULL || valid->at == NULL)
        return 1;
    if (row >> 3 >= valid->size)
        return IS_OUTSIDE;
    return valid->at[row >> 3] >> (row & 7) & 1;
}

/* Return the number of values in a column, from the size of its ends. */
static inline int64_t
count_of(const Part *ends)
{
    return ends->size >= 8 ? ends->size / 4 - 1 : 0;
}

/* Set where a row begins and ends in its column's content of `limit` bytes; return IS_NULL or IS_OUTSIDE otherwise. */
static inline int64_t
find_range(const Part *ends, const Part *valid, int64_t row, int64_t limit, int32_t *start)
{
    if (ends->at == NULL)
        return IS_NULL;
    if (row < 0 || row >= count_of(ends))
        return IS_OUTSIDE;
    int is_valid = find_valid(valid, row);
    if (is_valid != 1)
        return is_valid == 0 ? IS_NULL : IS_OUTSIDE;
    *start = end_at(ends->at, row);
    int32_t stop = end_at(ends->at, row + 1);
    if (*start < 0 || stop < *start || stop > limit)
        return IS_OUTSIDE;
    return (int64_t)stop - *start;
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

/* Return the encoded size of the headers from `first` on; IS_OUTSIDE if one of them is not within its column. */
static int64_t
headers_size(const Part *part, int32_t first, int64_t count)
{
    int64_t size = 0;
    int32_t start;
    for (int64_t row = first; row < first + count; row++) {
        int64_t name = find_range(&part[NAME_END], NULL, row, part[NAME_DATA].size, &start);
        int64_t content = find_range(&part[CONTENT_END], &part[CONTENT_VALID], row, part[CONTENT_DATA].size, &start);
        if (name < 0 || content == IS_OUTSIDE)
            return IS_OUTSIDE;
        size += bytes_size(name) + bytes_size(content);
    }
    return size;
}

/* Write the record of a row. Return its end, or NULL if there is no room for it or `is_outside` was set. */
static uint8_t *
put_record(const Rows *rows, int64_t row, int64_t delta, uint8_t *at, const uint8_t *end, int *is_outside)
{
    const Part *part = rows->parts;
    int32_t key = 0, value = 0, name = 0, content = 0, first = 0;
    int64_t key_size = find_range(&part[KEY_END], &part[KEY_VALID], row, part[KEY_DATA].size, &key);
    int64_t value_size = find_range(&part[VALUE_END], &part[VALUE_VALID], row, part[VALUE_DATA].size, &value);
    int64_t count = find_range(&part[LIST_END], &part[LIST_VALID], row, count_of(&part[NAME_END]), &first);
    int64_t all_headers = count > 0 ? headers_size(part, first, count) : 0;
    if (key_size == IS_OUTSIDE || value_size == IS_OUTSIDE || count == IS_OUTSIDE || all_headers == IS_OUTSIDE) {
        *is_outside = 1;
        return NULL;
    }
    count = count > 0 ? count : 0;
    int64_t size = 2 + number_size(delta) + bytes_size(key_size) + bytes_size(value_size) + number_size(count) + all_headers;
    if (size > INT32_MAX || size + number_size(size) > end - at)
        return NULL;
    at = put_number(at, size);
    *at++ = 0; /* attributes */
    *at++ = 0; /* timestamp delta */
    at = put_number(at, delta);
    at = put_bytes(at, part[KEY_DATA].at, key, key_size);
    at = put_bytes(at, part[VALUE_DATA].at, value, value_size);
    at = put_number(at, count);
    for (int64_t header = first; header < first + count; header++) {
        int64_t found = find_range(&part[NAME_END], NULL, header, part[NAME_DATA].size, &name);
        at = put_bytes(at, part[NAME_DATA].at, name, found);
        found = find_range(&part[CONTENT_END], &part[CONTENT_VALID], header, part[CONTENT_DATA].size, &content);
        at = put_bytes(at, part[CONTENT_DATA].at, content, found);
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
        rows->parts[*taken] = (Part){NULL, 0};
        if (each == Py_None)
            continue;
        if (PyObject_GetBuffer(each, &views[*taken], PyBUF_SIMPLE) < 0)
            return 0;
        rows->parts[*taken] = (Part){views[*taken].buf, views[*taken].len};
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
    "encode(columns, rows, start, out, position, delta): encode the rows from `start` on into `out` at `position`;\n"
    "return how many fit and where they end. `delta` is the offset delta of the first one.");

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
    uint8_t *first = target.buf, *at = first;
    int is_outside = 0;
    if (position < 0 || position > target.len || start < 0 || delta < 0 || delta > INT32_MAX)
        PyErr_SetString(PyExc_ValueError, "encode begins outside of its buffers");
    else if (take_parts(columns, views, &rows, &taken)) {
        at = first + position;
        Py_BEGIN_ALLOW_THREADS
        for (; done < count; done++) {
            int64_t row = end_at(index.buf, done);
            uint8_t *next = put_record(&rows, row, delta + done - start, at, first + target.len, &is_outside);
            if (next == NULL)
                break;
            at = next;
        }
        Py_END_ALLOW_THREADS
        if (is_outside)
            PyErr_SetString(PyExc_ValueError, "a row lies outside of its column");
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
hash(const uint8_t *bytes, int32_t start, int64_t size)
{
    const uint8_t *data = size > 0 ? bytes + start : bytes;
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
    "place(columns, count, partitions, out): set the partition by key of each row that has a key and a negative\n"
    "number in `out`.");

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
    int is_outside = 0;
    if (partitions < 1 || count < 0 || count > target.len / 4)
        PyErr_SetString(PyExc_ValueError, "place needs partitions, and room for every row");
    else if (take_parts(columns, views, &rows, &taken)) {
        for (int64_t row = 0; row < count; row++) {
            const Part *part = rows.parts;
            int32_t start = 0, chosen = end_at(target.buf, row);
            int64_t size = find_range(&part[KEY_END], &part[KEY_VALID], row, part[KEY_DATA].size, &start);
            is_outside |= size == IS_OUTSIDE;
            if (size < 0 || chosen >= 0)
                continue;
            chosen = (int32_t)((hash(part[KEY_DATA].at, start, size) & 0x7FFFFFFFU) % (uint64_t)partitions);
            memcpy((uint8_t *)target.buf + row * 4, &chosen, 4);
        }
        if (is_outside)
            PyErr_SetString(PyExc_ValueError, "a row lies outside of its column");
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
    .m_name = "ottla.spark.connector._rows",
    .m_doc = "Encode rows of Arrow columns as the records of a batch.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__rows(void)
{
    return PyModuleDef_Init(&definition);
}
