/* The variable-length numbers of records, read from unchecked bytes. */

#ifndef OTTLA_NUMBER_H
#define OTTLA_NUMBER_H

#include <stdint.h>

/* Read a zigzag number of at most `bits` bits. Return 0 if it is malformed or reaches beyond `end`. */
static inline int
read_number(const uint8_t **at, const uint8_t *end, int bits, int64_t *value)
{
    const uint8_t *next = *at;
    if (next < end && *next < 0x80) {
        *value = (int64_t)(*next >> 1) ^ -(int64_t)(*next & 1);
        *at = next + 1;
        return 1;
    }
    uint64_t raw = 0;
    for (int shift = 0; shift < bits; shift += 7) {
        if (next == end)
            return 0;
        uint64_t byte = *next++;
        uint64_t group = byte & 0x7F;
        if (shift + 7 > bits && group >> (bits - shift))
            return 0;
        raw |= group << shift;
        if (byte < 0x80) {
            *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            *at = next;
            return 1;
        }
    }
    return 0;
}

#endif
