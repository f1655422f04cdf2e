/* Paths without machines. */
#include "provenance/paths.h"

#include <string.h>

#include "base/platform.h"

static size_t without_slashes(const char *text, size_t length) {
  while (length > 1 && text[length - 1] == '/') length--;
  return length;
}

static Str by_rules(Context *context, const Paths *paths, const char *file) {
  const PathRule *best = NULL;
  size_t best_length = 0;
  for (size_t i = 0; i < paths->rule_count; i++) {
    const PathRule *rule = &paths->rules[i];
    size_t length = without_slashes(rule->from, strlen(rule->from));
    bool fits = strncmp(file, rule->from, length) == 0 && (file[length] == '/' || file[length] == '\0' || length == 1);
    if (!fits || (best && length <= best_length)) continue;
    best = rule;
    best_length = length;
  }
  if (!best) return NULL;
  const char *rest = file + best_length;
  while (*rest == '/') rest++;
  size_t length = strlen(best->to);
  bool joined = !length || !*rest || best->to[length - 1] == '/';
  return str_intern(context, arena_format(&context->arena, "%s%s%s", best->to, joined ? "" : "/", rest));
}

/* Of an installed package or the standard library: the same wherever Python is installed. */
static Str in_library(Context *context, const char *file) {
  static const char *const folders[] = {"/lib/python3", "/site-packages/", "/dist-packages/"};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    const char *found = strstr(file, folders[i]);
    if (found) return str_intern(context, arena_format(&context->arena, "python%s", found));
  }
  return NULL;
}

static bool is_root(Context *context, const char *folder, size_t length) {
  static const char *const marks[] = {"pyproject.toml", ".git"};
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
    if (path_exists(arena_format(&context->arena, "%.*s/%s", (int)length, folder, marks[i]))) return true;
  }
  return false;
}

/* The length of the root above a file; 0: there is none. */
static size_t root_length(Context *context, Paths *paths, const char *file) {
  const char *end = strrchr(file, '/');
  size_t length = (size_t)(end - file);
  Str folder = str_intern_sized(context, file, length);
  void **slot = map_slot_pointer(context, &paths->roots, folder);
  if (*slot) return (uintptr_t)*slot - 1;
  while (length && !is_root(context, folder, length)) {
    while (length && folder[--length] != '/') continue;
  }
  *map_slot_pointer(context, &paths->roots, folder) = (void *)(uintptr_t)(length + 1);
  return length;
}

Str path_written(Context *context, Paths *paths, const char *file) {
  Str name = str_intern(context, file);
  if (*file != '/' || (!paths->rule_count && !paths->relative)) return name;
  Str known = map_get_pointer(&paths->written, name);
  if (known) return known;
  Str written = by_rules(context, paths, file);
  if (!written && paths->relative) written = in_library(context, file);
  size_t root = !written && paths->relative ? root_length(context, paths, file) : 0;
  if (root) written = str_intern(context, file + root + 1);
  if (!written) written = name;
  *map_slot_pointer(context, &paths->written, name) = (void *)(uintptr_t)written;
  return written;
}
