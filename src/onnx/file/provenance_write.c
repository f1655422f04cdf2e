/* Entries of nodes, initializers and the model, at each level. Back to front, so each function reads from its last
 * entry up. */
#include "onnx/file/provenance_write.h"

#include "base/bytes.h"
#include "onnx/facts/schema_fields.h"
#include "onnx/file/metadata_keys.h"
#include "onnx/file/packed_entries.h"
#include "provenance/ledger.h"
#include "provenance/pack.h"

void put_entry(Encoder *encoder, int field, const char *key, const char *value) {
  uint64_t mark = encoder->total;
  put_text(encoder, FIELD_ENTRY_VALUE, value);
  put_text(encoder, FIELD_ENTRY_KEY, key);
  put_message(encoder, field, mark);
}

static Str rendered(ProvenanceWriter *writer) {
  return str_intern_sized(writer->context, builder_text(&writer->text), writer->text.length);
}

static void put_optional(Encoder *encoder, int field, const char *key, Str value) {
  if (value) put_entry(encoder, field, key, value);
}

/* What an initializer says about where it came from: what computed it, else the line whose literal it is. */
static const Origin *initializer_origin(const Value *value) { return value->origin ? value->origin : value->literal; }

static void put_origin(ProvenanceWriter *writer, Encoder *encoder, int field, const Origin *origin, Str made_of) {
  Builder *text = &writer->text;
  if (writer->level == METADATA_FULL) {
    Str module = origin_module(origin);
    put_optional(encoder, field, METADATA_FUSED_MODULES, render_fused_modules(writer->provenance, origin));
    put_optional(encoder, field, METADATA_PREFIX "made_of", made_of);
    put_optional(encoder, field, METADATA_PREFIX "span", render_span(writer->provenance, origin));
    put_optional(encoder, field, METADATA_NAMESPACE, module ? module_namespace(writer->context, module) : NULL);
    put_optional(encoder, field, METADATA_PREFIX "module", module);
    render_traceback(writer->provenance, text, origin);
    put_entry(encoder, field, METADATA_PREFIX "jax_traceback", builder_text(text));
    render_stacktrace(writer->provenance, text, origin);
    put_entry(encoder, field, METADATA_PREFIX "stacktrace", builder_text(text));
  }
  render_plugin(text, origin);
  put_entry(encoder, field, METADATA_PREFIX "plugin", builder_text(text));
  render_callsite(writer->provenance, text, origin);
  put_entry(encoder, field, METADATA_PREFIX "callsite", builder_text(text));
}

/* What the origins of one emitter in one place of the lowering share. */
typedef struct EmitterTexts {
  Str plugin, stacktrace;
} EmitterTexts;

static EmitterTexts *emitter_texts(ProvenanceWriter *writer, const Origin *origin) {
  EmitterTexts *texts = arena_new(&writer->context->arena, EmitterTexts);
  render_plugin(&writer->text, origin);
  texts->plugin = rendered(writer);
  render_stacktrace(writer->provenance, &writer->text, origin);
  texts->stacktrace = rendered(writer);
  return texts;
}

/* NULL for an origin that shares with none. */
static const EmitterTexts *shared_texts(ProvenanceWriter *writer, const Origin *origin) {
  if (origin->site_count != 1 || !origin->emitter.frame) return NULL;
  uint64_t frame = (uint64_t)(uintptr_t)origin->emitter.frame, calls = (uint64_t)(uintptr_t)origin->calls;
  EmitterTexts *shared = map_get(&writer->emitters, frame, calls);
  if (!shared) {
    shared = emitter_texts(writer, origin);
    *map_slot(writer->context, &writer->emitters, frame, calls) = shared;
  }
  return shared;
}

/* The entries of an origin, where they were first put. */
typedef struct EncodedOrigin {
  const char *bytes;
  size_t size;
} EncodedOrigin;

/* Nodes of one site whose emitter and calls are the same have the same entries: they are rendered once, and copied. */
static void put_shared_origin(ProvenanceWriter *writer, Encoder *encoder, const Origin *origin) {
  const EmitterTexts *shared = writer->level == METADATA_FULL ? shared_texts(writer, origin) : NULL;
  uint64_t site = (uint64_t)(uintptr_t)origin->sites[0], by = (uint64_t)(uintptr_t)shared;
  const EncodedOrigin *known = shared ? map_get(&writer->encoded, site, by) : NULL;
  if (known) {
    put_verbatim(encoder, known->bytes, known->size);
    return;
  }
  uint64_t mark = encoder->total;
  put_origin(writer, encoder, FIELD_NODE_METADATA_PROPS, origin, NULL);
  const char *bytes = shared ? encoded_since(encoder, mark) : NULL;
  if (!bytes) return;
  EncodedOrigin *encoded = arena_new(&writer->context->arena, EncodedOrigin);
  *encoded = (EncodedOrigin){bytes, (size_t)(encoder->total - mark)};
  *map_slot(writer->context, &writer->encoded, site, by) = encoded;
}

