/* What stood where the processed model has nodes of its own: between values that both models have. */
#include "base/bytes.h"
#include "graft/match.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_PARTS = 48 /* nodes of the original in one region; of a larger one only the last is named */ };

typedef struct Walk {
  Match *match;
  Index parts[MOST_PARTS];
  size_t count;
  bool too_many;
} Walk;

/* ---- what a fused node was made of ---- */

static bool has(const Walk *walk, Index node) {
  for (size_t i = 0; i < walk->count; i++) {
    if (walk->parts[i] == node) return true;
  }
  return false;
}

/* From the node back to values that the processed model still has. */
static void collect(Walk *walk, Index first) {
  const Side *side = walk->match->original;
  walk->parts[0] = first;
  walk->count = 1;
  for (size_t at = 0; at < walk->count; at++) {
    const SideNode *node = side_node(side, walk->parts[at]);
    for (uint32_t i = 0; i < node->node->input_count; i++) {
      if (!node->inputs[i]) continue;
      const SideValue *value = side_value(side, node->inputs[i]);
      const SideValue *first_alike = side_value(side, value->same);
      if (value->twin || first_alike->twin || !value->producer || has(walk, value->producer)) continue;
      if (side_node(side, value->producer)->twin) continue;
      walk->too_many = walk->too_many || walk->count == MOST_PARTS;
      if (walk->count < MOST_PARTS) walk->parts[walk->count++] = value->producer;
    }
  }
}

static int by_index(const void *a, const void *b) {
  Index one = *(const Index *)a, two = *(const Index *)b;
  return (one > two) - (one < two);
}

static Descent region_descent(Match *match, Index last) {
  Walk walk = {.match = match};
  collect(&walk, last);
  Descent descent = {.found = FOUND_REGION, .primary = last};
  if (walk.too_many || walk.count < 2) return descent;
  descent.other_count = walk.count - 1;
  Index *others = arena_copy(&match->context->arena, walk.parts + 1, descent.other_count * sizeof *others);
  sort_items(others, descent.other_count, sizeof *others, by_index);
  descent.others = others;
  return descent;
}

/* ---- nodes that give no value of the original's ---- */

static Str entry_of(const Match *match, Index node, const char *key) {
  const MetadataList *list = &side_node(match->original, node)->node->metadata;
  for (size_t i = 0; i < list->count; i++) {
    if (same_text(list->items[i].key, key)) return list->items[i].value;
  }
  return NULL;
}

static bool same_line(const Match *match, Index a, Index b) {
  static const char *const keys[] = {"pkg.jax2onnx.callsite", "pkg.torch.onnx.stack_trace"};
  if (a == b) return true;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    if (entry_of(match, a, keys[i]) != entry_of(match, b, keys[i])) return false;
  }
  return true;
}

static bool is_one_line(const Match *match, const Descent *descent) {
  for (size_t i = 0; i < descent->other_count; i++) {
    if (!same_line(match, descent->primary, descent->others[i])) return false;
  }
  return true;
}

/* The one node of a region that is of the same kind. */
static Index only_of_family(const Match *match, const Descent *descent, Str family) {
  Index found = NONE;
  for (size_t i = 0; i <= descent->other_count; i++) {
    Index part = i ? descent->others[i - 1] : descent->primary;
    if (side_node(match->original, part)->family != family) continue;
    if (found) return NONE;
    found = part;
  }
  return found;
}

/* What the nodes that read the node's values came from, where that is one region or one line. NULL: they disagree, one
 * of them is unknown, or there is none. */
static const Descent *readers_descent(const Match *match, const SideNode *node) {
  const Side *side = match->processed;
  const Descent *common = NULL;
  for (uint32_t i = 0; i < node->node->output_count; i++) {
    if (!node->outputs[i]) continue;
    const SideValue *value = side_value(side, node->outputs[i]);
    for (Index k = 0; k < value->use_count; k++) {
      const Descent *descent = &match->descents[side->uses[value->first_use + k]];
      if (descent->region) descent = descent->region;
      if (!descent->primary) return NULL;
      bool agrees = !common || common == descent ||
                    (common->found == descent->found && same_line(match, common->primary, descent->primary));
      if (!agrees) return NULL;
      if (!common) common = descent;
    }
  }
  return common;
}

/* The region with this part of it in front. */
static Descent with_primary(const Match *match, const Descent *region, Index primary) {
  Descent descent = {.found = FOUND_REGION, .primary = primary, .region = region};
  Index *others = arena_new_array(&match->context->arena, region->other_count, Index);
  for (size_t i = 0; primary && i <= region->other_count; i++) {
    Index part = i ? region->others[i - 1] : region->primary;
    if (part != primary) others[descent.other_count++] = part;
  }
  descent.others = others;
  return descent;
}

/* What prepares the input of a node that is known (another type, order or precision of something that no node made) is
 * that node's; what is on the way to a value of the original's is of what stood there. */
static Descent unnamed_descent(Match *match, const SideNode *node) {
  const Descent *readers = readers_descent(match, node);
  if (!readers) return (Descent){0};
  if (readers->found == FOUND_REGION) {
    Index primary = is_one_line(match, readers) ? readers->primary : only_of_family(match, readers, node->family);
    return with_primary(match, readers, primary);
  }
  bool constant = node->outputs[0] && side_value(match->processed, node->outputs[0])->is_constant;
  if (!is_carrier(node) && !constant) return (Descent){0};
  return (Descent){.found = FOUND_REGION, .primary = readers->primary};
}

static Descent descent_of(Match *match, const SideNode *node) {
  if (node->twin) return (Descent){.found = node->found, .primary = node->twin};
  if (node->in_place || is_constant_node(node) || !node->node->output_count) return (Descent){0};
  const Side *side = match->processed;
  for (uint32_t i = 0; i < node->node->output_count; i++) {
    Index twin = node->outputs[i] ? side_value(side, node->outputs[i])->twin : NONE;
    if (!twin) continue;
    Index maker = side_value(match->original, twin)->producer;
    if (maker && is_carrier(node)) return (Descent){.found = FOUND_REGION, .primary = maker};
    if (maker) return region_descent(match, maker);
  }
  return unnamed_descent(match, node);
}

void match_regions(Match *match) {
  for (Index i = (Index)match->processed->nodes.count; --i;) {
    match->descents[i] = descent_of(match, side_node(match->processed, i));
  }
}
