/* A test is a function in a table; CHECK counts what is false and goes on. */
#ifndef J2O_TEST_H
#define J2O_TEST_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/context.h"

typedef struct Test {
  const char *name;
  void (*run)(void);
} Test;

/* Called by CHECK; counts for the test that is running. */
void check_failed(const char *file, int line, const char *what);

#define CHECK(condition) ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition))
#define CHECK_TEXT(actual, expected) check_text(__FILE__, __LINE__, (actual), (expected))

static inline void check_text(const char *file, int line, const char *actual, const char *expected) {
  if (strcmp(actual, expected) == 0) return;
  check_failed(file, line, "texts differ");
  fprintf(stderr, "--- expected\n%s\n--- actual\n%s\n---\n", expected, actual);
}

/* Each file of tests ends its table with an empty row. */
extern const Test base_tests[], beneath_tests[], bounds_tests[], dimension_tests[], program_text_tests[], graph_tests[],
    graph_text_tests[], moved_tests[], pass_tests[], read_tests[], table_tests[], tool_tests[], function_tests[],
    layout_tests[], ledger_tests[], output_tests[], pack_tests[], verify_tests[], target_tests[];

#endif
