/* Map. */
#include "base/map.h"

#include <string.h>

#include "base/bytes.h"
#include "base/context.h"

uint64_t hash_mix(uint64_t a, uint64_t b) {
  uint64_t hash = (a ^ (b * 0x9E3779B97F4A7C15u)) * 0xD6E8FEB86659FD93u;
  hash ^= hash >> 32;
  hash *= 0xD6E8FEB86659FD93u;
  return hash ^ (hash >> 29);
}

uint64_t hash_bytes(const void *data, size_t size) {
  const unsigned char *bytes = data;
  uint64_t hash = 0x9E3779B97F4A7C15u ^ size;
  for (; size >= 8; size -= 8, bytes += 8) {
    uint64_t word;
    memcpy(&word, bytes, 8);
    hash = hash_mix(hash, word);
  }
  uint64_t tail = 0;
  copy_bytes(&tail, bytes, size);
  return hash_mix(hash, tail);
}

/* The product of two words that an outsider does not know, folded: which of them collide only the secret tells. */
static uint64_t fold(uint64_t a, uint64_t b) {
  unsigned __int128 product = (unsigned __int128)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t turned(uint64_t word) { return word << 32 | word >> 32; }

static uint64_t word_at(const char *text, size_t size) {
  uint64_t word = 0;
  copy_bytes(&word, text, size);
  return word;
}

uint64_t hash_name(uint64_t secret, const char *text, size_t length) {
  uint64_t hash = turned(secret) ^ length;
  size_t left = length;
  for (; left > 16; left -= 16, text += 16) hash = fold(word_at(text, 8) ^ secret, word_at(text + 8, 8) ^ hash);
  uint64_t first, second;
  if (left >= 8) {
    first = word_at(text, 8);
    second = word_at(text + left - 8, 8);
  } else {
    first = left ? word_at(text, left) : 0;
    second = 0;
  }
  return fold(fold(first ^ secret, second ^ hash), secret ^ 0x9E3779B97F4A7C15u);
}

/* Where a key would stand if nothing stood there. */
static size_t home_of(size_t capacity, uint64_t secret, uint64_t first, uint64_t second) {
  return fold(first ^ secret, second ^ turned(secret)) & (capacity - 1);
}

static size_t find(const MapEntry *entries, size_t capacity, uint64_t secret, uint64_t first, uint64_t second) {
  size_t at = home_of(capacity, secret, first, second);
  while (entries[at].value && !(entries[at].first == first && entries[at].second == second)) {
    at = (at + 1) & (capacity - 1);
  }
  return at;
}

void *map_get(const Map *map, uint64_t first, uint64_t second) {
  if (!map->capacity) return NULL;
  return map->entries[find(map->entries, map->capacity, map->secret, first, second)].value;
}

/* Tables that were outgrown or are no longer needed serve the next maps of their size: those of a large graph are as
 * large as all the rest of it. */
static MapEntry **spare_of(Context *context, size_t capacity) {
  size_t size = 0;
  while (capacity >> (size + 1)) size++;
  return &context->spare_tables[size];
}

static MapEntry *take_table(Context *context, size_t capacity) {
  MapEntry **spare = spare_of(context, capacity), *table = *spare;
  if (!table) return arena_new_array(&context->arena, capacity, MapEntry);
  *spare = table->value;
  fill_bytes(table, 0, capacity * sizeof *table);
  return table;
}

void map_release(Context *context, Map *map) {
  if (map->capacity) {
    MapEntry **spare = spare_of(context, map->capacity);
    map->entries->value = *spare;
    *spare = map->entries;
  }
  *map = (Map){0};
}

static void grow(Context *context, Map *map, size_t capacity) {
  Map outgrown = *map;
  MapEntry *entries = take_table(context, capacity);
  map->secret = context->secret;
  for (size_t i = 0; i < map->capacity; i++) {
    const MapEntry *entry = &map->entries[i];
    if (entry->value) entries[find(entries, capacity, map->secret, entry->first, entry->second)] = *entry;
  }
  map->entries = entries;
  map->capacity = capacity;
  map_release(context, &outgrown);
}

/* At most half of the slots are taken. */
void map_reserve(Context *context, Map *map, size_t more) {
  if (!more) return;
  size_t capacity = map->capacity ? map->capacity : 64;
  while (capacity / 2 < map->count + more) capacity *= 2;
  if (capacity > map->capacity) grow(context, map, capacity);
}

void **map_slot(Context *context, Map *map, uint64_t first, uint64_t second) {
  if ((map->count + 1) * 2 > map->capacity) map_reserve(context, map, 1);
  MapEntry *entry = &map->entries[find(map->entries, map->capacity, map->secret, first, second)];
  if (!entry->value) {
    entry->first = first;
    entry->second = second;
    map->count++;
  }
  return &entry->value;
}

/* The entries behind it move up, so that no search ends early at the gap. */
void map_remove(Map *map, uint64_t first, uint64_t second) {
  if (!map->capacity) return;
  size_t mask = map->capacity - 1, gap = find(map->entries, map->capacity, map->secret, first, second);
  if (!map->entries[gap].value) return;
  for (size_t at = (gap + 1) & mask; map->entries[at].value; at = (at + 1) & mask) {
    const MapEntry *entry = &map->entries[at];
    size_t home = home_of(map->capacity, map->secret, entry->first, entry->second);
    if (((at - home) & mask) < ((at - gap) & mask)) continue; /* it may not stand before its place */
    map->entries[gap] = *entry;
    gap = at;
  }
  map->entries[gap] = (MapEntry){0};
  map->count--;
}
