/* Keeping the ledger, and its text. */
#include "provenance/ledger.h"

void ledger_open(Provenance *provenance) { provenance->ledger = arena_new(&provenance->context->arena, Ledger); }

static Site *plain_of(Provenance *provenance, const Site *site) {
  return (Site *)(uintptr_t)site_plain(provenance, site);
}

void ledger_traced(Provenance *provenance, const Site *site) {
  Site *plain = plain_of(provenance, site);
  if (plain->is_traced) return;
  plain->is_traced = true;
  array_push(provenance->context, &provenance->ledger->traced, plain);
}

void ledger_book(Provenance *provenance, const Site *site) { plain_of(provenance, site)->is_booked = true; }
bool ledger_is_booked(Provenance *provenance, const Site *site) { return plain_of(provenance, site)->is_booked; }

void ledger_passed(Provenance *provenance, const Site *site) {
  array_push(provenance->context, &provenance->ledger->passed, plain_of(provenance, site));
}

void ledger_part_of(Provenance *provenance, const Site *site, const Site *whole) {
  void **slot = map_slot_pointer(provenance->context, &provenance->ledger->wholes, plain_of(provenance, site));
  *slot = plain_of(provenance, whole);
}

void ledger_removed(Provenance *provenance, const Site *site, const char *pass, const char *reason) {
  Ledger *ledger = provenance->ledger;
  if (!ledger) return;
  const Site *plain = site_plain(provenance, site);
  void **slot = map_slot_pointer(provenance->context, &ledger->removed_sites, plain);
  Removed removed = {plain, pass, reason};
  if (*slot) {
    ledger->removed.items[(size_t)(uintptr_t)*slot - 1] = removed;
    return;
  }
  array_push(provenance->context, &ledger->removed, removed);
  *slot = (void *)(uintptr_t)ledger->removed.count;
}

void render_removed(Provenance *provenance, Builder *out, const Removed *removed) {
  builder_format(out, "%s\t%s\t", removed->reason, removed->pass);
  bool first = true;
  for (const Site *site = removed->site; site; site = site->caller) {
    for (const Trace *trace = site->trace; trace; trace = trace->outer) {
      if (trace->frame->kind == FRAME_JAX) continue;
      if (!first) builder_add(out, " < ");
      first = false;
      builder_add(out, frame_traceback_line(provenance, trace->frame));
    }
  }
  const Frame *definition = provenance->definition;
  if (first && definition) builder_add(out, frame_traceback_line(provenance, definition->plain));
}

Str render_ledger(Provenance *provenance) {
  const Ledger *ledger = provenance->ledger;
  if (!ledger || !ledger->removed.count) return NULL;
  Context *context = provenance->context;
  Map lines = {0};
  Builder all, line;
  builder_init(&all, context);
  builder_init(&line, context);
  for (size_t i = 0; i < ledger->removed.count; i++) {
    line.length = 0;
    render_removed(provenance, &line, &ledger->removed.items[i]);
    Str text = str_intern_sized(context, builder_text(&line), line.length);
    void **slot = map_slot_pointer(context, &lines, text);
    if (*slot) continue;
    *slot = context;
    if (all.length) builder_add(&all, "\n");
    builder_add_sized(&all, text, str_length(text));
  }
  return str_intern_sized(context, builder_text(&all), all.length);
}