static void put_reference(ProvenanceWriter *writer, Encoder *encoder, int field, const void *number) {
  writer->text.length = 0;
  pack_number(&writer->text, (uintptr_t)number);
  put_entry(encoder, field, METADATA_REFERENCE, builder_text(&writer->text));
}

void put_node_provenance(ProvenanceWriter *writer, Encoder *encoder, const Node *node) {
  if (!node->origin || writer->level == METADATA_OFF) return;
  if (!writer->table) {
    put_shared_origin(writer, encoder, node->origin);
    return;
  }
  render_callsite(writer->provenance, &writer->text, node->origin);
  Str callsite = rendered(writer);
  if (!table_tells(writer->table, callsite, (Bearer){.op_type = node->op_type}, (uint32_t)(uintptr_t)node->scratch)) {
    put_reference(writer, encoder, FIELD_NODE_METADATA_PROPS, node->scratch);
  }
  put_entry(encoder, FIELD_NODE_METADATA_PROPS, METADATA_PREFIX "callsite", callsite);
}

void put_initializer_provenance(ProvenanceWriter *writer, Encoder *encoder, const Value *value) {
  const Origin *origin = initializer_origin(value);
  if (!origin || writer->level == METADATA_OFF) return;
  if (!writer->table) {
    put_origin(writer, encoder, FIELD_TENSOR_METADATA_PROPS, origin, value->tensor->made_of);
  } else if (!table_tells(writer->table, NULL, (Bearer){.initializer = value->name},
                          (uint32_t)(uintptr_t)value->scratch)) {
    put_reference(writer, encoder, FIELD_TENSOR_METADATA_PROPS, value->scratch);
  }
}

/* ---- the compact level ---- */

static OriginTexts texts_but_trace(ProvenanceWriter *writer, const Origin *origin, const EmitterTexts *shared) {
  OriginTexts texts = {.plugin = shared->plugin, .stacktrace = shared->stacktrace};
  render_callsite(writer->provenance, &writer->text, origin);
  texts.callsite = rendered(writer);
  texts.module = origin_module(origin);
  texts.span = render_span(writer->provenance, origin);
  return texts;
}

static uint32_t add_merged_origin(ProvenanceWriter *writer, const Origin *origin, Str made_of, Bearer bearer) {
  OriginTexts texts = texts_but_trace(writer, origin, emitter_texts(writer, origin));
  render_traceback(writer->provenance, &writer->text, origin);
  texts.traceback = rendered(writer);
  texts.made_of = made_of;
  texts.fused_modules = render_fused_modules(writer->provenance, origin);
  return table_add(writer->table, texts, bearer);
}

static uint32_t add_origin(ProvenanceWriter *writer, const Origin *origin, const EmitterTexts *shared, Bearer bearer) {
  writer->lines.count = 0;
  for (const Site *site = origin->sites[0]; site; site = site->caller) {
    for (const Trace *trace = site->trace; trace; trace = trace->outer) {
      Str line = frame_traceback_line(writer->provenance, trace->frame->plain);
      /* A name with a line end in it: only the whole text tells how it will be read. */
      if (find_letter(line, '\n', str_length(line))) return add_merged_origin(writer, origin, NULL, bearer);
      array_push(writer->context, &writer->lines, line);
    }
  }
  OriginTexts texts = texts_but_trace(writer, origin, shared);
  return table_add_trace(writer->table, texts, bearer, writer->lines.items, writer->lines.count);
}

/* Origins of one site whose emitter and calls are the same are one. */
static uint32_t reference_of(ProvenanceWriter *writer, const Origin *origin, Str made_of, Bearer bearer) {
  const EmitterTexts *shared = made_of ? NULL : shared_texts(writer, origin);
  if (!shared) return add_merged_origin(writer, origin, made_of, bearer);
  uint64_t site = (uint64_t)(uintptr_t)origin->sites[0], by = (uint64_t)(uintptr_t)shared;
  uint32_t known = (uint32_t)(uintptr_t)map_get(&writer->references, site, by);
  if (known) return known;
  uint32_t number = add_origin(writer, origin, shared, bearer);
  *map_slot(writer->context, &writer->references, site, by) = (void *)(uintptr_t)number;
  return number;
}

/* In the order in which nodes end in the file, bodies before the node that holds them, and a graph's initializers
 * after its nodes: what j2o compact meets too. */
