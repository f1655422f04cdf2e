/* Plugins of the user's: lowered outside the core, by a callback that emits nodes here. */
#include "lower/lower.h"

static void lower_custom(Lowering *l) { l->options->custom.lower(l, l->options->custom.data); }

void register_custom_plugins(Lowering *l) {
  const CustomPlugins *custom = &l->options->custom;
  for (size_t i = 0; i < custom->count; i++) {
    Plugin *row = arena_new(&l->context->arena, Plugin);
    *row = (Plugin)PLUGIN(custom->primitives[i], lower_custom, OP_NONE, CUSTOM);
    *map_slot_pointer(l->context, &l->plugins, custom->primitives[i]) = row;
  }
}

void import_domain(Lowering *l, Str domain, int64_t version) {
  for (size_t i = 0; i < l->model->opsets.count; i++) {
    const OpsetImport *known = &l->model->opsets.items[i];
    if (known->domain != domain) continue;
    if (known->version == version) return;
    fail(l->context, ERROR_VALUE,
         "operators of domain '%s' are used at versions %lld and %lld, but a model can import only one", domain,
         (long long)known->version, (long long)version);
  }
  array_push(l->context, &l->model->opsets, ((OpsetImport){domain, version}));
}

/* The innermost frame is what emitted the node; those around it are calls of the lowering. */
Node *emit_custom(Lowering *l, const PluginFrame *frames, size_t frame_count, Str op, Str domain, const Type *types,
                  size_t type_count, Value *const *inputs, size_t count) {
  require(l->context, frame_count);
  const LowerFrame *calls = l->calls;
  for (size_t i = 0; i + 1 < frame_count; i++) {
    LowerFrame *call = arena_new(&l->context->arena, LowerFrame);
    *call =
        (LowerFrame){.file = frames[i].file, .function = frames[i].function, .line = frames[i].line, .outer = calls};
    calls = call;
  }
  const PluginFrame *last = &frames[frame_count - 1];
  Emitter emitter = {.name = last->function, .file = last->file, .line = last->line};
  l->own_nodes++;
  const Origin *origin = origin_new(l->provenance, l->site, emitter_rendered(l->provenance, emitter), calls);
  return graph_named_node(l->graph, origin, op, domain, inputs, count, types, type_count, NULL);
}
