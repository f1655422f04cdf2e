/* Map: hash table from a pair of words to a pointer, open addressing, memory in the arena.
 *
 * Names and numbers may come from a file that somebody made so that they all fall on one place of the table. So where a
 * key falls depends on a number that the context drew when it was made; no output does, since nothing ever walks a
 * table.
 */
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
  uint64_t secret; /* the context's, since the first entry */
} Map;

/* The value slot of a key, inserted as NULL when absent. The caller stores a value before the next call: to look up,
 * ask map_get, and to take a key out, map_remove. */
void **map_slot(Context *context, Map *map, uint64_t first, uint64_t second);
void *map_get(const Map *map, uint64_t first, uint64_t second);
/* Does nothing when the key is not there. */
void map_remove(Map *map, uint64_t first, uint64_t second);
/* Makes room for so many more, where that is known beforehand. */
void map_reserve(Context *context, Map *map, size_t more);
/* Empties it and leaves its memory to other maps. */
void map_release(Context *context, Map *map);

/* Of tables: by the context's secret. */
uint64_t hash_name(uint64_t secret, const char *text, size_t length);

/* Of contents: the same in every process. */
uint64_t hash_bytes(const void *data, size_t size);
uint64_t hash_mix(uint64_t a, uint64_t b);

#define map_get_pointer(map, key) map_get((map), (uint64_t)(uintptr_t)(key), 0)
#define map_slot_pointer(context, map, key) map_slot((context), (map), (uint64_t)(uintptr_t)(key), 0)

#endif
