/* Runs every test, or those whose name contains the argument. */
#include "test.h"

static int failures_of_test;

void check_failed(const char *file, int line, const char *what) {
  failures_of_test++;
  if (failures_of_test <= 5) fprintf(stderr, "%s:%d: %s\n", file, line, what);
}

int main(int argc, char **argv) {
  const Test *const tables[] = {base_tests,   beneath_tests,    bounds_tests,   dimension_tests, program_text_tests,
                                graph_tests,  graph_text_tests, moved_tests,    pass_tests,      read_tests,
                                table_tests,  tool_tests,       function_tests, layout_tests,    verify_tests,
                                target_tests, ledger_tests,     output_tests,   pack_tests};
  int passed = 0, failed = 0;
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
    for (const Test *test = tables[i]; test->name; test++) {
      if (argc > 1 && !strstr(test->name, argv[1])) continue;
      failures_of_test = 0;
      test->run();
      if (failures_of_test) fprintf(stderr, "FAILED %s: %d checks\n", test->name, failures_of_test);
      *(failures_of_test ? &failed : &passed) += 1;
    }
  }
  printf("%d passed, %d failed\n", passed, failed);
  return failed ? 1 : 0;
}
