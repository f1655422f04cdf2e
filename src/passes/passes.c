/* The list of passes, and how they are run. */
#include "passes/passes.h"

const Pass all_passes[] = {
    {"hoist_from_loops", "computes before a loop what every step repeats", hoist_from_loops},
    {"remove_dead_code", "removes nodes and initializers that no output needs", remove_dead_code},
    {NULL, NULL, NULL},
};

const char *pass_source_path(const char *file) {
  const char *found = strstr(file, "src/");
  return found ? found : file;
}

static bool is_disabled(const PassOptions *options, const char *name) {
  for (size_t i = 0; i < options->disabled_count; i++) {
    if (strcmp(options->disabled[i], name) == 0) return true;
  }
  return false;
}

void run_passes(Model *model, const PassOptions *options) {
  for (const Pass *pass = all_passes; pass->name; pass++) {
    if (is_disabled(options, pass->name)) continue;
    pass->run(model);
    if (options->after) options->after(model, pass->name, options->data);
  }
}
