/* Origins: what a node carries, and how passes combine them. */
#include <string.h>

#include "base/array.h"
#include "base/bytes.h"
#include "provenance/trace.h"

const char *source_path(const char *file) {
  const char *found = strstr(file, "src/");
  return found ? found : file;
}

const Origin *origin_new(Provenance *provenance, const Site *site, Emitter emitter, const LowerFrame *calls) {
  Arena *arena = &provenance->context->arena;
  struct {
    Origin origin;
    const Site *site;
  } *both = arena_alloc(arena, sizeof *both);
  both->site = site;
  both->origin = (Origin){.sites = &both->site, .site_count = 1, .emitter = emitter, .calls = calls};
  return &both->origin;
}

const Origin *origin_with_emitter(Provenance *provenance, const Origin *origin, Emitter emitter) {
  if (!origin) return NULL;
  Origin *copy = arena_copy(&provenance->context->arena, origin, sizeof *origin);
  copy->emitter = emitter;
  return copy;
}

static bool has_site(const Origin *origin, const Site *site) {
  for (uint32_t i = 0; i < origin->site_count; i++) {
    if (origin->sites[i] == site) return true;
  }
  return false;
}

const Origin *origin_merge(Provenance *provenance, const Origin *a, const Origin *b, Emitter emitter) {
  Arena *arena = &provenance->context->arena;
  uint32_t more = 0;
  for (uint32_t i = 0; i < b->site_count; i++) more += !has_site(a, b->sites[i]);
  Origin *merged = arena_copy(arena, a, sizeof *a);
  merged->emitter = emitter;
  if (!more) return merged;
  const Site **sites = arena_new_array(arena, a->site_count + more, const Site *);
  copy_bytes(sites, a->sites, a->site_count * sizeof *sites);
  uint32_t count = a->site_count;
  for (uint32_t i = 0; i < b->site_count; i++) {
    if (!has_site(a, b->sites[i])) sites[count++] = b->sites[i];
  }
  merged->sites = sites;
  merged->site_count = count;
  return merged;
}

typedef struct SiteSet {
  ARRAY(const Site *) sites; /* in the order they came */
  Map known;                 /* of the same, once there are many */
} SiteSet;

enum { FEW = 16 };

static bool site_set_has(Context *context, SiteSet *set, const Site *site) {
  if (set->sites.count <= FEW) {
    for (size_t i = 0; i < set->sites.count; i++) {
      if (set->sites.items[i] == site) return true;
    }
    return false;
  }
  for (size_t i = set->known.count; i < set->sites.count; i++) {
    *map_slot_pointer(context, &set->known, set->sites.items[i]) = set;
  }
  return map_get_pointer(&set->known, site) != NULL;
}

const Origin *origin_unite(Provenance *provenance, const Origin *origin, const Origin *const *others, size_t count) {
  Context *context = provenance->context;
  SiteSet set = {0};
  for (size_t o = 0; o <= count; o++) {
    const Origin *next = o == 0 ? origin : others[o - 1];
    for (uint32_t i = 0; i < next->site_count; i++) {
      if (!site_set_has(context, &set, next->sites[i])) array_push(context, &set.sites, next->sites[i]);
    }
  }
  if (set.sites.count == origin->site_count) return origin;
  Origin *united = arena_copy(&context->arena, origin, sizeof *origin);
  united->sites = set.sites.items;
  united->site_count = (uint32_t)set.sites.count;
  return united;
}
