/* Counting. */
#include "tool/tally.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

Tally *tally_count(Context *context, Tallies *tallies, Str key, uint64_t key_number) {
  void **slot = map_slot(context, &tallies->known, (uint64_t)(uintptr_t)key, key_number);
  if (!*slot) {
    Tally *tally = arena_new(&context->arena, Tally);
    *tally = (Tally){.key = key, .key_number = key_number};
    *slot = tally;
    array_push(context, &tallies->items, tally);
  }
  Tally *tally = *slot;
  tally->count++;
  return tally;
}

static int by_count(const void *a, const void *b) {
  const Tally *first = *(Tally *const *)a, *second = *(Tally *const *)b;
  if (first->count != second->count) return first->count < second->count ? 1 : -1;
  int order = str_compare(first->key, second->key);
  if (order) return order;
  return (first->key_number > second->key_number) - (first->key_number < second->key_number);
}

void tallies_sort(Tallies *tallies) {
  sort_items(tallies->items.items, tallies->items.count, sizeof(Tally *), by_count);
}

Str operator_name(Context *context, const Node *node) {
  if (!*node->domain) return node->op_type;
  Builder name;
  builder_init(&name, context);
  builder_add_sized(&name, node->domain, str_length(node->domain));
  builder_add(&name, ".");
  builder_add_sized(&name, node->op_type, str_length(node->op_type));
  return str_intern_sized(context, name.text, name.length);
}

void report_operators(Report *report, Tallies *operators, size_t most) {
  tallies_sort(operators);
  for (size_t i = 0; i < operators->items.count; i++) {
    const Tally *tally = operators->items.items[i];
    if (i) report_add(report, ", ");
    if (i == most) {
      report_add(report, "…");
      break;
    }
    report_colored(report, COLOR_OPERATOR, tally->key);
    if (tally->count > 1) builder_format(&report->line, " %zu", tally->count);
  }
}

void json_tallies(Report *report, const Tallies *tallies, const char *key, bool with_operators) {
  report_add(report, "[");
  for (size_t i = 0; i < tallies->items.count; i++) {
    const Tally *tally = tallies->items.items[i];
    builder_format(&report->line, i ? ", {\"%s\": " : "{\"%s\": ", key);
    json_name(report, tally->key);
    json_count(report, "nodes", tally->count);
    if (with_operators) {
      json_key(report, "operators");
      json_tallies(report, &tally->operators, "operator", false);
    }
    report_add(report, "}");
  }
  report_add(report, "]");
}