static void number_origins(ProvenanceWriter *writer, const Graph *graph) {
  FOR_EACH_NODE(node, graph) {
    for (size_t i = 0; i < node->attributes.count; i++) {
      if (node->attributes.items[i].kind == ATTRIBUTE_GRAPH) number_origins(writer, node->attributes.items[i].graph);
    }
    if (!node->origin) continue;
    node->scratch = (void *)(uintptr_t)reference_of(writer, node->origin, NULL, (Bearer){.op_type = node->op_type});
  }
  for (size_t i = 0; i < graph->initializers.count; i++) {
    Value *value = graph->initializers.items[i];
    const Origin *origin = initializer_origin(value);
    if (!origin) continue;
    Bearer bearer = {.initializer = value->name};
    value->scratch = (void *)(uintptr_t)reference_of(writer, origin, value->tensor->made_of, bearer);
  }
}

void provenance_writer_init(ProvenanceWriter *writer, Model *model, MetadataLevel level) {
  *writer =
      (ProvenanceWriter){.context = model->context, .provenance = model->provenance, .model = model, .level = level};
  builder_init(&writer->text, model->context);
  if (level != METADATA_COMPACT) return;
  writer->table = table_writer_new(model->context);
  number_origins(writer, model->graph);
  for (size_t i = 0; i < model->functions.count; i++) number_origins(writer, model->functions.items[i]->body);
}

/* ---- the model's own ---- */

/* "path<TAB>class", a line for each. */
static Str modules_text(ProvenanceWriter *writer) {
  const Provenance *provenance = writer->provenance;
  if (!provenance || !provenance->module_count) return NULL;
  writer->text.length = 0;
  for (size_t i = 0; i < provenance->module_count; i++) {
    const Module *module = provenance->modules[i];
    builder_format(&writer->text, "%s%s\t%s", i ? "\n" : "", module->path, module->class_name);
  }
  return rendered(writer);
}

/* "path<TAB>digest", a line for each. */
static Str sources_text(ProvenanceWriter *writer) {
  const Provenance *provenance = writer->provenance;
  if (!provenance || !provenance->source_count) return NULL;
  writer->text.length = 0;
  for (size_t i = 0; i < provenance->source_count; i++) {
    const SourceFile *source = &provenance->sources[i];
    builder_format(&writer->text, "%s%s\t%s", i ? "\n" : "", written_file(writer->provenance, source->path),
                   source->digest);
  }
  return rendered(writer);
}

static void put_source_texts(ProvenanceWriter *writer, Encoder *encoder) {
  const Provenance *provenance = writer->provenance;
  for (size_t i = provenance ? provenance->source_count : 0; i--;) {
    const SourceFile *source = &provenance->sources[i];
    const char *key =
        arena_format(&writer->context->arena, METADATA_SOURCE "%s", written_file(writer->provenance, source->path));
    put_optional(encoder, FIELD_MODEL_METADATA_PROPS, key, source->text);
  }
}

static void add_model_entry(ProvenanceWriter *writer, MetadataList *list, const char *key, Str value) {
  if (value) array_push(writer->context, list, ((Metadata){str_intern(writer->context, key), value}));
}

static Str table_value(ProvenanceWriter *writer) {
  size_t length;
  const char *text = table_text(writer->table, &length);
  return str_intern_sized(writer->context, text, length);
}

static void put_packed(ProvenanceWriter *writer, Encoder *encoder, const MetadataList *entries) {
  uint64_t mark = encoder->total;
  Str value = packed_entries(writer->context, entries);
  put_bytes(encoder, FIELD_ENTRY_VALUE, value, str_length(value));
  put_text(encoder, FIELD_ENTRY_KEY, METADATA_TABLE);
  put_message(encoder, FIELD_MODEL_METADATA_PROPS, mark);
}

void put_model_provenance(ProvenanceWriter *writer, Encoder *encoder) {
  if (writer->level != METADATA_FULL && writer->level != METADATA_COMPACT) return;
  MetadataList entries = {0};
  add_model_entry(writer, &entries, METADATA_MODULES, modules_text(writer));
  add_model_entry(writer, &entries, METADATA_REMOVED, writer->provenance ? render_ledger(writer->provenance) : NULL);
  add_model_entry(writer, &entries, METADATA_SOURCES, sources_text(writer));
  put_source_texts(writer, encoder);
  if (writer->table && !table_is_empty(writer->table)) {
    add_model_entry(writer, &entries, METADATA_TABLE, table_value(writer));
    put_packed(writer, encoder, &entries);
    return;
  }
  for (size_t i = entries.count; i--;) {
    put_entry(encoder, FIELD_MODEL_METADATA_PROPS, entries.items[i].key, entries.items[i].value);
  }
}
