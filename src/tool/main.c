/* The stand-alone program. */
#include <signal.h>

#include "tool/tool.h"

/* The signal that asked to stop. Work ends where it is looked at, with nothing left behind; a second one ends at once.
 */
static volatile sig_atomic_t asked;

static void note_signal(int number) { asked = number; }

static bool was_asked(void *data) {
  (void)data;
  return asked != 0;
}

static void end_in_order(int number) {
  struct sigaction action = {.sa_handler = note_signal, .sa_flags = (int)SA_RESETHAND}, before;
  /* Whoever started this may want it to go on: nohup, a background job of a script. */
  if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(number, &action, NULL);
}

int main(int argc, char **argv) {
  /* A closed pipe comes back as a failed write, so that memory is released and the exit code is ours. */
#ifdef SIGPIPE
  signal(SIGPIPE, SIG_IGN);
#endif
  end_in_order(SIGINT);
  end_in_order(SIGTERM);
  end_in_order(SIGHUP);
  int code = j2o_tool_main(argc, argv, stdout, stderr, &(Interruption){.asked = was_asked});
  if (!asked) return code;
  signal(asked, SIG_DFL); /* and die of it, as a shell expects */
  raise(asked);
  return code;
}
