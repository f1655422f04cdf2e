/* Map: hash table from a pair of words to a pointer, open addressing, memory in the arena. */
#ifndef J2O_BASE_MAP_H
#define J2O_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

typedef struct Context Context;

typedef struct MapEntry {
  uint64_t first, second; /* the key */
  void *value;            /* NULL marks a free slot: NULL is never stored */
} MapEntry;

typedef struct Map {
  MapEntry *entries;
  size_t capacity, count;
} Map;

/* The value slot of a key, inserted as NULL when absent. The caller stores a value before the next call. */
void **map_slot(Context *context, Map *map, uint64_t first, uint64_t second);
void *map_get(const Map *map, uint64_t first, uint64_t second);

uint64_t hash_bytes(const void *data, size_t size);
uint64_t hash_mix(uint64_t a, uint64_t b);

#define map_get_pointer(map, key) map_get((map), (uint64_t)(uintptr_t)(key), 0)
#define map_slot_pointer(context, map, key) map_slot((context), (map), (uint64_t)(uintptr_t)(key), 0)

#endif
