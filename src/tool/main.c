/* The stand-alone program. */
#include <signal.h>

#include "tool/tool.h"

int main(int argc, char **argv) {
  /* A closed pipe comes back as a failed write, so that memory is released and the exit code is ours. */
#ifdef SIGPIPE
  signal(SIGPIPE, SIG_IGN);
#endif
  return j2o_tool_main(argc, argv, stdout, stderr);
}
